"""The engine of a space over HTTP: it fetches clauses, and hands over deliveries.

Only administrators may do this: an engine reads what clients want, and can send them anything. The
bodies are msgpack (api/engine.py).
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.engine import Handover, Question
from dovetail.web.requests import MSGPACK, body_of, claim_of, reply
from dovetail.web.views import Views


def engine_routes(views: Views) -> list[Route]:
    engine = views.engine

    async def subscriptions(request: Request) -> Response:
        await views.access.administer(claim_of(request))
        question = await body_of(request, Question, MSGPACK)
        return reply(await engine.tell(question), body=MSGPACK)

    async def deliveries(request: Request) -> Response:
        await views.access.administer(claim_of(request))
        handover = await body_of(request, Handover, MSGPACK)
        return reply(await engine.take(handover), body=MSGPACK)

    return [
        Route("/engine/subscriptions", subscriptions, methods=["POST"]),
        Route("/engine/deliveries", deliveries, methods=["POST"]),
    ]
