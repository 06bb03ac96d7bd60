"""HTTP of a node: metrics, health, cluster, routes, and requests that change something.

It knows no broker: it reads the functions that it is handed (`Views`, `MatcherViews`). Starlette,
uvicorn and prometheus_client are slow to import, so they are imported when a server is prepared.

    views.py           the functions that pages are made of
    http_server.py     the server in the node's own event loop
    uvicorn_server.py  uvicorn without signals and logs of its own, and with a bound on connections
    pages.py           the pages of a broker
    matcher_pages.py   the pages of a matcher
    metrics.py         counters and gauges for Prometheus
    requests.py        who asks, and what a request holds; for all routes below
    handle_routes.py   messages by handle
    openapi.py         the OpenAPI description of these
    archive_routes.py  the archive while the broker runs
    engine_routes.py   a stream that serves a space
    drain_routes.py    a matcher leaves
    plan_routes.py     matchers move to the places of a plan
"""

from dovetail.web.http_server import HttpServer
from dovetail.web.views import AccessView, ArchiveView, Claim, MatcherViews, Views

__all__ = ["AccessView", "ArchiveView", "Claim", "HttpServer", "MatcherViews", "Views"]
