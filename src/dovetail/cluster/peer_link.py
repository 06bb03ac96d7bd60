"""One connection between two nodes: frames, the handshake, pings and the send buffer.

    opened -> handshake (handshake.py) -> ready -> gone

Rules:

- The dialer sends, and pings; the acceptor answers. Frames of users begin when the link is ready.
- Frames that are sent in one turn of the loop are joined and written at its end.
- `backlog_bytes_max` bounds the bytes that a peer has not read. A frame that does not fit is not
  sent: `send` returns False. If a peer does not read our answers, we stop reading its frames.
- A link is closed after a while if its peer is silent or reads nothing. While bytes wait for the
  peer, reading them counts as a sign of life: a ping may stand behind all of them.
"""

import asyncio
import errno
import logging
import ssl
from typing import Protocol, cast

from dovetail.cluster import frames
from dovetail.cluster.addresses import Address
from dovetail.cluster.dialer import DialTarget
from dovetail.cluster.frames import HEADER_BYTES, KIND_FIRST, KIND_LAST, Frame, FrameReader
from dovetail.cluster.handshake import Handshake, HandshakeState, Hello
from dovetail.cluster.limits import (
    HANDSHAKE_BYTES_MAX,
    WRITE_HIGH_WATER_BYTES,
    WRITE_JOIN_BYTES_MAX,
)
from dovetail.cluster.link_settings import LinkSettings
from dovetail.errors import PeerError

log = logging.getLogger("dovetail.cluster")

_PING = frames.encode(frames.PING, b"")
_PONG = frames.encode(frames.PONG, b"")
_GOODBYE_SECONDS = 1.0
"""How long a peer may take to read our last bytes."""


class LinkOwner(Protocol):
    """The transport that a link belongs to."""

    @property
    def links(self) -> LinkSettings: ...

    def clock(self) -> float: ...

    def opened(self, link: "PeerLink", secure: ssl.SSLObject | None) -> Handshake: ...

    def wake(self, link: "PeerLink") -> None:
        """The link has something to write: call its `flush` at the end of this turn."""

    def ready(self, link: "PeerLink") -> None:
        """The handshake is done."""

    def join(self, frames: list[Frame]) -> list[Frame]:
        """Join frames of one read that are cheaper together."""

    def received(self, link: "PeerLink", kind: int, body: bytes) -> None: ...

    def gone(self, link: "PeerLink") -> None: ...


