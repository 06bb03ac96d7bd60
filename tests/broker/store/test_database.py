"""The data folder and its file: its lock, its contents, and errors when it cannot be used."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from dovetail.broker.store import database
from dovetail.broker.store.database import DATABASE_FILE, LOCK_FILE, Durability
from dovetail.broker.store.disk_reserve import RESERVE_FILE
from dovetail.broker.store.journal import Batch, SessionRow, SubscriptionRow
from dovetail.broker.store.sqlite import Store, backup
from dovetail.broker.store.tables import SCHEMA_VERSION
from dovetail.errors import StoreError
from support.processes.mounts import read_only, small_disk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a store that was used and closed."""
    folder = tmp_path / "data"
    with closing(Store.open(folder, "process")) as store:
        batch = Batch(1)
        for number in range(1, 101):
            batch.sessions[number] = SessionRow(f"client-{number}", 60, None, None, None)
            batch.subscriptions[number, "a/b/c"] = SubscriptionRow(1, 0)
        store.commit(batch)
    return folder


def refusal(folder: Path) -> StoreError:
    """Return the error of opening the folder, which must stay free for the next."""
    with pytest.raises(StoreError) as caught, closing(Store.open(folder, "process")) as store:
        store.load()
    with pytest.raises(StoreError) as again, closing(Store.open(folder, "process")) as store:
        store.load()
    assert str(again.value) == str(caught.value)
    return caught.value


def advice_of(error: StoreError, for_whom: str) -> str:
    """The command behind the hint that has this word."""
    (line,) = [line for line in (error.hint or "").splitlines() if for_whom in line]
    return line.partition(": ")[2]


def test_makes_folders_that_only_the_user_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "down" / "data"
    with closing(Store.open(folder, "process")) as store:
        batch = Batch(1)
        batch.heard[1] = 1
        store.commit(batch)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert files == dict.fromkeys(
        [
            DATABASE_FILE,
            f"{DATABASE_FILE}-wal",
            f"{DATABASE_FILE}-shm",
            LOCK_FILE,
            RESERVE_FILE,
            f"{DATABASE_FILE}-mark",
        ],
        0o600,
    )


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("power", 2)])
def test_durability_is_set(folder: Path, durability: Durability, synchronous: int) -> None:
    with closing(Store.open(folder, durability)) as store:

        def value(pragma: str) -> object:
            return store._connection.execute(f"PRAGMA {pragma}").fetchone()[0]

        assert value("journal_mode") == "wal"
        assert value("synchronous") == synchronous
        assert value("fullfsync") == (durability == "power")
        assert value("checkpoint_fullfsync") == (durability == "power")
        assert value("wal_autocheckpoint") == database.LOG_PAGES_CHECKPOINT
        assert value("journal_size_limit") == database.LOG_BYTES_KEPT


def test_a_folder_has_one_owner(folder: Path) -> None:
    hold = (
        "import sys; from pathlib import Path; from dovetail.broker.store.sqlite import Store\n"
        "store = Store.open(Path(sys.argv[1]), 'process'); print('mine', flush=True)\n"
        "sys.stdin.read(); store.close()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "mine\n"
        error = refusal(folder)
        assert error.message == f"Another Dovetail uses the data folder {folder}."
        assert error.hint is not None
        assert "--data" in error.hint
        owner.communicate()
    with closing(Store.open(folder, "process")) as store:
        with pytest.raises(StoreError, match="Another Dovetail"):
            Store.open(folder, "process")  # nor may this process have it twice
        assert len(store.load().sessions) == 100


def test_a_newer_schema_is_left_alone(folder: Path) -> None:
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        newer.execute("ALTER TABLE sessions ADD COLUMN colour TEXT")
    error = refusal(folder)
    assert "newer Dovetail" in error.message
    assert f"version {SCHEMA_VERSION + 1}" in error.message
    with pytest.raises(StoreError, match="newer Dovetail"):
        backup(folder, folder / "copy.db")


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as other:
        other.execute("CREATE TABLE recipes (cake TEXT)")
    assert "database of another program" in refusal(tmp_path).message
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as other:
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("recipes",)]
        assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.parametrize("where", ["header", "schema", "rows", "text"])
