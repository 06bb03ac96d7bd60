"""Room on the disk that is kept for a time of need: a file, which is removed when the disk is full.

A broker whose disk is full takes nothing new, but still has to write: that a stored message has got
its packet identifier, that it was received, that it is gone. All of that frees room in the end, and
needs some first. So the store gives this room away when a commit finds none, and takes it back when
there is plenty; in between, whoever asks `is_spent` keeps new messages out.

A small disk has no reserve: there it would be most of what is free.
"""

import os
from contextlib import suppress
from pathlib import Path

RESERVE_FILE = "dovetail.reserve"

RESERVE_BYTES = 4 << 20
"""A hundred times what a full window of acknowledgements takes in the database's log."""

DISK_BYTES_MIN = 16 * RESERVE_BYTES
"""Of the whole disk: smaller ones have no reserve."""

FREE_BYTES_MIN = 4 * RESERVE_BYTES
"""What has to be free before a reserve that was spent is made again."""


class Reserve:
    """Of one data folder. Everything here is best effort: a folder without one works, too."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / RESERVE_FILE
        self.is_spent = False
        """Was it given away, and could not be made again since?"""

    def prepare(self) -> None:
        """Have it, if there is room."""
        with suppress(OSError):
            is_there = self._file.exists() and self._file.stat().st_size >= RESERVE_BYTES
            if not is_there and self._has_room():
                self._make()

    def spend(self) -> bool:
        """Give the room away; False if there was none."""
        try:
            self._file.unlink()
        except OSError:
            return False
        self.is_spent = True
        return True

    def restore(self) -> None:
        """After it was spent: make it again, if there is plenty of room."""
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
            else:  # no zeros, which some file systems keep for nothing
                os.write(descriptor, os.urandom(RESERVE_BYTES))
        except OSError:
            with suppress(OSError):
                self._file.unlink()
            raise
        finally:
            os.close(descriptor)
