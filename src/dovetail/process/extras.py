"""Installs the extras of the package `dovetail`: packages that only some commands need.

In a checkout an extra is a stage of the set-up (scripts/setup.sh). A command installs it when it
first needs it. Elsewhere pip installs extras, and the command names the missing one.

Only commands ask for an extra, before they begin: a running node never waits for a download.
"""

import importlib
import importlib.util
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path

from dovetail.errors import MissingDependencyError

_CHECKOUT = Path(__file__).parents[3]
_STATE = _CHECKOUT / ".venv" / "dovetail-setup"
_LAUNCHER_VARIABLE = "DOVETAIL_COMMAND"
"""`./dovetail` sets this variable."""


class Extra(Enum):
    """The name of an extra and of its stage, and the packages that it provides."""

    ARCHIVE = ("archive", "pyarrow")
    SPARK = ("spark", "pyspark", "pyarrow")

    def __init__(self, extra: str, *packages: str) -> None:
        self.extra = extra
        self.packages = packages


def require(extra: Extra) -> None:
    """In a checkout, install a missing extra. Raise MissingDependencyError if it stays missing."""
    checkout = _checkout()
    # A start by the launcher also updates a stage whose lock file has changed.
    if checkout is not None and (_LAUNCHER_VARIABLE in os.environ or not _has_stamp(extra)):
        _set_up(checkout, extra)
    missing = _missing(extra)
    if missing:
        raise MissingDependencyError(
            f"this needs the extra {extra.extra}, and {' and '.join(missing)} cannot be imported.",
            hint=f"Install it: {how_to_install(extra)}",
        )


def is_obtainable(extra: Extra) -> bool:
    """Return True if `require` would find the extra or install it."""
    return _checkout() is not None or not _missing(extra)


def how_to_install(extra: Extra) -> str:
    return f'pip install "dovetail[{extra.extra}]"'


def _missing(extra: Extra) -> list[str]:
    return [name for name in extra.packages if importlib.util.find_spec(name) is None]


def _checkout() -> Path | None:
    """Return the checkout whose .venv runs this process, if its set-up has made that."""
    is_ours = _STATE.is_dir() and Path(sys.prefix).samefile(_STATE.parent)
    return _CHECKOUT if is_ours else None


def _has_stamp(extra: Extra) -> bool:
    return (_STATE / extra.extra).is_file()


def _set_up(checkout: Path, extra: Extra) -> None:
    """Run the set-up. If it fails, end the process: the set-up has printed why."""
    with subprocess.Popen([checkout / "scripts" / "setup", extra.extra]) as process:
        try:
            status = process.wait()
        except BaseException:
            process.terminate()  # not killed, so that it can clean up its downloads
            process.wait()
            raise
    if status:
        sys.exit(status if status > 0 else 128 - status)
    importlib.invalidate_caches()