def test_a_damaged_file_is_named_and_can_be_moved_aside(folder: Path, where: str) -> None:
    file = folder / DATABASE_FILE
    content = bytearray(file.read_bytes())
    if where == "header":
        content[:16] = b"x" * 16
    elif where == "schema":
        content[100:4096] = os.urandom(3996)
    elif where == "rows":
        content[4096:] = b"\xff" * (len(content) - 4096)
    else:
        content = content.replace(b"client-50", b"client\xff50")
    file.write_bytes(content)
    error = refusal(folder)
    assert error.message.startswith(f"{file} is damaged")
    assert error.hint is not None
    # The advice is what a shell can run, and what helps.
    subprocess.run(advice_of(error, "nothing"), shell=True, check=True)  # noqa: S602
    assert (folder / "damaged" / DATABASE_FILE).is_file()
    with closing(Store.open(folder, "process")) as store:
        assert not store.load().sessions


def test_damage_in_a_folder_with_a_strange_name(tmp_path: Path) -> None:
    folder = tmp_path / "it's my ?#% data"
    Store.open(folder, "process").close()
    backup(folder, tmp_path / "copy.db")
    (folder / DATABASE_FILE).write_bytes(b"nothing like a database")
    advice = advice_of(refusal(folder), "nothing")
    subprocess.run(advice, shell=True, check=True)  # noqa: S602
    Store.open(folder, "process").close()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    error = refusal(tmp_path / "data")
    assert str(tmp_path / "data") in error.message
    assert "--data" in str(error)


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / DATABASE_FILE).mkdir()
    assert refusal(tmp_path).message == f"{tmp_path / DATABASE_FILE} cannot be opened."


def test_a_read_only_file_system(folder: Path) -> None:
    with read_only(folder):
        error = refusal(folder)
    assert "Read-only file system" in error.message
    Store.open(folder, "process").close()


def test_a_read_only_file(folder: Path) -> None:
    # SQLite would open it, and fail at the first commit only.
    with read_only(folder / DATABASE_FILE):
        error = refusal(folder)
    assert error.message == f"{folder / DATABASE_FILE} cannot be written to."
    Store.open(folder, "process").close()


def test_no_room_for_a_new_store(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16_384) as disk:
        error = refusal(disk / "data")
    assert error.message == f"There is no room left for {disk / 'data' / DATABASE_FILE}."


def test_another_program_in_the_middle_of_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS_MAX", 0.01)
    with closing(sqlite3.connect(folder / DATABASE_FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        error = refusal(folder)
    assert error.message == f"Another program keeps {folder / DATABASE_FILE} locked."


def test_an_old_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SQLITE_VERSION_MIN", (99, 1, 2))
    assert "Dovetail needs 99.1.2" in refusal(folder).message


def test_a_file_of_an_older_version_is_brought_up_to_date(folder: Path) -> None:
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as old:
        old.executescript(
            "DROP TABLE runs; DROP TABLE run_deliveries;"
            "DROP TABLE owed; DROP TABLE heard; DROP TABLE members;"
            "DROP TABLE removals; DROP TABLE seen; DROP TABLE peer_groups; DROP TABLE archive;"
            "ALTER TABLE sessions DROP COLUMN stamp; ALTER TABLE sessions DROP COLUMN detour;"
            "ALTER TABLE sessions DROP COLUMN void_before;"
            "ALTER TABLE messages DROP COLUMN stamp; PRAGMA user_version = 1;"
            "ALTER TABLE messages DROP COLUMN retained;"
            "CREATE TABLE retained (topic BLOB PRIMARY KEY, message INTEGER NOT NULL)"
            " STRICT, WITHOUT ROWID;"
            "DELETE FROM numbers WHERE kind IN ('incarnation', 'stream', 'archive');"
        )
        for name in (
            *("sessions", "subscriptions", "messages", "deliveries", "incoming", "numbers"),
        ):
            old.execute(f"ALTER TABLE {name} DROP COLUMN checksum")
    with closing(Store.open(folder, "process")) as store:
        state = store.load()
        assert len(state.subscriptions) == 100
        assert state.owed == {}
        assert state.archive == {}
        assert store.next_archived(1.0) == 1_000_000
        assert store.begin_life(1.0)[1] == 1_000
