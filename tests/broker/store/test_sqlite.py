"""Real SQLite, real files, real kills: each reported batch is there, and never half a batch."""

import logging
import os
import queue
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.broker.store import database
from dovetail.broker.store.database import DATABASE_FILE, Durability
from dovetail.broker.store.journal import (
    ArchiveRow,
    Batch,
    DeliveryRow,
    LeaveState,
    MemberRow,
    MessageRow,
    OwedRow,
    RunDeliveryRow,
    RunRow,
    SessionRow,
    StoredState,
    SubscriptionRow,
)
from dovetail.broker.store.sqlite import Store, StoreWriter, backup
from dovetail.errors import StoreError
from support.oracles.store import (
    StoreModel,
    delivery,
    last_batch,
    message,
    numbered_batch,
    session,
    state_after,
)
from support.processes.mounts import fill, small_disk

LONG_SECONDS = 60.0
"""Nothing takes this long unless it hangs."""

MEMORY = Path("/dev/shm")  # noqa: S108 - a file system that syncs at once, where there is one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with closing(Store.open(folder, "process")) as store:
        yield store


def state_of(folder: Path) -> StoredState:
    with closing(Store.open(folder, "process")) as store:
        return store.load()


# Against plain dicts.


MOMENTS = st.none() | st.floats(allow_nan=False)
SESSIONS = st.integers(1, 4)
MESSAGES = st.integers(1, 6) | st.integers(2**62, 2**62 + 2)
OWED = st.builds(OwedRow, MESSAGES, st.binary(max_size=10))
TOPICS = st.sampled_from([b"", b"a", b"a/b", b"\x00", b"t" * 65_535])


def rows_or_none(
    keys: st.SearchStrategy[Any], rows: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(keys, st.none() | rows, max_size=5)


BATCHES = st.builds(
    Batch,
    number=st.just(1),
    sessions=rows_or_none(
        SESSIONS,
        st.builds(
            SessionRow,
            client_id=st.text(),
            expiry_seconds=st.integers(0, 2**32 - 1),
            ended_at=MOMENTS,
            user=st.none() | st.text(),
            will=st.none() | st.binary(),
            stamp=st.integers(-1, 2**63 - 1),
            detour=st.binary(),
            void_before=st.integers(0, 2**63 - 1),
        ),
    ),
    subscriptions=rows_or_none(
        st.tuples(SESSIONS, st.sampled_from(["#", "a/+", "ä\x00"])),
        st.builds(
            SubscriptionRow,
            options=st.integers(0, 63),
            identifier=st.integers(0, 268_435_455),
        ),
    ),
    messages=rows_or_none(
        MESSAGES,
        st.builds(
            MessageRow,
            topic=TOPICS,
            payload=st.binary(),
            qos=st.integers(0, 2),
            retain=st.booleans(),
            properties=st.binary(),
            expires_at=MOMENTS,
            origin=st.text(),
            stamp=st.integers(0, 2**62),
            retained=st.booleans(),
        ),
    ),
    deliveries=rows_or_none(
        st.tuples(SESSIONS, st.integers(1, 5)),
        st.builds(
            DeliveryRow,
            message=MESSAGES,
            qos=st.integers(0, 2),
            retain=st.booleans(),
            packet_id=st.integers(0, 65_535),
            released=st.booleans(),
            identifiers=st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple),
        ),
    ),
    runs=rows_or_none(
        MESSAGES,
        st.builds(
            RunRow,
            data=st.binary(),
            version=st.sampled_from([4, 5]),
            packets=st.integers(1, 512),
            has_properties=st.booleans(),
            origin=st.text(),
        ),
    ),
    run_deliveries=rows_or_none(
        st.tuples(SESSIONS, st.integers(1, 5)),
        st.builds(
            RunDeliveryRow,
            run=MESSAGES,
            first=st.integers(0, 511),
            messages=st.integers(1, 512),
            packet_id=st.integers(0, 65_535),
            rows=st.binary(),
        ),
    ),
    incoming=rows_or_none(st.tuples(SESSIONS, st.integers(1, 3)), st.booleans()),
    owed=rows_or_none(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3)), OWED),
    heard=rows_or_none(st.integers(1, 3), st.integers(1, 2**62)),
    seen=rows_or_none(st.integers(1, 3), st.just(True)),
    removals=rows_or_none(TOPICS, st.integers(1, 2**62)),
    members=rows_or_none(
        st.sampled_from(["a", "b"]), st.builds(MemberRow, st.text(), st.sampled_from(LeaveState))
    ),
    peer_groups=rows_or_none(
        st.tuples(st.sampled_from(["a", "b"]), st.just("g"), st.sampled_from(["a", "#"])),
        st.just(1),
    ),
    archive=rows_or_none(
        st.integers(1, 5),
        st.builds(
            ArchiveRow,
            broker=st.text(),
            time_microseconds=st.integers(0, 2**62),
            topic=TOPICS,
            payload=st.binary(),
            qos=st.integers(0, 2),
            retain=st.booleans(),
            properties=st.binary(),
            stream=st.binary(),
        ),
    ),
)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(BATCHES, st.sampled_from(["commit", "spoil", "load", "reopen"])), max_size=6)
)
def test_holds_what_dicts_would(steps: list[tuple[Batch, str]]) -> None:
    model = StoreModel()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name) / "data"
        store = Store.open(folder, "process")
        try:
            for batch, step in steps:
                if step == "spoil":  # the last table that is written has what cannot be
                    batch.removals[b"spoilt"] = 2**63
                    with pytest.raises(OverflowError):
                        store.commit(batch)
                    continue
                store.commit(batch)
                model.commit(batch)
                highest = store.highest_numbers()
                if step == "load":
                    assert store.load() == model.load()
                elif step == "reopen":
                    store.close()
                    store = Store.open(folder, "power")
                    assert store.highest_numbers() == highest
                    assert store.load() == model.load()
                assert highest[0] >= max(batch.sessions, default=0)
                assert highest[1] >= max(batch.messages, default=0)
        finally:
            store.close()
        assert state_of(folder) == model.load()


