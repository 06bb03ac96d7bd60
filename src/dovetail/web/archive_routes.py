"""`GET /archive...`: what a broker has archived, and its subscriptions, while it runs.

    /archive?after=SEQUENCE           which rows there are above it, as JSON
    /archive/rows?after=...&upto=...  rows, in their order, as an Arrow stream (archive/columns.py);
                                      the header `dovetail-upto` says how far they go
    /archive/subscriptions?known=...  those of now (archive/subscription_files.py), as an
                                      Arrow stream; the header `dovetail-version` says which
                                      version that is, and 204 that it is the one that is known

An answer with rows is bounded, so who wants more asks again from there. It is what was published,
whatever access rules say of its topics: so it is for administrators, as is judged by
`Views.administer`.
"""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.reports import ArchiveQuery, RowsQuery, SubscriptionsQuery
from dovetail.errors import DovetailError
from dovetail.web.requests import claim_of, query_of, reply
from dovetail.web.views import ArchiveView, Views

UPTO_HEADER = "dovetail-upto"
VERSION_HEADER = "dovetail-version"
_ARROW = "application/vnd.apache.arrow.stream"


def archive_routes(views: Views) -> list[Route]:
    async def archive_of(request: Request) -> ArchiveView:
        await views.access.administer(claim_of(request))
        if views.archive is None:
            raise HTTPException(
                404, "this broker has no archive: its configuration names no archive.topics"
            )
        return views.archive

    async def archive(request: Request) -> Response:
        view = await archive_of(request)
        try:
            return reply(await view.report(query_of(request, ArchiveQuery).after))
        except DovetailError as error:
            raise _failed(error) from None

    async def rows(request: Request) -> Response:
        view = await archive_of(request)
        try:
            body, upto = await view.rows(query_of(request, RowsQuery))
        except DovetailError as error:
            raise _failed(error) from None
        headers = {"cache-control": "no-store", UPTO_HEADER: str(upto)}
        return Response(body, 200, headers, _ARROW)

    async def subscriptions(request: Request) -> Response:
        view = await archive_of(request)
        body, version = await view.subscriptions(query_of(request, SubscriptionsQuery).known)
        headers = {"cache-control": "no-store", VERSION_HEADER: version}
        if body is None:
            return Response(status_code=204, headers=headers)
        return Response(body, 200, headers, _ARROW)

    return [
        Route("/archive", archive),
        Route("/archive/rows", rows),
        Route("/archive/subscriptions", subscriptions),
    ]


def _failed(error: DovetailError) -> HTTPException:
    return HTTPException(500, error.message.removesuffix("."))
