"""uvicorn, fitted into a broker: no signals, no log of its own, and a bound on connections.

A newcomer beyond the bound takes the slot of a connection that brings no request
(process/connection_slots.py): one that dribbles its headers or its body, or waits with nothing to
ask. A connection whose request is at work keeps its slot.

A request whose length is said in two ways is refused: another server on its way may have read the
other one, and have taken its rest for the next request (RFC 9112, 6.1 and 11.2).

The slow imports begin here, so this module is itself imported late.
"""

import asyncio
import contextlib

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dovetail.api.handles import Fault
from dovetail.cluster.addresses import network_of
from dovetail.process.connection_slots import Slots
from dovetail.process.descriptors import limit_now, shares_of
from dovetail.web.limits import HTTP_BODY_BYTES_MAX
from dovetail.web.requests import reply

CONNECTIONS_MAX = 64
"""Besides polls. Prometheus and a few watchers need a handful; the broker's clients need the file
descriptors."""

REQUEST_SECONDS_MAX = 10.0
"""A connection that brings no new request for so long is ended: uvicorn would let one that sends
half a request, or does not read its answer, stay for good. One may stay whose request we have not
begun to answer, as polls wait, and one that goes on reading."""

BACKLOG = 128
"""Connections that the loop accepts at once, before they need a slot."""

STOP_SECONDS_MAX = 2
"""What a request under way gets to finish when the node stops."""

REQUEST_HEAD_BYTES_MAX = 16_384

REQUEST_BYTES_MAX = 2 * HTTP_BODY_BYTES_MAX
"""Of one request, as it comes: chunks of a byte have six. What has more is not read on, as each of
them takes as long as a message: a body without end would keep the broker from its clients."""


class Protocol(H11Protocol):
    """One connection, bounded."""

    slots: "Slots[Protocol]"
    """Of the server: all its connections are in it."""
    _counted: RequestResponseCycle | None = None
    _bytes = 0

    def data_received(self, data: bytes) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not self._counted:
            self._counted = cycle
            self._bytes = 0
        self._bytes += len(data)
        if self._bytes <= REQUEST_BYTES_MAX:
            super().data_received(data)
        elif cycle is None or not cycle.response_complete:
            self.transport.abort()
        # Else it goes on though it was answered: it may read why until it is idle for too long.
        self._settle()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if transport.get_extra_info("socket").fileno() >= shares_of(limit_now()).http:
            transport.abort()
            return
        # The loop accepts many at once. What they have sent is read first, so that a request which
        # is here already does not give way to those behind it.
        self.loop.call_soon(self.loop.call_soon, self._enter)

    def _enter(self) -> None:
        if self not in self.connections:
            return  # it has gone already
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
        """Is it our turn, or the client's?"""
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
        """A whole request is here, and nothing of its answer has gone out, though it could."""
        cycle: RequestResponseCycle | None = self.cycle
        return (
            cycle is not None
            and not cycle.more_body
            and not cycle.response_started
            and not self.flow.write_paused
        )

    def _reads_on(self, unread: int) -> bool:
        """Has it read something since, with more to come?"""
        return 0 < self.transport.get_write_buffer_size() < unread


class Server(uvicorn.Server):
    """A server that leaves signals to the node."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


class Unambiguous:
    """An application that is only asked what everybody on the way has read alike."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]}
        is_old = scope["http_version"] == "1.0"
        answer: ASGIApp = self._application
        if b"transfer-encoding" in names and (is_old or b"content-length" in names):
            what = "HTTP/1.0" if is_old else "Content-Length"
            fault = Fault(f"a request has Transfer-Encoding or {what}, and not both")
            answer = reply(fault, 400, {"connection": "close"})
        await answer(scope, receive, send)


def make_server(application: Starlette, polls_max: int = 0) -> Server:
    count_max = CONNECTIONS_MAX + polls_max

    class Bounded(Protocol):
        slots = Slots(count_max, count_max)

    config = uvicorn.Config(
        Unambiguous(application),
        loop="none",
        http=Bounded,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # what strangers send is no matter for the broker's log
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        h11_max_incomplete_event_size=REQUEST_HEAD_BYTES_MAX,
    )
    config.load()
    return Server(config)
