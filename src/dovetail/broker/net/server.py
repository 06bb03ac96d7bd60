"""The live shell around the core: sockets, the clock, and the disk. Everything on one event loop.

A turn of the loop: every readable connection hands its bytes to its link; what the links have for
clients is written once at the end of the turn, joined per connection; rows go to the store's thread
when it is idle, and whoever waits for them is told when they are on disk.

A connection stops being read until its client is let in, and while the journal is full: a
publisher faster than the disk is slowed by TCP.
"""

import asyncio
import ipaddress
import logging
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, cast

from dovetail.attributes.space_registry import Spaces
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.client_link import Link
from dovetail.broker.core import Broker
from dovetail.broker.keep_alive import TICK_SECONDS_MAX
from dovetail.broker.net.limits import (
    CALM_SECONDS_MIN,
    FLUSH_SECONDS,
    FLUSHED_MIN,
    JOIN_READS_MIN,
    JOIN_SECONDS_MAX,
    JOURNAL_BYTES_MAX,
    JOURNAL_MESSAGES_MAX,
    REST_JOIN_SECONDS_MAX,
    REST_READS_MIN,
    REST_SECONDS,
    SLICE_SECONDS,
    STORE_RETRY_SECONDS,
    UNKNOWN_CONNECTIONS_MAX,
)
from dovetail.broker.outlet import Outlet, Peer, State
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.shared_state import Shared
from dovetail.broker.store.journal import Batch
from dovetail.broker.store.sqlite import Store, Writer
from dovetail.cluster.limits import WRITE_HIGH_WATER_BYTES, WRITE_JOIN_BYTES_MAX
from dovetail.codec.packets import Connect
from dovetail.errors import StoreError
from dovetail.process.descriptors import limit_now, shares_of
from dovetail.settings import Listener

log = logging.getLogger("dovetail.server")

_TICK_SECONDS = TICK_SECONDS_MAX / 2
_GOODBYE_SECONDS = 1.0
"""What clients get to take their last packet when the broker stops."""


