"""uvicorn, fitted into a broker: no signals, no log of its own, and a bound on connections.

The slow imports begin here, so this module is itself imported late.
"""

import asyncio
import contextlib

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dovetail.config import HTTP_BODY_BYTES_MAX

CONNECTIONS_MAX = 64
"""Besides polls. Prometheus and a few watchers need a handful; the broker's clients need the file
descriptors."""

REQUEST_SECONDS_MAX = 10.0
"""A connection that brings no new request for so long is ended: uvicorn would let one that sends
half a request, or does not read its answer, stay for good. One may stay whose request we have not
begun to answer, as polls wait, and one that goes on reading."""

STOP_SECONDS_MAX = 2
"""What a request under way gets to finish when the node stops."""

REQUEST_HEAD_BYTES_MAX = 16_384

REQUEST_BYTES_MAX = 2 * HTTP_BODY_BYTES_MAX
"""Of one request, as it comes: chunks of a byte have six. What has more is not read on, as each of
them takes as long as a message: a body without end would keep the broker from its clients."""


class Protocol(H11Protocol):
    """One connection, bounded."""

    polls_max = 0
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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX + self.polls_max:
            transport.abort()
        else:
            self._watch()

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
        """A whole request is here, and nothing of its answer has gone out."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_started

    def _reads_on(self, unread: int) -> bool:
        """Has it read something since, with more to come?"""
        return 0 < self.transport.get_write_buffer_size() < unread


class Server(uvicorn.Server):
    """A server that leaves signals to the node."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


def make_server(application: Starlette, polls_max: int = 0) -> Server:
    class Bounded(Protocol):
        pass

    Bounded.polls_max = polls_max
    config = uvicorn.Config(
        application,
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
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        h11_max_incomplete_event_size=REQUEST_HEAD_BYTES_MAX,
    )
    config.load()
    return Server(config)
