"""The SQLite file of a data folder: its lock, its settings, and what its errors mean.

- A folder belongs to one process, which holds a lock on its lock file.
- Only SQLite may open the database file in this process while it is in use: closing any descriptor
  of a file drops all of the process's POSIX locks on it, SQLite's among them.
- An error that the user can fix becomes a `StoreError`. Any other error is a bug, and stays as it
  is.

Files of the folder:

    dovetail.db                     the database
    dovetail.db-wal                 SQLite's log: pages that a checkpoint will move to the database
    dovetail.db-shm                 the index of the log; both exist while the database is in use
    dovetail.db-mark                where the log ended at the last commit (watermark.py)
    dovetail.lock                   empty; it stays
    dovetail.reserve                disk space (disk_reserve.py)
"""

import errno
import fcntl
import os
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from dovetail.broker.store.tables import (
    ALL,
    CHECKSUMS_SINCE,
    MESSAGES,
    SCHEMA_VERSION,
    UPGRADES,
    TableSchema,
    checksum,
    put_statement,
    read_statement,
)
from dovetail.errors import DamageError, StoreError

Durability = Literal["process", "power"]
"""What a commit survives: any end of the process, or also a loss of power."""

DATABASE_FILE = "dovetail.db"
LOCK_FILE = "dovetail.lock"

APPLICATION_ID = 0x446F7665
"""In the header of the file ("Dove"): it tells our databases from others."""

SQLITE_VERSION_MIN = (3, 37, 0)
"""The first version with STRICT tables. Python 3.11 can be built with older ones."""

PAGE_BYTES = 4_096

LOG_PAGES_CHECKPOINT = 4_000
"""Pages in the log after which a commit moves them to the database. This bounds the log to 16 MB,
except for a larger batch. SQLite's default of 1,000 moves, and syncs, pages that queues change
again at once."""

LOG_BYTES_KEPT = 64 << 20
"""A larger log, after one great batch or a long backup, is cut back to this."""

CACHE_KIBIBYTES = 32 << 10
"""Pages in memory. With SQLite's default, 2 MB, queues of 200,000 messages took twice the time."""

BUSY_SECONDS_MAX = 5.0
"""How long to wait for another program (a database tool, say) that holds a lock."""


def check_library() -> None:
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        least = ".".join(map(str, SQLITE_VERSION_MIN))
        raise StoreError(
            f"This Python has SQLite {sqlite3.sqlite_version}; Dovetail needs {least}.",
            hint="Install a newer SQLite library, or run Dovetail with another Python.",
        )


def make_folder(folder: Path) -> None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in missing:
        flush(path.parent)


def take_lock(folder: Path) -> int:
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise StoreError(
            f"Another Dovetail uses the data folder {folder}.",
            hint="End it first, or give this one a folder of its own with --data.",
        ) from error
    except BaseException:
        os.close(lock)
        raise
    return lock


def connect(file: Path, durability: Durability) -> sqlite3.Connection:
    """Open the connection that writes. The caller begins transactions."""
    # SQLite gives the files that it makes beside this one the same rights.
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(
        file,
        timeout=BUSY_SECONDS_MAX,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,  # more than a store uses: 14 kinds in 9 lengths, and some
    )
    try:
        _configure(connection, file, durability)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(file: Path) -> sqlite3.Connection:
    """Open a connection to read, beside the one that writes, and from any process.

    It cannot make checkpoints. That is good: before 3.51.3, SQLite could damage a database when
    two connections wrote or made checkpoints at the same time.
    """
    return sqlite3.connect(
        f"file:{quote(str(file))}?mode=ro",
        uri=True,
        timeout=BUSY_SECONDS_MAX,
        check_same_thread=False,  # `keep_log` opens one that another thread may close
    )


def keep_log(file: Path) -> ExitStack:
    """Keep the log until the result is closed: a connection that closes does not delete it.

    SQLite moves the log into the database when the last connection closes. A connection that only
    reads cannot do that, so this function opens one.
    """
    with ExitStack() as kept:
        if file.is_file():
            reader = kept.enter_context(closing(connect_to_read(file)))
            reader.execute("PRAGMA schema_version").fetchall()
        return kept.pop_all()


