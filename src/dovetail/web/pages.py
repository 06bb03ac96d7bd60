"""The pages: a Starlette application that is made of two functions, and keeps nothing.

Its endpoints run in the event loop's thread, where the numbers that they read are written: they
must not wait for anything.
"""

from collections.abc import Callable

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dovetail import __version__
from dovetail.web.metrics import Stats, make_registry

Health = Callable[[], tuple[bool, str]]
"""Is all well, and if not, why."""

_INDEX = f"""Dovetail {__version__}

/healthz  200 when all is well, 503 with the reason when not
/metrics  counters and gauges for Prometheus
"""


def make_application(stats: Stats, health: Health) -> Starlette:
    registry = make_registry(stats)

    async def index(_request: Request) -> Response:
        return PlainTextResponse(_INDEX)

    async def healthz(_request: Request) -> Response:
        healthy, reason = health()
        if healthy:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failing", "reason": reason}, status_code=503)

    async def metrics(request: Request) -> Response:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": media_type})

    application = Starlette(
        routes=[Route("/", index), Route("/healthz", healthz), Route("/metrics", metrics)]
    )
    application.router.redirect_slashes = False  # a redirect would repeat the Host it was told
    return application
