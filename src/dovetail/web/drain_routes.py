"""`POST /drain`: a matcher shall hand over and leave.

It loses nothing, but it changes who works: so it is not for everybody who may read the pages. Who
may do it is judged by `Views.administer`; what else holds is in requests.py.
"""

from collections.abc import Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.reports import Drained, DrainOrder, DrainReport
from dovetail.web.requests import body_of, claim_of, reply
from dovetail.web.views import Views

_REFUSALS: Mapping[Drained, tuple[int, Callable[[DrainReport], str]]] = {
    "unknown": (404, lambda report: f"there is no node {report.name} here; {_matchers(report)}"),
    "broker": (
        409,
        lambda report: (
            f"{report.name} is a broker, and only matchers are drained. To take a broker away, "
            "stop its process (SIGTERM, or Ctrl-C): sessions and what they are owed stay in its "
            "data folder"
        ),
    ),
    "left": (409, lambda report: f"{report.name} has left already"),
    "dead": (
        409,
        lambda report: (
            f"{report.name} is not heard any more, and cannot hand over. Nothing hangs on it: "
            "others are asked instead"
        ),
    ),
    "silent": (
        504,
        lambda report: (
            f"{report.name} does not answer. If it hangs, end its process: nothing is lost, as "
            "others are asked instead. If it is heard again, it may leave; if not, drain it again"
        ),
    ),
}


def drain_route(views: Views) -> Route:
    async def drain(request: Request) -> Response:
        await views.access.administer(claim_of(request))
        report = await views.drain((await body_of(request, DrainOrder)).name)
        if report.verdict != "leaves":
            status, words = _REFUSALS[report.verdict]
            raise HTTPException(status, words(report))
        return reply(report, 202)

    return Route("/drain", drain, methods=["POST"])


def _matchers(report: DrainReport) -> str:
    if not report.others:
        return "there are no matchers"
    return f"its matchers are {', '.join(report.others)}"
