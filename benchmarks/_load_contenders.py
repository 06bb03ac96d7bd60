"""Starts each broker of the benchmark at its best, waits until it is ready, and ends it.

Rules:

- A broker has a port, a fresh data folder and a process group of its own; we end that group and
  nothing else, also after Ctrl-C.
- It gets the configuration that a careful operator would choose for this scenario: no logs, no
  limiting bounds, and nothing on disk unless sessions must be persistent.
- One processor is the generator's, the others are the broker's (where the system supports it).
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import _load_wire as wire
from _load import HOST, Client, LoadError
from _load_boxes import space_table
from _ports import reserve

ROOT = Path(__file__).parent.parent
START_SECONDS_MAX = 90.0
END_SECONDS_MAX = 10.0
LAST_LINES = 8
URGENT = -15
# Servers are often installed where only root looks.
PROGRAM_FOLDERS = (*os.get_exec_path(), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")
_PROCESSORS = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []

Purpose = Literal["throughput", "latency", "persistence", "clauses", "json"]
Prepare = Callable[[int, Path, Purpose], list[str]]
"""From port, folder and purpose to the command that runs it in the foreground."""


@dataclass(frozen=True)
class Contender:
    name: str
    prepare: Prepare
    missing: str | None = None
    """Why it is unavailable."""
    version_max: int = wire.MQTT_5
    is_broker: bool = True
    """The relay is not a broker: it passes all data on to every subscriber."""
    only_for: Purpose | None = None
    knows_clauses: bool = False
    """Others get all that the subscribers of a scenario with where-clauses choose from."""
    ports: int = 1
    """It listens on so many, one after the other."""
    is_cluster: bool = False
    """Its processes have groups of their own, and end with the one that started them."""


def find_program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(PROGRAM_FOLDERS))


# Dovetail, Mosquitto, and the generator alone -----------------------------------------------------


def dovetail(*, default_settings: bool = False) -> Contender:
    program = Path(sys.executable).with_name("dovetail")

    def prepare(port: int, folder: Path, purpose: Purpose) -> list[str]:
        place = ["--port", str(port), "--host", HOST, "--data", str(folder / "data")]
        if purpose == "latency" and not default_settings:
            configuration = folder / "dovetail.toml"
            configuration.write_text(
                "[http]\nenabled = false\n[mqtt]\nspin_microseconds = 500\n"
                f'[[listeners]]\nkind = "tcp"\nhost = "{HOST}"\nport = {port}\n'
            )
            place = ["--data", str(folder / "data")]
            place += ["--config", str(configuration)]
        tables = {
            "clauses": space_table(),
            "json": space_table(with_json=True),
            "persistence": "[mqtt]\nqueue_messages_max = 1_000_000\n",  # the peers have no limit
        }
        if purpose in tables:
            configuration = folder / "dovetail.toml"
            configuration.write_text(tables[purpose])
            place += ["--config", str(configuration)]
        return [str(program), "up", *place, "--quiet"]

    missing = None
    if not program.exists():
        missing = f"{program} is not there: start with scripts/bench"
    elif (
        b"--port"
        not in subprocess.run([program, "up", "--help"], capture_output=True, check=False).stdout
    ):
        missing = "`dovetail up` is not there yet"
    if default_settings:
        return Contender("Dovetail as it comes", prepare, missing, only_for="latency")
    return Contender("Dovetail", prepare, missing, knows_clauses=True)


def mosquitto() -> Contender:
    program = find_program("mosquitto")

    def prepare(port: int, folder: Path, purpose: Purpose) -> list[str]:
        lines = [
            f"listener {port} {HOST}",
            "allow_anonymous true",
            "log_type none",
            # Without it the system joins its small packets: 1.5 to 2 times the messages.
            f"set_tcp_nodelay {'true' if purpose == 'latency' else 'false'}",
            "sys_interval 0",
            "max_inflight_messages 0",  # both: no limit
            "max_queued_messages 0",
            f"persistence {'true' if purpose == 'persistence' else 'false'}",
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
        lambda port, _folder, _purpose: [sys.executable, str(script), str(port)],
        is_broker=False,
    )


# Others, for the table ----------------------------------------------------------------------------


def flashmq() -> Contender:
    program = find_program("flashmq")

    def prepare(port: int, folder: Path, purpose: Purpose) -> list[str]:
        configuration = folder / "flashmq.conf"
        configuration.write_text(
            f"log_file {folder}/flashmq.log\n"
            "log_level error\n"
            "allow_anonymous true\n"
            "thread_count 1\n"
            f"{f'storage_dir {folder}' if purpose == 'persistence' else ''}\n"
            "max_qos_msg_pending_per_client 65535\n"
            "max_qos_bytes_pending_per_client 4294967295\n"
            "client_max_write_buffer_size 67108864\n"
            f"listen {{\n  port {port}\n  inet_protocol ip4\n  inet4_bind_address {HOST}\n}}\n"
        )
        return [str(program), "--config-file", str(configuration)]

    return Contender(
        "FlashMQ", prepare, None if program else "not installed (flashmq.org has packages)"
    )


def amqtt() -> Contender:
    program = find_program("amqtt")

    def prepare(port: int, folder: Path, _purpose: Purpose) -> list[str]:
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

    def prepare(port: int, folder: Path, _purpose: Purpose) -> list[str]:
        configuration = folder / "nats.conf"
        configuration.write_text(
            f'host: "{HOST}"\nport: {reserve()}\nserver_name: bench\n'
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


def rabbitmq() -> Contender:
    # Debian's program of that name in /usr/sbin changes user and folder, and then runs this one.
    debians = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    program = str(debians) if debians.exists() else find_program("rabbitmq-server")

    def prepare(port: int, folder: Path, _purpose: Purpose) -> list[str]:
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {HOST}:{reserve()}\n"
            f"mqtt.listeners.tcp.1 = {HOST}:{port}\n"
            "mqtt.allow_anonymous = true\n"
            "mqtt.prefetch = 1000\n"
        )
        (folder / "plugins").write_text("[rabbitmq_mqtt].\n")
        mapper_port = reserve()
        settings = {
            "HOME": folder,  # for Erlang's cookie
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": mapper_port,
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_DIST_PORT": reserve(),
            "RABBITMQ_CONFIG_FILE": folder / "rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": folder / "none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
            "RABBITMQ_MNESIA_BASE": folder / "mnesia",
            "RABBITMQ_LOG_BASE": folder / "log",
            "RABBITMQ_PID_FILE": folder / "pid",
        }
        environment = [f"{name}={value}" for name, value in settings.items()]
        # Erlang would start its port mapper as a daemon that outlives the broker; ours is in its
        # process group, and ends with it.
        script = f'epmd -address {HOST} -port {mapper_port} & exec "$0"'
        return ["env", *environment, "sh", "-c", script, str(program)]

    return Contender(
        "RabbitMQ",
        prepare,
        None if program else "not installed (Debian: apt-get install rabbitmq-server)",
        version_max=wire.MQTT_3_1_1,  # 5.0 from its version 3.13 on
    )


def contenders() -> list[Contender]:
    return [
        dovetail(),
        dovetail(default_settings=True),
        mosquitto(),
        flashmq(),
        amqtt(),
        nats(),
        rabbitmq(),
        relay(),
    ]


# Running ------------------------------------------------------------------------------------------


def take_processor() -> None:
    """Bind the generator to the last processor; if there is only one, all share it."""
    if sys.platform == "linux" and len(_PROCESSORS) > 1:
        os.sched_setaffinity(0, _PROCESSORS[-1:])


def keep_off_generator(process: int) -> None:
    if sys.platform == "linux" and len(_PROCESSORS) > 1:
        os.sched_setaffinity(process, _PROCESSORS[:-1])


def go_first(process: int) -> None:
    """Raise a process's priority. Linux may weigh whole sessions, so raise its session's, too."""
    os.setpriority(os.PRIO_PGRP, os.getpgid(process), URGENT)
    with contextlib.suppress(FileNotFoundError):
        Path(f"/proc/{process}/autogroup").write_text(str(URGENT))


class Server:
    """A running contender. `next_number` is the first message number that it has never seen."""

    def __init__(self, contender: Contender, purpose: Purpose) -> None:
        self.contender = contender
        self.port = reserve(contender.ports)
        self.next_number = 0
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-bench-")
        folder = Path(self._folder.name)
        self._log = folder / "output"
        command = contender.prepare(self.port, folder, purpose)
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

    @property
    def process_id(self) -> int:
        return self._process.pid

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
        """Return how it ended, with its last output; empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        words = "".join(f"\n    {line}" for line in lines) or " without a word"
        return f"; it ended with exit code {code}:{words}"

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes of its group, in user and kernel mode."""
        ticks = 0
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                # The name before may have spaces and parentheses; parent, group, user and system.
                fields = entry.read_text().rpartition(")")[2].split()
                related = [int(fields[2])]
                if self.contender.is_cluster:
                    related += (int(fields[1]), int(entry.parent.name))
                if self._process.pid in related:
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
def running(chosen: list[Contender], purpose: Purpose) -> Iterator[dict[str, Server]]:
    """Run all contenders, and yield them by name; end them in any case."""
    servers: dict[str, Server] = {}
    try:
        for contender in chosen:
            servers[contender.name] = Server(contender, purpose)
        yield servers
    finally:
        for server in servers.values():
            server.stop()
