"""Damage on disk: a start refuses and says why, or nothing is lost. And what a repair keeps."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from dovetail.broker.store import integrity
from dovetail.broker.store.database import DATABASE_FILE
from dovetail.broker.store.journal import Batch, StoredState, SubscriptionRow
from dovetail.broker.store.repair import repair
from dovetail.broker.store.sqlite import Store, backup
from dovetail.broker.store.watermark import LogMark, LogPosition, lag, mark_file, read_mark
from dovetail.errors import DamageError, StoreError
from support.oracles.store import (
    MESSAGES_STORED,
    PARTS,
    StoreModel,
    as_version_8,
    as_version_10,
    copy_parts,
    delivery,
    message,
    numbered_batch,
    parts,
    session,
    state_after,
)

BATCHES = 60
STAMP = "now"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a kill leaves it: some of it in the database, some in its log."""
    folder = tmp_path_factory.mktemp("store")
    aside = tmp_path_factory.mktemp("killed")
    with closing(Store.open(folder, "process")) as store:
        store.commit(queue())
        store._connection.execute("PRAGMA wal_checkpoint(RESTART)")
        for number in range(1, BATCHES + 1):
            store.commit(numbered_batch(number))
        copy_parts(folder, aside)
    return aside


def queue() -> Batch:
    """Messages that stay, most of which are no part of the log: some small, some over pages."""
    batch = Batch(0, sessions={3: session("queue")})
    for number in range(1_001, 1_201):
        one = message(b"%d" % number * (100 if number % 10 else 4_000))
        batch.messages[number] = one._replace(topic=b"topic/%d" % number, retained=True)
        batch.deliveries[3, number] = delivery(number)
        batch.subscriptions[3, f"filter/{number}"] = SubscriptionRow(1, number)
    return batch


def state_with_queue(number: int) -> StoredState:
    model = StoreModel()
    model.commit(queue())
    for earlier in range(1, number + 1):
        model.commit(numbered_batch(earlier))
    return model.load()


def state_of(folder: Path) -> StoredState:
    with closing(Store.open(folder, "process")) as store:
        return store.load()


def flip(file: Path, random: Random, bits: int) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(bits):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


def test_a_kill_is_no_damage(killed: Path, tmp_path: Path) -> None:
    copy_parts(killed, tmp_path)
    assert state_of(tmp_path) == state_with_queue(BATCHES)
    assert state_of(tmp_path) == state_with_queue(BATCHES)  # after a clean end
    assert repair(tmp_path, STAMP).aside is None


