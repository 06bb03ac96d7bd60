"""One supervised process: starts it, reads its messages, restarts it when it ends (supervisor.py).

The process gets its configuration on its standard input, which stays open. It answers with lines of
JSON on its standard output.
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
from dovetail.matcher.autoscaler import MatcherProcess, ProcessState
from dovetail.process.logs import about

log = logging.getLogger("dovetail.up")


@dataclass(frozen=True)
class ProcessSpec:
    """A process to run: `python -m module`, with its first line of standard input."""

    name: str
    module: str
    stdin: bytes


class ChildProcess:
    """One process through all its restarts."""

    def __init__(self, spec: ProcessSpec, *, is_first: bool = True) -> None:
        """With `is_first`, the fleet needs it to start: a failed first start is not repeated."""
        self.spec = spec
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """Has the result of its first UP message: its addresses."""
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
    def matcher_process(self) -> MatcherProcess:
        name = self.spec.name
        if self._is_drained:
            return MatcherProcess(name, ProcessState.DRAINED)
        if self._is_over:
            return MatcherProcess(name, ProcessState.AWAY)
        if self._is_leaving:
            return MatcherProcess(name, ProcessState.LEAVING)
        phase, busy_share = self._load or ("", 0.0)
        return MatcherProcess(
            name, ProcessState.SERVING if phase == "serving" else ProcessState.COMING, busy_share
        )

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
                log.info("%s: %s", self.spec.name, why, extra=about(self.spec.name))
                if not self.ready.done():
                    self.ready.set_result([])
                return
            if self._is_first and not self.ready.done():
                self.ready.set_exception(DovetailError(self._error or self._ended(code)))
                return
            if self._up_at is not None and loop.time() - self._up_at >= RESTART_STEADY_SECONDS:
                pause_seconds = RESTART_SECONDS_MIN
            if self._error:  # a whole sentence
                words = f"cannot start, and tries again in {pause_seconds:g} s: {self._error}"
            else:
                words = f"{self._ended(code)}; it starts again in {pause_seconds:g} s"
            log.warning("%s: %s", self.spec.name, words, extra=about(self.spec.name))
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RESTART_SECONDS_MAX)

    async def _live(self) -> int:
        """Run the process once, from start to end. Return its exit code."""
        self._error = ""
        self._up_at = None
        self._is_to_reload = False
        self._load = None
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self.spec.module,
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
            process.stdin.write(self.spec.stdin + b"\n")
            await process.stdin.drain()
        async for line in process.stdout:
            self._take(line)
        return await process.wait()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = {}
        if not isinstance(message, dict):
            return
        if ERROR in message:
            self._error = str(message[ERROR])
        elif DRAINED in message:
            self._is_drained = True
        elif LOAD in message:
            phase, busy_share = message[LOAD]
            self._load = (str(phase), float(busy_share))
        elif UP in message:
            self._up_at = asyncio.get_running_loop().time()
            if self._is_to_reload:
                self.signal(signal.SIGHUP)
            if self.ready.done():
                log.warning("%s: is up again", self.spec.name, extra=about(self.spec.name))
            else:
                self.ready.set_result(message[UP])

    def _ended(self, code: int) -> str:
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. SIGHUP would end a process that is not up yet: it gets it later."""
        if number == signal.SIGHUP and self._up_at is None:
            self._is_to_reload = True
            return
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def leave(self) -> None:
        """Stop the process for good; kill it if it takes longer than STOP_SECONDS_MAX."""
        self._is_leaving = True
        self.signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(STOP_SECONDS_MAX, self.signal, signal.SIGKILL)

    async def wait(self) -> None:
        if self._process is not None:
            await self._process.wait()
