"""How kernels are compiled and where the results are kept.

Numba notices when a kernel's own file changes, and not when a file it calls into does. So the
folder of compiled code is named after all kernel sources together: a change anywhere starts a new
folder, and a stale kernel cannot run.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.extending import intrinsic

_SOURCES = Path(__file__).parent
_FOLDER_PREFIX = "compiled-"


def _folder_name() -> str:
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.glob("*.py")):
        digest.update(source.read_bytes())
    return _FOLDER_PREFIX + digest.hexdigest()[:16]


def _places() -> Iterator[Path]:
    """Where compiled code may lie, best first.

    Beside the sources it serves everybody; an installation that may not be written to leaves each
    user to their own. Never a shared folder such as /tmp: what lies there is run.
    """
    yield _SOURCES / "__pycache__"
    if cache := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "dovetail"
    with suppress(RuntimeError):  # a user without a home
        yield Path.home() / ".cache" / "dovetail"


def _cache_folder() -> Path:
    name = _folder_name()
    for place in _places():
        folder = place / name
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    # Compiled anew by each process, which is slow and works.
    private = tempfile.mkdtemp(prefix="dovetail-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return Path(private)


def remove_stale() -> None:
    """Compiled code of sources that are no more."""
    current = Path(numba.config.CACHE_DIR)  # type: ignore[attr-defined]
    for folder in current.parent.glob(_FOLDER_PREFIX + "*"):
        if folder != current:
            shutil.rmtree(folder, ignore_errors=True)


if not os.environ.get("NUMBA_CACHE_DIR"):
    numba.config.CACHE_DIR = str(_cache_folder())  # type: ignore[attr-defined]

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Called from Python, or from other kernels."""
    return cast("Function", njit(cache=True, nogil=True)(function))


def inlined(function: Function) -> Function:
    """Part of its callers: small, and called in the innermost loops.

    LLVM inlines it, not Numba: that compiles in half the time, and Numba would count references to
    every array argument once a call. For the same reason kernels share flat arrays and offsets into
    them rather than views.
    """
    return cast("Function", njit(forceinline=True)(function))


def instruction(define: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is LLVM code rather than Python."""
    return cast("Callable[..., Any]", intrinsic(define))