class PeerLink(asyncio.Protocol):
    """One connection with a peer. Users send frames and answers with it."""

    def __init__(self, owner: LinkOwner, dial: DialTarget | None = None) -> None:
        """`dial` is given if we have dialed."""
        self.dial = dial
        self.heard_at = owner.clock()
        self.is_ready = False
        self.why_gone = ""
        self.address = Address("?", 0)
        """The address of the peer's socket; a node is dialed at `hello.address`."""
        self.settled = asyncio.Event()
        """Set when the handshake is done, or the connection is gone."""
        self.gone = asyncio.Event()
        self.handshake: Handshake | None = None
        self._owner = owner
        self._links = owner.links
        self._reader = FrameReader(HANDSHAKE_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._given_bytes = 0
        self._taken_bytes = 0
        self._waiting_bytes = 0
        self._moved_at = self._free_at = self.heard_at
        self._closed_at: float | None = None

    # Who it is ------------------------------------------------------------------------------------

    @property
    def hello(self) -> Hello:
        """The peer's HELLO, proven once the link is ready."""
        assert self.handshake is not None
        assert self.handshake.peer is not None
        return self.handshake.peer

    @property
    def name(self) -> str:
        return self.hello.name

    @property
    def is_dialed(self) -> bool:
        return self.dial is not None

    @property
    def has_spoken(self) -> bool:
        """Has the peer sent its HELLO, proven or not?"""
        return self.handshake is not None and self.handshake.peer is not None

    @property
    def is_open(self) -> bool:
        """May frames be sent?"""
        return self.is_ready and self._closed_at is None

    # In -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.address = Address(str(name[0]), int(name[1]))
        self.handshake = self._owner.opened(self, transport.get_extra_info("ssl_object"))
        self._write(self.handshake.begin())

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._owner.clock()
        try:
            for kind, body in self._owner.join(self._reader.feed(data)):
                if self._closed_at is not None:
                    return
                if kind >= KIND_FIRST and self.is_ready:
                    self._owner.received(self, kind, body)
                else:
                    self._take(kind, body)
        except PeerError as error:
            self.abort(error.message)
        except Exception:  # a bug, and of this connection only
            log.exception("cannot read from %s; closed", self.address)
            self.abort("a fault of ours")

    def _take(self, kind: int, body: bytes) -> None:
        if self.is_ready and kind == frames.PING and not self.is_dialed:
            self._put(_PONG)
        elif self.is_ready and kind == frames.PONG and self.is_dialed:
            pass  # that it was heard is all there is to it
        else:
            self._go_on_with_handshake(kind, body)

    def _go_on_with_handshake(self, kind: int, body: bytes) -> None:
        handshake = self.handshake
        assert handshake is not None
        self._write(handshake.receive(kind, body))
        if handshake.state is HandshakeState.REFUSED:
            assert handshake.refusal is not None
            who = "refused" if handshake.is_refused_by_us else "refused by it"
            self.close(f"{who}: {handshake.refusal.sentence}")
        elif handshake.state is HandshakeState.DONE:
            self._reader.frame_bytes_max = self._links.frame_bytes_max
            self.is_ready = True
            self._owner.ready(self)
            self.settled.set()

    # Out ------------------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._outgoing_bytes + waiting

    def answer(self, kind: int, body: bytes) -> bool:
        """Send a frame on this connection. False: it does not fit, or the link is closed."""
        return self.send(kind, body)

    def send(self, kind: int, body: bytes) -> bool:
        if not KIND_FIRST <= kind <= KIND_LAST:
            raise ValueError(f"kind {kind} is not for users of links")
        size = HEADER_BYTES + len(body)
        if size > self._links.frame_bytes_max:
            raise ValueError(f"a frame of {size:,} bytes: no peer would take it")
        if not self.is_open or self.unsent_bytes + size > self._links.backlog_bytes_max:
            return False
        if len(body) < WRITE_JOIN_BYTES_MAX:
            self._put(frames.encode(kind, body))
        else:
            self._put(frames.header(kind, len(body)))
            self._put(body)
        return True

    def ping(self) -> None:
        if self.is_open and self.is_dialed:
            self._put(_PING)

    def _put(self, piece: bytes) -> None:
        if not self._outgoing:
            self._owner.wake(self)
        self._outgoing.append(piece)
        self._outgoing_bytes += len(piece)

    def flush(self) -> None:
        pieces, self._outgoing = self._outgoing, []
        size, self._outgoing_bytes = self._outgoing_bytes, 0
        transport = self._transport
        if not pieces or transport is None or transport.is_closing():
            return
        self._given_bytes += size
        if size <= WRITE_JOIN_BYTES_MAX or size < 4_096 * len(pieces):
            transport.write(b"".join(pieces))
        else:
            transport.writelines(pieces)

    def _write(self, data: bytes) -> None:
        """Write at once, for the handshake."""
        if data and self._transport is not None and not self._transport.is_closing():
            self._given_bytes += len(data)
            self._transport.write(data)

    def pause_writing(self) -> None:
        # The dialer always reads: if both sides stopped, both would wait for ever.
        if not self.is_dialed and self._transport is not None and self._closed_at is None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.is_dialed and self._transport is not None and self._closed_at is None:
            self._transport.resume_reading()

    # Time -----------------------------------------------------------------------------------------

    def excuse(self, now: float) -> None:
        """Ignore the silence so far: we did not listen."""
        self._moved_at = self._free_at = now

    def judge(self, now: float) -> None:
        """Close the link if the peer is silent or reads nothing. Call it at every ping."""
        if self._transport is None:
            return
        waiting = self._transport.get_write_buffer_size()
        taken = self._given_bytes - waiting
        has_moved = taken != self._taken_bytes
        if has_moved and self._waiting_bytes:
            self._moved_at = now
        if has_moved or not waiting:
            self._free_at = now
        self._taken_bytes, self._waiting_bytes = taken, waiting
        if self._closed_at is not None:
            if now - self._closed_at > _GOODBYE_SECONDS:
                self.abort(self.why_gone)
        elif now - max(self.heard_at, self._moved_at) > self._links.silence_seconds_max:
            self.abort("nothing was heard of it")
        elif now - self._free_at > self._links.stall_seconds_max:
            self.abort("it takes no bytes")

    # The end --------------------------------------------------------------------------------------

    def close(self, why: str) -> None:
        """Close the link after sending what waits."""
        if self._closed_at is None:
            self.flush()
            self._closed_at = self._owner.clock()
            self.why_gone = why
            if self._transport is not None:
                self._transport.close()

    def abort(self, why: str) -> None:
        """Close the link at once."""
        if self._closed_at is None:
            self._closed_at = self._owner.clock()
            self.why_gone = why
        if self._transport is not None:
            self._transport.abort()

    def give_up(self, why: str) -> None:
        """Close the link at once, and run `connection_lost`.

        The loop does not call that for a connection whose making was cancelled.
        """
        self.abort(why)
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.gone.is_set():
            return
        if self._closed_at is None:
            self._closed_at = self._owner.clock()
            self.why_gone = "it has closed the connection" if exc is None else explain(exc)
        self._outgoing = []
        self._outgoing_bytes = 0
        self.gone.set()
        self.settled.set()
        self._owner.gone(self)


def explain(error: Exception) -> str:
    """Return why a connection failed, in a few words."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "the port is taken by another program"
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error) or type(error).__name__).lower()
