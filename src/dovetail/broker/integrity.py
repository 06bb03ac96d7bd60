"""Is a database as it was left? Looked at before anything is written to it.

- The log reaches as far as was reported (watermark.py).
- The pages hang together (SQLite's quick_check), for CHECK_SECONDS_MAX: a file that takes longer is
  looked at in part, and the log says so.
- The tables have their columns.

Whether each row is whole is seen where rows are read: at a start all of them are (store.py).
Nothing here changes a file: who finds damage can still set all of it aside (repair.py).
"""

import logging
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

from dovetail.broker import tables
from dovetail.broker.database import check_version, connect_to_read, damaged, sqlite_explained
from dovetail.broker.watermark import LogIndex, boot_of_machine, lag, mark_file, read_mark

log = logging.getLogger("dovetail.store")

CHECK_SECONDS_MAX = 10.0
"""For the pages: some 5 GB on a machine with a fast disk."""

_STEPS_BETWEEN_LOOKS = 20_000
"""Of SQLite's machine, some milliseconds, until it looks at the time."""


def check(file: Path) -> None:
    """Raise a StoreError if the database is damaged. A file that is not there is not."""
    if not file.is_file():
        return
    with sqlite_explained(file):
        found = faults(file)
    if found:
        raise damaged(file, found)


def faults(file: Path) -> list[str]:
    """What is wrong with it, each in words."""
    with ExitStack() as after, closing(connect_to_read(file)) as connection:
        version = check_version(connection, file)
        found = [*_log_faults(file, after), *_page_faults(connection, file)]
        if version == tables.SCHEMA_VERSION:
            found += _column_faults(connection)
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
