"""Small file systems, for tests with a disk that is full or read-only."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system of this size, or skip the test where mounting is not allowed."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        unmount(folder)


def fill(disk: Path) -> Path:
    """Fill the disk with a file, and return the file."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4_096)):
            pass
    return filler


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Make a file or folder read-only, even for root."""
    mount("--bind", str(path), str(path))
    try:
        mount("-o", "remount,bind,ro", str(path))
        yield
    finally:
        unmount(path)


def unmount(path: Path) -> None:
    """Unmount, and wait for Java to close a file that did not fit on the disk."""
    if subprocess.run(["umount", str(path)], capture_output=True, check=False).returncode:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program: what only a real file system shows is not tested")
    if done.returncode:
        pytest.skip(f"mounting is not allowed here ({done.stderr.strip()}): not tested")
