"""uvicorn inside a node: no signals, no log of its own, and bounded connections.

Rules:

- Beyond the bound, a new connection takes the slot of one without a complete request
  (process/connection_slots.py): it sends its headers or body slowly, or it is idle. A connection
  whose request is being answered keeps its slot.
- A request that states its length in two ways is refused: a proxy may have read the other length,
  and taken the rest for the next request (request smuggling, RFC 9112, 6.1 and 11.2).

This module imports slow libraries, so it is imported late.
"""

import asyncio
import contextlib

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dovetail.api.handles import ErrorBody
from dovetail.cluster.addresses import network_of
from dovetail.process.connection_slots import ConnectionSlots
from dovetail.process.descriptors import descriptor_limit, shares_of
from dovetail.web.engine_routes import ENGINE_PATH
from dovetail.web.limits import ENGINE_REQUEST_BYTES_MAX, HTTP_BODY_BYTES_MAX
from dovetail.web.requests import reply

CONNECTIONS_MAX = 64
"""Connections besides polls. Prometheus and a few watchers need a handful; the file descriptors are
for MQTT clients."""

REQUEST_SECONDS_MAX = 10.0
"""A connection without a new request for this long is closed. uvicorn would keep one for ever that
sends half a request or does not read its answer. A connection stays if we have not started the
answer (a poll that waits), or if it still reads."""

BACKLOG = 128
"""Connections that the loop accepts at once, before they need a slot."""

STOP_SECONDS_MAX = 2
"""The time for requests under way to finish when the node stops."""

REQUEST_HEAD_BYTES_MAX = 16_384

REQUEST_BYTES_MAX = 2 * HTTP_BODY_BYTES_MAX
"""Bytes of a request on the wire, where a chunk of one byte has six. The server reads no more: a
chunk takes as long as a message, so a body without end would keep the broker from its clients."""

ENGINE_REQUEST_WIRE_BYTES_MAX = 2 * ENGINE_REQUEST_BYTES_MAX
"""The same for the request of an engine, until it is answered. A refusal comes before the body."""


class BoundedProtocol(H11Protocol):
    """One connection, with bounds on its bytes and its time."""

    slots: "ConnectionSlots[BoundedProtocol]"
    """All connections of the server."""
    _counted: RequestResponseCycle | None = None
    _bytes = 0

    def data_received(self, data: bytes) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not self._counted:
            self._counted = cycle
            self._bytes = 0
        self._bytes += len(data)
        if self._bytes <= _bytes_max(cycle):
            super().data_received(data)
        elif cycle is None or not cycle.response_complete:
            self.transport.abort()
        # Else the client still sends, though it has its answer: it may read that until it is idle.
        self._settle()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if transport.get_extra_info("socket").fileno() >= shares_of(descriptor_limit()).http:
            transport.abort()
            return
        # The loop accepts many at once. Their bytes are read first, so that a connection with a
        # complete request is not evicted by later ones.
        self.loop.call_soon(self.loop.call_soon, self._enter)

    def _enter(self) -> None:
        if self not in self.connections:
            return  # it has closed already
        evicted = self.slots.enter(self, network_of(self.client[0] if self.client else "local"))
        if evicted is not None:
            evicted.transport.abort()
        if evicted is not self:
            self._settle()
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.slots.leave(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._settle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._settle()

    def _settle(self) -> None:
        """Hold the slot while we work on a request; release it when it is the client's turn."""
        if self.cycle is not None:
            self.slots.speak(self)
        if self._waits_for_us:
            self.slots.hold(self)
        else:
            self.slots.release(self)

    def _watch(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self.loop.call_later(REQUEST_SECONDS_MAX, self._end_if_idle, self.cycle, unread)

    def _end_if_idle(self, last: RequestResponseCycle | None, unread: int = 0) -> None:
        if self not in self.connections:
            return
        if self.cycle is last and not self._waits_for_us and not self._reads_on(unread):
            self.transport.abort()
        else:
            self._watch()

    @property
    def _waits_for_us(self) -> bool:
        """Return True if a whole request is here, and we could send the answer but have not."""
        cycle: RequestResponseCycle | None = self.cycle
        return (
            cycle is not None
            and not cycle.more_body
            and not cycle.response_started
            and not self.flow.write_paused
        )

    def _reads_on(self, unread: int) -> bool:
        """Return True if the client has read a part of the `unread` bytes since then."""
        return 0 < self.transport.get_write_buffer_size() < unread


def _bytes_max(cycle: RequestResponseCycle | None) -> int:
    if cycle is None or cycle.response_complete:
        return REQUEST_BYTES_MAX
    is_engine = cycle.scope["path"].startswith(ENGINE_PATH)
    return ENGINE_REQUEST_WIRE_BYTES_MAX if is_engine else REQUEST_BYTES_MAX


class EmbeddedServer(uvicorn.Server):
    """A server that leaves signals to the node."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


class SmugglingGuard:
    """Refuses requests whose length a proxy may have read differently."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]}
        is_old = scope["http_version"] == "1.0"
        answer: ASGIApp = self._application
        if b"transfer-encoding" in names and (is_old or b"content-length" in names):
            what = "HTTP/1.0" if is_old else "Content-Length"
            fault = ErrorBody(f"a request has Transfer-Encoding or {what}, and not both")
            answer = reply(fault, 400, {"connection": "close"})
        await answer(scope, receive, send)


def make_server(application: Starlette, polls_max: int = 0) -> EmbeddedServer:
    count_max = CONNECTIONS_MAX + polls_max

    class ServerProtocol(BoundedProtocol):
        slots = ConnectionSlots(count_max, count_max)

    config = uvicorn.Config(
        SmugglingGuard(application),
        loop="none",
        http=ServerProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # requests of strangers must not fill the broker's log
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        h11_max_incomplete_event_size=REQUEST_HEAD_BYTES_MAX,
    )
    config.load()
    return EmbeddedServer(config)
