"""Reserves disk space in a file, which the store deletes when the disk is full.

A broker with a full disk accepts no new messages, but it still has to write: the packet identifier
of a stored message, its PUBREC, its deletion. These writes free space in the end, but need some
first. So the store gives up the reserve when a commit finds no space, and restores it when there is
plenty. While `is_spent`, the broker refuses new messages.

A small disk has no reserve: it would take most of the free space.
"""

import os
from contextlib import suppress
from pathlib import Path

RESERVE_FILE = "dovetail.reserve"

RESERVE_BYTES = 4 << 20
"""A hundred times the database log of a full window of acknowledgements."""

DISK_BYTES_MIN = 16 * RESERVE_BYTES
"""The smallest disk that gets a reserve."""

FREE_BYTES_MIN = 4 * RESERVE_BYTES
"""The free space that is needed to make the reserve, at first or again."""


class DiskReserve:
    """The reserve of one data folder. It is best effort: a folder without one works, too."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / RESERVE_FILE
        self.is_spent = False
        """Was it given up, and not restored since?"""

    def prepare(self) -> None:
        """Make the reserve if it does not exist and there is space."""
        with suppress(OSError):
            is_there = self._file.exists() and self._file.stat().st_size >= RESERVE_BYTES
            if not is_there and self._has_room():
                self._make()

    def spend(self) -> bool:
        """Give up the reserve. Return False if there is none."""
        try:
            self._file.unlink()
        except OSError:
            return False
        self.is_spent = True
        return True

    def restore(self) -> None:
        """Make a spent reserve again if there is plenty of space."""
        with suppress(OSError):
            if self.is_spent and self._has_room():
                self._make()
                self.is_spent = False

    def _has_room(self) -> bool:
        disk = os.statvfs(self._file.parent)
        return (
            disk.f_blocks * disk.f_frsize >= DISK_BYTES_MIN
            and disk.f_bavail * disk.f_frsize >= FREE_BYTES_MIN
        )

    def _make(self) -> None:
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            else:  # random bytes: some file systems store zeros without using space
                os.write(descriptor, os.urandom(RESERVE_BYTES))
        except OSError:
            with suppress(OSError):
                self._file.unlink()
            raise
        finally:
            os.close(descriptor)
