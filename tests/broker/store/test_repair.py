"""Repairs: cut short, of an intact folder, of old rows; and the owner of the new files."""

import os
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dovetail.broker.store import database
from dovetail.broker.store import repair as module
from dovetail.broker.store.database import DATABASE_FILE, LOCK_FILE
from dovetail.broker.store.journal import Batch
from dovetail.broker.store.repair import repair
from dovetail.broker.store.sqlite import Store, backup, has_promises
from dovetail.errors import DamageError, StoreError
from support.oracles.store import PARTS, as_version_8, copy_parts, delivery, message, parts, session

MESSAGES = 50
NEEDLE = b"message 7,"
FILES = {f"{DATABASE_FILE}{part}" for part in PARTS}
STEPS = {"open", "os.mkdir", "os.remove", "os.rename", "sqlite3.connect"}


def fill(folder: Path) -> None:
    """As a kill leaves it: half of the messages in the database, half in its log."""
    life = folder.with_name("life")
    with closing(Store.open(life, "process")) as store:
        for first in (1, MESSAGES // 2 + 1):
            store._connection.execute("PRAGMA wal_checkpoint(RESTART)")
            batch = Batch(first, sessions={1: session("first client"), 2: session("second client")})
            for number in range(first, first + MESSAGES // 2):
                batch.messages[number] = message(b"message %d," % number * 100)
                batch.deliveries[1 + number % 2, number] = delivery(number)
            store.commit(batch)
        copy_parts(life, folder)


def change(folder: Path, old: bytes, new: bytes) -> None:
    file = folder / DATABASE_FILE
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    change(tmp_path / "data", NEEDLE, b"massage 7,")
    return tmp_path / "data"


def numbers(folder: Path) -> list[int]:
    with closing(Store.open(folder, "process")) as store:
        return sorted(store.load().messages)


def is_killed(folder: Path, step: int) -> bool:
    """A repair, in a process that ends before this step; False: it has fewer."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    steps = iter(range(step))

    def end(event: str, _arguments: object) -> None:
        if event in STEPS and next(steps, None) is None:
            os._exit(1)

    with suppress(BaseException):
        sys.addaudithook(end)
        repair(folder, "first")
        os._exit(0)
    os._exit(2)


def test_a_repair_that_is_killed_can_be_repeated(damaged: Path, tmp_path: Path) -> None:
    before = parts(damaged)
    whole = [number for number in range(1, MESSAGES + 1) if number != 7]
    refusals = []
    for step in range(1_000):
        folder = tmp_path / f"killed {step}"
        copy_parts(damaged, folder)
        if not is_killed(folder, step):
            break
        with suppress(StoreError):
            assert numbers(folder) == whole
            continue
        with pytest.raises(StoreError) as caught:
            Store.open(folder, "process").load()
        refusals.append(type(caught.value))
        if refusals[-1] is StoreError:
            assert caught.value.message == f"A repair of {folder} was cut short."
            with pytest.raises(StoreError, match="cut short"):
                has_promises(folder)
            with pytest.raises(StoreError, match="cut short"):
                backup(folder, tmp_path / "copy")
        else:
            assert parts(folder) == before
        done = repair(folder, "second")
        assert done.kept["messages"] == MESSAGES - 1
        assert done.aside is not None
        assert parts(done.aside) == before
        assert {path.name for path in done.aside.iterdir()} == FILES
        assert numbers(folder) == whole
    assert refusals.count(DamageError) > 3
    assert refusals.count(StoreError) > 2
    assert numbers(folder) == whole


@pytest.mark.parametrize("cause", [sqlite3.SQLITE_FULL, None], ids=["full disk", "Ctrl-C"])
def test_a_repair_that_fails_changes_nothing(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, cause: int | None
) -> None:
    before = parts(damaged)

    def fail(_target: sqlite3.Connection) -> None:
        if cause is None:
            raise KeyboardInterrupt
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = cause
        raise error

    monkeypatch.setattr(module, "give_checksums", fail)
    with pytest.raises((StoreError, KeyboardInterrupt)):
        repair(damaged, "first")
    monkeypatch.undo()
    assert parts(damaged) == before
    assert not [*damaged.glob("*-repair*"), *damaged.glob("damaged-*")]
    with pytest.raises(DamageError, match="1 of messages"):
        numbers(damaged)
    assert repair(damaged, "second").damaged == {"messages": 1}
    assert len(numbers(damaged)) == MESSAGES - 1


@pytest.mark.parametrize("why", ["newer Dovetail", "another program", "locked", "opened"])
def test_what_is_not_damaged_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS_MAX", 0.01)
    file = tmp_path / DATABASE_FILE
    Store.open(tmp_path, "process").close()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        if why == "newer Dovetail":
            other.execute("PRAGMA user_version = 99")
        elif why == "another program":
            other.execute("PRAGMA application_id = 1")
        elif why == "locked":
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("UPDATE numbers SET reserved = reserved")
        else:
            (tmp_path / f"{DATABASE_FILE}-wal").mkdir()
        before = file.read_bytes()
        with pytest.raises(StoreError, match=why) as caught:
            repair(tmp_path, "now")
        assert not isinstance(caught.value, DamageError)
        assert file.read_bytes() == before
    assert not [*tmp_path.glob("damaged-*")]


def test_rows_without_checksums_that_cannot_be_are_damaged(tmp_path: Path) -> None:
    """A start refuses a text that is none, so a repair has to see it, too."""
    folder = tmp_path / "data"
    fill(folder)
    as_version_8(folder)
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as old:
        old.executescript(
            "DROP TABLE incoming; CREATE TABLE incoming (session, packet_id, held);"
            "INSERT INTO incoming VALUES (1, 2, 1), (1, 'no number', 1)"
        )
    change(folder, session("first client").client_id.encode(), b"\xffirst client")
    with pytest.raises(DamageError, match="is damaged"):
        Store.open(folder, "process")
    done = repair(folder, "now")
    assert done.damaged == {"sessions": 1, "incoming": 1}
    assert (done.kept["sessions"], done.kept["incoming"]) == (1, 1)
    assert numbers(folder) == [*range(1, MESSAGES, 2)]  # those of the other session


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_stay_their_owners(damaged: Path) -> None:
    owner = (12_345, 23_456)
    for path in (damaged, *damaged.iterdir()):
        os.chown(path, *owner)
    done = repair(damaged, "now")
    assert done.aside is not None
    new = [damaged / DATABASE_FILE, damaged / LOCK_FILE, done.aside, *done.aside.iterdir()]
    assert [(path.stat().st_uid, path.stat().st_gid) for path in new] == [owner] * len(new)
