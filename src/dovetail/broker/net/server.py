"""The live shell around the core: sockets, the clock and the disk, on one event loop.

In a turn of the loop:

1. Every readable connection hands its bytes to its reader (packet_reader.py). While many
   connections send, it keeps them until the end of the turn: then publications that go to the same
   receivers are taken together (joined_reads.py).
2. At the end of the turn each connection writes the bytes of its link at once.
3. If the store's thread is idle, it gets the open batch of rows. When the batch is on disk, the
   journal calls back everyone that waits for it.

The server reads nothing more from a connection while its client is being admitted, and while the
journal is full. So TCP slows down a publisher that is faster than the disk.
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

from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import ArchiveQueue
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.client_link import ClientLink, LinkState
from dovetail.broker.client_wire import RemoteEnd
from dovetail.broker.core import Broker
from dovetail.broker.keep_alive import TICK_SECONDS_MAX
from dovetail.broker.limits import JOINED_READS_MIN
from dovetail.broker.net.limits import (
    FLUSH_SECONDS,
    FLUSHED_MIN,
    JOIN_READS_MIN,
    JOIN_SECONDS_MAX,
    JOURNAL_BYTES_MAX,
    JOURNAL_MESSAGES_MAX,
    QUIET_SECONDS_MIN,
    REST_JOIN_SECONDS_MAX,
    REST_READS_MIN,
    REST_SECONDS,
    SLICE_SECONDS,
    STORE_RETRY_SECONDS,
    UNKNOWN_CONNECTIONS_MAX,
)
from dovetail.broker.packet_reader import PacketReader
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import Batch
from dovetail.broker.store.sqlite import Store, StoreWriter
from dovetail.cluster.limits import WRITE_HIGH_WATER_BYTES, WRITE_JOIN_BYTES_MAX
from dovetail.codec.packets import Connect
from dovetail.errors import ClientError, ReasonCode, StoreError
from dovetail.process.descriptors import descriptor_limit, shares_of
from dovetail.settings import SECURE_KINDS, ListenerSettings

log = logging.getLogger("dovetail.server")

_TICK_SECONDS = TICK_SECONDS_MAX / 2
_STOP_SECONDS = 1.0
"""The time for clients to read their last packet when the broker stops."""

_PUBLISH = 0x30
"""The first byte of a publication, without its flags."""

NOT_STORED = "the data folder does not take what has to be written; try again later"


class BrokerServer:
    """A broker with its connections and its store."""

    def __init__(
        self,
        shared: SharedState,
        store: Store | None,
        *,
        authenticate: Callable[[ClientLink, Connect], None],
        random: Random,
        clock: Callable[[], float],
        rules: AccessRules | None = None,
        spaces: SpaceRegistry | None = None,
        cluster: ClusterMembership | None = None,
        archive: ArchiveQueue | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = clock
        self.shared = shared
        self.broker = Broker(
            shared,
            authenticate=authenticate,
            schedule=self.schedule,
            random=random,
            rules=rules,
            spaces=spaces,
            cluster=cluster,
            archive=archive,
        )
        self.connections: set[ClientConnection] = set()
        self.stalled: set[ClientConnection] = set()
        self.dirty: list[ClientConnection] = []
        """Connections with bytes to write, or to close."""
        self._store = store
        self._writer = None if store is None else StoreWriter(store, self._written_by_thread)
        # At most the backlog at which a link is no longer congested: `resume_writing` has to come.
        self.high_water_bytes = min(WRITE_HIGH_WATER_BYTES, shared.limits.backlog_bytes_max // 4)
        self._rows_taken = 0
        self._waiting_for_disk: list[ClientConnection] = []
        self.is_scheduled = False
        self.writes_at_once = False
        """Does the caller of the core write what connections have, without a turn's end?"""
        self._scheduled_at = 0.0
        self._joining = False
        self.reads = 0
        self.gathers = False
        """Are reads kept until the end of the turn?"""
        self.gathered: list[ClientConnection] = []
        """Connections that keep a read."""
        self.read_at = 0.0
        self._spin_seconds = shared.limits.spin_microseconds / 1e6
        self._is_spinning = False
        self._ticker = self.loop.call_later(_TICK_SECONDS, self._tick)
        self._retry: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()  # a batch came back from the store
        self._all_closed = asyncio.Event()

    # Writing ------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Have the end of this turn handled."""
        if not self.is_scheduled:
            self.is_scheduled = True
            self._scheduled_at = time.monotonic()
            self.loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        # If this turn has read several connections, more bytes will come soon. Then writing waits
        # for a few turns, and the loop does not sleep in between.
        if self.gathered:
            self._take_gathered()
        reads, self.reads = self.reads, 0
        self.gathers = reads >= JOINED_READS_MIN
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
        self.broker.others.send_changes()  # before clients get their acknowledgements
        self.flush(FLUSH_SECONDS)
        journal = self.shared.journal
        if journal.rows_written != self._rows_taken or journal.open.waiting:
            self.commit()

    def _work(self) -> None:
        """Do long work for one slice. There is one slice a turn, however many clients wait."""
        self.update_clock()
        end = time.monotonic() + SLICE_SECONDS
        try:
            self.broker.slices.run(lambda: time.monotonic() >= end)
        except Exception:  # a bug, which affects this work only
            log.exception("a long task failed, and the broker dropped it")

    def flush(self, seconds_max: float = math.inf) -> None:
        """Write to dirty connections. After `seconds_max` the rest waits for the next turn."""
        dirty, self.dirty = self.dirty, []
        end = time.monotonic() + seconds_max if len(dirty) > FLUSHED_MIN else math.inf
        for place, connection in enumerate(dirty, 1):
            try:
                connection.flush()
            except Exception:  # a bug, which affects this connection only
                log.exception("cannot write to %s; closed", connection.link.remote.address)
                connection.abort()
            if not place % FLUSHED_MIN and time.monotonic() > end:
                self.dirty = [*dirty[place:], *self.dirty]
                self.schedule()
                return

    def _take_gathered(self) -> None:
        """Take the reads that connections keep, similar publications together."""
        gathered, self.gathered = self.gathered, []
        self.update_clock()
        connections = {one.reader: one for one in gathered if one.kept}
        try:
            rest = self.broker.joined_reads.take(
                [(one.reader, one.kept) for one in connections.values()]
            )
        except Exception:  # a bug, which affects these connections only
            log.exception("cannot read from %d clients; closed", len(connections))
            for one in connections.values():
                one.kept = b""
                one.abort()
            return
        for reader, data in rest:
            connections.pop(reader).take_kept(data)
        for one in connections.values():
            one.kept = b""
        if self.shared.journal.rows_written != self._rows_taken and self.is_journal_full:
            for one in connections.values():
                self.pause_until_stored(one)

    def receive_at_once(self, reader: PacketReader, data: bytes) -> bool:
        """Call `receive_plain`, and write its results now, not at the end of the turn."""
        self.writes_at_once = True
        try:
            handled = reader.receive_plain(data)
        finally:
            self.writes_at_once = False
        dirty = self.dirty
        if len(dirty) == 1:
            self.dirty = []
            dirty[0].flush_at_once()
        elif dirty:
            self.flush(FLUSH_SECONDS)
        if self._spin_seconds and not self._is_spinning:
            self._is_spinning = True
            self._spin()
        return handled

    def _spin(self) -> None:
        """Keep the loop awake for the next read. Every turn of the loop polls the sockets."""
        if time.monotonic() - self.read_at < self._spin_seconds:
            self.loop.call_soon(self._spin)
        else:
            self._is_spinning = False

    def update_clock(self) -> None:
        """Set the core's clock. Call this before a call of the core that no socket caused."""
        self.shared.now = self.clock()

    def schedule_commit(self) -> None:
        """Schedule a commit if there are new rows. Call this after each read or other event."""
        if self.shared.journal.rows_written != self._rows_taken:
            self.schedule()

    def commit(self, *, probe: bool = False) -> None:
        """Hand the open batch to the store, unless it is busy or waits to try again."""
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

    async def wait_until_stored(self) -> None:
        """Wait until everything written so far is on disk. Raise ClientError if the disk fails."""
        done: asyncio.Future[bool] = self.loop.create_future()

        def settle(is_stored: bool) -> None:
            if not done.done():
                done.set_result(is_stored)

        self.shared.journal.when_stored(settle)
        self.schedule_commit()
        if not await done:
            raise ClientError(ReasonCode.SERVER_UNAVAILABLE, NOT_STORED)

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
            self._retry = self.loop.call_later(STORE_RETRY_SECONDS, self._retry_commit)
        journal.finished(error is None, self.broker.slices.begin)
        shared.gauges.store_failing = int(journal.refuses_more)
        if did_refuse and not journal.refuses_more:
            log.warning("the data folder takes writes again")
        if journal.is_low and self._probe is None:
            self._probe = self.loop.call_later(STORE_RETRY_SECONDS, self._probe_disk)
        self.commit()
        self._progress.set()
        # While the disk refuses rows, the broker refuses publications, so they do not pile up.
        if self._waiting_for_disk and (error is not None or not self.is_journal_full):
            waiting, self._waiting_for_disk = self._waiting_for_disk, []
            for connection in waiting:
                connection.waits_for_disk = False
                connection.resume_reading()

    def _retry_commit(self) -> None:
        self._retry = None
        self.commit()

    def _probe_disk(self) -> None:
        """Write an empty batch to see whether the disk has room again."""
        self._probe = None
        self.commit(probe=True)

    @property
    def is_journal_full(self) -> bool:
        """Does more wait for the disk than the limits allow?"""
        journal = self.shared.journal
        return (
            len(journal.open.messages) > JOURNAL_MESSAGES_MAX
            or len(journal.open.archive) > JOURNAL_MESSAGES_MAX
            or journal.bytes_open > JOURNAL_BYTES_MAX
        )

    @property
    def has_too_many_connections(self) -> bool:
        """Are there more connections than the broker could ever admit?"""
        limit = self.shared.limits.connections_max + UNKNOWN_CONNECTIONS_MAX
        return len(self.connections) > limit

    def has_room_for(self, descriptor: int, address: str) -> bool:
        """May a client's connection keep its file descriptor?"""
        limit = descriptor_limit()
        if descriptor < shares_of(limit).clients:
            return True
        self.shared.counters.connections_refused += 1
        log.warning(
            "closed a connection from %s: clients have all file descriptors that they may have, of "
            "%s in all; raise `ulimit -Hn` for more clients",
            address,
            f"{limit:,}",
        )
        return False

    def pause_until_stored(self, connection: "ClientConnection") -> None:
        """Stop reading from a connection until the disk has caught up."""
        if not connection.waits_for_disk:
            connection.waits_for_disk = True
            connection.pause_reading()
            self._waiting_for_disk.append(connection)

    # Time ---------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(_TICK_SECONDS, self._tick)
        self.shared.now = now = self.clock()
        for connection in (*self._waiting_for_disk, *self.stalled):
            connection.link.seen_at = now  # the client is not silent: we do not read
        for connection in self.stalled:
            connection.report_unsent()
        self.broker.tick(now)
        for connection in list(self.stalled):
            if connection.stalled_for(now) > self.shared.limits.write_stall_seconds:
                log.info("closed %s, which reads no bytes", connection.link.remote.address)
                connection.abort()
        self.schedule_commit()

    def connection_closed(self, connection: "ClientConnection") -> None:
        self.connections.discard(connection)
        self.stalled.discard(connection)
        if not self.connections:
            self._all_closed.set()

    # The end ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Disconnect all clients, and return when everything that must persist is on disk."""
        self._ticker.cancel()
        self.broker.stop(self.clock())
        self.flush()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), _STOP_SECONDS)
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


