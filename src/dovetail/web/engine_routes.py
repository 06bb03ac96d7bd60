"""Requests of the engine of a space: it fetches where-clauses and sends deliveries.

Only administrators may do this, because an engine reads all clauses and can send clients anything.
Bodies are msgpack (api/engine.py).
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.engine import ClauseQuery, DeliveryBatch
from dovetail.web.requests import MSGPACK, body_of, credentials_of, reply
from dovetail.web.views import Views

ENGINE_PATH = "/engine/"


def engine_routes(views: Views) -> list[Route]:
    engine = views.engine

    async def subscriptions(request: Request) -> Response:
        await views.access.administer(credentials_of(request))
        query = await body_of(request, ClauseQuery, MSGPACK)
        return reply(await engine.list_clauses(query), body=MSGPACK)

    async def deliveries(request: Request) -> Response:
        await views.access.administer(credentials_of(request))
        batch = await body_of(request, DeliveryBatch, MSGPACK)
        return reply(await engine.deliver(batch), body=MSGPACK)

    return [
        Route(f"{ENGINE_PATH}subscriptions", subscriptions, methods=["POST"]),
        Route(f"{ENGINE_PATH}deliveries", deliveries, methods=["POST"]),
    ]
