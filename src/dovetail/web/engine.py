"""The engine of a space over HTTP: it asks for clauses, and hands over what they want.

Administrators only: who may do this reads what clients want, and can send them anything. Bodies are
msgpack (dovetail/engines.py), and bounded before they are read.
"""

from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.config import ENGINE_REQUEST_BYTES_MAX
from dovetail.engines import MEDIA_TYPE, Handover, Question
from dovetail.web.requests import claim_of
from dovetail.web.views import Views

T = TypeVar("T")


def engine_routes(views: Views) -> list[Route]:
    engine = views.engine

    async def subscriptions(request: Request) -> Response:
        await views.administer(claim_of(request))
        return _reply(await engine.tell(await _body(request, Question)))

    async def deliveries(request: Request) -> Response:
        await views.administer(claim_of(request))
        return _reply(await engine.take(await _body(request, Handover)))

    return [
        Route("/engine/subscriptions", subscriptions, methods=["POST"]),
        Route("/engine/deliveries", deliveries, methods=["POST"]),
    ]


def _reply(what: msgspec.Struct) -> Response:
    return Response(
        msgspec.msgpack.encode(what), headers={"cache-control": "no-store"}, media_type=MEDIA_TYPE
    )


async def _body(request: Request, kind: type[T]) -> T:
    if request.headers.get("content-type", "") != MEDIA_TYPE:
        raise HTTPException(415, f"the body has to be msgpack, with content-type: {MEDIA_TYPE}")
    too_long = HTTPException(413, f"the body has more than {ENGINE_REQUEST_BYTES_MAX:,} bytes")
    if int(request.headers.get("content-length", "0")) > ENGINE_REQUEST_BYTES_MAX:
        raise too_long
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > ENGINE_REQUEST_BYTES_MAX:
            raise too_long
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body: {error}") from None
