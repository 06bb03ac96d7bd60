"""The watermark: where the database's log ended at the last commit, in a small file beside it.

SQLite takes the first damaged page of its log for the end of the log. Later commits are gone
without a word. So after each commit we note where the log ends. The next start checks that it
reaches that far.

    note     after a commit, before the journal reports it
    clear    before the database is closed: SQLite moves its log into it
    lag      at a start: describes what is missing, if anything

The position is in the first bytes of SQLite's index of the log (-shm), which SQLite documents: the
number of pages, and two numbers that tell the log from earlier ones (its salts). A log that begins
anew has the first salt plus one. Then all of the log before is in the database.

The mark survives a kill of the process. It is not synced: after a loss of power it may be older
than the log. With durability "process" it may also be newer, which then is no damage.
"""

import mmap
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK_SUFFIX = "-mark"
"""Appended to the name of the database, as SQLite does for its files."""

_BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")
_BOOT_BYTES = 36

# In the index: https://sqlite.org/walformat.html, section 2.1.
_INDEX_BYTES = 48
_PLACE_BEGIN, _PLACE_END = 16, 40

_HEAD = struct.Struct(f">4sB{_BOOT_BYTES}s")
# Pages of the log, pages of the database, the checksum of the last page, and the salts.
_PLACE = struct.Struct("=II8s8s")
_CHECKSUM_BYTES = 4
_MARK_BYTES = _HEAD.size + _PLACE.size + _CHECKSUM_BYTES
_MAGIC = b"Dove"
_MAY_LAG = 1
"""A flag of a mark: a loss of power may take back the last commits."""


class LogPosition(NamedTuple):
    """The end of a log."""

    pages: int
    salts: bytes


class LogMark(NamedTuple):
    """The contents of a watermark file."""

    place: LogPosition
    boot: bytes
    may_lag: bool


class LogIndex:
    """Reads SQLite's index of the log.

    It has to be closed after the connection: closing any descriptor of this file drops the locks
    that SQLite has on it in this process.
    """

    def __init__(self, database: Path) -> None:
        descriptor = os.open(f"{database}-shm", os.O_RDONLY)
        try:
            self._memory = mmap.mmap(descriptor, _INDEX_BYTES, prot=mmap.PROT_READ)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def packed_place(self) -> bytes:
        """Return where the log ends, as a mark stores it."""
        return self._memory[_PLACE_BEGIN:_PLACE_END]

    def place(self) -> LogPosition:
        return _unpacked(self.packed_place())

    def close(self) -> None:
        self._memory.close()
        os.close(self._descriptor)


class Watermark:
    """The watermark file of one database."""

    def __init__(self, database: Path, *, may_lag: bool) -> None:
        self._head = _HEAD.pack(_MAGIC, _MAY_LAG if may_lag else 0, boot_of_machine())
        self._descriptor = os.open(mark_file(database), os.O_RDWR | os.O_CREAT, 0o600)

    def note(self, packed_place: bytes) -> None:
        data = self._head + packed_place
        try:
            # In one call: it is written whole or not at all, whenever we are killed.
            os.pwrite(self._descriptor, data + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES), 0)
        except OSError:
            self.clear()  # no mark is better than an old one

    def clear(self) -> None:
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        os.close(self._descriptor)


def mark_file(database: Path) -> Path:
    return database.with_name(database.name + MARK_SUFFIX)


def read_mark(database: Path) -> LogMark | None:
    """Return the mark of a database; None if there is none. Raise a ValueError if it is damaged."""
    try:
        data = mark_file(database).read_bytes()
    except FileNotFoundError:
        return None
    if not data.strip(b"\0"):  # zeros, too: a loss of power may leave a length without bytes
        return None
    content, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if len(data) != _MARK_BYTES or zlib.crc32(content).to_bytes(_CHECKSUM_BYTES) != checksum:
        raise ValueError("the mark is not as it was written")
    _, flags, boot = _HEAD.unpack_from(content)
    place = _unpacked(content[_HEAD.size :])
    return LogMark(place, boot.rstrip(b"\0"), bool(flags & _MAY_LAG))


def _unpacked(place: bytes) -> LogPosition:
    pages, _, _, salts = _PLACE.unpack(place)
    return LogPosition(pages, salts)


def lag(mark: LogMark, found: LogPosition, boot: bytes) -> str | None:
    """Describe what is missing of the log; None if nothing is."""
    pages, salts = mark.place
    if not pages:
        return None
    is_same = found.salts == salts
    if is_same and found.pages >= pages:
        return None
    # Without a boot identifier it may be another boot.
    has_restarted = not boot or boot != mark.boot
    if has_restarted and (mark.may_lag or not is_same):
        return None
    if not is_same and int.from_bytes(found.salts[:4]) == (int.from_bytes(salts[:4]) + 1) % 2**32:
        return None
    there = found.pages if is_same else 0
    return f"its log ends after {there:,} pages, and {pages:,} were reported to be on disk"


def boot_of_machine() -> bytes:
    """Return the identifier of the machine's boot; empty if there is none."""
    try:
        return _BOOT_FILE.read_bytes().strip()[:_BOOT_BYTES]
    except OSError:
        return b""
