"""Messages by handle over HTTP: each route calls one method of `HandleService`.

requests.py has the rules for all requests.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dovetail.api.handles import AcknowledgeRequest, HandleDefinition, PollQuery
from dovetail.web.openapi import DOCUMENT
from dovetail.web.requests import body_of, credentials_of, query_of, reply, resource
from dovetail.web.views import Views


def subscription_routes(views: Views) -> list[Route]:
    handles = views.handles

    async def user_of(request: Request) -> str | None:
        return await views.access.log_in(credentials_of(request))

    async def subscribe(request: Request) -> Response:
        user = await user_of(request)
        made = await handles.subscribe(user, await body_of(request, HandleDefinition))
        return reply(made, 201, {"location": f"/subscriptions/{made.handle}"})

    async def describe(request: Request) -> Response:
        user = await user_of(request)
        return reply(await handles.describe(user, request.path_params["handle"]))

    async def unsubscribe(request: Request) -> Response:
        user = await user_of(request)
        await handles.unsubscribe(user, request.path_params["handle"])
        return Response(status_code=204)

    async def poll(request: Request) -> Response:
        user = await user_of(request)
        query = query_of(request, PollQuery)
        polling = asyncio.ensure_future(handles.poll(user, request.path_params["handle"], query))
        leaving = asyncio.ensure_future(_disconnect(request))
        try:
            await asyncio.wait({polling, leaving}, return_when=asyncio.FIRST_COMPLETED)
            # A client that has left gets an answer too, which nobody reads.
            return reply(polling.result()) if polling.done() else Response(status_code=204)
        finally:
            polling.cancel()
            leaving.cancel()
            await asyncio.gather(polling, leaving, return_exceptions=True)

    async def acknowledge(request: Request) -> Response:
        user = await user_of(request)
        done = await body_of(request, AcknowledgeRequest)
        return reply(await handles.acknowledge(user, request.path_params["handle"], done.ids))

    async def openapi(_request: Request) -> Response:
        return Response(DOCUMENT, media_type="application/json")

    handle = "/subscriptions/{handle}"
    return [
        resource("/openapi.json", GET=openapi),
        resource("/subscriptions", POST=subscribe),
        resource(handle, GET=describe, DELETE=unsubscribe),
        resource(f"{handle}/messages", GET=poll),
        resource(f"{handle}/acknowledgements", POST=acknowledge),
    ]


async def _disconnect(request: Request) -> None:
    """Wait until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
