"""The lives of one process of several: started, heard, started again when it ends (supervisor.py).

It is told what it is by its standard input, which stays open, and answers on its standard output
with lines of JSON.
"""

import asyncio
import contextlib
import json
import logging
import signal
import sys
from dataclasses import dataclass
from typing import Any

from dovetail.api.child_process import DRAINED, ERROR, LOAD, UP
from dovetail.errors import DovetailError
from dovetail.fleet.limits import (
    RESTART_SECONDS_MAX,
    RESTART_SECONDS_MIN,
    RESTART_STEADY_SECONDS,
    STOP_SECONDS_MAX,
)
from dovetail.matcher.autoscaler import Place, Standing
from dovetail.process.logs import about

log = logging.getLogger("dovetail.up")


@dataclass(frozen=True)
class Part:
    """One process: `python -m module`, told this."""

    name: str
    module: str
    told: bytes


class Supervised:
    """The lives of one part."""

    def __init__(self, part: Part, *, is_first: bool = True) -> None:
        """`is_first`: it is needed for the start of all, and not tried again if it fails."""
        self.part = part
        self.said: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """What it said when it was first up."""
        self._is_first = is_first
        self._process: asyncio.subprocess.Process | None = None
        self._error = ""
        self._is_drained = False
        self._is_leaving = False
        self._is_over = False
        self._up_at: float | None = None
        self._is_to_reload = False
        self._load: tuple[str, float] | None = None

    @property
    def place(self) -> Place:
        name = self.part.name
        if self._is_drained:
            return Place(name, Standing.DRAINED)
        if self._is_over:
            return Place(name, Standing.AWAY)
        if self._is_leaving:
            return Place(name, Standing.LEAVING)
        phase, busy_share = self._load or ("", 0.0)
        return Place(name, Standing.SERVING if phase == "serving" else Standing.COMING, busy_share)

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            self._is_over = True

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_seconds = RESTART_SECONDS_MIN
        while True:
            code = await self._live()
            self._load = None
            if self._is_drained or self._is_leaving:
                why = "is drained, and stays away" if self._is_drained else "has left"
                log.info("%s: %s", self.part.name, why, extra=about(self.part.name))
                if not self.said.done():
                    self.said.set_result([])
                return
            if self._is_first and not self.said.done():
                self.said.set_exception(DovetailError(self._error or self._ended(code)))
                return
            if self._up_at is not None and loop.time() - self._up_at >= RESTART_STEADY_SECONDS:
                pause_seconds = RESTART_SECONDS_MIN
            if self._error:  # sentences of their own
                words = f"cannot start, and tries again in {pause_seconds:g} s: {self._error}"
            else:
                words = f"{self._ended(code)}; it starts again in {pause_seconds:g} s"
            log.warning("%s: %s", self.part.name, words, extra=about(self.part.name))
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RESTART_SECONDS_MAX)

    async def _live(self) -> int:
        """From start to end; its exit code."""
        self._error = ""
        self._up_at = None
        self._is_to_reload = False
        self._load = None
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self.part.module,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:  # no descriptor, no memory, too many processes
            self._error = f"the system starts no process for it: {error.strerror}."
            return -1
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
        elif LOAD in said:
            phase, busy_share = said[LOAD]
            self._load = (str(phase), float(busy_share))
        elif UP in said:
            self._up_at = asyncio.get_running_loop().time()
            if self._is_to_reload:
                self.signal(signal.SIGHUP)
            if self.said.done():
                log.warning("%s: is up again", self.part.name, extra=about(self.part.name))
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
        """One that is not up yet might end by SIGHUP: it gets it then, as its files may be old."""
        if number == signal.SIGHUP and self._up_at is None:
            self._is_to_reload = True
            return
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def leave(self) -> None:
        """It is told to stop, and not started again."""
        self._is_leaving = True
        self.signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(STOP_SECONDS_MAX, self.signal, signal.SIGKILL)

    async def wait(self) -> None:
        if self._process is not None:
            await self._process.wait()
