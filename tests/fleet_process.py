"""Several brokers as users start them: `dovetail up --brokers`, `up --workers` or `dovetail node`.

All are up when `start` returns. What they print and log is kept, and shown when a test fails.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from types import TracebackType

from broker_process import START_SECONDS, WAIT_SECONDS, free_port, wait_until

_PLACE = re.compile(r"(MQTT, TLS|MQTT|WebSocket|HTTP|links) +(?:\w+://)?\S*?:(\d+)")


class FleetProcess:
    """One command, with the folder that it is given in."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.folder = folder
        self._arguments = [*map(str, arguments)]
        self._process: subprocess.Popen[str] | None = None
        self._printed: list[str] = []
        self._logged: list[str] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> "FleetProcess":
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
                self.signal(signal.SIGKILL)
                self.wait()
        if error is not None:
            print(self.said())

    def start(self) -> None:
        self._printed, self._logged = [], []
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "dovetail", *self._arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._readers = []
        for stream, lines in ((process.stdout, self._printed), (process.stderr, self._logged)):
            assert stream is not None
            reader = threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            reader.start()
            self._readers.append(reader)
        wait_until(
            lambda: not self.is_running or "Ctrl-C stops" in self.printed(),
            "start of the brokers",
            seconds=START_SECONDS,
        )
        assert self.is_running, self.said()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """For its end; returns the exit code."""
        assert self._process is not None
        code = self._process.wait(WAIT_SECONDS)
        for reader in self._readers:
            reader.join(WAIT_SECONDS)
        return code

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        assert self.wait() == 0, self.said()

    def children(self) -> list[int]:
        """Processes that it has started and that are there."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [*map(int, children.read_text().split())]

    def printed(self) -> str:
        return "".join(self._printed)

    def log(self) -> str:
        return "".join(self._logged)

    def said(self) -> str:
        return f"--- printed\n{self.printed()}--- logged\n{self.log()}"

    def ports(self, kind: str) -> list[int]:
        """Of what is announced as MQTT, WebSocket, HTTP or links, in the brokers' order."""
        return [int(port) for found, port in _PLACE.findall(self.printed()) if found == kind]

    def metric(self, name: str, number: int = 0) -> float:
        """Of one of the brokers."""
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics", number), re.MULTILINE)
        assert found, name
        return float(found[1])

    def get(self, path: str, number: int = 0) -> str:
        url = f"http://127.0.0.1:{self.ports('HTTP')[number]}{path}"
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as response:
            return str(response.read().decode())

    def get_json(self, path: str, number: int = 0) -> object:
        return json.loads(self.get(path, number))


def is_there(pid: int) -> bool:
    """And no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


def free_block(count: int) -> int:
    """The first of so many free ports, one behind the other."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
