"""Repairs a damaged data folder: sets the database aside, copies intact rows into a new one.

    dovetail.db-repairing               1. gets the rows; the damaged files stay as they are
    damaged-TIME/dovetail.db-repaired   2. complete: from here on the repair must be finished
    damaged-TIME/dovetail.db...         3. the damaged files; the new one is dovetail.db

- Nothing is deleted: the damaged files move to a folder of their own, as they are.
- A repair may be cut short at any moment. Before step 2 nothing has changed. After it a start
  refuses (integrity.py), and the next repair completes this one.
- The new database gets every readable row with a correct checksum. A table with damaged pages is
  read from both ends, as far as possible.
- Rows that refer to lost rows are removed at the next start, which logs their number (sqlite.py).
- A folder without damage stays as it is. So does one that is not ours, or that is locked.
- New files get the owner of the database: root may have started the repair.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.broker.store import integrity, tables
from dovetail.broker.store.database import (
    DATABASE_FILE,
    LOCK_FILE,
    check_library,
    connect,
    connect_to_read,
    flush,
    give_checksums,
    is_damage,
    sqlite_explained,
    take_lock,
)
from dovetail.broker.store.sqlite import NUMBERS_RESERVED
from dovetail.errors import DamageError, StoreError, explain_file_errors

_SUFFIXES = ("", "-wal", "-mark")
"""The suffixes of a database's files that are set aside; SQLite makes the others anew."""

_REPAIRING_FILE = f"{DATABASE_FILE}-repairing"


@dataclass
class RepairReport:
    """The result of a repair. If `aside` is None, nothing was damaged and nothing was done."""

    aside: Path | None = None
    kept: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)
    """Readable rows with a wrong checksum, by table."""
    unreadable: list[str] = field(default_factory=list)
    """Tables with pages that could not be read."""


def repair(folder: Path, stamp: str) -> RepairReport:
    """Set a damaged database aside, and continue with the intact rows. `stamp` names the folder.

    Raise a StoreError if a broker uses the folder, or it has no database of ours.
    """
    check_library()
    folder = folder.absolute()
    file = folder / DATABASE_FILE
    with explain_file_errors(folder), sqlite_explained(file), ExitStack() as undo:
        if not file.is_file() and integrity.unfinished_repair(folder) is None:
            raise StoreError(
                f"{folder} holds no data of Dovetail.", hint="Name the folder with --data."
            )
        undo.callback(os.close, take_lock(folder))
        repaired = integrity.unfinished_repair(folder)
        if repaired is not None:
            done = RepairReport(repaired.parent, kept=_count(repaired))
        elif _is_damaged(file):
            repaired, done = _prepare(folder, stamp)
        else:
            return RepairReport()
        _set_aside(folder, repaired)
        return done


def _is_damaged(file: Path) -> bool:
    try:
        integrity.check(file, with_rows=True)
    except DamageError:
        return True
    return False


def _prepare(folder: Path, stamp: str) -> tuple[Path, RepairReport]:
    """Make the new database, on disk where the next repair finds it if this one is cut short."""
    file, repairing = folder / DATABASE_FILE, folder / _REPAIRING_FILE
    _remove(repairing)
    try:
        done = _save(file, repairing)
        flush(repairing)
        aside = folder / integrity.ASIDE_FOLDER.format(stamp)
        aside.mkdir(mode=0o700)
        for new in (repairing, aside, folder / LOCK_FILE):
            _set_owner(new, file.stat())
        repaired = repairing.rename(aside / integrity.REPAIRED_FILE)
    except BaseException:
        _remove(repairing)
        raise
    flush(aside)
    flush(folder)
    done.aside = aside
    return repaired, done


def _set_aside(folder: Path, repaired: Path) -> None:
    for part in _SUFFIXES:
        if (one := folder / f"{DATABASE_FILE}{part}").exists():
            one.rename(repaired.with_name(one.name))
    (folder / f"{DATABASE_FILE}-shm").unlink(missing_ok=True)
    flush(repaired.parent)
    flush(folder)
    repaired.rename(folder / DATABASE_FILE)
    flush(folder)
    flush(repaired.parent)


