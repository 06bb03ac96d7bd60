"""Runs Mosquitto, to test our clients and to compare our broker with it."""

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest

from support.processes.broker_process import WAIT_SECONDS
from support.processes.ports import ReservedPort
from support.processes.servers import program


class Mosquitto:
    """A Mosquitto on a loopback port, the same after each start.

    `configuration` is what its file has besides the listener.
    """

    def __init__(self, folder: Path, *configuration: str, anonymous: bool = True) -> None:
        self._reserved = ReservedPort()
        self.port = self._reserved.port
        self._folder = folder
        self._configuration = [f"allow_anonymous {str(anonymous).lower()}", *configuration]
        self._log: list[str] = []
        self._logged = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> "Mosquitto":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._start()
        if not self.wait_for_log(lambda line: " running" in line or line == ""):
            self.stop()
            pytest.fail("\n".join(self._log))

    def _start(self) -> None:
        file = self._folder / "mosquitto.conf"
        lines = [f"listener {self.port} 127.0.0.1", *self._configuration]
        if os.geteuid() == 0:
            lines.append("user root")  # or it becomes somebody who may not read the test's files
        logs = ["log_dest stderr", "log_type all", "connection_messages true"]
        file.write_text("\n".join([*lines, *logs, ""]))
        self._log = []
        self._process = subprocess.Popen(
            [program("mosquitto"), "-c", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._logged:
                self._log.append(line.rstrip())
                self._logged.notify_all()
        with self._logged:
            self._log.append("")  # the end
            self._logged.notify_all()

    def wait_for_log(self, wanted: Callable[[str], bool]) -> str:
        """Return the first such line; empty if Mosquitto has ended."""
        with self._logged:
            assert self._logged.wait_for(lambda: any(map(wanted, self._log)), WAIT_SECONDS), (
                "\n".join(self._log)
            )
            return next(filter(wanted, self._log))

    def log(self) -> list[str]:
        with self._logged:
            return list(self._log)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(WAIT_SECONDS)
            self._process = None
        if self._reader is not None:
            self._reader.join(WAIT_SECONDS)
            self._reader = None

    def publish(self, topic: str, payload: bytes | str, *options: str) -> None:
        data = payload.encode() if isinstance(payload, str) else payload
        command = [str(program("mosquitto_pub")), "-p", str(self.port), "-t", topic, "-s", *options]
        subprocess.run(command, input=data, check=True, timeout=WAIT_SECONDS)

    def subscriber(self, *options: str) -> "subprocess.Popen[str]":
        """Start a mosquitto_sub, and wait until it has subscribed."""
        known = len(self._log)
        process = subprocess.Popen(
            [program("mosquitto_sub"), "-p", str(self.port), *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        with self._logged:
            assert self._logged.wait_for(
                lambda: any("Sending SUBACK" in line for line in self._log[known:]), WAIT_SECONDS
            )
        return process

    def sys_topics(self) -> set[str]:
        """Return the topics under `$SYS`. The configuration needs a sys_interval of a second."""
        found: set[str] = set()
        rounds = 0
        process = self.subscriber("-t", "$SYS/#", "-F", "%t")
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                found.add(line.rstrip("\n"))
                rounds += line.rstrip("\n") == "$SYS/broker/uptime"
                # A round begins with the uptime; the first that counts a client is the second.
                if rounds == 3:
                    break
            process.terminate()
        return found
