"""`POST /drain`: tell a matcher to hand over and leave.

A drain loses nothing, but it changes the cluster, so only administrators may order it
(`AccessView.administer`). requests.py has the rules for all requests.
"""

from collections.abc import Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.reports import DrainReport, DrainRequest, DrainVerdict
from dovetail.web.requests import body_of, credentials_of, reply
from dovetail.web.views import Views

_REFUSALS: Mapping[DrainVerdict, tuple[int, Callable[[DrainReport], str]]] = {
    "unknown": (404, lambda report: f"there is no node {report.name} here; {_matchers(report)}"),
    "broker": (
        409,
        lambda report: (
            f"{report.name} is a broker, and only matchers are drained. To take a broker away, "
            "stop its process (SIGTERM, or Ctrl-C): sessions and their messages stay in its data "
            "folder"
        ),
    ),
    "left": (409, lambda report: f"{report.name} has left already"),
    "dead": (
        409,
        lambda report: (
            f"{report.name} is not heard any more, and cannot hand over. Nothing depends on it: "
            "brokers ask other matchers"
        ),
    ),
    "silent": (
        504,
        lambda report: (
            f"{report.name} does not answer. If it hangs, end its process: nothing is lost, "
            "because brokers ask other matchers. If it answers again, it may leave; if not, drain "
            "it again"
        ),
    ),
}


def drain_route(views: Views) -> Route:
    async def drain(request: Request) -> Response:
        await views.access.administer(credentials_of(request))
        report = await views.drain((await body_of(request, DrainRequest)).name)
        if report.verdict != "leaves":
            status, words = _REFUSALS[report.verdict]
            raise HTTPException(status, words(report))
        return reply(report, 202)

    return Route("/drain", drain, methods=["POST"])


def _matchers(report: DrainReport) -> str:
    if not report.others:
        return "there are no matchers"
    return f"its matchers are {', '.join(report.others)}"
