"""One broker, in a process of its own, as its configuration file says.

usage: node.py CONFIGURATION CLOCK_FILE

It says where it is in one line of JSON on standard output, and logs to standard error. Its wall
clock is the system's plus the seconds in the clock file, so that a run can let it jump. It ends
with the process that started it.

This module alone uses the broker's code, and it runs in no process of the tool.
"""

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dovetail.node.broker import Node, run_node
from dovetail.settings import load_settings

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Be killed when the parent ends, also while stopped. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def shifted_clock(file: Path) -> Callable[[], float]:
    """Return a wall clock that is as many seconds off as the file says at the moment."""
    return lambda: time.time() + float(file.read_text())


def announce(node: Node) -> None:
    (listening,) = node.listening
    assert node.http_address is not None
    print(json.dumps({"mqtt": listening.port, "http": node.http_address[1]}), flush=True)


def main(configuration: str, clock_file: str) -> None:
    end_with_parent()
    run_node(
        load_settings(Path(configuration)),
        announce=announce,
        wall_clock=shifted_clock(Path(clock_file)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
