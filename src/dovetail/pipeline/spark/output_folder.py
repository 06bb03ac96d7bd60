"""An output folder that appears whole or not at all.

A run writes into a hidden sibling of its folder, and renames it when everything is written and
synced. The sibling is locked while its run lives, so the next run can tell which siblings were left
behind, and deletes them. Only a folder that is missing, empty, or an earlier result of the same
kind is replaced.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dovetail.errors import ConfigError, DovetailError

UNFINISHED = "unfinished"
REPLACED = "replaced"


@contextlib.contextmanager
def result_folder(out: Path, is_result: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a folder to write into. It becomes `out` if the block succeeds.

    `is_result` tells whether an existing folder may be replaced.
    """
    with write_errors(out):
        out = out.resolve()
        _check_replaceable(out, is_result)
        out.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(out)
        unfinished = Path(tempfile.mkdtemp(prefix=_prefix(out, UNFINISHED), dir=out.parent))
        lock = os.open(unfinished, os.O_RDONLY)
    try:
        with write_errors(out):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield unfinished
        with write_errors(out):
            _flush(unfinished)
            _check_replaceable(out, is_result)
            _put_in_place(unfinished, out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        os.close(lock)


def _check_replaceable(out: Path, is_result: Callable[[Path], bool]) -> None:
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise ConfigError(f"{out} is not a folder.", hint="Name another folder with --out.")
    names = sorted(entry.name for entry in out.iterdir())
    if names and not is_result(out):
        others = "" if len(names) == 1 else f" and {len(names) - 1:,} more"
        raise ConfigError(
            f"{out} holds something else than a result of this command ({names[0]}{others}), "
            "and is left as it is.",
            hint="Name another folder with --out.",
        )
    if out.is_mount() or Path.cwd().is_relative_to(out):
        raise ConfigError(
            f"{out} cannot be replaced: something is mounted there, or it is the current folder.",
            hint=f"Name a folder inside it: --out {out / 'results'}",
        )


def _clear_leftovers(out: Path) -> None:
    """Delete siblings of killed runs. The sibling of a live run is locked."""
    for left in _siblings(out, UNFINISHED):
        lock = os.open(left, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another run is writing to {out} now.", hint="Name another folder with --out."
            ) from None
        else:
            shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(lock)
    for left in _siblings(out, REPLACED):
        # A run was killed between its two renames: restore the earlier result.
        if out.exists():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.rename(out)


def _put_in_place(unfinished: Path, out: Path) -> None:
    unfinished.chmod(0o777 & ~_umask())
    replaced = None
    if out.exists():
        replaced = out.with_name(f"{_prefix(out, REPLACED)}{unfinished.name.rpartition('-')[2]}")
        out.rename(replaced)
    try:
        unfinished.rename(out)
    except OSError:
        if replaced is not None:
            replaced.rename(out)
        raise
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Sync all files. A full disk may show only here."""
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _prefix(out: Path, state: str) -> str:
    return f".{out.name}.{state}-"


def _siblings(out: Path, state: str) -> list[Path]:
    prefix = _prefix(out, state)
    return sorted(path for path in out.parent.iterdir() if path.name.startswith(prefix))


def _umask() -> int:
    """Return the umask. `mkdtemp` ignores it, but a result gets the user's usual permissions."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def write_errors(out: Path, option: str = "--out") -> Iterator[None]:
    """Raise errors of the file system as a DovetailError."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if isinstance(error, FileExistsError | NotADirectoryError):
            reason = "a part of its path is a file"
        hint = (
            f"Free some space, or name another folder with {option}."
            if error.errno in {errno.ENOSPC, errno.EDQUOT}
            else f"Name another folder with {option}."
        )
        raise DovetailError(f"{out} cannot be written: {reason}.", hint=hint) from error
