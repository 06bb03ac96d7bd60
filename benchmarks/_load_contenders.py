"""The brokers of the benchmark: how each is started at its best, found ready, and ended.

Rules:

- A broker has a port, a fresh data folder and a process group of its own; we end that group and
  nothing else, also after Ctrl-C.
- It gets the configuration that a careful operator would give it for speed: no logs, no limits that
  hold it back, and nothing on disk unless the scenario asks for it.
- One processor is the generator's, the others are the broker's (where the system lets us say so).
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import _load_wire as wire
from _load import HOST, Client, LoadError

ROOT = Path(__file__).parent.parent
START_SECONDS_MAX = 90.0
END_SECONDS_MAX = 10.0
LAST_LINES = 8
# Servers are often installed where only root looks.
PROGRAM_FOLDERS = (*os.get_exec_path(), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")
_PROCESSORS = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []

Prepare = Callable[[int, Path, bool], list[str]]
"""Port, folder and whether sessions have to last -> the command that runs it in the foreground."""


@dataclass(frozen=True)
class Contender:
    name: str
    prepare: Prepare
    missing: str | None = None
    """Why it cannot take part."""
    version_max: int = wire.MQTT_5
    is_broker: bool = True
    """The relay is none: it passes on what it gets to whoever subscribed to anything."""


def find_program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(PROGRAM_FOLDERS))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


# Dovetail, Mosquitto, and the generator alone -----------------------------------------------------


def dovetail() -> Contender:
    program = Path(sys.executable).with_name("dovetail")

    def prepare(port: int, folder: Path, _persistent: bool) -> list[str]:
        place = ["--port", str(port), "--host", HOST, "--data", str(folder / "data")]
        return [str(program), "up", *place, "--quiet"]

    missing = None
    if not program.exists():
        missing = f"{program} is not there: start with scripts/bench"
    elif (
        b"--port"
        not in subprocess.run([program, "up", "--help"], capture_output=True, check=False).stdout
    ):
        missing = "`dovetail up` is not there yet"
    return Contender("Dovetail", prepare, missing)


def mosquitto() -> Contender:
    program = find_program("mosquitto")

    def prepare(port: int, folder: Path, persistent: bool) -> list[str]:
        lines = [
            f"listener {port} {HOST}",
            "allow_anonymous true",
            "log_type none",
            "set_tcp_nodelay true",
            "sys_interval 0",
            "max_inflight_messages 0",  # both: no limit
            "max_queued_messages 0",
            f"persistence {'true' if persistent else 'false'}",
            f"persistence_location {folder}/",
        ]
        if os.geteuid() == 0:
            lines.append("user root")  # or it would become a user who may not write to the folder
        configuration = folder / "mosquitto.conf"
        configuration.write_text("\n".join(lines) + "\n")
        return [str(program), "-c", str(configuration)]

    missing = None if program else "not installed (Debian: apt-get install mosquitto)"
    return Contender("Mosquitto", prepare, missing)


def relay() -> Contender:
    script = Path(__file__).with_name("_load_relay.py")
    return Contender(
        "generator alone",
        lambda port, _folder, _persistent: [sys.executable, str(script), str(port)],
        is_broker=False,
    )


# Others, for the table ----------------------------------------------------------------------------


def amqtt() -> Contender:
    program = find_program("amqtt")

    def prepare(port: int, folder: Path, _persistent: bool) -> list[str]:
        configuration = folder / "amqtt.yaml"
        configuration.write_text(
            "listeners:\n"
            "  default:\n"
            "    type: tcp\n"
            f"    bind: {HOST}:{port}\n"
            "plugins:\n"
            "  amqtt.plugins.authentication.AnonymousAuthPlugin:\n"
            "    allow_anonymous: true\n"
        )
        return [str(program), "-c", str(configuration)]

    return Contender(
        "amqtt",
        prepare,
        None if program else "not installed (pip install amqtt)",
        version_max=wire.MQTT_3_1_1,
    )


def nats() -> Contender:
    program = find_program("nats-server")

    def prepare(port: int, folder: Path, _persistent: bool) -> list[str]:
        configuration = folder / "nats.conf"
        configuration.write_text(
            f'host: "{HOST}"\nport: {free_port()}\nserver_name: bench\n'
            f'jetstream {{ store_dir: "{folder}" }}\n'
            f'mqtt {{ host: "{HOST}", port: {port}, max_ack_pending: 65535 }}\n'
            f'log_file: "{folder}/nats.log"\n'
        )
        return [str(program), "-c", str(configuration)]

    return Contender(
        "NATS",
        prepare,
        None if program else "not installed (Debian: apt-get install nats-server)",
        version_max=wire.MQTT_3_1_1,
    )


def contenders() -> list[Contender]:
    return [dovetail(), mosquitto(), amqtt(), nats(), relay()]


# Running ------------------------------------------------------------------------------------------


def take_processor() -> None:
    """The last one is the generator's; with only one everybody shares it."""
    if sys.platform == "linux" and len(_PROCESSORS) > 1:
        os.sched_setaffinity(0, _PROCESSORS[-1:])


def keep_off_generator(process: int) -> None:
    if sys.platform == "linux" and len(_PROCESSORS) > 1:
        os.sched_setaffinity(process, _PROCESSORS[:-1])


class Server:
    """A contender that runs. `next_number` is the first message number that it has never seen."""

    def __init__(self, contender: Contender, persistent: bool) -> None:
        self.contender = contender
        self.port = free_port()
        self.next_number = 0
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-bench-")
        folder = Path(self._folder.name)
        self._log = folder / "output"
        command = contender.prepare(self.port, folder, persistent)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, who then end it in order
            )
        keep_off_generator(self._process.pid)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError, LoadError):
                Client(self.port, "ready", self.contender.version_max).close()
                return
            if self._process.poll() is not None:
                raise LoadError("it did not start")
            if time.monotonic() > deadline:
                raise LoadError(f"it was not ready after {START_SECONDS_MAX:g} s")
            time.sleep(0.02)

    def describe_end(self) -> str:
        """How it ended and its last words, for a run that failed; empty while it lives."""
        code = self._process.poll()
        if code is None:
            return ""
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        words = "".join(f"\n    {line}" for line in lines) or " without a word"
        return f"; it ended with exit code {code}:{words}"

    def cpu_seconds(self) -> float:
        """Of all processes of its group, in user and kernel mode."""
        ticks = 0
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                # The name before may have spaces and parentheses; group, user and system time.
                fields = entry.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self._process.pid:
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_SECONDS_MAX)
                    break
        finally:
            self._folder.cleanup()


@contextlib.contextmanager
def running(chosen: list[Contender], persistent: bool) -> Iterator[dict[str, Server]]:
    """All of them, by name; ended whatever happens."""
    servers: dict[str, Server] = {}
    try:
        for contender in chosen:
            servers[contender.name] = Server(contender, persistent)
        yield servers
    finally:
        for server in servers.values():
            server.stop()
