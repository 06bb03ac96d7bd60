"""The brokers of a run, as processes: starts, stops, kills and queries them."""

import asyncio
import contextlib
import json
import secrets
import sys
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import Any

from reliability.boxes import DIMENSIONS, HIGH, LOW
from reliability.clients.http import request
from reliability.history import Exited
from reliability.network import Network
from reliability.world import Place, World

START_SECONDS_MAX = 180.0
"""A broker compiles its kernels if they have changed since the last start."""

STOP_SECONDS_MAX = 60.0
_LOOK_SECONDS_MAX = 5.0
_SCRIPT = Path(__file__).with_name("node.py")
_LOG_LINES = 12

_CONFIGURATION = """\
name = "{name}"
data = "{data}"

[[listeners]]
kind = "tcp"
host = "{host}"
port = 0

[http]
host = "{host}"
port = 0

[access]
anonymous = "always"

[cluster]
enabled = true
host = "{link_host}"
port = {link_port}
advertise = "{advertised}"
join = [{join}]
secret_file = "{secret_file}"

[spaces.points]
topics = "s/#"
json_fields = true

[spaces.points.dimensions]
{dimensions}
"""


class StartError(Exception):
    """A broker did not start. The text is its log."""


class Broker:
    """One broker, through all its restarts."""

    def __init__(self, name: str, folder: Path, network: Network, world: World) -> None:
        self.name = name
        self.folder = folder / name
        self.data = folder / "data" / name
        self.is_stopped = False
        self._network = network
        self._world = world
        self._process: asyncio.subprocess.Process | None = None
        self._clock_file = self.folder / "clock"
        self._log_file = self.folder / "log"
        self._watch: asyncio.Task[None] | None = None
        self.folder.mkdir(parents=True)
        self.shift_clock(0)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def configure(self, join: str, secret_file: Path) -> None:
        link_host, link_port = self._network.link(self.name)
        self._file.write_text(
            _CONFIGURATION.format(
                name=self.name,
                data=self.data,
                host=self._network.host(self.name),
                link_host=link_host,
                link_port=link_port,
                advertised=address(self._network.advertised(self.name)),
                join=f'"{join}"' if join else "",
                secret_file=secret_file,
                dimensions="\n".join(f"{name} = [{LOW}, {HIGH}]" for name in DIMENSIONS),
            )
        )

    @property
    def _file(self) -> Path:
        return self.folder / "dovetail.toml"

    def shift_clock(self, seconds: float) -> None:
        self._clock_file.write_text(f"{seconds}\n")

    async def start(self) -> None:
        """Start the process, and return when it admits clients."""
        assert not self.is_running
        with self._log_file.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._network.command(self.name),
                sys.executable,
                str(_SCRIPT),
                str(self._file),
                str(self._clock_file),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.is_stopped = False
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            self.signal(SIGKILL)
            code = await process.wait()
            raise StartError(f"{self.name} did not start (exit code {code}).\n{self.log_tail()}")
        said = json.loads(line)
        host = self._network.host(self.name)
        self._world.places[self.name] = Place(host, said["mqtt"], said["http"])
        self._watch = asyncio.create_task(self._report_end(process))

    async def _report_end(self, process: asyncio.subprocess.Process) -> None:
        """Record the end of a process that nobody asked for."""
        code = await process.wait()
        self._world.places.pop(self.name, None)
        self._world.record(Exited(self._world.now(), self.name, code, self.log_tail()))
        with contextlib.suppress(StartError):
            await self.start()  # so that the run goes on

    def signal(self, number: Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def suspend(self) -> None:
        self.is_stopped = True
        self.signal(SIGSTOP)

    def resume(self) -> None:
        self.is_stopped = False
        self.signal(SIGCONT)

    async def kill(self) -> None:
        await self._end(SIGKILL)

    async def terminate(self) -> None:
        """Send SIGTERM and wait. A broker that does not end with exit code 0 breaks a promise."""
        code = await self._end(SIGTERM)
        if code:
            self._world.record(Exited(self._world.now(), self.name, code, self.log_tail()))

    async def _end(self, number: Signals) -> int:
        if self._process is None:
            return 0
        if self._watch is not None:
            self._watch.cancel()
        self._world.places.pop(self.name, None)
        self.signal(number)
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                code = await self._process.wait()
        except TimeoutError:
            self.signal(SIGKILL)
            await self._process.wait()
            code = -SIGKILL
        self.is_stopped = False
        return code

    def log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        return ""

    async def look(self) -> dict[str, Any]:
        """Return its view of the cluster. Raise an OSError if it does not answer."""
        place = self._world.places.get(self.name)
        if place is None:
            raise OSError(f"{self.name} is not up")
        status, answer = await request(
            place.host, place.http_port, "GET", "/cluster", seconds=_LOOK_SECONDS_MAX
        )
        if status != 200:
            raise OSError(f"{self.name} answers with {status}")
        found: dict[str, Any] = answer
        return found


def address(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}"


class Cluster:
    """All brokers. Each joins through the first one; after a restart it remembers the others."""

    def __init__(self, folder: Path, network: Network, world: World) -> None:
        self._folder = folder
        self._network = network
        self._world = world
        self.brokers = {name: Broker(name, folder, network, world) for name in world.nodes}

    async def start(self) -> None:
        secret_file = self._folder / "secret"
        secret_file.touch(0o600)
        secret_file.write_text(secrets.token_hex())
        first = next(iter(self.brokers))
        for name, broker in self.brokers.items():
            join = "" if name == first else address(self._network.advertised(first))
            broker.configure(join, secret_file)
        await self.brokers[first].start()
        others = (broker for name, broker in self.brokers.items() if name != first)
        await asyncio.gather(*(broker.start() for broker in others))

    async def is_whole(self) -> bool:
        """Return whether every broker is up and hears every other one."""
        return await self._all(lambda peer: peer["is_connected"] and peer["is_sketch_known"])

    async def is_quiet(self) -> bool:
        """Return whether no broker has messages left for another one."""
        return await self._all(lambda peer: not peer["owed_messages"])

    async def _all(self, holds: Any) -> bool:  # noqa: ANN401
        try:
            views = await asyncio.gather(*(broker.look() for broker in self.brokers.values()))
        except (OSError, ValueError, KeyError):
            return False
        names = set(self.brokers)
        return all(
            {entry["name"] for entry in view["nodes"] if entry["state"] == "alive"} == names
            and all(
                entry["report"] is not None and all(map(holds, entry["report"]["peers"]))
                for entry in view["nodes"]
            )
            for view in views
        )

    async def stop(self) -> None:
        await asyncio.gather(*(broker.kill() for broker in self.brokers.values()))