def _configure(connection: sqlite3.Connection, file: Path, durability: Durability) -> None:
    """Check that the file is ours and writable, and set it up."""
    version = check_version(connection, file)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"The file system of {file.parent} has no shared memory, which the database needs.",
            hint="Choose a folder on a local disk with --data.",
        )
    # A commit in WAL mode. NORMAL: it writes to the -wal, which survives the process. Only
    # checkpoints sync: the log before, the database after. So a loss of power takes back the last
    # commits, and leaves the file intact. FULL: a commit also syncs the -wal before it returns.
    # On a Mac, fsync stops at the drive's cache, and fullfsync does not. It is ignored elsewhere.
    synchronous, through = ("FULL", "ON") if durability == "power" else ("NORMAL", "OFF")
    for pragma in (
        f"synchronous = {synchronous}",
        f"fullfsync = {through}",
        f"checkpoint_fullfsync = {through}",
        f"wal_autocheckpoint = {LOG_PAGES_CHECKPOINT}",
        f"journal_size_limit = {LOG_BYTES_KEPT}",
        f"cache_size = -{CACHE_KIBIBYTES}",
        "temp_store = MEMORY",
        "secure_delete = FAST",  # zeros over deleted rows, if that needs no further write
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")
    if version < SCHEMA_VERSION:
        _bring_up_to_date(connection, version)
    # SQLite opens a read-only file without an error, and begins transactions on it.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE numbers SET reserved = reserved")
    connection.execute("ROLLBACK")


def _bring_up_to_date(connection: sqlite3.Connection, version: int) -> None:
    steps = "".join(script for number, script in UPGRADES.items() if number > version)
    connection.executescript(f"BEGIN IMMEDIATE; {steps}")
    # Version 11 gave messages another column.
    give_checksums(connection, ALL if version < CHECKSUMS_SINCE else (MESSAGES,))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def give_checksums(connection: sqlite3.Connection, tables: Iterable[TableSchema] = ALL) -> None:
    """Write the checksums of all rows of these tables anew."""
    for table in tables:
        rows = connection.execute(read_statement(table)).fetchall()
        with_checksums = ((*row[:-1], checksum(row[:-1])) for row in rows)
        connection.executemany(put_statement(table, 1), with_checksums)


def check_version(connection: sqlite3.Connection, file: Path) -> int:
    """Return the version of our file; 0 if it is empty. Raise a StoreError for another file."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreError(
            f"{file} is a database of another program.",
            hint="Choose another folder with --data.",
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{file} was written by a newer Dovetail: it has version {version} of the tables, "
            f"and this one knows {SCHEMA_VERSION}.",
            hint="Run the newer Dovetail, or choose another folder with --data.",
        )
    return int(version)


def identity(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_dev, status.st_ino


def flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that does not sync folders
            raise
    finally:
        os.close(descriptor)


# By SQLite's primary result codes: a sentence and a hint. Other codes are our bugs.
_EXPLANATIONS = {
    sqlite3.SQLITE_FULL: (
        "There is no room left for {file}.",
        "Make room on its disk. What was stored before is safe.",
    ),
    sqlite3.SQLITE_READONLY: (
        "{file} cannot be written to.",
        (
            "See that its file system is not read-only and that the folder and its files belong to "
            "the user that runs Dovetail, or choose another folder with --data."
        ),
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "{file} cannot be opened.",
        (
            "See that the folder and its files belong to the user that runs Dovetail, or choose "
            "another folder with --data."
        ),
    ),
    sqlite3.SQLITE_IOERR: (
        "The disk failed while {file} was in use ({name}).",
        (
            "The system's log may say more. If the disk is broken, put a backup on another, and "
            "name its folder with --data."
        ),
    ),
    sqlite3.SQLITE_BUSY: (
        "Another program keeps {file} locked.",
        "End it; it may be a database tool with a transaction open.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "{file} is damaged.",
        (
            "To keep what is whole: dovetail repair --data {folder}\n"
            "To begin with nothing, move it aside with all its parts: {aside}\n"
            "To go back to a backup, do the same, and put the backup in its place."
        ),
    ),
}
_EXPLANATIONS[sqlite3.SQLITE_NOTADB] = _EXPLANATIONS[sqlite3.SQLITE_CORRUPT]
_EXPLANATIONS[sqlite3.SQLITE_PROTOCOL] = _EXPLANATIONS[sqlite3.SQLITE_BUSY]
_EXPLANATIONS[sqlite3.SQLITE_PERM] = _EXPLANATIONS[sqlite3.SQLITE_CANTOPEN]


@contextmanager
def sqlite_explained(file: Path) -> Iterator[None]:
    """Turn an SQLite error that the user can fix into a `StoreError`."""
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite's message quotes a damaged schema
        raise _explained(file, sqlite3.SQLITE_CORRUPT) from error
    except sqlite3.Error as error:
        code = _code(error) & 0xFF
        if is_out_of_room(error):
            code = sqlite3.SQLITE_FULL
        elif not code and isinstance(error, sqlite3.OperationalError):
            code = sqlite3.SQLITE_CORRUPT  # Python's own error, for text that is not UTF-8
        if code not in _EXPLANATIONS:
            raise
        name = getattr(error, "sqlite_errorname", "")
        raise _explained(file, code, name=name) from error


def damage_error(file: Path, faults: Sequence[str]) -> DamageError:
    """Return the error for a database with these faults."""
    error = _explained(file, sqlite3.SQLITE_CORRUPT)
    return DamageError(f"{error.message[:-1]}: {'; '.join(faults)}.", hint=error.hint)


def _explained(file: Path, code: int, *, name: str = "") -> StoreError:
    sentence, hint = _EXPLANATIONS[code]
    folder = shlex.quote(str(file.parent))
    aside = f"mkdir {folder}/damaged && mv {folder}/{file.name}* {folder}/damaged"
    is_damage = code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    return (DamageError if is_damage else StoreError)(
        sentence.format(file=file, name=name), hint=hint.format(aside=aside, folder=folder)
    )


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error of SQLite, while it reads, may be due to damage or the disk."""
    return _code(error) & 0xFF in {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_ERROR,
    }


def is_out_of_room(error: BaseException) -> bool:
    # SQLite returns the second for the -shm.
    return _code(error) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}


def _code(error: BaseException) -> int:
    """SQLite's extended result code; 0 if the error is not SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0))
