"""Runs several brokers as users do: `dovetail up --brokers`, `up --workers` or `dovetail node`.

All brokers are up when `start` returns. Their output and log are kept, and shown if a test fails.
"""

import json
import re
import urllib.request
from pathlib import Path

from support.processes.broker_process import WAIT_SECONDS, ManagedProcess

ANY_PORTS = """
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[cluster]
port = 0
"""
"""A configuration with any free ports."""

TRAFFIC = f"""
{ANY_PORTS}
[spaces.traffic]
topics = "traffic/#"
json_fields = true
[spaces.traffic.dimensions]
lat = [-90, 90]
lon = [-180, 180]
"""
"""The same with a space."""

_PLACE = re.compile(r"(MQTT, TLS|MQTT|WebSocket|HTTP|links) +(?:\w+://)?\S*?:(\d+)")


class FleetProcess(ManagedProcess):
    """One command, run in a given folder."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        super().__init__()
        self.folder = folder
        self._arguments = arguments

    def start(self) -> None:
        self.run(*self._arguments, folder=self.folder)
        self.wait_for_start(lambda: "Ctrl-C stops" in self.printed())

    def children(self) -> list[int]:
        """Return the ids of its running child processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [*map(int, children.read_text().split())]

    def ports(self, kind: str) -> list[int]:
        """Return the announced ports of MQTT, WebSocket, HTTP or links, in the brokers' order."""
        return [int(port) for found, port in _PLACE.findall(self.printed()) if found == kind]

    def metric(self, name: str, number: int = 0) -> float:
        """Return a metric of one of the brokers."""
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics", number), re.MULTILINE)
        assert found, name
        return float(found[1])

    def get(self, path: str, number: int = 0) -> str:
        url = f"http://127.0.0.1:{self.ports('HTTP')[number]}{path}"
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as response:
            return str(response.read().decode())

    def get_json(self, path: str, number: int = 0) -> object:
        return json.loads(self.get(path, number))


def process_exists(pid: int) -> bool:
    """Return True if the process runs and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"
