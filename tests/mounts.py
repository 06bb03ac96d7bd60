"""Small file systems of their own, for tests of what happens when a disk is full or read-only."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_process import wait_until


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of this size; where mounting is not allowed, the test is skipped."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        unmount(folder)


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Nobody can write to this file or folder, not even root, who is not asked for rights."""
    mount("--bind", str(path), str(path))
    try:
        mount("-o", "remount,bind,ro", str(path))
        yield
    finally:
        unmount(path)


def unmount(path: Path) -> None:
    """A program that was refused room may have a file open there for a moment longer."""

    def is_done() -> bool:
        done = subprocess.run(["umount", str(path)], capture_output=True, text=True, check=False)
        if done.returncode and "busy" not in done.stderr:
            pytest.fail(done.stderr)
        return not done.returncode

    wait_until(is_done, f"nobody has a file of {path} open")


def mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program: what only a real file system shows is not tested")
    if done.returncode:
        pytest.skip(f"mounting is not allowed here ({done.stderr.strip()}): not tested")