def _remove(repairing: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{repairing}{end}").unlink(missing_ok=True)


def _set_owner(path: Path, to: os.stat_result) -> None:
    new = path.stat()
    if (new.st_uid, new.st_gid) != (to.st_uid, to.st_gid):
        os.chown(path, to.st_uid, to.st_gid)


def _count(file: Path) -> dict[str, int]:
    with closing(connect_to_read(file)) as connection:
        return {
            table.name: connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]  # noqa: S608
            for table in tables.ALL
        }


def _save(damaged: Path, file: Path) -> RepairReport:
    """Copy the intact rows of a damaged database into a new one."""
    done = RepairReport()
    with closing(connect(file, "power")) as target, closing(connect_to_read(damaged)) as source:
        source.text_factory = _lenient_text
        source.execute("PRAGMA writable_schema = ON")  # reads on past a damaged definition
        target.execute("BEGIN IMMEDIATE")
        for table in tables.ALL:
            _save_table(table, source, target, done)
        _mark_retained(source, target, done)
        give_checksums(target)
        _save_numbers(target, done)
        target.execute("COMMIT")
        # It moves without a log. On a full disk, closing would leave one, and report no error.
        (mode,) = target.execute("PRAGMA journal_mode = DELETE").fetchone()
        if mode != "delete":
            raise StoreError(f"{file} cannot be completed.", hint="Run dovetail repair again.")
    return done


def _save_table(
    table: tables.TableSchema,
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    done: RepairReport,
) -> None:
    wanted = (*table.keys, *table.values, "checksum")
    try:
        there = {row[1] for row in source.execute(f"PRAGMA table_info({table.name})")}
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
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
        try:
            is_whole = not has_checksum or tables.is_whole(row)
            if is_whole:
                target.execute(statement, row)
        except (
            UnicodeError,
            sqlite3.IntegrityError,
        ):  # text that is not UTF-8, or a value that the table forbids
            is_whole = False
        kept += is_whole
        damaged += not is_whole
    done.kept[table.name] = kept
    if damaged:
        done.damaged[table.name] = damaged


def _mark_retained(
    source: sqlite3.Connection, target: sqlite3.Connection, done: RepairReport
) -> None:
    """Mark the retained messages of an older file, which has a table for them."""
    table = tables.RETAINED_UNTIL_10
    columns = [row[1] for row in source.execute(f"PRAGMA table_info({table.name})")]
    for row in _rows(table, columns, source, done) if columns else ():
        if "checksum" not in columns or tables.is_whole(row):
            target.execute("UPDATE messages SET retained = 1 WHERE message = ?", (row[1],))


def _rows(
    table: tables.TableSchema, columns: list[str], source: sqlite3.Connection, done: RepairReport
) -> Iterator[tuple[Any, ...]]:
    """Return readable rows: from the first forwards, then after damage from the last backwards."""
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
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            if order == "ASC":
                done.unreadable.append(table.name)
                continue
        return


def _save_numbers(target: sqlite3.Connection, done: RepairReport) -> None:
    """Reserve numbers above all that may have been used."""
    lost = {"numbers"} & {*done.damaged, *done.unreadable}
    for kind, numbered in (
        ("sessions", (tables.SESSIONS,)),
        ("messages", (tables.MESSAGES, tables.RUNS)),
    ):
        highest = max(_highest(table, target) for table in numbered)
        (reserved,) = target.execute(
            "SELECT reserved FROM numbers WHERE kind = ?", (kind,)
        ).fetchone()
        if lost or highest > reserved:
            row = (kind, max(highest, reserved) + NUMBERS_RESERVED)
            statement = tables.put_statement(tables.NUMBERS, 1)
            target.execute(statement, (*row, tables.checksum(row)))


def _highest(table: tables.TableSchema, target: sqlite3.Connection) -> int:
    (highest,) = target.execute(
        f"SELECT coalesce(max({table.keys[0]}), 0) FROM {table.name}"  # noqa: S608
    ).fetchone()
    return int(highest)


def _lenient_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
