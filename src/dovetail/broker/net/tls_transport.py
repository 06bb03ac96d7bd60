"""TLS of clients: an encrypting transport between a connection and its socket's transport.

    TCP -> handshake -> ClientConnection
               |
               +-> refused: send an alert, write a log line, close

When a handshake fails, asyncio and uvloop close the connection before the alert is written, and log
nothing. So this module drives the handshake itself. The `ssl` library does the cryptography.

Nothing is buffered here. Received bytes are decrypted and passed on at once. Bytes to send are
encrypted and given to the socket's transport, which does all the waiting.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from dovetail.broker.net.server import BrokerServer, ClientConnection, remote_end
from dovetail.settings import ListenerSettings

log = logging.getLogger("dovetail.broker")

_RECORD_BYTES_MAX = 16_384
_LINGER_SECONDS = 1.0
"""The time for a refused client to read its alert. If we closed at once with unread bytes, the
system would reset the connection, and the alert might be lost."""

_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class TlsContext:
    """The TLS context of one listener. A reload replaces it for new connections."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context


class TlsProtocol(asyncio.Protocol):
    """The socket's side of a connection. After the handshake `make` makes the inner connection."""

    __slots__ = (
        "_incoming",
        "_inner",
        "_listener",
        "_make",
        "_outgoing",
        "_raw",
        "_server",
        "_timer",
        "_tls",
        "_tls_object",
    )

    def __init__(
        self,
        server: BrokerServer,
        listener: ListenerSettings,
        tls: TlsContext,
        make: Callable[[], ClientConnection],
    ) -> None:
        self._server = server
        self._listener = listener
        self._tls = tls
        self._make = make
        self._inner: ClientConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        address = remote_end(transport, self._listener).address
        if not self._server.has_room_for(transport.get_extra_info("socket").fileno(), address):
            self._raw.abort()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls_object = self._tls.context.wrap_bio(
            self._incoming, self._outgoing, server_side=True
        )
        seconds = self._server.shared.limits.connect_timeout_seconds
        self._timer = self._server.loop.call_later(seconds, self._too_slow)

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._inner is None and not self._shake_hands():
            return
        inner = self._inner
        assert inner is not None
        read = self._tls_object.read
        pieces = []
        has_ended = False
        try:
            while piece := read(_RECORD_BYTES_MAX):
                pieces.append(piece)
            has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            has_ended = True
        except ssl.SSLError as error:
            log.debug("%s sent invalid TLS data: %s", inner.link.remote.address, error)
            has_ended = True
        if pieces:
            inner.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())
        if has_ended:
            self.eof_received()
            self._raw.close()

    def _shake_hands(self) -> bool:
        """Continue the handshake. Return True when it is complete."""
        try:
            self._tls_object.do_handshake()
        except ssl.SSLWantReadError:
            self._raw.write(self._outgoing.read())
            return False
        except ssl.SSLError as error:
            self._refuse(error)
            return False
        self._raw.write(self._outgoing.read())
        self._timer.cancel()
        inner = self._make()
        inner.connection_made(TlsTransport(self._raw, self._tls_object, self._outgoing))
        self._inner = inner
        return True

    def _refuse(self, error: ssl.SSLError) -> None:
        address = remote_end(self._raw, self._listener).address
        log.warning("refused a client from %s: %s", address, explain(error))
        self._server.shared.counters.connections_refused += 1
        self._raw.pause_reading()
        self._raw.write(self._outgoing.read())
        if self._raw.can_write_eof():
            self._raw.write_eof()
        self._timer.cancel()
        self._timer = self._server.loop.call_later(_LINGER_SECONDS, self._raw.abort)

    def _too_slow(self) -> None:
        address = remote_end(self._raw, self._listener).address
        log.debug("%s did not complete its TLS handshake in time", address)
        self._raw.abort()

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()


class TlsTransport(asyncio.Transport):
    """The connection's side: encrypts, and passes all else to the socket's transport."""

    __slots__ = ("_outgoing", "_raw", "_tls_object")

    def __init__(
        self, raw: asyncio.Transport, tls_object: ssl.SSLObject, outgoing: ssl.MemoryBIO
    ) -> None:
        self._raw = raw
        self._tls_object = tls_object
        self._outgoing = outgoing

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        if name == "peercert":
            return self._tls_object.getpeercert()
        return self._raw.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        write = self._tls_object.write
        size = len(data)
        try:
            done = write(data)  # at most one record
            if done < size:
                rest = memoryview(data)
                while done < size:
                    done += write(rest[done:])
        except ssl.SSLError as error:  # the client has closed TLS
            log.debug("cannot write through TLS: %s", error)
        self._raw.write(self._outgoing.read())

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._raw.is_closing():
            return
        with suppress(ssl.SSLError):  # the client need not send its own close_notify
            self._tls_object.unwrap()
        self._raw.write(self._outgoing.read())
        self._raw.close()

    # Passed on to the socket's transport --------------------------------------------------------

    def abort(self) -> None:
        self._raw.abort()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)


def explain(error: ssl.SSLError) -> str:
    """Return in words why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if error.reason == _NO_CERTIFICATE:
        return "it has shown no certificate, which this listener requires"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return f"the TLS handshake failed ({reason})"
