"""A network between the nodes of a cluster that can be cut: a TCP relay in front of each node.

A node advertises its relay's port, so every connection between two nodes goes through one. The
first frame (HELLO) names the dialer. So a relay knows both ends, and on which side of a cut they
are.

How a cut looks:

- STALLED: no byte passes either way, and no end of a connection either, as with a pulled cable.
  Bytes on their way arrive after the cut is healed, if the reader is still there.
- ONE_WAY: the same, but only for what comes from the side that was cut off.
- RESET: connections are reset, and new ones too, as when a firewall refuses them.
- SLOW: few bytes pass, both ways. No node is cut off, but later bytes have to wait.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterable
from enum import Enum, auto
from typing import Self

import msgspec

from dovetail.cluster import frames
from dovetail.cluster.handshake import MAGIC, Hello
from support.clusters.closing_context import ClosingContext
from support.processes.broker_process import WAIT_SECONDS
from support.processes.ports import ReservedPort

HOST = "127.0.0.1"
_PREFIX_BYTES = len(MAGIC) + 2
_READ_BYTES = 65_536
_SLOW_BYTES, _SLOW_SECONDS = 1_024, 0.05


class CutMode(Enum):
    STALLED = auto()
    ONE_WAY = auto()
    RESET = auto()
    SLOW = auto()


class _Relayed:
    """A connection that goes through a relay, and the two ends of it."""

    def __init__(self, dialer: str, target: str, writers: Iterable[asyncio.StreamWriter]) -> None:
        self.dialer = dialer
        self.target = target
        self.writers = tuple(writers)


class ClusterNetwork(ClosingContext):
    """A network of relays. `ports` are where nodes dial each other, by the name of the target."""

    def __init__(self, *names: str) -> None:
        self._relays = {name: socket.create_server((HOST, 0)) for name in names}
        self.ports = {name: int(one.getsockname()[1]) for name, one in self._relays.items()}
        self._reserved = {name: ReservedPort() for name in names}
        self.node_ports = {name: one.port for name, one in self._reserved.items()}
        """Where the nodes themselves listen."""
        self._how: CutMode | None = None
        self._side: frozenset[str] = frozenset()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Condition()
        self._relayed: set[_Relayed] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(WAIT_SECONDS)
        return self

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(WAIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()
        for reserved in self._reserved.values():
            reserved.close()

    # For tests ------------------------------------------------------------------------------------

    def cut_off(self, *names: str, how: CutMode) -> None:
        """Cut these nodes off from the rest. An earlier cut ends."""
        self._change(how, names)

    def heal(self) -> None:
        self._change(None, ())

    def _change(self, how: CutMode | None, names: Iterable[str]) -> None:
        change = self._apply(how, frozenset(names))
        asyncio.run_coroutine_threadsafe(change, self._loop).result(WAIT_SECONDS)

    async def _apply(self, how: CutMode | None, side: frozenset[str]) -> None:
        self._how, self._side = how, side
        if how is CutMode.RESET:
            for one in [*self._relayed]:
                if self._is_cut(one.dialer, one.target):
                    for writer in one.writers:
                        writer.transport.abort()
        async with self._changed:
            self._changed.notify_all()

    def _is_cut(self, one: str, other: str) -> bool:
        return (one in self._side) != (other in self._side)

    def _passes(self, origin: str, receiver: str) -> bool:
        if self._how is None or not self._is_cut(origin, receiver):
            return True
        return self._how is CutMode.SLOW or (
            self._how is CutMode.ONE_WAY and origin not in self._side
        )

    # Relays ---------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._servers = [
            await asyncio.start_server(self._relay_to(name), sock=listening)
            for name, listening in self._relays.items()
        ]

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _relay_to(self, target: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await self._relay(target, reader, writer)
            finally:
                self._tasks.discard(task)
                writer.transport.abort()

        return relay

    async def _relay(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readexactly(frames.HEADER_BYTES)
        body = await reader.readexactly(int.from_bytes(head[:4]))
        dialer = msgspec.msgpack.decode(body[_PREFIX_BYTES:], type=Hello).name
        if self._how is CutMode.RESET and self._is_cut(dialer, target):
            return
        await self._until_it_passes(dialer, target)
        far_reader, far_writer = await asyncio.open_connection(HOST, self.node_ports[target])
        relayed = _Relayed(dialer, target, (writer, far_writer))
        self._relayed.add(relayed)
        try:
            far_writer.write(head + body)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, far_writer, dialer, target))
                both.create_task(self._pump(far_reader, writer, target, dialer))
        except* OSError:
            pass  # reset by one of the ends, or by the cut
        finally:
            self._relayed.discard(relayed)
            far_writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        origin: str,
        receiver: str,
    ) -> None:
        while True:
            try:
                data = await reader.read(_READ_BYTES)
            except OSError:
                data = b""  # the other end is told of it when a cut lets it
            await self._until_it_passes(origin, receiver)
            if not data:
                break
            await self._write(writer, data, origin, receiver)
        writer.close()

    async def _write(
        self, writer: asyncio.StreamWriter, data: bytes, origin: str, receiver: str
    ) -> None:
        while self._how is CutMode.SLOW and self._is_cut(origin, receiver) and data:
            writer.write(data[:_SLOW_BYTES])
            data = data[_SLOW_BYTES:]
            await asyncio.sleep(_SLOW_SECONDS)
            await self._until_it_passes(origin, receiver)
            if writer.transport.is_closing():
                raise ConnectionResetError
        writer.write(data)
        await writer.drain()

    async def _until_it_passes(self, origin: str, receiver: str) -> None:
        if not self._passes(origin, receiver):
            async with self._changed:
                await self._changed.wait_for(lambda: self._passes(origin, receiver))