# 532 breaks the schema, so that SQLite's error message is no text.
@pytest.mark.parametrize("seed", [*range(150), 532])
def test_flipped_bits_are_noticed_or_harmless(killed: Path, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    copy_parts(killed, tmp_path)
    part = random.choice(PARTS)
    flip(tmp_path / f"{DATABASE_FILE}{part}", random, random.choice([1, 1, 5]))
    before = parts(tmp_path)
    try:
        state = state_of(tmp_path)
    except StoreError:
        assert parts(tmp_path) == before  # for who can make more of it
        check_repair(tmp_path)
    else:
        assert state == state_with_queue(BATCHES)


def check_repair(folder: Path) -> None:
    """Repair: all rows are old ones, and all old files are set aside."""
    done = repair(folder, STAMP)
    assert done.aside == folder / f"damaged-{STAMP}"
    assert (done.aside / DATABASE_FILE).is_file()
    state = state_of(folder)
    possible = [state_with_queue(number) for number in range(0, BATCHES + 1, MESSAGES_STORED)]
    for number, row in state.messages.items():
        assert any(one.messages.get(number) == row for one in possible)
    for key, owed in state.deliveries.items():
        assert any(one.deliveries.get(key) == owed for one in possible)
    # A flipped bit in the definition of a table makes all of it unreadable, and a repair says so.
    assert len(state.messages) >= 100 or "messages" in done.unreadable
    with closing(Store.open(folder, "process")) as store:
        sessions, messages = store.highest_numbers()
    assert sessions >= max(state.sessions, default=0)
    assert messages >= max(state.messages, default=0)


@pytest.mark.parametrize("keep", [0.001, 0.3, 0.9, 0.999])
def test_a_log_that_was_cut_short_is_noticed(killed: Path, tmp_path: Path, keep: float) -> None:
    copy_parts(killed, tmp_path)
    wal = tmp_path / f"{DATABASE_FILE}-wal"
    content = wal.read_bytes()
    wal.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(StoreError, match="were reported to be on disk"):
        state_of(tmp_path)


def test_a_log_that_is_gone_is_noticed(killed: Path, tmp_path: Path) -> None:
    copy_parts(killed, tmp_path)
    (tmp_path / f"{DATABASE_FILE}-wal").unlink()
    with pytest.raises(StoreError, match="-wal is gone"):
        state_of(tmp_path)


def test_another_program_that_puts_the_log_into_the_database(killed: Path, tmp_path: Path) -> None:
    copy_parts(killed, tmp_path)
    file = tmp_path / DATABASE_FILE
    with closing(sqlite3.connect(file)) as tool:
        tool.execute("SELECT count(*) FROM messages").fetchone()
    with pytest.raises(StoreError, match="-mark and start"):
        state_of(tmp_path)
    mark_file(file).unlink()
    assert state_of(tmp_path) == state_with_queue(BATCHES)


def test_every_bit_of_a_message_counts(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path, "process")) as store:
        batch = Batch(1, sessions={1: session()}, messages={1: message(b"needle")})
        batch.deliveries[1, 1] = delivery(1)
        store.commit(batch)
    file = tmp_path / DATABASE_FILE
    content = file.read_bytes()
    at = content.index(b"needle")
    for bit in range(8 * len(b"needle")):
        damaged = bytearray(content)
        damaged[at + bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with pytest.raises(StoreError) as caught:
            state_of(tmp_path)
        assert "rows are not as they were written (1 of messages)" in caught.value.message
    file.write_bytes(damaged)
    done = repair(tmp_path, STAMP)
    assert done.damaged == {"messages": 1}
    state = state_of(tmp_path)
    assert state.sessions == {1: session()}
    assert (state.messages, state.deliveries) == ({}, {})


@pytest.mark.parametrize("table", ["numbers", "messages"])
@pytest.mark.parametrize("is_backup", [False, True])
def test_a_refused_start_changes_nothing(
    killed: Path, tmp_path: Path, is_backup: bool, table: str
) -> None:
    """Rows of numbers are read when a store is opened, others when it is loaded."""
    folder, other = tmp_path / "data", tmp_path / "other"
    copy_parts(killed, other)
    with closing(sqlite3.connect(other / DATABASE_FILE, isolation_level=None)) as damaging:
        damaging.execute("PRAGMA wal_autocheckpoint = 0")
        damaging.execute(f"UPDATE {table} SET checksum = checksum + 1")  # noqa: S608
        folder.mkdir()
        if is_backup:
            backup(other, folder / DATABASE_FILE)
        else:
            copy_parts(other, folder)
    before = parts(folder)
    for _ in range(2):
        with pytest.raises(DamageError, match=f"of {table}"):
            state_of(folder)
        assert parts(folder) == before
    assert repair(folder, STAMP).aside is not None


def test_a_check_that_takes_too_long_is_partial_and_says_so(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copy_parts(killed, tmp_path)
    monkeypatch.setattr(integrity, "CHECK_SECONDS_MAX", 0.0)
    monkeypatch.setattr(integrity, "_STEPS_BETWEEN_LOOKS", 1)
    assert state_of(tmp_path) == state_with_queue(BATCHES)
    assert "its pages were looked at for 0 seconds, and not all of them" in caplog.text


def test_columns_that_are_missing_are_damage(killed: Path, tmp_path: Path) -> None:
    copy_parts(killed, tmp_path)
    state_of(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as other:
        other.execute("ALTER TABLE removals RENAME COLUMN stamp TO stump")
    with pytest.raises(StoreError, match="its table removals has not the columns"):
        state_of(tmp_path)


def test_a_repair_of_an_older_version(killed: Path, tmp_path: Path) -> None:
    """Its rows have no checksums: those that can be read are kept."""
    copy_parts(killed, tmp_path)
    state = state_of(tmp_path)
    file = tmp_path / DATABASE_FILE
    as_version_8(tmp_path)
    with closing(sqlite3.connect(file)) as old:
        (page,) = old.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'incoming'"
        ).fetchone()
    content = bytearray(file.read_bytes())
    content[(page - 1) * 4_096 : page * 4_096] = bytes(4_096)
    file.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        state_of(tmp_path)
    done = repair(tmp_path, STAMP)
    assert done.unreadable == ["incoming"]
    assert state_of(tmp_path) == state._replace(incoming={})


@pytest.mark.parametrize("is_damaged", [False, True])
def test_retained_messages_of_an_older_version(
    killed: Path, tmp_path: Path, *, is_damaged: bool
) -> None:
    """A table of their own had their numbers. An upgrade or a repair marks their rows."""
    copy_parts(killed, tmp_path)
    state = state_of(tmp_path)
    assert any(row.retained for row in state.messages.values())
    assert not all(row.retained for row in state.messages.values())
    as_version_10(tmp_path)
    if is_damaged:
        with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as old:
            old.execute("UPDATE incoming SET checksum = checksum + 1")
            old.commit()
        with pytest.raises(StoreError, match="is damaged"):
            state_of(tmp_path)
        assert repair(tmp_path, STAMP).damaged == {"incoming": len(state.incoming)}
        state = state._replace(incoming={})
    assert state_of(tmp_path) == state


def test_a_row_that_says_what_is_retained_may_be_damaged_in_an_older_version(
    killed: Path, tmp_path: Path
) -> None:
    copy_parts(killed, tmp_path)
    state_of(tmp_path)
    as_version_10(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as old:
        old.execute("UPDATE retained SET message = 1 WHERE topic = CAST('topic/1001' AS BLOB)")
        old.commit()
    with pytest.raises(StoreError, match="1 of retained"):
        state_of(tmp_path)


def test_a_repair_needs_a_folder_that_nobody_uses(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path, "process")), pytest.raises(StoreError, match="Another"):
        repair(tmp_path, STAMP)
    with pytest.raises(StoreError, match="holds no data"):
        repair(tmp_path / "elsewhere", STAMP)


# How far the log has come -------------------------------------------------------------------------

OLD, NEW, OTHER = b"\0\0\0\7aaaa", b"\0\0\0\x08bbbb", b"\0\0\0\x30cccc"


@pytest.mark.parametrize(
    ("found", "may_lag", "same_boot", "is_damage"),
    [
        (LogPosition(10, OLD), True, True, False),
        (LogPosition(11, OLD), True, True, False),
        (LogPosition(9, OLD), True, True, True),
        (LogPosition(0, OLD), False, True, True),
        (
            LogPosition(3, NEW),
            True,
            True,
            False,
        ),  # it began anew: the one before is in the database
        (LogPosition(30, OTHER), True, True, True),
        (LogPosition(0, bytes(8)), True, True, True),
        # The machine was started anew: the mark may be younger than the log, or older.
        (LogPosition(9, OLD), True, False, False),
        (LogPosition(9, OLD), False, False, True),
        (LogPosition(9, OTHER), False, False, False),
    ],
)
def test_lag(found: LogPosition, may_lag: bool, same_boot: bool, is_damage: bool) -> None:
    mark = LogMark(LogPosition(10, OLD), b"boot", may_lag)
    assert (lag(mark, found, b"boot" if same_boot else b"another") is not None) == is_damage


def test_a_mark_of_no_pages_needs_no_log() -> None:
    assert (
        lag(LogMark(LogPosition(0, bytes(8)), b"boot", False), LogPosition(3, OTHER), b"boot")
        is None
    )


def test_a_kill_in_the_first_commit_after_a_clean_start_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it, and before it is noted: the log has salts that nothing foretold."""
    folder, copy = tmp_path / "data", tmp_path / "copy"
    Store.open(folder, "process").close()
    with closing(Store.open(folder, "process")) as store:
        store.load()
        monkeypatch.setattr(store, "_note", lambda: copy_parts(folder, copy))
        store.commit(numbered_batch(1))
    assert state_of(copy) == state_after(1)


@pytest.mark.parametrize("end", ["", "; del store", "; sys.exit(store)"])
def test_a_process_that_ends_without_closing_is_no_damage(tmp_path: Path, end: str) -> None:
    """Python frees the connection then, and SQLite puts the log into the database."""
    program = (
        "import sys; from pathlib import Path\n"
        "from dovetail.broker.store.sqlite import Store\n"
        "from support.oracles.store import numbered_batch\n"
        "store = Store.open(Path(sys.argv[1]), 'process'); store.load()\n"
        f"store.commit(numbered_batch(1)){end}"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program, tmp_path], check=False, env=environment)
    assert state_of(tmp_path) == state_after(1)


def test_a_mark_of_zeros_is_none(tmp_path: Path) -> None:
    """Some file systems make this of a small file after a loss of power."""
    mark_file(tmp_path / DATABASE_FILE).write_bytes(bytes(69))
    assert read_mark(tmp_path / DATABASE_FILE) is None


def test_a_mark_follows_the_log_wherever_it_begins_anew(tmp_path: Path) -> None:
    """As a kill would find it, after each of many commits."""
    folder, copy = tmp_path / "data", tmp_path / "copy"
    with closing(Store.open(folder, "process")) as store:
        store._connection.execute("PRAGMA wal_autocheckpoint = 20")
        for number in range(1, 4 * MESSAGES_STORED):
            store.commit(numbered_batch(number))
            copy.mkdir()
            copy_parts(folder, copy)
            assert state_of(copy) == state_after(number)
            shutil.rmtree(copy)
    assert mark_file(folder / DATABASE_FILE).read_bytes() == b""
