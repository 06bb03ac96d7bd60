"""How kernels are compiled and where the results are kept.

Numba notices when a kernel's own file changes, and not when a file it calls into does. So the
folder of compiled code is named after all kernel sources together: a change anywhere starts a new
folder, and a stale kernel cannot run.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.extending import intrinsic

_SOURCES = Path(__file__).parent
_FOLDER_PREFIX = "compiled-"


def _cache_folder() -> Path:
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.glob("*.py")):
        digest.update(source.read_bytes())
    beside = _SOURCES / "__pycache__"
    name = _FOLDER_PREFIX + digest.hexdigest()[:16]
    if os.access(beside if beside.exists() else _SOURCES, os.W_OK):
        return beside / name
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dovetail" / name


def remove_stale() -> None:
    """Compiled code of sources that are no more."""
    current = _cache_folder()
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
