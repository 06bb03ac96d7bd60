"""Compares the store's transactions, rows and starts with simple code for the same.

A batch is that of a broker whose subscribers keep up: it brings messages, each for one of 500
sessions, and removes those of the batch before; four rows change for a message. The peer of the
first table makes a transaction of every row. The peer of the second makes one of the batch, and
executes a statement for every row of it, in a thread next to an event loop that is idle or busy.
"""

import asyncio
import functools
import shutil
import socket
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import uvloop

from _measure import finish, in_turn, ratio, table, verdict
from dovetail.broker.store.database import DATABASE_FILE, LOG_PAGES_CHECKPOINT, Durability
from dovetail.broker.store.journal import (
    Batch,
    DeliveryRow,
    MessageRow,
    SessionRow,
    SubscriptionRow,
)
from dovetail.broker.store.sqlite import Store
from dovetail.broker.store.tables import (
    DELIVERIES,
    MESSAGES,
    SUBSCRIPTIONS,
    TableSchema,
    checksum,
    put_statement,
    read_statement,
    remove_statement,
)
from dovetail.broker.store.tables import SESSIONS as SESSION_ROWS

ROUNDS = 5
SESSIONS = 500
COMMITS = {1: 100, 100: 20, 10_000: 1}
"""The number of batches in a round, by messages in a batch."""
PEER_MESSAGES = 25
BUSY_MESSAGES = 500
ECHO_PAIRS = 50
ECHO_WORK = 500
"""Rounds of a loop for each packet: a dozen microseconds, as a broker has."""
IDLE_RATIO_MIN = 1.1
"""Next to a busy loop it was 1.4 to 12, depending on other work of the cores: too wide for a
limit."""
LOG_MEGABYTES_MAX = LOG_PAGES_CHECKPOINT * 4_120 / 1e6 + 10
"""The bound, and the largest batch."""
STORED_SUBSCRIPTIONS = 1_000_000
STORED_MESSAGES = 100_000
LOAD_RATIO_MAX = 4.0
"""The limit of the ratio to fetching the same rows without using them."""
DURABILITIES: tuple[Durability, ...] = ("process", "power")


class Traffic:
    """Batches that add messages and remove those of the batch before."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.number = 0
        self.sequence = 0
        self.last = Batch(0)

    def next(self) -> Batch:
        self.number += 1
        batch = Batch(self.number)
        for key in self.last.deliveries:
            batch.deliveries[key] = None
        for message in self.last.messages:
            batch.messages[message] = None
        came = Batch(self.number)
        for _ in range(self.messages):
            self.sequence += 1
            came.messages[self.sequence] = MessageRow(
                b"plant/line/machine/sensor", bytes(100), 1, False, b"", None, "publisher"
            )
            receiver = self.sequence * 7_919 % SESSIONS + 1
            came.deliveries[receiver, self.sequence] = DeliveryRow(
                self.sequence, 1, False, self.sequence % 65_535, False, ()
            )
        batch.messages.update(came.messages)
        batch.deliveries.update(came.deliveries)
        self.last = came
        return batch

    @property
    def rows(self) -> int:
        return 4 * self.messages


def statements(batch: Batch) -> Iterable[tuple[str, list[tuple[Any, ...]]]]:
    """Return the batch as a statement and its rows, for each kind of change."""

    def changes(
        table: TableSchema, rows: dict[Any, Any]
    ) -> Iterable[tuple[str, list[tuple[Any, ...]]]]:
        keys = {key: key if isinstance(key, tuple) else (key,) for key in rows}
        yield (
            put_statement(table, 1),
            [
                (*flat, checksum(flat))
                for key, row in rows.items()
                if row is not None
                for flat in [(*keys[key], *table.flatten(row))]
            ],
        )
        gone = [keys[key] for key, row in rows.items() if row is None]
        yield remove_statement(table, len(table.keys), 1), gone

    yield from changes(MESSAGES, batch.messages)
    yield from changes(DELIVERIES, batch.deliveries)


def by_row(connection: sqlite3.Connection, batch: Batch) -> None:
    for statement, rows in statements(batch):
        for row in rows:
            connection.execute(statement, row)  # its own transaction


def by_executemany(connection: sqlite3.Connection, batch: Batch) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement, rows in statements(batch):
        connection.executemany(statement, rows)
    connection.execute("COMMIT")


def peer_of(folder: Path, durability: Durability) -> sqlite3.Connection:
    """Open a file with the store's settings, but without the store's code."""
    return Store.open(folder, durability)._connection  # noqa: SLF001


def commits(folder: Path) -> None:
    rows = []
    for durability in DURABILITIES:
        store = Store.open(folder / durability, durability)
        peer = peer_of(folder / f"{durability}-peer", durability)
        traffic = {messages: Traffic(messages) for messages in COMMITS}
        peer_traffic = Traffic(PEER_MESSAGES)
        contenders: dict[str, Callable[[], object]] = {
            "peer": functools.partial(commit, functools.partial(by_row, peer), peer_traffic, 1)
        }
        for messages, count in COMMITS.items():
            contenders[str(messages)] = functools.partial(
                commit, store.commit, traffic[messages], count
            )
        seconds = in_turn(contenders, ROUNDS)
        each_peer = [value / peer_traffic.rows for value in seconds["peer"]]
        for messages, count in COMMITS.items():
            changed = count * traffic[messages].rows
            each = [value / changed for value in seconds[str(messages)]]
            middle = statistics.median(each)
            rows.append(
                [
                    durability,
                    f"{messages:,}",
                    f"{1 / middle / traffic[messages].rows:,.0f}",
                    f"{1 / middle:,.0f}",
                    f"{ratio(each_peer, each):.1f}x",
                ]
            )
        log = (folder / durability / f"{DATABASE_FILE}-wal").stat().st_size
        store.close()
        peer.close()
        verdict(f"MB of log, {durability}", log / 1e6, LOG_MEGABYTES_MAX, at_most=True)
    table(
        f"Commits; medians of {ROUNDS} rounds",
        ["durability", "messages a batch", "commits/s", "rows/s", "to a row a transaction"],
        rows,
    )


def commit(write: Callable[[Batch], None], traffic: Traffic, count: int) -> None:
    for _ in range(count):
        write(traffic.next())


class Echo(asyncio.Protocol):
    """Sends data back after some work: two of them keep a loop busy."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for _ in range(ECHO_WORK):
            pass
        self.transport.write(data)
        Echo.count += 1


