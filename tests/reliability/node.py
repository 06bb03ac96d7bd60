"""Runs one broker in a process of its own, by its configuration file.

usage: node.py CONFIGURATION CLOCK_FILE

It prints its addresses as one line of JSON to standard output, and logs to standard error. Its wall
clock is the system's plus the seconds in the clock file, so that a run can let it jump. It ends
with the process that started it.

Only this module uses the broker's code, and no process of the tool imports it.
"""

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dovetail.node.broker import BrokerNode, run_node
from dovetail.settings import load_settings

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, even while stopped. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def shifted_clock(file: Path) -> Callable[[], float]:
    """Return a wall clock that is off by the seconds in the file, read at each call."""
    return lambda: time.time() + float(file.read_text())


def announce(node: BrokerNode) -> None:
    (listener,) = node.listeners
    assert node.http_address is not None
    print(json.dumps({"mqtt": listener.port, "http": node.http_address[1]}), flush=True)


def main(configuration: str, clock_file: str) -> None:
    end_with_parent()
    run_node(
        load_settings(Path(configuration)),
        announce=announce,
        wall_clock=shifted_clock(Path(clock_file)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
