"""The requests of an engine to a running broker: the asynchronous side of engine_backlog.py.

The broker delivers the matches of a request in pieces, so that it serves clients in between. It
answers when the deliveries are on disk. If the disk fails, the answer is 503, and the engine sends
the whole request again.
"""

import asyncio

from dovetail.api.engine import ClauseChanges, ClauseQuery, DeliveryBatch, DeliveryReceipt
from dovetail.broker.engine_backlog import EngineBacklog
from dovetail.broker.limits import ENGINE_TURN_MATCHES
from dovetail.broker.net.server import BrokerServer
from dovetail.errors import ClientError, ReasonCode

_NO_ARCHIVE = "there is no archive here that publications could wait in ([archive])"


class EngineRequests:
    """Implements `EngineService` (api/engine.py)."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server

    async def list_clauses(self, query: ClauseQuery) -> ClauseChanges:
        backlog = self._begin(query.space)
        changes = backlog.clauses_since(query)
        self._server.schedule_commit()
        return changes

    async def deliver(self, batch: DeliveryBatch) -> DeliveryReceipt:
        unknown: list[tuple[int, list[int]]] = []
        done = 0
        for place, matched in enumerate(batch.matched):
            backlog = self._begin(batch.space)
            missing = backlog.deliver(batch.engine, batch.space, matched, is_moved=batch.is_moved)
            if missing:
                unknown.append((place, missing))
            done += 1 + len(matched.ids)
            if done >= ENGINE_TURN_MATCHES:
                done = 0
                self._server.schedule_commit()
                await asyncio.sleep(0)
        await self._server.wait_until_stored()
        self._begin(batch.space).forget_notes(batch.ends)
        return DeliveryReceipt(unknown)

    def _begin(self, space: str) -> EngineBacklog:
        server = self._server
        server.update_clock()
        backlog = server.broker.engine_backlog
        if backlog is None:
            raise ClientError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, _NO_ARCHIVE)
        known = [one.name for one in server.broker.router.spaces.all]
        if space not in known:
            there = ", ".join(known) or "none"
            raise ClientError(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"there is no space {space!r} here; there are {there}",
            )
        return backlog