async def beside_a_loop(folder: Path, *, busy: bool) -> list[list[str]]:
    loop = asyncio.get_running_loop()
    transports = []
    for _ in range(ECHO_PAIRS if busy else 0):
        pair = [await loop.create_connection(Echo, sock=end) for end in socket.socketpair()]
        transports += [transport for transport, _ in pair]
        transports[-1].write(bytes(100))
    name = "busy" if busy else "idle"
    store = Store.open(folder / name, "process")
    peer = peer_of(folder / f"{name}-peer", "process")
    contenders: dict[str, Callable[[], object]] = {
        "store": functools.partial(commit, store.commit, Traffic(BUSY_MESSAGES), 1),
        "peer": functools.partial(
            commit, functools.partial(by_executemany, peer), Traffic(BUSY_MESSAGES), 1
        ),
    }
    seconds = await loop.run_in_executor(None, in_turn, contenders, 2 * ROUNDS)
    assert busy == (Echo.count > 0)
    for transport in transports:
        transport.abort()
    store.close()
    peer.close()
    against = ratio(seconds["peer"], seconds["store"])
    if not busy:
        verdict("ratio to a statement a row, idle", against, IDLE_RATIO_MIN, at_most=False)
    times = [f"{statistics.median(seconds[which]) * 1e3:,.1f}" for which in ("store", "peer")]
    return [[name, *times, f"{against:.1f}x"]]


def beside_loops(folder: Path) -> None:
    rows = []
    for busy in (False, True):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows += runner.run(beside_a_loop(folder, busy=busy))
    table(
        f"A batch of {BUSY_MESSAGES} messages beside an event loop; medians of {2 * ROUNDS} rounds",
        ["loop", "store ms", "a statement a row ms", "ratio"],
        rows,
    )


def starts(folder: Path) -> None:
    with closing(Store.open(folder / "large", "process")) as store:
        started = time.perf_counter()
        for first in range(0, STORED_SUBSCRIPTIONS, 100_000):
            batch = Batch(1)
            for number in range(first, first + 100_000):
                batch.subscriptions[number // 10 + 1, f"site/{number % 200}/machine/{number}/+"] = (
                    SubscriptionRow(1, 0)
                )
            for session in range(first // 10 + 1, first // 10 + 10_001):
                batch.sessions[session] = SessionRow(f"client-{session}", 3_600, 1e9, None, None)
            for number in range(first // 10 + 1, first // 10 + 10_001):
                batch.messages[number] = MessageRow(
                    b"site/1/machine/2/temperature", bytes(200), 1, False, b"", None, "publisher"
                )
                batch.deliveries[number, 1] = DeliveryRow(number, 1, False, 0, False, ())
            store.commit(batch)
        writing = time.perf_counter() - started
    started = time.perf_counter()
    with closing(Store.open(folder / "large", "process")) as store:
        opened = time.perf_counter() - started
        state = store.load()
        loading = time.perf_counter() - started - opened
        started = time.perf_counter()
        for kind in (MESSAGES, DELIVERIES, SUBSCRIPTIONS, SESSION_ROWS):
            store._connection.execute(read_statement(kind)).fetchall()  # noqa: SLF001
        fetching = time.perf_counter() - started
        assert len(state.subscriptions) == STORED_SUBSCRIPTIONS
        assert len(state.messages) == len(state.deliveries) == STORED_MESSAGES
        started = time.perf_counter()
        store.backup(folder / "copy.db")
        copying = time.perf_counter() - started
    table(
        f"{STORED_SUBSCRIPTIONS:,} subscriptions of {STORED_SUBSCRIPTIONS // 10:,} sessions, "
        f"{STORED_MESSAGES:,} messages stored",
        ["written s", "opened s", "loaded s", "fetched s", "backed up s", "MB"],
        [
            [
                f"{writing:.1f}",
                f"{opened:.3f}",
                f"{loading:.2f}",
                f"{fetching:.2f}",
                f"{copying:.2f}",
                f"{(folder / 'copy.db').stat().st_size / 1e6:.0f}",
            ]
        ],
    )
    verdict("times a bare fetch, to load it", loading / fetching, LOAD_RATIO_MAX, at_most=True)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="dovetail-store-"))
    try:
        commits(folder)
        beside_loops(folder)
        starts(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
    finish()
