"""`POST /plan`: matchers shall move to the places of a plan.

As with `/drain` (drain_routes.py) nothing is lost by it, and `Views.administer` judges who may do
it. Why a plan cannot be followed is a ClientError of who knows the matchers, and comes as a
sentence.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.reports import PlanOrder
from dovetail.web.requests import body_of, claim_of, reply
from dovetail.web.views import Views


def plan_route(views: Views) -> Route:
    async def plan(request: Request) -> Response:
        await views.access.administer(claim_of(request))
        return reply(await views.plan(await body_of(request, PlanOrder)), 202)

    return Route("/plan", plan, methods=["POST"])
