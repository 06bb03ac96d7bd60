"""Is a database as it was left? Looked at before anything is written to it.

- A repair that was cut short is completed first.
- The log reaches as far as was reported (watermark.py).
- The pages hang together (SQLite's quick_check), for CHECK_SECONDS_MAX: a file that takes longer is
  looked at in part, and the log says so.
- The tables have their columns.

Whether each row is whole is seen where rows are read: at a start all of them are (sqlite.py). Of a
file that a start changes before, they are read here: one of an older version, or without a log.
Nothing here changes a file: who finds damage can still set all of it aside (repair.py).
"""

import logging
import shlex
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from dovetail.broker.store import tables
from dovetail.broker.store.database import (
    DATABASE_FILE,
    check_version,
    connect_to_read,
    damaged,
    sqlite_explained,
)
from dovetail.broker.store.watermark import LogIndex, boot_of_machine, lag, mark_file, read_mark
from dovetail.errors import StoreError

log = logging.getLogger("dovetail.store")

ASIDE_FOLDER = "damaged-{}"
"""Where a repair puts the files as they are; within the data folder."""

REPAIRED_FILE = f"{DATABASE_FILE}-repaired"
"""There, until they are there: what is to take their place."""

CHECK_SECONDS_MAX = 10.0
"""For the pages: some 5 GB on a machine with a fast disk."""

_STEPS_BETWEEN_LOOKS = 20_000
"""Of SQLite's machine, some milliseconds, until it looks at the time."""


def check(file: Path, *, with_rows: bool = False) -> None:
    """Raise a DamageError if the database is damaged. A file that is not there is not.

    A StoreError if it cannot be looked at, or is not ours.
    """
    check_repair(file.parent)
    if not file.is_file():
        return
    with sqlite_explained(file):
        found = _faults(file, with_rows=with_rows)
    if found:
        raise damaged(file, found)


def check_repair(folder: Path) -> None:
    """Raise a StoreError if one has begun to move files, and has not ended."""
    if unfinished_repair(folder) is not None:
        raise StoreError(
            f"A repair of {folder} was cut short.",
            hint=f"To complete it: dovetail repair --data {shlex.quote(str(folder))}",
        )


def unfinished_repair(folder: Path) -> Path | None:
    """The new database of one that was cut short; it is whole."""
    return next(folder.glob(f"{ASIDE_FOLDER.format('*')}/{REPAIRED_FILE}"), None)


def damaged_rows(counts: Mapping[str, int]) -> str:
    """A fault in words; `counts` by table."""
    rows = ", ".join(f"{count:,} of {name}" for name, count in counts.items())
    return f"rows are not as they were written ({rows})"


def _faults(file: Path, *, with_rows: bool) -> list[str]:
    """Return the faults of a database, each in words."""
    with ExitStack() as after, closing(connect_to_read(file)) as connection:
        version = check_version(connection, file)
        found = [*_log_faults(file, after), *_page_faults(connection, file)]
        if version == tables.SCHEMA_VERSION:
            found += _column_faults(connection)
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if not found and (with_rows or version < tables.SCHEMA_VERSION or mode != "wal"):
            found += _row_faults(connection, version)
        return found


def _log_faults(file: Path, after: ExitStack) -> list[str]:
    """`after`: what is done when SQLite has closed its files."""
    try:
        mark = read_mark(file)
    except ValueError:
        return [f"{mark_file(file).name} beside it is not as it was written"]
    if mark is None or not Path(f"{file}-shm").exists():
        return []
    index = LogIndex(file)
    after.callback(index.close)
    missing = lag(mark, index.place(), boot_of_machine())
    if missing is None:
        return []
    log_file = Path(f"{file}-wal")
    if log_file.exists() and log_file.stat().st_size:
        return [missing]
    tool = "a database tool that was used since has put them into the database"
    return [
        f"{log_file.name} is gone, which had {mark.place.pages:,} pages when the broker ended",
        f"if {tool}, remove {mark_file(file).name} and start",
    ]


def _page_faults(connection: sqlite3.Connection, file: Path) -> list[str]:
    deadline = time.monotonic() + CHECK_SECONDS_MAX
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    try:
        rows = [text for (text,) in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        log.warning(
            "%s is large: its pages were looked at for %g seconds, and not all of them",
            file,
            CHECK_SECONDS_MAX,
        )
        return []
    finally:
        connection.set_progress_handler(None, 0)
    return [] if rows == ["ok"] else [f"its pages do not hang together ({'; '.join(rows)})"]


def _column_faults(connection: sqlite3.Connection) -> list[str]:
    found = []
    for table in tables.ALL:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]
        if {*columns} != {*table.keys, *table.values, "checksum"}:
            found.append(f"its table {table.name} has not the columns that it should have")
    return found


def _row_faults(connection: sqlite3.Connection, version: int) -> list[str]:
    """SQLite raises an error for a text that is none."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    counts: Counter[str] = Counter()
    for table in tables.ALL:
        if table.name not in there:
            continue
        if version < tables.CHECKSUMS_SINCE:
            for _ in connection.execute(f"SELECT * FROM {table.name}"):  # noqa: S608
                pass
        else:
            for row in connection.execute(tables.read_statement(table)):
                counts[table.name] += not tables.is_whole(row)
    counts = +counts
    return [damaged_rows(counts)] if counts else []
