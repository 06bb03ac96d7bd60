"""One MQTT connection over TCP: bytes to packets and back. Clients interpret the packets."""

import asyncio
from collections.abc import Callable

from reliability.mqtt import Decoder, Packet, PacketError

OPEN_SECONDS_MAX = 5.0
WRITE_BUFFER_BYTES_MAX = 1 << 20


class Connection(asyncio.Protocol):
    """Calls `take` with each packet, and `end` once when it is over."""

    def __init__(
        self,
        version: int,
        take: "Callable[[Connection, Packet], None]",
        end: "Callable[[Connection, PacketError | None], None]",
    ) -> None:
        self.number = 0
        """The number of the operation that began it."""
        self.node = ""
        self.heard_at = 0.0
        self.is_over = False
        self.was_reset = False
        """Did it end with an error?"""
        self._decoder = Decoder(version)
        self._take = take
        self._end = end
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    # What the loop calls --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.heard_at = self._loop.time()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        try:
            for packet in self._decoder.feed(data):
                if self.is_over:
                    return
                self._take(self, packet)
        except PacketError as error:
            self._finish(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.was_reset = exc is not None
        self._finish(None)

    def _finish(self, error: PacketError | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._end(self, error)

    # What clients call ----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_clogged(self) -> bool:
        """Return whether sent data piles up because the broker does not read."""
        assert self._transport is not None
        return self._transport.get_write_buffer_size() > WRITE_BUFFER_BYTES_MAX

    def pause(self) -> None:
        """Read nothing for a while."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def silence(self) -> None:
        """Ignore everything that still arrives, without closing the connection."""
        self.is_over = True
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def connect(
    host: str,
    port: int,
    version: int,
    take: Callable[[Connection, Packet], None],
    end: Callable[[Connection, PacketError | None], None],
) -> Connection:
    """Raise an OSError if nobody answers."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(OPEN_SECONDS_MAX):
        _, connection = await loop.create_connection(
            lambda: Connection(version, take, end), host, port
        )
    return connection