def test_times_are_whole_as_sqlite_returns_them(store: Store) -> None:
    """It has no negative zero, and a whole number comes back as a float."""
    model = StoreModel()
    batch = Batch(1)
    batch.sessions = {
        number: session(f"client-{number}")._replace(ended_at=ended_at)
        for number, ended_at in enumerate((-0.0, 0, 7, 7.5), 1)
    }
    store.commit(batch)
    model.commit(batch)
    assert store.load() == model.load()


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257, 700])
def test_batches_of_any_length(store: Store, count: int) -> None:
    model = StoreModel()
    put, remove = Batch(1), Batch(2)
    put.sessions = {number: session(f"client-{number}") for number in range(1, count + 1)}
    for number in range(count, 0, -1):
        put.messages[number] = message(b"%d" % number)
        put.deliveries[number, 1] = put.deliveries[1, number] = delivery(number)
        put.subscriptions[number, f"a/{number}"] = SubscriptionRow(number % 64, number)
        put.incoming[1, number] = True
        put.removals[b"a/%d" % number] = number
        if number % 3:
            remove.deliveries[1, number] = None
            remove.subscriptions[number, f"a/{number}"] = None
            remove.incoming[1, number] = None
            remove.removals[b"a/%d" % number] = None
        if number % 5 == 0:
            remove.sessions[number] = None
    for batch in (put, remove):
        store.commit(batch)
        model.commit(batch)
        assert store.load() == model.load()


def test_deliveries_come_in_order(store: Store) -> None:
    batch = Batch(1)
    batch.messages[1] = message()
    for number in (3, 1, 2):
        batch.sessions[number] = session()
        for sequence in (300, 2, 1, 70_000, 10):
            batch.deliveries[number, sequence] = delivery(1)
    store.commit(batch)
    keys = list(store.load().deliveries)
    assert keys == sorted(batch.deliveries)


def test_large_payloads(store: Store) -> None:
    batch = Batch(1)
    batch.sessions[1] = session()._replace(will=os.urandom(70_000))
    for number, size in enumerate([0, 10, 400_000, 700_000, 3_000_000, 5, 600_000, 1, 2], 1):
        batch.messages[number] = message(os.urandom(size))
        batch.deliveries[1, number] = delivery(number)
    store.commit(batch)
    assert store.load().messages == batch.messages
    assert store.load().sessions == batch.sessions


