"""Nodes with real links over loopback, and scripted peers, for tests of transports."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random

import uvloop

from dovetail.cluster.addresses import Address
from dovetail.cluster.frames import FrameReader, encode
from dovetail.cluster.handshake import Handshake, HandshakeState, Hello
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.peer_link import PeerLink
from dovetail.cluster.secret import key_of
from dovetail.cluster.transport import Transport
from support.brokers.handshakes import acceptor, dialer, hello
from support.processes.broker_process import WAIT_SECONDS

SECRET = b"a secret of the tests"
KEY = key_of(SECRET, "test")
ASK = 20
ANSWER = 21


def run(work: Coroutine[None, None, None]) -> None:
    """Run on the event loop of the service."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work, 2 * WAIT_SECONDS))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no callback reports."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def links(name: str, **changes: object) -> LinkSettings:
    """Return settings of links with short times."""
    values: dict[str, object] = {
        "cluster": "test",
        "port": 0,
        "secret": SECRET,
        "ping_seconds": 0.02,
        "dial_seconds_min": 0.01,
        "dial_seconds_max": 0.05,
        "steady_seconds": 0.0,
    }
    return LinkSettings(name=name, **(values | changes))  # type: ignore[arg-type]


class TransportNode:
    """A transport that records events and frames, and answers questions."""

    def __init__(self, options: LinkSettings, refuses: str | None = None) -> None:
        self.events: list[tuple[str, ...]] = []
        self.frames: list[tuple[str, int, bytes]] = []
        self.on_frame: Callable[[PeerLink, int, bytes], None] = self.answer
        self._changed = asyncio.Event()
        self.transport = Transport(
            options,
            incarnation=1,
            on_frame=self._take,
            on_connected=lambda name, _hello: self._note("connected", name),
            on_lost=lambda name: self._note("lost", name),
            on_accepted=lambda hello: self._note("accepted", hello.name),
            check=lambda _: refuses,
            random=Random(1),
        )

    @property
    def address(self) -> Address:
        return self.transport.address

    def answer(self, link: PeerLink, kind: int, body: bytes) -> None:
        if kind == ASK:
            link.answer(ANSWER, b"to " + body)

    def _take(self, link: PeerLink, kind: int, body: bytes) -> None:
        self.frames.append((link.name, kind, body))
        self._changed.set()
        self.on_frame(link, kind, body)

    def _note(self, *event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that a callback reports."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def told(self, *event: str, times: int = 1) -> None:
        await self.until(lambda: self.events.count(event) >= times)

    async def got(self, *frame: object) -> None:
        await self.until(lambda: frame in self.frames)


@asynccontextmanager
async def nodes(*options: LinkSettings | TransportNode) -> AsyncIterator[list[TransportNode]]:
    """Started, and stopped in the end."""
    async with AsyncExitStack() as stack:
        started = []
        for option in options:
            node = option if isinstance(option, TransportNode) else TransportNode(option)
            await node.transport.start()
            stack.push_async_callback(node.transport.stop)
            started.append(node)
        yield started


class ScriptedPeer:
    """A peer whose bytes the test sends and reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameReader(1 << 24)
        self._waiting: list[tuple[int, bytes]] = []

    async def next_frame(self) -> tuple[int, bytes] | None:
        """None: the connection is closed."""
        while not self._waiting:
            with suppress(ConnectionError):
                data = await self.reader.read(65_536)
                if data:
                    self._waiting += self._frames.feed(data)
                    continue
            return None
        return self._waiting.pop(0)

    async def shake_hands(self, side: Handshake) -> None:
        self.writer.write(side.begin())
        while side.state not in {HandshakeState.DONE, HandshakeState.REFUSED}:
            frame = await self.next_frame()
            assert frame is not None, "closed in the middle of the handshake"
            self.writer.write(side.receive(*frame))

    def send(self, kind: int, body: bytes) -> None:
        self.writer.write(encode(kind, body))

    async def closed(self) -> None:
        """Read to the end."""
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.next_frame() is not None:
                pass


@asynccontextmanager
async def dialed(
    address: Address, own: Hello | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedPeer]:
    """A connection to a node; with `own`, the handshake is done."""
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    peer = ScriptedPeer(reader, writer)
    try:
        if own is not None:
            await peer.shake_hands(dialer(own, KEY))
        yield peer
    finally:
        writer.transport.abort()


@asynccontextmanager
async def served(
    serve: Callable[[ScriptedPeer], Awaitable[None]], own: Hello | None = None
) -> AsyncIterator[Address]:
    """A peer that nodes may dial; with `own`, the handshake is done before `serve` is called."""
    tasks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        peer = ScriptedPeer(reader, writer)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                if own is not None:
                    await peer.shake_hands(acceptor(own, KEY))
                await serve(peer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield Address(host, port)
    finally:
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def named(name: str, nonce: int = 1) -> Hello:
    return hello(name, nonce)
