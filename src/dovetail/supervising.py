"""Processes that belong together: started, watched, started again when they end, and stopped.

    start -> says that it is up -> ends by itself -> pause, longer each time -> start ...
       |                                                            |
       +-- says what is wrong, at the first start: all are stopped  +-- at a later one: tried again

Rules:

- A process is told what it is by its standard input, which stays open: at its end the process
  stops, so none outlives this one, however that ends.
- A process answers on its standard output with lines of JSON: once with what it has to say when it
  is up, or with the error that keeps it from starting. Its log goes where ours goes.
- One that says that somebody had it leave (`dovetail drain`) is not started again.
- They are in process groups of their own. Ctrl-C is for this one, which tells them to stop.
"""

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.config import (
    RESTART_SECONDS_MAX,
    RESTART_SECONDS_MIN,
    RESTART_STEADY_SECONDS,
    STOP_SECONDS_MAX,
)
from dovetail.errors import DovetailError

log = logging.getLogger("dovetail.up")

UP = "up"
ERROR = "error"
DRAINED = "drained"
"""The keys of what a process says."""


@dataclass(frozen=True)
class Part:
    """One process: `python -m module`, told this."""

    name: str
    module: str
    told: bytes


def supervise(parts: Sequence[Part], announce: Callable[[dict[str, Any]], None]) -> None:
    """Run them until SIGINT or SIGTERM. `announce` gets what they said when all are up."""
    asyncio.run(_Supervisor(parts, announce).run())


class _Process:
    """The lives of one part."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.said: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """What it said when it was first up."""
        self._process: asyncio.subprocess.Process | None = None
        self._error = ""
        self._is_drained = False
        self._up_at: float | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_seconds = RESTART_SECONDS_MIN
        while True:
            code = await self._live()
            if self._is_drained:
                log.info("%s: is drained, and stays away", self.part.name)
                if not self.said.done():
                    self.said.set_result([])
                return
            if not self.said.done():
                self.said.set_exception(DovetailError(self._error or self._ended(code)))
                return
            if self._up_at is not None and loop.time() - self._up_at >= RESTART_STEADY_SECONDS:
                pause_seconds = RESTART_SECONDS_MIN
            if self._error:  # sentences of their own
                words = f"cannot start, and tries again in {pause_seconds:g} s: {self._error}"
            else:
                words = f"{self._ended(code)}; it starts again in {pause_seconds:g} s"
            log.warning("%s: %s", self.part.name, words)
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RESTART_SECONDS_MAX)

    async def _live(self) -> int:
        """From start to end; its exit code."""
        self._error = ""
        self._up_at = None
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self.part.module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(self.part.told + b"\n")
            await process.stdin.drain()
        async for line in process.stdout:
            self._take(line)
        return await process.wait()

    def _take(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            said = {}
        if not isinstance(said, dict):
            return
        if ERROR in said:
            self._error = str(said[ERROR])
        elif DRAINED in said:
            self._is_drained = True
        elif UP in said:
            self._up_at = asyncio.get_running_loop().time()
            if self.said.done():
                log.warning("%s: is up again", self.part.name)
            else:
                self.said.set_result(said[UP])

    def _ended(self, code: int) -> str:
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    def signal(self, number: signal.Signals) -> None:
        """One that is not up yet has just read all its files, and would end by SIGHUP."""
        if number == signal.SIGHUP and self._up_at is None:
            return
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def wait(self) -> None:
        if self._process is not None:
            await self._process.wait()


class _Supervisor:
    def __init__(self, parts: Sequence[Part], announce: Callable[[dict[str, Any]], None]) -> None:
        self._parts = parts
        self._announce = announce
        self._processes: list[_Process] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._signal, signal.SIGHUP)
        self._processes = [_Process(part) for part in self._parts]
        lives = [asyncio.create_task(process.run()) for process in self._processes]
        waiting = asyncio.create_task(stopped.wait())
        try:
            said = asyncio.gather(*(process.said for process in self._processes))
            await _first_of(said, waiting)
            if said.done():
                names = [part.name for part in self._parts]
                self._announce(dict(zip(names, said.result(), strict=True)))
            await waiting
        finally:
            for task in (*lives, waiting):
                task.cancel()
            await asyncio.gather(*lives, waiting, return_exceptions=True)
            await self._stop()

    async def _stop(self) -> None:
        """A second Ctrl-C does not wait."""
        loop = asyncio.get_running_loop()
        hurry = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, hurry.set)
        self._signal(signal.SIGTERM)
        ends = asyncio.gather(*(process.wait() for process in self._processes))
        hurried = asyncio.create_task(hurry.wait())
        await _first_of(ends, hurried, seconds_max=STOP_SECONDS_MAX)
        hurried.cancel()
        if not ends.done():
            log.warning("a node does not stop; it is killed")
            self._signal(signal.SIGKILL)
        await ends

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.signal(number)


async def _first_of(*futures: asyncio.Future[Any], seconds_max: float | None = None) -> None:
    await asyncio.wait(futures, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
