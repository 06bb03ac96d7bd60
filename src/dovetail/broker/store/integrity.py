"""Checks at a start that a database is as it was left, before anything is written to it.

- No repair was cut short. If one was, the start refuses until `dovetail repair` has completed it.
- The log reaches as far as the last commit (watermark.py).
- The pages are consistent (SQLite's quick_check). The check ends after CHECK_SECONDS_MAX. Then it
  has read a part of the file, and the log says so.
- The tables have their columns.

Rows are checked when a start reads them (sqlite.py). Some files are changed by the start before
that: files of an older version, or without a log. Their rows are checked here. Nothing here changes
a file, so `dovetail repair` can still set a damaged database aside as it is (repair.py).
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
    damage_error,
    sqlite_explained,
)
from dovetail.broker.store.watermark import LogIndex, boot_of_machine, lag, mark_file, read_mark
from dovetail.errors import StoreError

log = logging.getLogger("dovetail.store")

ASIDE_FOLDER = "damaged-{}"
"""The folder, within the data folder, to which a repair moves the damaged files."""

REPAIRED_FILE = f"{DATABASE_FILE}-repaired"
"""The new database, in that folder, until the damaged files are there."""

CHECK_SECONDS_MAX = 10.0
"""Time to check the pages: enough for 5 GB on a fast disk."""

_STEPS_BETWEEN_LOOKS = 20_000
"""Steps of SQLite's virtual machine between two looks at the time: some milliseconds."""


def check(file: Path, *, with_rows: bool = False) -> None:
    """Raise a DamageError if the database is damaged. A missing file is not.

    Raise a StoreError if it cannot be read, or is not ours.
    """
    check_repair(file.parent)
    if not file.is_file():
        return
    with sqlite_explained(file):
        found = _faults(file, with_rows=with_rows)
    if found:
        raise damage_error(file, found)


def check_repair(folder: Path) -> None:
    """Raise a StoreError if a repair was cut short while it moved files."""
    if unfinished_repair(folder) is not None:
        raise StoreError(
            f"A repair of {folder} was cut short.",
            hint=f"To complete it: dovetail repair --data {shlex.quote(str(folder))}",
        )


def unfinished_repair(folder: Path) -> Path | None:
    """Return the new, intact database of a repair that was cut short."""
    return next(folder.glob(f"{ASIDE_FOLDER.format('*')}/{REPAIRED_FILE}"), None)


def damaged_rows(counts: Mapping[str, int]) -> str:
    """Describe damaged rows. `counts` has their number by table."""
    rows = ", ".join(f"{count:,} of {name}" for name, count in counts.items())
    return f"rows are not as they were written ({rows})"


def _faults(file: Path, *, with_rows: bool) -> list[str]:
    """Describe each fault of a database."""
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
    """Describe faults of the log. `after` gets callbacks for when SQLite has closed its files."""
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
    """Describe damaged rows. SQLite raises an error for text that is not UTF-8."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    counts: Counter[str] = Counter()
    for table in tables.of_version(version):
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
