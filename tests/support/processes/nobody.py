"""What may not be done by somebody who is not root, whom the system lets do everything."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

from dovetail.errors import DovetailError

NOBODY = 65534


def told_to_nobody(folder: Path, act: Callable[[], object]) -> str:
    """What `act` is told, in a process that may not enter `folder`; a traceback if it raises."""
    folder.chmod(0)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as output:
            output.write(_told(act))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as source:
        told = source.read()
    os.waitpid(child, 0)
    folder.chmod(0o700)
    return told


def _told(act: Callable[[], object]) -> str:
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