class Server:
    """One broker with its connections and its store."""

    def __init__(
        self,
        shared: Shared,
        store: Store | None,
        *,
        authenticate: Callable[[Link, Connect], None],
        random: Random,
        clock: Callable[[], float],
        rules: AccessRules | None = None,
        spaces: Spaces | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = clock
        self.shared = shared
        self.broker = Broker(
            shared,
            authenticate=authenticate,
            schedule=self._schedule,
            random=random,
            rules=rules,
            spaces=spaces,
        )
        self.mesh: Mesh | None = None
        """The other brokers, if there are some (broker/peering/broker_agent.py)."""
        self.connections: set[Connection] = set()
        self.stalled: set[Connection] = set()
        self._store = store
        self._writer = None if store is None else Writer(store, self._written_by_thread)
        self._rows_taken = 0
        self._paused: list[Connection] = []
        self.is_scheduled = False
        self._scheduled_at = 0.0
        self._joining = False
        self.reads = 0
        self.read_at = 0.0
        self._spin_seconds = shared.limits.spin_microseconds / 1e6
        self._is_spinning = False
        self._ticker = self.loop.call_later(_TICK_SECONDS, self._tick)
        self._retry: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()  # a batch came back from the store
        self._all_gone = asyncio.Event()

    # Writing ------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self.is_scheduled:
            self.is_scheduled = True
            self._scheduled_at = time.monotonic()
            self.loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        # Several connections are being read: what comes in the next turns can go out with this
        # one's, and the loop does not fall asleep in between.
        reads, self.reads = self.reads, 0
        are_many = reads >= REST_READS_MIN
        seconds_max = REST_JOIN_SECONDS_MAX if are_many else JOIN_SECONDS_MAX
        slices = self.broker.slices
        if (
            reads >= (1 if self._joining else JOIN_READS_MIN)
            and not slices
            and time.monotonic() - self._scheduled_at < seconds_max
        ):
            self._joining = True
            if are_many:
                time.sleep(REST_SECONDS)
            self.loop.call_soon(self._end_of_turn)
            return
        self._joining = False
        self.is_scheduled = False
        if slices:
            self._work()
        if self.mesh is not None:
            self.mesh.tell()  # before clients hear of it
        self.flush(FLUSH_SECONDS)
        journal = self.shared.journal
        if journal.rows_written != self._rows_taken or journal.open.waiting:
            self.commit()

    def _work(self) -> None:
        """What takes long, for a while: a slice a turn, however many clients have asked for it."""
        self.now()
        end = time.monotonic() + SLICE_SECONDS
        try:
            self.broker.slices.run(lambda: time.monotonic() >= end)
        except Exception:  # a bug, and of this work only
            log.exception("cannot go on with something that takes long; it is left as it is")

    def flush(self, seconds_max: float = math.inf) -> None:
        """Write what links have; after so long the rest is left for the next turn."""
        broker = self.broker
        dirty, broker.dirty = broker.dirty, []
        end = time.monotonic() + seconds_max if len(dirty) > FLUSHED_MIN else math.inf
        for place, link in enumerate(dirty, 1):
            flush = link.flush
            if flush is not None:
                try:
                    flush()
                except Exception:  # a bug, and of this connection only
                    log.exception("cannot write to %s; closed", link.peer.address)
                    self.connection_of(link).abort()
            if not place % FLUSHED_MIN and time.monotonic() > end:
                broker.dirty = [*dirty[place:], *broker.dirty]
                self._schedule()
                return

    def receive_calmly(self, link: Link, data: bytes) -> bool:
        """`receive_plain`, and what it leads to is written at once rather than with the turn's."""
        self.is_scheduled = True  # as good as: we flush below
        try:
            handled = link.receive_plain(data)
        finally:
            self.is_scheduled = False
        broker = self.broker
        dirty = broker.dirty
        if len(dirty) == 1:
            broker.dirty = []
            self.connection_of(dirty[0]).flush_at_once()
        elif dirty:
            self.flush(FLUSH_SECONDS)
        if self._spin_seconds and not self._is_spinning:
            self._is_spinning = True
            self._spin()
        return handled

    def _spin(self) -> None:
        """Stay awake for the next read. Every turn of the loop looks at the sockets."""
        if time.monotonic() - self.read_at < self._spin_seconds:
            self.loop.call_soon(self._spin)
        else:
            self._is_spinning = False

    def now(self) -> None:
        """Called before the core is told something that no connection brought."""
        self.shared.now = self.clock()

    def rows_may_wait(self) -> None:
        """Called after every read: there may be rows to write though nobody has been answered."""
        if self.shared.journal.rows_written != self._rows_taken:
            self._schedule()

    def commit(self, *, probe: bool = False) -> None:
        """Hand the open batch to the store, unless it has one or is waiting for a better disk."""
        journal = self.shared.journal
        self._rows_taken = journal.rows_written
        if self._retry is not None:
            return
        batch = journal.close(probe=probe)
        if batch is None:
            return
        if self._writer is None:
            journal.finished(True, self.broker.slices.begin)
        else:
            self._writer.submit(batch)

    def _written_by_thread(self, _batch: Batch, error: StoreError | None) -> None:
        self.loop.call_soon_threadsafe(self._written, error)

    def _written(self, error: StoreError | None) -> None:
        shared = self.shared
        shared.now = self.clock()
        journal = shared.journal
        did_refuse = journal.refuses_more
        assert self._store is not None
        journal.is_low = self._store.is_low
        if error is None:
            shared.counters.commits += 1
        else:
            shared.counters.commit_failures += 1
            if not did_refuse:
                log.error("cannot write to the data folder: %s", error)
            self._retry = self.loop.call_later(STORE_RETRY_SECONDS, self._try_again)
        journal.finished(error is None, self.broker.slices.begin)
        shared.gauges.store_failing = int(journal.refuses_more)
        if did_refuse and not journal.refuses_more:
            log.warning("the data folder takes writes again")
        if journal.is_low and self._probe is None:
            self._probe = self.loop.call_later(STORE_RETRY_SECONDS, self._look_for_room)
        self.commit()
        self._progress.set()
        # With a disk that refuses, publications are refused too, and pile up no more.
        if self._paused and (error is not None or not self.is_pressed):
            paused, self._paused = self._paused, []
            for connection in paused:
                connection.is_held = False
                connection.resume_reading()

    def _try_again(self) -> None:
        self._retry = None
        self.commit()

    def _look_for_room(self) -> None:
        """Nobody may have had anything to write since: then an empty batch finds out."""
        self._probe = None
        self.commit(probe=True)

    @property
    def is_pressed(self) -> bool:
        """More waits for the disk than may."""
        journal = self.shared.journal
        return (
            len(journal.open.messages) > JOURNAL_MESSAGES_MAX
            or len(journal.open.archive) > JOURNAL_MESSAGES_MAX
            or journal.bytes_open > JOURNAL_BYTES_MAX
        )

    @property
    def is_crowded(self) -> bool:
        """More connections than could ever be let in."""
        limit = self.shared.limits.connections_max + UNKNOWN_CONNECTIONS_MAX
        return len(self.connections) > limit

    def has_room_for(self, descriptor: int, address: str) -> bool:
        """May a client's connection keep its file descriptor?"""
        limit = limit_now()
        if descriptor < shares_of(limit).clients:
            return True
        self.shared.counters.connections_refused += 1
        log.warning(
            "closed a connection from %s: clients have all file descriptors that they may have, of "
            "%s in all; `ulimit -Hn` has to be higher for more",
            address,
            f"{limit:,}",
        )
        return False

    @staticmethod
    def connection_of(link: Outlet) -> "Connection":
        connection = getattr(link.flush, "__self__", None)
        assert isinstance(connection, Connection)
        return connection

    def hold(self, connection: "Connection") -> None:
        """Do not read from it until the disk has caught up."""
        if not connection.is_held:
            connection.is_held = True
            connection.pause_reading()
            self._paused.append(connection)

    # Time ---------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(_TICK_SECONDS, self._tick)
        now = self.clock()
        for connection in (*self._paused, *self.stalled):
            connection.link.seen_at = now  # it is we who do not listen
        self.broker.tick(now)
        for connection in list(self.stalled):
            if connection.stalled_for(now) > self.shared.limits.write_stall_seconds:
                log.info("%s takes no bytes; closed", connection.link.peer.address)
                connection.abort()
        self.rows_may_wait()

    def gone(self, connection: "Connection") -> None:
        self.connections.discard(connection)
        self.stalled.discard(connection)
        if not self.connections:
            self._all_gone.set()

    # The end ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Clients get DISCONNECT, and everything that is owed is on disk when this returns."""
        self._ticker.cancel()
        self.broker.stop(self.clock())
        self.flush()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), _GOODBYE_SECONDS)
        for connection in list(self.connections):  # those that do not read
            connection.abort()
        for timer in (self._retry, self._probe):
            if timer is not None:
                timer.cancel()
        self._retry = None
        self.commit()
        while self.shared.journal.outstanding is not None:
            self._progress.clear()
            await self._progress.wait()
        if self._writer is not None:
            await self.loop.run_in_executor(None, self._writer.close, 10.0)


