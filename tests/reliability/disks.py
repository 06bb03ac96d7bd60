"""Small file systems for the brokers' data, which the tool can fill and free.

They are mounted only where the tool has mounts of its own (namespaces.py): then the kernel removes
them in any case.
"""

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from reliability.namespaces import is_inside

DISK_BYTES = 128 << 20
"""Enough for everything that a run stores: a broker must not run out of room by itself."""

_BALLAST = "ballast"


class Disks:
    """A disk for each node, by its folder."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._mounted: list[str] = []
        for node, folder in folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            if is_inside() and _mount(folder):
                self._mounted.append(node)

    @property
    def can_be_filled(self) -> bool:
        return len(self._mounted) == len(self._folders)

    def fill(self, node: str) -> None:
        """Leave no room at all, not even for a page of the database."""
        ballast = os.open(self._folders[node] / _BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size_bytes = 1 << 24
            while size_bytes >= 1:
                try:
                    end = os.lseek(ballast, 0, os.SEEK_END)
                    os.posix_fallocate(ballast, end, size_bytes)
                except OSError:
                    size_bytes //= 16
        finally:
            os.close(ballast)

    def free(self, node: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._folders[node] / _BALLAST).unlink()

    def close(self) -> None:
        for node in self._mounted:
            subprocess.run(["umount", "--lazy", self._folders[node]], check=False)


def _mount(folder: Path) -> bool:
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        return not subprocess.run(["mount", *options], capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False
