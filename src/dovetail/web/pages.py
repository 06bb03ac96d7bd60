"""The pages of a broker: a Starlette application that reads `Views` and stores nothing.

Its endpoints run in the thread of the event loop, which also writes the numbers that they read. So
they must not block.
"""

from collections.abc import Awaitable, Callable

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dovetail import __version__
from dovetail.api.reports import ClusterReport
from dovetail.errors import ClientError, ReasonCode
from dovetail.web.archive_routes import archive_routes
from dovetail.web.drain_routes import drain_route
from dovetail.web.engine_routes import engine_routes
from dovetail.web.handle_routes import subscription_routes
from dovetail.web.metrics import make_registry
from dovetail.web.plan_routes import plan_route
from dovetail.web.requests import ERROR_HANDLERS, credentials_of
from dovetail.web.views import Views

_JSON = "application/json"

_INDEX = f"""Dovetail {__version__}

/healthz  200 when all is well, 503 with the reason when not
/metrics  counters and gauges for Prometheus
/cluster  all nodes of the cluster, as JSON
/route    where a publication would go: /route?topic=a/b&attr=lat=40.5, as JSON
/spaces   the spaces of this node, and what clients want of them, as JSON
/drain    POST {{"name": "..."}}: that matcher hands over and leaves
/plan     POST places for the matchers (`dovetail plan --apply`): they move there
/archive  what is archived here; /archive/rows?after=0 has the rows, as an Arrow stream,
          and /archive/subscriptions those that there are now
/engine   for the stream that serves a space: clauses out, deliveries in
/subscriptions  messages by handle, polled and acknowledged
/openapi.json   how these are used
"""


Page = Callable[[Request], Awaitable[Response]]


def health_page(health: Callable[[], tuple[bool, str]]) -> Page:
    async def healthz(_request: Request) -> Response:
        healthy, reason = health()
        if healthy:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failing", "reason": reason}, status_code=503)

    return healthz


def metrics_page(registry: CollectorRegistry) -> Page:
    async def metrics(request: Request) -> Response:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": media_type})

    return metrics


def cluster_page(cluster: Callable[[], Awaitable[ClusterReport]]) -> Page:
    async def page(_request: Request) -> Response:
        return Response(msgspec.json.encode(await cluster()), media_type=_JSON)

    return page


def _attributes(request: Request) -> dict[str, str]:
    """Return the attributes of `attr=NAME=VALUE` parameters; of a repeated name, the last value."""
    found = {}
    for text in request.query_params.getlist("attr"):
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ClientError(
                ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
                f"attr={text}: it takes a name and a value, as in attr=lat=40.7",
            )
        found[name] = value
    return found


def make_application(views: Views) -> Starlette:
    async def index(_request: Request) -> Response:
        return PlainTextResponse(_INDEX)

    async def route(request: Request) -> Response:
        await views.access.inspect(credentials_of(request))
        topic = request.query_params.get("topic", "")
        try:
            report = await views.route(topic, _attributes(request))
        except ClientError as error:
            return JSONResponse({"error": error.message}, status_code=400)
        return Response(msgspec.json.encode(report), media_type=_JSON)

    async def spaces(_request: Request) -> Response:
        return Response(msgspec.json.encode(views.spaces()), media_type=_JSON)

    application = Starlette(
        routes=[
            Route("/", index),
            Route("/healthz", health_page(views.health)),
            Route("/metrics", metrics_page(make_registry(views))),
            Route("/cluster", cluster_page(views.cluster)),
            Route("/route", route),
            Route("/spaces", spaces),
            *subscription_routes(views),
            drain_route(views),
            plan_route(views),
            *archive_routes(views),
            *engine_routes(views),
        ],
        exception_handlers=ERROR_HANDLERS,
    )
    application.router.redirect_slashes = False  # a redirect would repeat an untrusted Host
    return application
