"""The requests of an engine to a running broker: the asynchronous side of engine_backlog.py.

The broker delivers the matches of a request in pieces, so that it serves clients in between. It
answers when the deliveries are on disk. If the disk fails, the answer is 503, and the engine sends
the whole request again.
"""

import asyncio

from dovetail.api.engine import Handover, Listed, Question, Taken
from dovetail.broker.engine_backlog import Streamed
from dovetail.broker.limits import ENGINE_TURN_MATCHES
from dovetail.broker.net.server import Server
from dovetail.errors import ClientError, ReasonCode

_NO_ARCHIVE = "there is no archive here that publications could wait in ([archive])"
_NOT_STORED = "the data folder does not take what has to be written; try again later"


class Streaming:
    """Implements `Engine` (api/engine.py)."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        if server.broker.streamed is not None:
            server.broker.streamed.name = name

    async def tell(self, question: Question) -> Listed:
        streamed = self._begin(question.space)
        listed = streamed.tell(question)
        self._server.rows_may_wait()
        return listed

    async def take(self, handover: Handover) -> Taken:
        unknown: list[tuple[int, list[int]]] = []
        done = 0
        for place, matched in enumerate(handover.matched):
            streamed = self._begin(handover.space)
            missing = streamed.take(
                handover.engine, handover.space, matched, is_moved=handover.is_moved
            )
            if missing:
                unknown.append((place, missing))
            done += 1 + len(matched.ids)
            if done >= ENGINE_TURN_MATCHES:
                done = 0
                self._server.rows_may_wait()
                await asyncio.sleep(0)
        await self._stored()
        self._begin(handover.space).end(handover.ends)
        return Taken(unknown)

    def _begin(self, space: str) -> Streamed:
        server = self._server
        server.now()
        streamed = server.broker.streamed
        if streamed is None:
            raise ClientError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, _NO_ARCHIVE)
        known = [one.name for one in server.broker.router.spaces.all]
        if space not in known:
            there = ", ".join(known) or "none"
            raise ClientError(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"there is no space {space!r} here; there are {there}",
            )
        return streamed

    async def _stored(self) -> None:
        stored: asyncio.Future[bool] = self._server.loop.create_future()

        def act(is_stored: bool) -> None:
            if not stored.done():
                stored.set_result(is_stored)

        self._server.shared.journal.when_stored(act)
        self._server.rows_may_wait()
        if not await stored:
            raise ClientError(ReasonCode.SERVER_UNAVAILABLE, _NOT_STORED)