class ClientConnection(asyncio.Protocol):
    """Moves bytes between a transport and a link. It is the link's `Wire` (client_wire.py)."""

    __slots__ = (
        "_bytes_given",
        "_bytes_taken",
        "_counters",
        "_file",
        "_is_lost",
        "_server",
        "_taken_at",
        "_transport",
        "_waits_for_client",
        "_waits_for_link",
        "kept",
        "link",
        "listener",
        "reader",
        "waits_for_disk",
    )

    def __init__(self, server: BrokerServer, listener: ListenerSettings) -> None:
        self._server = server
        self._counters = server.shared.counters
        self.listener = listener
        self._is_lost = False
        # The reasons not to read:
        self.waits_for_disk = False  # the journal is full
        self._waits_for_link = False  # the link is busy, or admits its client
        self._waits_for_client = False  # the client does not read our bytes
        self.kept = b""
        """A read of this turn that is not taken yet."""
        self._bytes_given = 0  # to the transport
        self._bytes_taken = -1  # by the client, when last checked
        self._taken_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        server = self._server
        self._transport.set_write_buffer_limits(server.high_water_bytes)
        peer = remote_end(transport, self.listener)
        descriptor = transport.get_extra_info("socket").fileno()
        if server.has_too_many_connections or not server.has_room_for(descriptor, peer.address):
            self._transport.abort()
        self.reader = server.broker.accept(self, peer, server.clock())
        self.link = self.reader.link
        # Direct writes are possible only without TLS and WebSocket frames.
        self._file = descriptor if self.listener.kind == "tcp" else -1
        server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        reader = self.reader
        self._counters.bytes_received += len(data)
        server = self._server
        server.reads += 1
        now = time.monotonic()
        is_quiet = now - server.read_at > QUIET_SECONDS_MIN and not server.is_scheduled
        server.read_at = now
        if is_quiet:
            if server.receive_at_once(reader, data):
                return
        elif server.gathers and (self.kept or data[0] & 0xF0 == _PUBLISH):
            self._keep(data)
            return
        elif reader.receive_plain(data):
            return
        self._take_read(data)

    def _keep(self, data: bytes) -> None:
        """Keep a read until the end of this turn."""
        server = self._server
        if self.kept:
            self.kept += data
            return
        self.kept = data
        if not server.gathered:
            server.schedule()
        server.gathered.append(self)

    def take_kept(self, data: bytes) -> None:
        """Take what is left of a read that was kept."""
        self.kept = b""
        try:
            if not self.reader.receive_plain(data):
                self._take_read(data)
        except Exception:  # a bug, which affects this connection only
            log.exception("cannot read from %s; closed", self.link.remote.address)
            self.abort()

    def _take_read(self, data: bytes) -> None:
        server = self._server
        self.reader.receive(data, server.clock())
        if server.shared.journal.rows_written != server._rows_taken:  # noqa: SLF001
            server.schedule_commit()
            if server.is_journal_full:
                server.pause_until_stored(self)
        if self.link.is_paused:
            self._waits_for_link = True
            self.pause_reading()

    def resume(self) -> None:
        """Continue to read if the link is ready and the journal has room."""
        server = self._server
        if self._waits_for_link and not self.link.is_paused:
            self._waits_for_link = False
            if server.is_journal_full:
                server.pause_until_stored(self)
            self.resume_reading()
            self.reader.take_early_bytes()
        server.schedule_commit()

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not (
            self.waits_for_disk
            or self._waits_for_link
            or self._waits_for_client
            or self._transport.is_closing()
        ):
            self._transport.resume_reading()

    def wake(self) -> None:
        server = self._server
        if not (server.dirty or server.writes_at_once):
            server.schedule()
        server.dirty.append(self)

    def flush(self) -> None:
        if self._is_lost:
            return
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
        if link.state is LinkState.CLOSED:
            self.close()
            if transport.get_write_buffer_size():
                self.pause_writing()  # a client that never reads the last bytes is stalled, too
        elif self._waits_for_link:
            self.resume()

    def unwritten(self) -> int:
        """Return the bytes that the transport has not sent. If there are many, stop reading.

        Otherwise a client that sends requests and reads no answers would fill our memory.
        """
        size = self._transport.get_write_buffer_size()
        # Above the high-water mark `resume_writing` is sure to come.
        if (
            size > WRITE_HIGH_WATER_BYTES
            and size > self._server.shared.limits.backlog_bytes_max
            and not self._waits_for_client
        ):
            self._waits_for_client = True
            self.pause_reading()
        return size

    def flush_at_once(self) -> None:
        """Flush, with a direct write to the socket if the transport has nothing buffered."""
        link = self.link
        outgoing = link.outgoing
        if self._file < 0 or len(outgoing) != 1 or self._transport.get_write_buffer_size():
            self.flush()
            return
        data = outgoing[0]
        try:
            written = os.write(self._file, data)
        except OSError:  # the transport handles it
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
        """Write the pieces, and return their size in bytes."""
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
        """Return the seconds since the client last read a byte."""
        taken = self._bytes_given - self._transport.get_write_buffer_size()
        if taken != self._bytes_taken:
            self._bytes_taken = taken
            self._taken_at = now
        return now - self._taken_at

    def report_unsent(self) -> None:
        """Tell the link how much its client has left unread. A flush does so, too."""
        if not self.link.outgoing:
            self.link.written(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._server.stalled.discard(self)
        if self._waits_for_client:
            self._waits_for_client = False
            self.resume_reading()
        self.link.written(self._transport.get_write_buffer_size())

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        server = self._server
        server.connection_closed(self)
        if self.kept:
            self.take_kept(self.kept)
        link = self.link
        link.lost(server.clock())
        self._is_lost = True
        self._file = -1
        link.outgoing = []
        server.schedule_commit()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def remote_end(transport: asyncio.BaseTransport, listener: ListenerSettings) -> RemoteEnd:
    address = transport.get_extra_info("peername")
    host = str(address[0]) if isinstance(address, tuple) else "local"
    shown = f"{host}:{address[1]}" if isinstance(address, tuple) else host
    name = None
    if listener.kind in SECURE_KINDS:
        name = common_name(transport.get_extra_info("peercert"))
    return RemoteEnd(shown, is_on_this_machine(host), name, host, listener)


def is_on_this_machine(host: str) -> bool:
    """Is this the loopback interface, or a socket file?"""
    if host.startswith("127."):  # nearly all: to parse an address takes seven microseconds
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return True


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """Return the common name in a client's verified certificate, or None."""
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None