class Connection(asyncio.Protocol):
    """Bytes between a transport and a link."""

    __slots__ = (
        "_bytes_given",
        "_bytes_taken",
        "_choked",
        "_counters",
        "_file",
        "_is_deaf",
        "_name",
        "_server",
        "_taken_at",
        "_transport",
        "is_held",
        "link",
        "listener",
    )

    def __init__(self, server: Server, name: str, listener: Listener) -> None:
        self._server = server
        self._counters = server.shared.counters
        self._name = name
        self.listener = listener
        self.is_held = False  # until the disk has caught up
        self._is_deaf = False
        self._choked = False
        self._bytes_given = 0
        self._bytes_taken = -1  # of those, as last seen
        self._taken_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        server = self._server
        # Not above the backlog at which a link is no longer congested: we have to hear of it.
        self._transport.set_write_buffer_limits(
            high=min(WRITE_HIGH_WATER_BYTES, server.shared.limits.backlog_bytes_max // 4)
        )
        peer = peer_of(transport, self._name)
        descriptor = transport.get_extra_info("socket").fileno()
        if server.is_crowded or not server.has_room_for(descriptor, peer.address):
            self._transport.abort()
        link = server.broker.accept(peer, server.clock())
        link.flush = self.flush
        self.link = link
        # Only where bytes go out as they are: not through TLS, nor in frames.
        self._file = descriptor if self.listener.kind == "tcp" else -1
        server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        link = self.link
        self._counters.bytes_received += len(data)
        server = self._server
        server.reads += 1
        now = time.monotonic()
        is_calm = now - server.read_at > CALM_SECONDS_MIN and not server.is_scheduled
        server.read_at = now
        if server.receive_calmly(link, data) if is_calm else link.receive_plain(data):
            return
        link.receive(data, server.clock())
        if server.shared.journal.rows_written != server._rows_taken:  # noqa: SLF001
            server.rows_may_wait()
            if server.is_pressed:
                server.hold(self)
        if link.is_deaf:
            self._is_deaf = True
            self.pause_reading()

    def listen_again(self) -> None:
        """We know who the client is, or have taken what it sent: read on, unless the disk waits."""
        server = self._server
        if not self.link.is_deaf:
            self._is_deaf = False
            if server.is_pressed:
                server.hold(self)
            self.resume_reading()
            self.link.go_on()
        server.rows_may_wait()

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not (self.is_held or self._is_deaf or self._choked or self._transport.is_closing()):
            self._transport.resume_reading()

    def flush(self) -> None:
        link = self.link
        transport = self._transport
        outgoing = link.outgoing
        if outgoing:
            link.outgoing = []
            # A run of plain packets is one piece, and was counted where it was passed on.
            self._counters.packets_sent += len(outgoing)
            if not transport.is_closing():
                size = self.write(outgoing)
                self._bytes_given += size
                self._server.shared.counters.bytes_sent += size
                link.written(self.unwritten())
        if link.state is State.CLOSED:
            self.close()
            if transport.get_write_buffer_size():
                self.pause_writing()  # the last bytes too have to be taken some time
        elif self._is_deaf:
            self.listen_again()

    def unwritten(self) -> int:
        """Bytes that the client has not taken. If they are too many, it is not read from either.

        Otherwise who asks and does not take the answers would fill our memory with them.
        """
        size = self._transport.get_write_buffer_size()
        limit = self._server.shared.limits.backlog_bytes_max
        # Above the high-water mark `resume_writing` is sure to come.
        if size > WRITE_HIGH_WATER_BYTES and size > limit and not self._choked:
            self._choked = True
            self.pause_reading()
        return size

    def flush_at_once(self) -> None:
        """`flush`, without the way through the transport if there is nothing to wait for."""
        link = self.link
        outgoing = link.outgoing
        if self._file < 0 or len(outgoing) != 1 or self._transport.get_write_buffer_size():
            self.flush()
            return
        data = outgoing[0]
        try:
            written = os.write(self._file, data)
        except OSError:  # the transport knows what to do about it
            written = 0
        if written < len(data):
            outgoing[0] = data[written:]
            self.flush()
            return
        link.outgoing = []
        if link.congested:
            link.written(0)
        link.unsent = 0
        self._bytes_given += written
        counters = self._counters
        counters.packets_sent += 1
        counters.bytes_sent += written

    def write(self, pieces: list[bytes]) -> int:
        """Returns how many bytes it was."""
        if len(pieces) == 1:
            data = pieces[0]
            self._transport.write(data)
            return len(data)
        size = sum(map(len, pieces))
        if size <= WRITE_JOIN_BYTES_MAX or size < 4_096 * len(pieces):
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)
        return size

    def pause_writing(self) -> None:
        self._bytes_taken = -1
        self._server.stalled.add(self)

    def stalled_for(self, now: float) -> float:
        """Seconds since the client was last seen to take a byte."""
        taken = self._bytes_given - self._transport.get_write_buffer_size()
        if taken != self._bytes_taken:
            self._bytes_taken = taken
            self._taken_at = now
        return now - self._taken_at

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._server.stalled.discard(self)
        if self._choked:
            self._choked = False
            self.resume_reading()
        self.link.written(self._transport.get_write_buffer_size())

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        server = self._server
        server.gone(self)
        link = self.link
        link.lost(server.clock())
        link.flush = None
        self._file = -1
        link.outgoing = []
        server.rows_may_wait()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def peer_of(transport: asyncio.BaseTransport, listener: str) -> Peer:
    address = transport.get_extra_info("peername")
    host = str(address[0]) if isinstance(address, tuple) else "local"
    shown = f"{host}:{address[1]}" if isinstance(address, tuple) else host
    try:
        is_loopback = ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        is_loopback = True  # a socket file
    certificate = transport.get_extra_info("peercert")
    return Peer(shown, is_loopback, common_name(certificate), listener, host)


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """Of the certificate that a client showed, and that was verified."""
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None
