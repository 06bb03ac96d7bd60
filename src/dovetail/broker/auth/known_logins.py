"""Remembers which users logged in from which addresses: these get a lane of their own.

A record is a digest of user and address: 16 bytes. It has nothing of the password. If the file were
stolen, passwords could be guessed quickly from such a digest; the hashes of the password file are
slow on purpose.

If the file cannot be read or written, known users lose their lanes at the next start, and nothing
else happens. `KnownLogins` is pure; `LoginFile` blocks.
"""

import errno
import hashlib
import logging
import os
from pathlib import Path

log = logging.getLogger("dovetail.broker")

RECORD_BYTES = 16


class KnownLogins:
    """The latest `count_max` pairs of user and address."""

    def __init__(self, data: bytes, count_max: int) -> None:
        """`data` are the records on disk, oldest first. Half a record at the end is ignored."""
        whole = len(data) // RECORD_BYTES
        first = max(0, whole - count_max)
        self._known = dict.fromkeys(
            data[at * RECORD_BYTES : (at + 1) * RECORD_BYTES] for at in range(first, whole)
        )
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._known)

    def knows(self, user: str, network: str) -> bool:
        return _record(user, network) in self._known

    def add(self, user: str, network: str) -> bytes:
        """Return the record to write, or nothing if the pair is known."""
        record = _record(user, network)
        is_known = record in self._known
        self._known.pop(record, None)
        self._known[record] = None
        if len(self._known) > self._count_max:
            del self._known[next(iter(self._known))]
        return b"" if is_known else record

    def records(self) -> bytes:
        """Return all records, oldest first."""
        return b"".join(self._known)


def _record(user: str, network: str) -> bytes:
    name = user.encode()
    content = len(name).to_bytes(4) + name + network.encode()
    return hashlib.blake2b(content, digest_size=RECORD_BYTES).digest()


class LoginFile:
    """The file of records, readable only for its owner.

    It logs only the first of several failures, until a write succeeds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_failing = False
        """If so, the file may end in half a record: replace it, and do not append."""

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            self._fail(error)
            return b""

    def append(self, record: bytes) -> None:
        try:
            _write(self._path, os.O_APPEND, record)
        except OSError as error:
            self._fail(error)

    def replace(self, records: bytes) -> None:
        """Replace the whole file, or nothing of it."""
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            _write(new, os.O_TRUNC, records)
            new.replace(self._path)
        except OSError as error:
            self._fail(error)
        else:
            self.is_failing = False

    def _fail(self, error: OSError) -> None:
        if not self.is_failing:
            self.is_failing = True
            log.warning(
                "cannot use %s: %s; users who logged in before may have to wait after a restart",
                self._path,
                error.strerror,
            )


def _write(path: Path, flag: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
