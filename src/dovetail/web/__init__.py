"""The HTTP server of a node: pages that read, and requests that change something.

This package knows no broker: it calls the functions of `Views` or `MatcherViews`. Starlette,
uvicorn and prometheus_client are slow to import, so they are imported when a server is prepared.

    views.py           the functions that the pages call
    http_server.py     the server in the event loop of the node
    uvicorn_server.py  uvicorn without signals and logs of its own, and with bounded connections
    pages.py           the pages of a broker
    matcher_pages.py   the pages of a matcher
    metrics.py         counters and gauges for Prometheus
    requests.py        credentials, bodies, queries, answers and errors of all routes below
    handle_routes.py   messages by handle
    openapi.py         the OpenAPI description of handles
    archive_routes.py  the archive while the broker runs
    engine_routes.py   a stream that serves a space
    drain_routes.py    drain a matcher
    plan_routes.py     move matchers to the places of a plan
"""

from dovetail.web.http_server import HttpServer
from dovetail.web.views import AccessView, ArchiveView, HttpCredentials, MatcherViews, Views

__all__ = ["AccessView", "ArchiveView", "HttpCredentials", "HttpServer", "MatcherViews", "Views"]
