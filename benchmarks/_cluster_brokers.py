"""The brokers of the cluster benchmark as processes that report figures."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _cluster_clients import passes
from _load import HOST, LoadError
from _load_contenders import END_SECONDS_MAX, find_program
from _ports import reserve

BROKERS = 3
SYNCHRONIZE_SECONDS_MAX = 300.0
LAST_LINES = 8


class Processes:
    """Programs with a process group each and a common folder; they end in any case."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-bench-")
        self.folder = Path(self._folder.name)
        self.ports = [reserve() for _ in range(BROKERS)]
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, command: list[str]) -> None:
        with (self.folder / "output").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            )

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            for process in self.processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS_MAX)
            if all(process.poll() is not None for process in self.processes):
                break
        self._folder.cleanup()


class Brokers(Processes):
    """Three of our brokers in a cluster, each with `each` subscriptions."""

    def __init__(self, way: str, kind: str, each: int) -> None:
        super().__init__()
        script = str(Path(__file__).with_name("_cluster_process.py"))
        node_ports = [reserve() for _ in range(BROKERS)]
        try:
            for number in range(BROKERS):
                options = {
                    "name": f"broker-{number}",
                    "way": way,
                    "kind": kind,
                    "broker": number,
                    "each": each,
                    "folder": str(self.folder),
                    "port": self.ports[number],
                    "node_port": node_ports[number],
                    "join": node_ports[:1] if number else [],
                }
                self.start([sys.executable, script, json.dumps(options)])
            for number in range(BROKERS):
                self._read(number)  # it has its subscriptions
            for number in range(BROKERS):
                self._write(number, "go")
                self._read(number)
            self.seconds = self._synchronize()
        except BaseException:
            self.stop()
            raise

    def _synchronize(self) -> float:
        """Wait until all know the subscriptions of all others."""
        started = time.monotonic()
        while any(one["known"] < BROKERS - 1 for one in self.figures()):
            if time.monotonic() - started > SYNCHRONIZE_SECONDS_MAX:
                raise LoadError("the brokers do not find each other")
            time.sleep(0.1)
        return time.monotonic() - started

    def figures(self) -> list[dict[str, Any]]:
        for number in range(BROKERS):
            self._write(number, "figures")
        return [self._read(number) for number in range(BROKERS)]

    def _write(self, number: int, line: str) -> None:
        file = self.processes[number].stdin
        assert file is not None
        try:
            file.write(line + "\n")
            file.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _read(self, number: int) -> dict[str, Any]:
        file = self.processes[number].stdout
        assert file is not None
        line = file.readline()
        if not line:
            raise self._ended()
        figures: dict[str, Any] = json.loads(line)
        return figures

    def _ended(self) -> LoadError:
        lines = (self.folder / "output").read_text(errors="replace").splitlines()[-LAST_LINES:]
        return LoadError("a broker has ended:" + "".join(f"\n    {line}" for line in lines))


class Bridges(Processes):
    """Three Mosquittos: one in the middle, and two with a bridge to it for all topics."""

    def __init__(self) -> None:
        super().__init__()
        program = find_program("mosquitto")
        assert program is not None
        try:
            for number, port in enumerate(self.ports):
                lines = [
                    f"listener {port} {HOST}",
                    "allow_anonymous true",
                    "log_type none",
                    "set_tcp_nodelay true",
                    "max_inflight_messages 0",
                    "max_queued_messages 0",
                    "persistence false",
                ]
                if number:
                    lines += [
                        f"connection bridge-{number}",
                        f"address {HOST}:{self.ports[0]}",
                        "topic # both 0",
                        "cleansession true",
                        "notifications false",
                        "try_private true",
                    ]
                if os.geteuid() == 0:
                    lines.append("user root")
                configuration = self.folder / f"mosquitto-{number}.conf"
                configuration.write_text("\n".join(lines) + "\n")
                self.start([program, "-c", str(configuration)])
            self._wait_for_bridges()
        except BaseException:
            self.stop()
            raise

    def _wait_for_bridges(self) -> None:
        """Wait until a message passes from a leaf to the middle."""
        deadline = time.monotonic() + SYNCHRONIZE_SECONDS_MAX
        for number in range(1, BROKERS):
            while not self._passes(number):
                if time.monotonic() > deadline:
                    raise LoadError("Mosquitto's bridges do not come about")

    def _passes(self, number: int) -> bool:
        try:
            return passes(self.ports[0], self.ports[number])
        except OSError:
            time.sleep(0.05)
            return False
