"""A folder with one SQLite file in it: whose it is, how it is opened, and what its errors mean.

- A folder belongs to one process, which holds a lock on its lock file.
- Nobody but SQLite may open the database file in this process while it is in use: closing any
  descriptor of a file drops all of the process's POSIX locks on it, SQLite's among them.
- What the user can mend becomes a `StoreError`; any other error is a bug, and stays what it is.

The folder holds `dovetail.db` and, while it is in use, SQLite's log (`-wal`: pages that a
checkpoint will move to the database) and its index (`-shm`); `dovetail.lock` stays, and is empty;
`dovetail.reserve` is room on the disk (disk_reserve.py), and `-mark` says how far the log has come
(watermark.py).
"""

import errno
import fcntl
import os
import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from dovetail.broker.store.tables import (
    ALL,
    CHECKSUMS_SINCE,
    SCHEMA_VERSION,
    UPGRADES,
    checksum,
    put_statement,
    read_statement,
)
from dovetail.errors import DamageError, StoreError

Durability = Literal["process", "power"]
"""What a commit survives: the end of the process by any cause, or a loss of power too."""

DATABASE_FILE = "dovetail.db"
LOCK_FILE = "dovetail.lock"

APPLICATION_ID = 0x446F7665
"""In the header of the file ("Dove"): it tells ours from other databases."""

SQLITE_VERSION_MIN = (3, 37, 0)
"""STRICT tables. Python 3.11 can be built with older ones."""

PAGE_BYTES = 4_096

LOG_PAGES_CHECKPOINT = 4_000
"""Pages in the log after which a commit moves them to the database: 16 MB, and the bound
of the log but for the largest batch. SQLite's default of 1,000 moves, and syncs, pages that queues
change again at once."""

LOG_BYTES_KEPT = 64 << 20
"""A log that one great batch or a long backup made larger is cut back to this."""

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
    """The connection that writes. Transactions begin where the caller says so."""
    # SQLite gives the files that it makes beside this one the same rights.
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(
        file,
        timeout=BUSY_SECONDS_MAX,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,  # more than a store has: 15 kinds in 9 lengths, and some
    )
    try:
        _configure(connection, file, durability)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(file: Path) -> sqlite3.Connection:
    """Beside the one that writes, and from any process.

    It cannot make checkpoints, which is as well: before 3.51.3, SQLite could damage a database
    when two connections wrote or made checkpoints in the same instant.
    """
    return sqlite3.connect(
        f"file:{quote(str(file))}?mode=ro",
        uri=True,
        timeout=BUSY_SECONDS_MAX,
        check_same_thread=False,  # one that keeps the log is closed by who closes the store
    )


def keep_log(file: Path) -> ExitStack:
    """Until this is closed, no connection that is puts the log into the database, and away.

    SQLite leaves that to the last connection, and one that only reads cannot.
    """
    with ExitStack() as kept:
        if file.is_file():
            reader = kept.enter_context(closing(connect_to_read(file)))
            reader.execute("PRAGMA schema_version").fetchall()
        return kept.pop_all()


def _configure(connection: sqlite3.Connection, file: Path, durability: Durability) -> None:
    """See that the file is ours and can be written to, and set everything up."""
    version = check_version(connection, file)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"The file system of {file.parent} has no shared memory, which the database needs.",
            hint="Choose a folder on a local disk with --data.",
        )
    # What a commit does in WAL mode. NORMAL: it writes to the -wal, and the kernel has that
    # whatever becomes of the process; syncs come with checkpoints alone (of the log before, of the
    # database after), so a loss of power takes the last commits back, and leaves the file sound.
    # FULL: it also syncs the -wal before it returns. A Mac's fsync stops at the drive's own cache;
    # fullfsync goes through, and means nothing elsewhere.
    synchronous, through = ("FULL", "ON") if durability == "power" else ("NORMAL", "OFF")
    for pragma in (
        f"synchronous = {synchronous}",
        f"fullfsync = {through}",
        f"checkpoint_fullfsync = {through}",
        f"wal_autocheckpoint = {LOG_PAGES_CHECKPOINT}",
        f"journal_size_limit = {LOG_BYTES_KEPT}",
        f"cache_size = -{CACHE_KIBIBYTES}",
        "temp_store = MEMORY",
        "secure_delete = FAST",  # zeros over what is removed, where that takes no further write
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")
    if version < SCHEMA_VERSION:
        _bring_up_to_date(connection, version)
    # SQLite opens a file that may only be read without a word, and begins transactions on it.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE numbers SET reserved = reserved")
    connection.execute("ROLLBACK")


def _bring_up_to_date(connection: sqlite3.Connection, version: int) -> None:
    steps = "".join(script for number, script in UPGRADES.items() if number > version)
    connection.executescript(f"BEGIN IMMEDIATE; {steps}")
    if version < CHECKSUMS_SINCE:
        give_checksums(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def give_checksums(connection: sqlite3.Connection) -> None:
    """To all rows, whatever they have."""
    for table in ALL:
        rows = connection.execute(read_statement(table)).fetchall()
        with_checksums = ((*row[:-1], checksum(row[:-1])) for row in rows)
        connection.executemany(put_statement(table, 1), with_checksums)


def check_version(connection: sqlite3.Connection, file: Path) -> int:
    """Of a file that is ours, or has nothing in it (0)."""
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


# By SQLite's primary result codes: a sentence and a hint. Other codes are faults of ours.
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
    """Say in a `StoreError` what the user can mend."""
    try:
        yield
    except sqlite3.Error as error:
        code = _code(error) & 0xFF
        if is_out_of_room(error):
            code = sqlite3.SQLITE_FULL
        elif not code and isinstance(error, sqlite3.OperationalError):
            code = sqlite3.SQLITE_CORRUPT  # Python's own, of text that is not UTF-8
        if code not in _EXPLANATIONS:
            raise
        name = getattr(error, "sqlite_errorname", "")
        raise _explained(file, code, name=name) from error


def damaged(file: Path, faults: Sequence[str]) -> DamageError:
    """Return the error for a database that SQLite opens, and that has these faults."""
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
    """May what SQLite says of a database that it reads be due to its bytes, or its disk?"""
    return _code(error) & 0xFF in {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_ERROR,
    }


def is_out_of_room(error: BaseException) -> bool:
    # The second is said of the -shm.
    return _code(error) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}


def _code(error: BaseException) -> int:
    """SQLite's extended result code; 0 if the error is not SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0))
