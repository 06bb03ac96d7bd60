"""How kernels are compiled and where the results are kept.

Numba notices when a kernel's own file changes, and not when a file it calls into does. So the
folder of compiled code is named after all kernel sources and limits together: a change in any of
them starts a new folder, and a stale kernel cannot run.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

_PACKAGE = Path(__file__).parent
_FOLDER_PREFIX = "compiled-"


def _folder_name() -> str:
    digest = hashlib.sha256()
    # Kernels have limits compiled in.
    sources = (*_PACKAGE.glob("**/limits.py"), *_PACKAGE.glob("*/kernels/*.py"))
    for source in (Path(__file__), *sorted(sources)):
        digest.update(source.read_bytes())
    return _FOLDER_PREFIX + digest.hexdigest()[:16]


def _places() -> Iterator[Path]:
    """Where compiled code may lie, best first.

    Beside the sources, for whoever may write there; otherwise each user has their own. Never a
    shared folder such as /tmp: what lies there is run.
    """
    yield _PACKAGE / "__pycache__"
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
    """Compiled code of earlier sources, where only this checkout can have put it."""
    if _FOLDER is None or _FOLDER.parent != _PACKAGE / "__pycache__":
        return
    for folder in _FOLDER.parent.glob(_FOLDER_PREFIX + "*"):
        if folder != _FOLDER:
            shutil.rmtree(folder, ignore_errors=True)


_FOLDER = None if os.environ.get("NUMBA_CACHE_DIR") else _cache_folder()


@contextmanager
def _own_folder() -> Iterator[None]:
    """Numba asks where to keep a function when it is decorated; others' are not ours to move."""
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    if _FOLDER is not None:
        numba.config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


Function = TypeVar("Function", bound=Callable[..., Any])

_njit: Callable[..., Any] = njit  # it has more options than its annotations say

# A literal number is a type of its own for Numba: `f(data, 0)` and `f(data, start)` are compiled
# apart. So kernels hand each other np.int64(0) or U64(0) where another call has a variable.


class _Part(CPUDispatcher):
    """Compiled without a way in from Python: a call from there would end the process."""

    def __call__(self, *_arguments: object, **_options: object) -> None:
        raise TypeError(f"only kernels can call {self.py_func.__qualname__}")


def _part(function: Function, **options: bool) -> Function:
    compiled = _njit(**options, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    compiled.__class__ = _Part
    return cast("Function", compiled)


def kernel(function: Function) -> Function:
    """Called from Python, or from other kernels.

    Each is called with one combination of types only. Processes that compile two at once would
    write over each other's index of what is kept.
    """
    with _own_folder():
        return cast("Function", _njit(cache=True, no_cfunc_wrapper=True)(function))


def part(function: Function) -> Function:
    """Called from kernels only, and kept with them.

    A way in from Python takes as long to compile as a small function itself.
    """
    return _part(function)


def inlined(function: Function) -> Function:
    """A part that is small, and called in the innermost loops.

    LLVM inlines it, not Numba: that compiles in half the time, and Numba would count references to
    every array argument once a call. For the same reason kernels share flat arrays and offsets into
    them rather than views.
    """
    return _part(function, forceinline=True)


def instruction(define: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is LLVM code rather than Python."""
    return cast("Callable[..., Any]", intrinsic(define))