def test_a_session_takes_everything_with_it_but_messages(store: Store) -> None:
    first, last = Batch(1), Batch(2)
    for number in (1, 2):
        first.sessions[number] = session()
        first.subscriptions[number, "a"] = SubscriptionRow(0, 0)
        first.deliveries[number, 1] = delivery(1)
        first.run_deliveries[number, 2] = RunDeliveryRow(2, 0, 1, 0, b"")
        first.incoming[number, 5] = True
    first.messages[1] = message()
    store.commit(first)
    last.sessions[1] = None
    last.subscriptions[1, "late"] = SubscriptionRow(0, 0)  # of a batch that had failed, say
    last.deliveries[1, 2] = delivery(1)
    store.commit(last)
    # Not by `load`, which would clear up what was left.
    for table in ("sessions", "subscriptions", "deliveries", "run_deliveries", "incoming"):
        rows = store._connection.execute(f"SELECT DISTINCT session FROM {table}")  # noqa: S608
        assert rows.fetchall() == [(2,)], table


def test_every_life_has_a_higher_number(tmp_path: Path) -> None:
    lives = []
    for now in (100.0, 50.0, 50.0, 200.0):  # the clock goes back, and stands still
        with closing(Store.open(tmp_path, "process")) as store:
            lives.append(store.begin_life(now))
    streams, incarnations = zip(*lives, strict=True)
    assert incarnations == (100_000, 100_001, 100_002, 200_000)
    assert len(set(streams)) == 1
    with closing(Store.open(tmp_path / "other", "process")) as store:
        assert store.begin_life(1.0)[0] != streams[0]


