"""Runs a broker as users do: `dovetail up` in a process of its own, on this machine.

The broker is up when `start` returns. Its output and log are kept, and shown if a test times out.
"""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from support.processes.ports import ReservedPort

WAIT_SECONDS = 120
"""For anything that a slow, shared machine may take its time for. Only a failure takes so long."""

START_SECONDS = 240
"""Where kernels have changed since the last start, it compiles them."""

_ADDRESSES = {
    "tcp": r"^  MQTT +\S+:(\d+)",
    "tls": r"^  MQTT, TLS +\S+:(\d+)",
    "websocket": r"^  WebSocket +ws://\S+:(\d+)/",
    "secure-websocket": r"^  WebSocket +wss://\S+:(\d+)/",
    "http": r"^  HTTP +http://\S+:(\d+) ",
}


def wait_until(
    condition: Callable[[], object], what: str, *, seconds: float = WAIT_SECONDS
) -> None:
    """Wait until `condition()` is true, or fail with `what` was missing."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} seconds in vain: {what}"
        time.sleep(0.01)


TCP_AND_TLS = """
[[listeners]]
kind = "tcp"
port = 0

[[listeners]]
kind = "tls"
port = 0
certificate = "server.crt"
key = "server.key"
"""
"""Two listeners; a test that uses them issues the certificate."""


class ManagedProcess:
    """A running command of Dovetail. Its output and log are kept, and shown if the test fails."""

    launcher: tuple[str, ...] = ()
    """A command that starts the actual one, put before it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []
        self._printed: list[str] = []
        self._logged: list[str] = []

    # Life ---------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_running:
            if error is None:
                self.stop()
            else:
                self.kill()
        if error is not None:
            print(self.output())

    def start(self) -> None:
        raise NotImplementedError

    def run(self, *arguments: object, folder: Path | None = None) -> None:
        """Start the command without waiting for anything."""
        assert not self.is_running
        self._process = subprocess.Popen(
            [*self.launcher, sys.executable, "-m", "dovetail", *map(str, arguments)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._printed, self._logged = [], []
        self._readers = [
            threading.Thread(target=_collect, args=(stream, lines), daemon=True)
            for stream, lines in (
                (self._process.stdout, self._printed),
                (self._process.stderr, self._logged),
            )
        ]
        for reader in self._readers:
            reader.start()

    def wait_for_start(self, is_up: Callable[[], bool]) -> None:
        wait_until(
            lambda: not self.is_running or is_up(), "start of the process", seconds=START_SECONDS
        )
        assert self.is_running, self.output()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        assert self._process is not None
        try:
            code = self._process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"it did not end\n{self.output()}") from None
        for reader in self._readers:
            reader.join(WAIT_SECONDS)
        return code

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        assert self.wait() == 0, self.output()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    # Output ------------------------------------------------------------------------------------

    def printed(self) -> str:
        return "".join(self._printed)

    def log(self) -> str:
        return "".join(self._logged)

    def wait_for_log(self, text: str, *, times: int = 1) -> None:
        """Wait for a text: log lines arrive a moment after the event."""
        wait_until(lambda: self.log().count(text) >= times, f"{text!r} in\n{self.log()}")

    def output(self) -> str:
        return f"--- printed\n{self.printed()}--- logged\n{self.log()}"


class BrokerProcess(ManagedProcess):
    """One broker with its data folder, which can start many times on the same port.

    `configuration` is the text of its file; the listeners in it should have port 0. Without one it
    listens for MQTT over TCP, and serves HTTP.
    """

    def __init__(
        self, folder: Path, configuration: str | None = None, *, data: Path | None = None
    ) -> None:
        super().__init__()
        self.data = data or folder / "data"
        self.file = folder / "dovetail.toml"
        self._reserved = ReservedPort()
        self.port = self._reserved.port
        self._ports: dict[str, int] = {}
        if configuration is None:
            configuration = '[[listeners]]\nkind = "tcp"\nport = 0\n[http]\nport = 0\n'
        self.file.write_text(configuration)

    def start(self, *options: object, announced: bool = True) -> None:
        """Start the broker, and wait until it is up.

        If it is not `announced` (--quiet), it is up when it accepts connections; HTTP may come
        later.
        """
        self.launch(*options)
        self._wait_for_start(announced)

    def start_with_defaults(self) -> None:
        """Start as a new user does, with no option but the data folder."""
        self.run("up", "--data", self.data)
        self._wait_for_start(announced=True)

    def _wait_for_start(self, announced: bool) -> None:
        self.wait_for_start(
            lambda: "Ctrl-C stops it.\n" in self._printed if announced else self.accepts()
        )
        if announced:
            self._ports = {
                kind: int(found[1])
                for kind, pattern in _ADDRESSES.items()
                if (found := re.search(pattern, self.printed(), re.MULTILINE))
            }

    def launch(self, *options: object) -> None:
        """Start the broker without waiting for anything."""
        self.run("up", "--config", self.file, "--port", self.port, "--data", self.data, *options)

    def accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS).close()
        except ConnectionError:
            return False
        return True

    def reload(self) -> str:
        """Send SIGHUP, and return the log lines about the reload."""
        known = len(self._logged)

        def answer() -> str:
            lines = itertools.islice(self._logged, known, None)
            return "".join(line for line in lines if "reloaded" in line)

        self.signal(signal.SIGHUP)
        wait_until(answer, f"an answer to SIGHUP\n{self.output()}")
        return answer()

    # Addresses ---------------------------------------------------------------------------------

    def port_of(self, kind: str) -> int:
        """Return the port of a kind of listener, or of "http"."""
        return self._ports[kind]

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body of a page."""
        url = f"http://127.0.0.1:{self.port_of('http')}{path}"
        try:
            with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def health(self) -> tuple[int, dict[str, str]]:
        status, body = self.get("/healthz")
        return status, json.loads(body)

    def metric(self, name: str) -> float:
        """Return a metric, with or without the prefix dovetail_. Counters end in _total."""
        _, body = self.get("/metrics")
        found = re.search(rf"^(?:dovetail_)?{name} (\S+)$", body, re.MULTILINE)
        assert found, f"no {name} in\n{body}"
        return float(found[1])

    def resident_bytes(self) -> int:
        """Return the resident memory of the process, as the system counts it."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _collect(stream: IO[str], lines: list[str]) -> None:
    with stream:
        lines.extend(stream)
