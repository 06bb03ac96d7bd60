"""What a damaged data folder still has: set aside as it is, and what is whole goes on.

- Nothing is deleted: the files of the database move to a folder of their own, as they are.
- A new database gets every row that can be read and has its checksum. A table whose pages are
  damaged is read from both ends, as far as they lead.
- What refers to a row that is lost goes at the next start, which says how much that is (store.py).
- A folder in which nothing is damaged stays as it is.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.broker import integrity, tables
from dovetail.broker.database import (
    DATABASE_FILE,
    check_library,
    connect,
    connect_to_read,
    flush,
    give_checksums,
    sqlite_explained,
    take_lock,
)
from dovetail.broker.store import NUMBERS_RESERVED
from dovetail.errors import StoreError, files_explained

_PARTS = ("", "-wal", "-mark")
"""Of a database, by their ends; SQLite makes the others anew."""


@dataclass
class Repair:
    """What became of a folder; `aside` None: nothing was damaged, and nothing was done."""

    aside: Path | None = None
    kept: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)
    """Rows that could be read and are not as they were, by table."""
    unreadable: list[str] = field(default_factory=list)
    """Tables that have pages which could not be read."""


def repair(folder: Path, stamp: str) -> Repair:
    """Set a damaged database aside, and go on with what is whole. `stamp` names what is set aside.

    A StoreError if a broker uses the folder, or there is no database in it.
    """
    check_library()
    folder = folder.absolute()
    file = folder / DATABASE_FILE
    with files_explained(folder), ExitStack() as undo:
        if not file.is_file():
            raise StoreError(
                f"{folder} holds no data of Dovetail.", hint="Name the folder with --data."
            )
        lock = take_lock(folder)
        undo.callback(os.close, lock)
        if not _is_damaged(file):
            return Repair()
        aside = folder / f"damaged-{stamp}"
        aside.mkdir(mode=0o700)
        for part in _PARTS:
            if (one := folder / f"{DATABASE_FILE}{part}").exists():
                one.rename(aside / one.name)
        (folder / f"{DATABASE_FILE}-shm").unlink(missing_ok=True)
        flush(folder)
        with sqlite_explained(file):
            return _save(aside, file)


def _is_damaged(file: Path) -> bool:
    try:
        integrity.check(file)
        with sqlite_explained(file), closing(connect_to_read(file)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            return version >= tables.CHECKSUMS_SINCE and not all(
                tables.is_whole(row)
                for table in tables.ALL
                for row in connection.execute(tables.read_statement(table))
            )
    except (StoreError, sqlite3.Error):
        return True


def _save(aside: Path, file: Path) -> Repair:
    """From the database that was set aside into a new one."""
    done = Repair(aside)
    with (
        closing(connect(file, "power")) as target,
        closing(connect_to_read(aside / DATABASE_FILE)) as source,
    ):
        source.text_factory = _any_text
        target.execute("BEGIN IMMEDIATE")
        for table in tables.ALL:
            _save_table(table, source, target, done)
        give_checksums(target)
        _save_numbers(target, done)
        target.execute("COMMIT")
    flush(file.parent)
    return done


def _save_table(
    table: tables.Table, source: sqlite3.Connection, target: sqlite3.Connection, done: Repair
) -> None:
    wanted = (*table.keys, *table.values, "checksum")
    try:
        there = {row[1] for row in source.execute(f"PRAGMA table_info({table.name})")}
    except sqlite3.Error:
        there = set()
    columns = [name for name in wanted if name in there]
    if not {*table.keys} <= there:
        done.unreadable.append(table.name)
        return
    places = ", ".join("?" * len(columns))
    statement = f"INSERT OR REPLACE INTO {table.name} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608
    has_checksum = columns[-1] == "checksum"  # older ones have none
    kept = damaged = 0
    for row in _rows(table, columns, source, done):
        if not has_checksum or _is_whole(row):
            target.execute(statement, row)
            kept += 1
        else:
            damaged += 1
    done.kept[table.name] = kept
    if damaged:
        done.damaged[table.name] = damaged


def _rows(
    table: tables.Table, columns: list[str], source: sqlite3.Connection, done: Repair
) -> Iterator[tuple[Any, ...]]:
    """All that can be read: from the first on, and where that ends from the last backwards."""
    keys = len(table.keys)
    seen: set[tuple[Any, ...]] = set()
    for order in ("ASC", "DESC"):
        by = ", ".join(f"{key} {order}" for key in table.keys)
        statement = f"SELECT {', '.join(columns)} FROM {table.name} ORDER BY {by}"  # noqa: S608
        try:
            for row in source.execute(statement):
                if order == "DESC" and row[:keys] in seen:
                    return  # the two have met
                seen.add(row[:keys])
                yield row
        except sqlite3.Error:
            if order == "ASC":
                done.unreadable.append(table.name)
                continue
        return


def _save_numbers(target: sqlite3.Connection, done: Repair) -> None:
    """Numbers that may have been given are not given again."""
    lost = {"numbers"} & {*done.damaged, *done.unreadable}
    for kind, table in (("sessions", tables.SESSIONS), ("messages", tables.MESSAGES)):
        (highest,) = target.execute(
            f"SELECT coalesce(max({table.keys[0]}), 0) FROM {table.name}"  # noqa: S608
        ).fetchone()
        (reserved,) = target.execute(
            "SELECT reserved FROM numbers WHERE kind = ?", (kind,)
        ).fetchone()
        if lost or highest > reserved:
            row = (kind, max(highest, reserved) + NUMBERS_RESERVED)
            statement = tables.put_statement(tables.NUMBERS, 1)
            target.execute(statement, (*row, tables.checksum(row)))


def _is_whole(row: tuple[Any, ...]) -> bool:
    try:
        return tables.is_whole(row)
    except UnicodeError:  # a text that is none
        return False


def _any_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