def test_garbage_is_removed_and_counted(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(1)
    batch.sessions[1] = session()
    batch.messages = {number: message() for number in range(1, 8)}
    batch.deliveries = {(1, 1): delivery(1), (1, 2): delivery(99), (9, 1): delivery(5)}
    batch.messages[2] = message()._replace(retained=True)
    batch.owed = {("peer", 1): OwedRow(3, b"mark"), ("peer", 2): OwedRow(97, b"")}
    batch.subscriptions = {(1, "a"): SubscriptionRow(0, 0), (9, "a"): SubscriptionRow(0, 0)}
    batch.incoming = {(1, 1): True, (8, 1): True, (9, 1): True}
    store.commit(batch)
    with caplog.at_level(logging.INFO):
        state = store.load()
    (line,) = caplog.messages
    assert line == (
        f"Removed from {store.file} what nothing refers to: 1 subscriptions, 2 incoming, "
        "2 deliveries, 1 owed, 4 messages."
    )
    assert set(state.messages) == {1, 2, 3}
    assert state.owed == {("peer", 1): OwedRow(3, b"mark")}
    assert set(state.deliveries) == {(1, 1)}
    assert set(state.subscriptions) == {(1, "a")}
    assert state.incoming == {(1, 1): True}
    assert state.messages[2].retained
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert store.load() == state
    assert not caplog.messages


def test_numbers_are_not_used_again(folder: Path) -> None:
    highest = (0, 0)
    for _ in range(3):
        with closing(Store.open(folder, "process")) as store:
            assert store.highest_numbers() >= highest
            number, highest_message = store.highest_numbers()
            came, went = Batch(1), Batch(2)
            came.sessions[number + 1] = session()
            came.messages[highest_message + 70_000] = message()
            store.commit(came)
            went.sessions[number + 1] = None
            went.messages[highest_message + 70_000] = None
            store.commit(went)
            highest = (number + 1, highest_message + 70_000)
            assert store.highest_numbers()[0] >= highest[0]
            assert store.highest_numbers()[1] >= highest[1]


# The log.


def test_the_log_stays_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOG_PAGES_CHECKPOINT", 50)
    monkeypatch.setattr(database, "LOG_BYTES_KEPT", 500_000)
    log = folder / f"{DATABASE_FILE}-wal"
    sizes = []
    with closing(Store.open(folder, "process")) as store:
        for number in range(1, 101):
            batch = Batch(number)
            batch.messages[number] = message(bytes(40_000))
            store.commit(batch)
            sizes.append(log.stat().st_size)
        assert sum(sizes) > 40 * max(sizes)  # it was filled again and again
        assert max(sizes) < (50 + 30) * 4_200
        great = Batch(101)
        great.messages = {number: message(bytes(40_000)) for number in range(1_000, 1_100)}
        store.commit(great)
        assert log.stat().st_size > 4_000_000
        for number in range(102, 105):
            batch = Batch(number)
            batch.messages[number] = message()
            store.commit(batch)
        assert log.stat().st_size <= 500_000
    assert not log.exists()


# Kills.

COMMIT_UNTIL_KILLED = """
import os, sys
from pathlib import Path
from dovetail.broker.store.sqlite import Store
from support.oracles.store import numbered_batch
store = Store.open(Path(sys.argv[1]), sys.argv[2])
number = int(sys.argv[3])
while True:
    number += 1
    store.commit(numbered_batch(number))
    os.write(1, b"%d\\n" % number)
"""


def python(script: str, *arguments: object) -> list[str]:
    """A command that can import what tests share."""
    path = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    return [sys.executable, "-c", path + script, *map(str, arguments)]


@pytest.mark.parametrize(("durability", "rounds"), [("process", 5), ("power", 2)])
def test_what_was_reported_survives_a_kill(
    folder: Path, durability: Durability, rounds: int
) -> None:
    committed = 0
    for turn in range(rounds):
        child = subprocess.Popen(
            python(COMMIT_UNTIL_KILLED, folder, durability, committed), stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        with child.stdout as reports:
            for _ in range(1 + 37 * turn):
                reported = int(reports.readline())
            os.kill(child.pid, signal.SIGKILL)
            for report in reports:
                reported = int(report)
        assert child.wait() == -signal.SIGKILL
        copy = folder / f"copy-{turn}.db"
        backup(folder, copy)  # with a log that nobody has seen since
        state = state_of(folder)
        # It reports each at once, so there can be one more, and that is whole.
        committed = last_batch(state)
        assert reported <= committed <= reported + 1
        assert state == state_after(committed)
        assert state_of_copy(copy) == state


def state_of_copy(copy: Path) -> StoredState:
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(copy, Path(name) / DATABASE_FILE)
        return state_of(Path(name))


# Disks.


@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_full_disk_and_room_again(tmp_path: Path, durability: Durability) -> None:
    model = StoreModel()
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        with closing(Store.open(disk / "data", durability)) as store:
            small, great = Batch(1), Batch(2)
            small.sessions[1] = session()
            small.messages = {number: message(bytes(10_000)) for number in range(1, 51)}
            small.deliveries = {(1, number): delivery(number) for number in small.messages}
            store.commit(small)
            model.commit(small)
            ballast = fill(disk)
            great.messages = {number: message(bytes(10_000)) for number in range(51, 151)}
            great.deliveries = {(1, number): delivery(number) for number in great.messages}
            for _ in range(3):
                with pytest.raises(StoreError) as caught:
                    store.commit(great)
                assert caught.value.message == f"There is no room left for {store.file}."
                assert store.load() == model.load()
            ballast.unlink()
            store.commit(great)
            model.commit(great)
            assert store.load() == model.load()
        assert state_of(disk / "data") == model.load()


def test_removals_go_through_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        with closing(Store.open(disk / "data", "process")) as store:
            # The database has room in itself, and the log as much as two batches took.
            for content, count in ((b"a", 120), (b"b", 100), (b"c", 100)):
                great = Batch(1)
                great.messages = {
                    n: message(content * 10_000)._replace(retained=n == 100)
                    for n in range(1, count + 1)
                }
                store.commit(great)
                if content == b"a":
                    store.commit(Batch(2, messages=dict.fromkeys(range(101, 121))))
                    store._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            removal = Batch(2)
            removal.messages = dict.fromkeys(range(1, 91))
            fill(disk)
            with pytest.raises(StoreError, match="no room left"):
                store.commit(removal)
            store.commit(removal)  # over the log, which was emptied into the database
        assert set(state_of(disk / "data").messages) == {100}


def test_a_full_database_and_room_again(store: Store) -> None:
    # The same where nothing can be mounted: SQLite's own limit.
    model = StoreModel()
    small, great = Batch(1), Batch(2)
    small.sessions[1] = session()
    great.messages = {number: message(bytes(10_000)) for number in range(1, 101)}
    great.deliveries = {(1, number): delivery(number) for number in great.messages}
    great.sessions[1] = session("renamed")
    store.commit(small)
    model.commit(small)
    store._connection.execute("PRAGMA max_page_count = 100")
    with pytest.raises(StoreError, match="no room left"):
        store.commit(great)
    assert store.load() == model.load()
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.commit(great)
    model.commit(great)
    assert store.load() == model.load()


def test_a_disk_that_fails(folder: Path) -> None:
    # Beyond the limit on the size of files, write(2) fails with what is not a lack of room.
    script = """
import resource, sys
from pathlib import Path
from dovetail.broker.store.journal import Batch
from dovetail.broker.store.sqlite import Store
from dovetail.errors import StoreError
from support.oracles.store import message
store = Store.open(Path(sys.argv[1]), "process")
small, great = Batch(1), Batch(2)
small.messages[1] = message()._replace(retained=True)
great.messages[1] = None
great.messages[2] = message(bytes(1_000_000))._replace(retained=True)
store.commit(small)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
try:
    store.commit(great)
except StoreError as error:
    print(error.message)
print(sorted(store.load().messages))
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
store.commit(great)
print(sorted(store.load().messages))
store.close()
"""
    done = subprocess.run(python(script, folder), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"The disk failed while {folder / DATABASE_FILE} was in use (SQLITE_IOERR_WRITE).",
        "[1]",
        "[2]",
    ]


def test_a_folder_that_is_taken_away(store: Store, folder: Path) -> None:
    store.commit(numbered_batch(1))
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(StoreError, match="moved or removed"):
        store.commit(numbered_batch(2))
    folder.with_name("elsewhere").rename(folder)
    store.commit(numbered_batch(2))
    store.close()
    assert state_of(folder) == state_after(2)


# Backups.


def test_a_backup_while_another_process_writes(folder: Path, tmp_path: Path) -> None:
    copies = [tmp_path / f"copy-{turn}.db" for turn in range(3)]
    script = (
        "from pathlib import Path; from dovetail.broker.store.sqlite import backup\n"
        "for copy in sys.argv[2:]: backup(Path(sys.argv[1]), Path(copy))"
    )
    store = Store.open(folder, "process")
    number = 1
    store.commit(numbered_batch(number))
    with subprocess.Popen(python(script, folder, *copies), stderr=subprocess.PIPE) as other:
        while other.poll() is None:
            number += 1
            store.commit(numbered_batch(number))
        assert other.stderr is not None
        assert other.stderr.read() == b""
    store.backup(tmp_path / "last.db")
    store.close()
    assert state_of(folder) == state_after(number)
    assert state_of_copy(tmp_path / "last.db") == state_after(number)
    seen = []
    for copy in copies:
        state = state_of_copy(copy)
        seen.append(last_batch(state))
        assert state == state_after(seen[-1])
    assert seen == sorted(seen)
    assert {path.name for path in tmp_path.iterdir()} == {
        "data",
        "last.db",
        *(copy.name for copy in copies),
    }


def test_a_backup_harms_nothing(store: Store, folder: Path, tmp_path: Path) -> None:
    store.commit(numbered_batch(1))
    (tmp_path / "precious").write_text("precious")
    for target in (tmp_path / "precious", folder / DATABASE_FILE):
        with pytest.raises(StoreError, match="is there already"):
            store.backup(target)
    assert (tmp_path / "precious").read_text() == "precious"
    with pytest.raises(StoreError, match="holds no data of Dovetail"):
        backup(tmp_path, tmp_path / "copy.db")
    with pytest.raises(StoreError, match="is not a folder that is there"):
        store.backup(tmp_path / "missing" / "copy.db")
    assert {path.name for path in tmp_path.iterdir()} == {"data", "precious"}
    store.commit(numbered_batch(2))
    assert store.load() == state_after(2)


def test_a_backup_without_room(store: Store, tmp_path: Path) -> None:
    batch = Batch(1)
    batch.messages[1] = message(bytes(100_000))
    store.commit(batch)
    with small_disk(tmp_path / "disk", 65_536) as disk:
        with pytest.raises(StoreError) as caught:
            store.backup(disk / "copy.db")
        assert caught.value.message == f"There is no room left for {disk / 'copy.db'}."
        assert list(disk.iterdir()) == []


# The writer.


class Results:
    """The results of a writer, in order."""

    def __init__(self) -> None:
        self.queue: queue.Queue[tuple[Batch, StoreError | None, str]] = queue.Queue()

    def __call__(self, batch: Batch, error: StoreError | None) -> None:
        self.queue.put((batch, error, threading.current_thread().name))

    def next(self) -> tuple[Batch, StoreError | None, str]:
        return self.queue.get(timeout=LONG_SECONDS)


@pytest.fixture
def results() -> Results:
    return Results()


@pytest.fixture
def writer(store: Store, results: Results) -> Iterator[StoreWriter]:
    writer = StoreWriter(store, results)
    yield writer
    writer.close(LONG_SECONDS)


def test_the_writer_commits_in_order(writer: StoreWriter, results: Results, store: Store) -> None:
    assert writer.pending == 0
    for number in range(1, 31):
        batch = numbered_batch(number)
        writer.submit(batch)
        assert results.next() == (batch, None, "dovetail-store")
        assert writer.pending == 0
    writer.close(LONG_SECONDS)
    assert store.load() == state_after(30)


def test_one_batch_at_a_time(writer: StoreWriter, results: Results, store: Store) -> None:
    with closing(sqlite3.connect(store.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # what the writer has to wait for
        writer.submit(numbered_batch(1))
        assert writer.pending == 1
        with pytest.raises(RuntimeError, match="before the result of the last"):
            writer.submit(numbered_batch(2))
        with pytest.raises(StoreError, match="did not take the last batch in 0 seconds"):
            writer.close(0)
    assert results.next()[1] is None
    writer.close(LONG_SECONDS)
    with pytest.raises(RuntimeError, match="closed"):
        writer.submit(numbered_batch(2))
    assert store.load() == state_after(1)


def test_closing_finishes_what_is_outstanding(store: Store, results: Results) -> None:
    writer = StoreWriter(store, results)
    writer.submit(numbered_batch(1))
    writer.close(LONG_SECONDS)
    assert results.queue.get_nowait()[1] is None
    assert store.load() == state_after(1)


def test_a_batch_that_failed_goes_with_the_next(
    writer: StoreWriter, results: Results, store: Store
) -> None:
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    great = Batch(1)
    great.sessions[1] = session()
    great.messages[1] = message(bytes(1_000_000))
    great.deliveries[1, 1] = delivery(1)
    for _ in range(3):
        writer.submit(great)
        batch, error, _ = results.next()
        assert batch is great
        assert error is not None
        assert "no room left" in error.message
        assert writer.pending == 1  # nobody takes this for done
    store._connection.execute("PRAGMA max_page_count = 1000000")
    great.messages[2] = message()
    great.deliveries[1, 2] = delivery(2)
    writer.submit(great)
    assert results.next()[1] is None
    assert writer.pending == 0
    writer.close(LONG_SECONDS)
    assert store.load().deliveries == great.deliveries


def test_bugs_are_reported_and_do_not_end_the_thread(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    results = Results()

    def tell(batch: Batch, error: StoreError | None) -> None:
        results(batch, error)
        if batch.number == 2:
            raise ValueError("a bug of the receiver")

    writer = StoreWriter(store, tell)
    spoilt = Batch(1)
    spoilt.sessions[1] = session("\ud800")
    writer.submit(spoilt)
    error = results.next()[1]
    assert error is not None
    assert "UnicodeEncodeError" in error.message
    for number in (2, 3):
        writer.submit(Batch(number, heard={1: number}))
        assert results.next()[1] is None
    writer.close(LONG_SECONDS)
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
