"""`GET /archive...`: the archived rows of a broker and its subscriptions, while it runs.

    /archive?after=SEQUENCE           the sequences of the rows above an offset, as JSON
    /archive/rows?after=...&upto=...  rows, in order, as an Arrow stream (archive/columns.py); the
                                      header `dovetail-upto` is the offset that they reach
    /archive/subscriptions?known=...  the current subscriptions (archive/subscription_files.py),
                                      as an Arrow stream; the header `dovetail-version` is their
                                      version, and 204 means that the client knows it already

An answer with rows is bounded; a reader asks again from its offset. The rows hold publications of
all topics, whatever the access rules say, so only administrators may read them
(`AccessView.administer`).
"""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.reports import ArchiveQuery, RowsQuery, SubscriptionsQuery
from dovetail.errors import DovetailError
from dovetail.web.requests import credentials_of, query_of, reply
from dovetail.web.views import ArchiveView, Views

UPTO_HEADER = "dovetail-upto"
VERSION_HEADER = "dovetail-version"
_ARROW = "application/vnd.apache.arrow.stream"


def archive_routes(views: Views) -> list[Route]:
    async def archive_of(request: Request) -> ArchiveView:
        await views.access.administer(credentials_of(request))
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
