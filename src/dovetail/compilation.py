"""Decorators that compile kernels, and the folder that keeps the compiled code.

Numba notices a change in a kernel's own file, but not in a file that the kernel calls into. So the
name of the folder is a hash of all kernel sources and limits: a change in any of them starts a new
folder, and a stale kernel cannot run.
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


def _parent_folders() -> Iterator[Path]:
    """Yield the folders that may hold compiled code, best first.

    The first is beside the sources, if the user may write there. The others belong to the user. A
    shared folder such as /tmp is never used, because the files in it are executed.
    """
    yield _PACKAGE / "__pycache__"
    if cache := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "dovetail"
    with suppress(RuntimeError):  # a user without a home
        yield Path.home() / ".cache" / "dovetail"


def _cache_folder() -> Path:
    name = _folder_name()
    for parent in _parent_folders():
        folder = parent / name
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    # Each process compiles all kernels again: slow, but it works.
    private = tempfile.mkdtemp(prefix="dovetail-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return Path(private)


def remove_stale() -> None:
    """Delete compiled code of earlier sources, in the folder that only this checkout writes."""
    if _FOLDER is None or _FOLDER.parent != _PACKAGE / "__pycache__":
        return
    for folder in _FOLDER.parent.glob(_FOLDER_PREFIX + "*"):
        if folder != _FOLDER:
            shutil.rmtree(folder, ignore_errors=True)


_FOLDER = None if os.environ.get("NUMBA_CACHE_DIR") else _cache_folder()


@contextmanager
def _own_folder() -> Iterator[None]:
    """Set Numba's cache folder while we decorate; functions of other packages keep theirs."""
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    if _FOLDER is not None:
        numba.config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


Function = TypeVar("Function", bound=Callable[..., Any])

_njit: Callable[..., Any] = njit  # its annotations lack some options

# For Numba a literal number has a type of its own: it compiles `f(data, 0)` and `f(data, start)`
# separately. So kernels pass np.int64(0) or U64(0) where another call passes a variable.


class _InnerDispatcher(CPUDispatcher):
    """A compiled function without a Python wrapper: a call from Python would end the process."""

    def __call__(self, *_arguments: object, **_options: object) -> None:
        raise TypeError(f"only kernels can call {self.py_func.__qualname__}")


def _without_wrappers(function: Function, **options: bool) -> Function:
    compiled = _njit(**options, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    compiled.__class__ = _InnerDispatcher
    return cast("Function", compiled)


def kernel(function: Function) -> Function:
    """Compile a function that Python or other kernels call.

    Call each kernel with one combination of types only. Two processes that compile two combinations
    at once would overwrite each other's index of the cache.
    """
    with _own_folder():
        return cast("Function", _njit(cache=True, no_cfunc_wrapper=True)(function))


def inner_kernel(function: Function) -> Function:
    """Compile a function that only kernels call; it is cached with them.

    A wrapper for Python takes as long to compile as a small function itself.
    """
    return _without_wrappers(function)


def inlined(function: Function) -> Function:
    """Compile a small inner kernel that the innermost loops call.

    LLVM inlines it, not Numba: that halves the time to compile, and Numba would count references
    to each array argument at each call. For the same reason kernels share flat arrays and offsets
    into them rather than views.
    """
    return _without_wrappers(function, forceinline=True)


def instruction(define: Callable[..., Any]) -> Callable[..., Any]:
    """Define a function in LLVM code rather than in Python."""
    return cast("Callable[..., Any]", intrinsic(define))
