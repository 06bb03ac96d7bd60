"""A model of the store: plain dicts that take the same batches. Also batches by number.

Also copies of the database files, which are what a kill leaves on disk.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from dovetail.broker.store import tables
from dovetail.broker.store.database import DATABASE_FILE
from dovetail.broker.store.journal import Batch, DeliveryRow, MessageRow, SessionRow, StoredState

MESSAGES_STORED = 20
PARTS = ("", "-wal", "-mark")
"""Suffixes of the database files, without the file of shared memory."""


def session(name: str = "client") -> SessionRow:
    return SessionRow(name, 60, None, None, None)


def message(payload: bytes = b"21.5") -> MessageRow:
    return MessageRow(b"plant/line/sensor", payload, 1, False, b"", None, "publisher")


def delivery(number: int) -> DeliveryRow:
    return DeliveryRow(number, 1, False, 0, False, ())


class StoreModel:
    """The oracle: the rows that the tables must hold."""

    def __init__(self) -> None:
        self.state = StoredState(*({} for _ in StoredState._fields))

    def commit(self, batch: Batch) -> None:
        for name in StoredState._fields:
            rows = getattr(self.state, name)
            for key, row in getattr(batch, name).items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        gone = {number for number, row in batch.sessions.items() if row is None}
        for name in ("subscriptions", "deliveries", "run_deliveries", "incoming"):
            self.keep(name, lambda key, _: key[0] not in gone)

    def load(self) -> StoredState:
        sessions, messages = self.state.sessions, self.state.messages
        self.keep("subscriptions", lambda key, _: key[0] in sessions)
        self.keep("incoming", lambda key, _: key[0] in sessions)
        self.keep("deliveries", lambda key, row: key[0] in sessions and row.message in messages)
        runs = self.state.runs
        self.keep("run_deliveries", lambda key, row: key[0] in sessions and row.run in runs)
        self.keep("owed", lambda _, row: row.message in messages or row.message in runs)
        owed = {row.message for row in self.state.owed.values()}
        needed_runs = owed | {row.run for row in self.state.run_deliveries.values()}
        self.keep("runs", lambda key, _: key in needed_runs)
        needed = owed | {row.message for row in self.state.deliveries.values()}
        needed |= {number for number, row in messages.items() if row.retained}
        self.keep("messages", lambda key, _: key in needed)
        return self.state

    def keep(self, name: str, wanted: Callable[[Any, Any], bool]) -> None:
        rows = getattr(self.state, name)
        for key in [key for key, row in rows.items() if not wanted(key, row)]:
            del rows[key]


def numbered_batch(number: int) -> Batch:
    """After batch n, messages n - PERSISTENT + 1 to n are there, each owed to two sessions.

    Every other one is retained.
    """
    batch = Batch(number)
    batch.sessions = {1: session(f"{number}"), 2: session(f"{number}")}
    one = message(b"%d" % number * 1_000)._replace(topic=b"plant/%d" % number)
    batch.messages[number] = one._replace(retained=number % 2 == 0)
    for receiver in (1, 2):
        batch.deliveries[receiver, number] = delivery(number)
        batch.incoming[receiver, number % 7 + 1] = True
        batch.incoming[receiver, (number - 3) % 7 + 1] = None
    if number > MESSAGES_STORED:
        oldest = number - MESSAGES_STORED
        batch.messages[oldest] = None
        batch.deliveries[1, oldest] = batch.deliveries[2, oldest] = None
    return batch


def state_after(number: int) -> StoredState:
    model = StoreModel()
    for earlier in range(1, number + 1):
        model.commit(numbered_batch(earlier))
    return model.load()


def last_batch(state: StoredState) -> int:
    return int(state.sessions[1].client_id)


def copy_parts(folder: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for part in PARTS:
        shutil.copy(folder / f"{DATABASE_FILE}{part}", target)


def parts(folder: Path) -> dict[str, bytes]:
    """Return the contents of the database files; a missing file counts as empty."""
    files = {part: folder / f"{DATABASE_FILE}{part}" for part in PARTS}
    return {part: file.read_bytes() if file.exists() else b"" for part, file in files.items()}


def as_version_10(folder: Path) -> None:
    """Convert a store to version 10, the last one with a table of retained messages."""
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as old:
        old.execute(
            "CREATE TABLE retained (topic BLOB PRIMARY KEY, message INTEGER NOT NULL, "
            "checksum INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID"
        )
        rows = old.execute("SELECT topic, message FROM messages WHERE retained = 1").fetchall()
        old.executemany(
            "INSERT INTO retained VALUES (?, ?, ?)",
            [(*row, tables.checksum(row)) for row in rows],
        )
        old.execute("ALTER TABLE messages DROP COLUMN retained")
        (messages,) = [one for one in tables.of_version(10) if one.name == "messages"]
        for row in old.execute(tables.read_statement(messages)).fetchall():
            old.execute(
                "UPDATE messages SET checksum = ? WHERE message = ?",
                (tables.checksum(row[:-1]), row[0]),
            )
        old.execute("PRAGMA user_version = 10")
        old.commit()
    (folder / f"{DATABASE_FILE}-mark").unlink(missing_ok=True)


def as_version_8(folder: Path) -> None:
    """Convert a store to version 8, the last one whose rows have no checksums."""
    as_version_10(folder)
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as old:
        for table in tables.of_version(10):
            old.execute(f"ALTER TABLE {table.name} DROP COLUMN checksum")
        old.execute("PRAGMA user_version = 8")
    (folder / f"{DATABASE_FILE}-mark").unlink(missing_ok=True)
