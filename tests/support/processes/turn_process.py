"""A broker as users run it, which measures the turns of its event loop.

A turn lasts from one callback of ours to the next: each one schedules the one after it. What counts
is the processor time of the loop's thread, so that other programs on the machine hardly matter, nor
how long the thread has waited for the disk's. A loop that measures never sleeps, so it measures
only when told to: from SIGUSR1 to SIGUSR2.

As a program this is the launcher of the process: it gets the command to run as its arguments, and
runs it in its own process.
"""

import asyncio
import re
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from support.processes.broker_process import BrokerProcess, wait_until

_TESTS = Path(__file__).parents[2]
_QUIET_SECONDS = 0.001
_QUIET_TURNS = 100
"""So many short turns, one behind the other: nothing that takes long is under way any more."""


class TurnMeter:
    """The longest turn of a loop; `tell` gets it, in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[float], object]) -> None:
        self._loop = loop
        self._tell = tell
        self._is_on = self._is_ending = False
        self._quiet = 0
        self._last = self._longest = 0.0

    def begin(self) -> None:
        assert not self._is_on
        self._is_on, self._is_ending = True, False
        self._longest = 0.0
        self._last = time.thread_time()
        self._loop.call_soon(self._turn)

    def end(self) -> None:
        """Not before what is under way is done."""
        self._is_ending = True
        self._quiet = 0

    def _turn(self) -> None:
        now = time.thread_time()
        seconds = now - self._last
        self._last = now
        self._longest = max(self._longest, seconds)
        self._quiet = self._quiet + 1 if seconds < _QUIET_SECONDS else 0
        if self._is_ending and self._quiet > _QUIET_TURNS:
            self._is_on = False
            self._tell(self._longest)
        else:
            self._loop.call_soon(self._turn)


class TurnBroker(BrokerProcess):
    """One that is told when to measure."""

    launcher = ("env", f"PYTHONPATH={_TESTS}", sys.executable, "-m", __name__)

    def begin_to_measure(self) -> None:
        begun = self.printed().count("measuring\n")
        self.signal(signal.SIGUSR1)
        wait_until(lambda: self.printed().count("measuring\n") > begun, "the measurement")

    def longest_turn(self) -> float:
        """Since the measurement began, and until nothing that takes long is left; in seconds."""
        known = len(self._turns())
        self.signal(signal.SIGUSR2)
        wait_until(lambda: len(self._turns()) > known, f"a quiet loop\n{self.said()}")
        return self._turns()[-1]

    def _turns(self) -> list[float]:
        return [*map(float, re.findall(r"^longest turn: (\S+) s$", self.printed(), re.MULTILINE))]


def main() -> None:
    make = uvloop.new_event_loop

    def make_measured() -> uvloop.Loop:
        loop = make()
        meter = TurnMeter(loop, lambda seconds: print(f"longest turn: {seconds:.6f} s", flush=True))

        def begin() -> None:
            meter.begin()
            print("measuring", flush=True)

        loop.add_signal_handler(signal.SIGUSR1, begin)
        loop.add_signal_handler(signal.SIGUSR2, meter.end)
        return loop

    uvloop.new_event_loop = make_measured
    command, _, module, *arguments = sys.argv[1:]
    sys.argv = [command, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
