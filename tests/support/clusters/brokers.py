"""A cluster of real processes for a test: started together, killed and started again by name.

Between them may be a network that can be cut (network.py).
"""

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from support.clusters.network import ClusterNetwork
from support.processes.broker_process import START_SECONDS
from support.processes.ports import ReservedPort

_SCRIPT = Path(__file__).parents[1] / "processes" / "cluster_process.py"


class BrokerProcesses:
    """Broker processes of one cluster. Each joins the first one; restarted, it remembers all."""

    def __init__(self, folder: Path, *names: str, network: ClusterNetwork | None = None) -> None:
        self.folder = folder
        self._reserved = [ReservedPort() for _ in names]
        self.ports = {name: one.port for name, one in zip(names, self._reserved, strict=True)}
        self._node_ports = self._reserve_links() if network is None else network.node_ports
        self._dialed_ports = self._node_ports if network is None else network.ports
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def _reserve_links(self) -> dict[str, int]:
        by_name = {name: ReservedPort() for name in self.ports}
        self._reserved += by_name.values()
        return {name: one.port for name, one in by_name.items()}

    def __enter__(self) -> "BrokerProcesses":
        for name in self.ports:
            self.start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        for reserved in self._reserved:
            reserved.close()
        if error is not None:
            print(*(f"{name}: {self.log(name)}" for name in self.ports), sep="\n")

    def start(self, name: str) -> None:
        """Start a broker, and wait until it accepts clients."""
        first = next(iter(self.ports))
        join = [] if name == first else [str(self._dialed_ports[first])]
        log = self.folder / f"{name}.log"
        known = log.read_text().count("is up") if log.exists() else 0
        command = [sys.executable, str(_SCRIPT), name, str(self.folder)]
        ports = [
            str(by_name[name]) for by_name in (self.ports, self._node_ports, self._dialed_ports)
        ]
        with log.open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [*command, *ports, *join], stdout=output, stderr=output
            )
        deadline = time.monotonic() + START_SECONDS
        while log.read_text().count("is up") == known:
            assert self._processes[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.02)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def stop(self, name: str) -> int:
        self._processes[name].terminate()
        return self._processes[name].wait(START_SECONDS)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()
