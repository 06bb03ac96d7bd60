"""A broker process that measures the turns of its event loop.

A turn lasts from one callback of ours to the next; each callback schedules the next one. The
measure is the processor time of the loop's thread, so other programs and waiting for the store's
thread hardly matter. A loop that measures never sleeps, so it measures only from SIGUSR1 to
SIGUSR2.

As a program this module is a launcher: its arguments are a command, which it runs in its own
process.
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
"""After this many consecutive short turns no long work is under way any more."""


class TurnMeter:
    """Measures the longest turn of a loop, and passes it to `report`, in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[float], object]) -> None:
        self._loop = loop
        self._report = report
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
        """End the measurement when the work under way is done."""
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
            self._report(self._longest)
        else:
            self._loop.call_soon(self._turn)


class TurnBroker(BrokerProcess):
    """A broker whose turns a test can measure."""

    launcher = ("env", f"PYTHONPATH={_TESTS}", sys.executable, "-m", __name__)

    def start_measuring(self) -> None:
        begun = self.printed().count("measuring\n")
        self.signal(signal.SIGUSR1)
        wait_until(lambda: self.printed().count("measuring\n") > begun, "the measurement")

    def longest_turn(self) -> float:
        """End the measurement, and return its longest turn in seconds."""
        known = len(self._turns())
        self.signal(signal.SIGUSR2)
        wait_until(lambda: len(self._turns()) > known, f"a quiet loop\n{self.output()}")
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
