"""`POST /plan`: move the matchers to the places of a plan.

As with `/drain` (drain_routes.py), nothing is lost, and only administrators may order it. If the
matchers cannot follow the plan, `Views.plan` raises a ClientError that says why.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.reports import PlanRequest
from dovetail.web.requests import body_of, credentials_of, reply
from dovetail.web.views import Views


def plan_route(views: Views) -> Route:
    async def plan(request: Request) -> Response:
        await views.access.administer(credentials_of(request))
        return reply(await views.plan(await body_of(request, PlanRequest)), 202)

    return Route("/plan", plan, methods=["POST"])
