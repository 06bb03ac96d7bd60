"""Runs a function without root privileges, to test errors of permission."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

from dovetail.errors import DovetailError

NOBODY = 65534


def error_as_nobody(folder: Path, act: Callable[[], object]) -> str:
    """Return the error of `act` in a process that may not enter `folder`.

    An unexpected exception is returned as a traceback.
    """
    folder.chmod(0)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as output:
            output.write(_error_of(act))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as source:
        error = source.read()
    os.waitpid(child, 0)
    folder.chmod(0o700)
    return error


def _error_of(act: Callable[[], object]) -> str:
    try:
        if os.geteuid() == 0:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        act()
    except DovetailError as error:
        return str(error)
    except BaseException:  # noqa: BLE001
        return traceback.format_exc()
    return "nothing"
