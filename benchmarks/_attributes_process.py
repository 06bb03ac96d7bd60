"""Brokers and matchers with a space, started as users start them, and a blocking client.

For benchmarks with real processes: each service has a folder of its own, any free ports, and one
space, `bench`.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dovetail import codec
from dovetail.attributes.partition import Bounds
from dovetail.codec.packets import MQTT_5, Connect, Subscribe, SubscriptionAck, SubscriptionRequest
from dovetail.sim import workload

NAMES = "abcd"
BOUNDS = (Bounds(0.0, workload.LENGTH),) * len(NAMES)
FILTERS_AT_ONCE = 20
READ_BYTES = 1 << 20
PATIENCE_SECONDS = 120.0
CONFIG = """
[[listeners]]
kind = "tcp"
[http]
port = 0
[cluster]
port = 0
[spaces.bench]
topics = "bench/#"
[spaces.bench.dimensions]
"""
_STARTED = time.monotonic()


def progress(what: str) -> None:
    print(f"[{time.monotonic() - _STARTED:4.0f} s] {what}", file=sys.stderr, flush=True)


class Client:
    """A blocking connection for encoded packets."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.send(codec.encode(MQTT_5, Connect(MQTT_5, name)))
        self.take(1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def take(self, count: int) -> list[tuple[int, bytes]]:
        """Return at least `count` packets, as first bytes and bodies."""
        found: list[tuple[int, bytes]] = []
        while True:
            at = 0
            while at + 1 < len(self._buffer):
                length = codec.decode_length(self._buffer, at + 1)
                if length is None or length[1] + length[0] > len(self._buffer):
                    break
                end = length[1] + length[0]
                found.append((self._buffer[at], self._buffer[length[1] : end]))
                at = end
            self._buffer = self._buffer[at:]
            if len(found) >= count:
                return found
            more = self.socket.recv(READ_BYTES)
            if not more:
                raise SystemExit("the broker has closed a connection")
            self._buffer += more

    def close(self) -> None:
        self.socket.close()


def clause_of(low: Sequence[float], high: Sequence[float]) -> str:
    """Return a box as a clause, without its open dimensions."""
    return "&".join(
        f"{name}>={begin:.3f}&{name}<{end:.3f}"
        for name, begin, end in zip(NAMES, low, high, strict=True)
        if np.isfinite(begin)
    )


def subscribe(
    client: Client, lows: workload.Floats, highs: workload.Floats, *, qos: int = 0
) -> None:
    filters = [
        f"bench/#?{clause_of(low, high)}"
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
    ]
    for first in range(0, len(filters), FILTERS_AT_ONCE):
        requests = [
            SubscriptionRequest(text, qos) for text in filters[first : first + FILTERS_AT_ONCE]
        ]
        client.send(codec.encode(MQTT_5, Subscribe(1, requests)))
        ((kind, body),) = client.take(1)
        answer = codec.decode(MQTT_5, kind, body)
        assert isinstance(answer, SubscriptionAck)
        assert all(reason == qos for reason in answer.reasons), answer
        if first % 10_000 == 0 and first:
            progress(f"{first:,} of {len(filters):,} boxes")


class Service:
    """A running `dovetail` command with a folder of its own."""

    def __init__(
        self,
        folder: Path,
        *arguments: object,
        bounds: Sequence[Bounds] = BOUNDS,
        head: str = CONFIG,
    ) -> None:
        config = folder / "dovetail.toml"
        dimensions = "".join(
            f"{name} = [{low}, {high}]\n" for name, (low, high) in zip(NAMES, bounds, strict=True)
        )
        config.write_text(f"{head}{dimensions}")
        program = Path(sys.executable).with_name("dovetail")
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [str(program), *map(str, arguments), "--config", str(config)],
                stdout=output,
                stderr=output,
                cwd=folder,
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while " up" not in self._output.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"it did not start:\n{self._output.read_text()}")
            time.sleep(0.05)

    def url(self) -> str:
        """Return the HTTP address of its first node."""
        found = re.search(r"HTTP +(http://[^ ,]+)", self._output.read_text())
        assert found is not None
        return found[1]

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU seconds of the process and of its children, in order."""
        ticks = os.sysconf("SC_CLK_TCK")
        found = {}
        for number, child in enumerate((self.process.pid, *self.children())):
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            found[f"{number}"] = (int(fields[11]) + int(fields[12])) / ticks
        return found

    def children(self) -> list[int]:
        """Return its child processes, in order."""
        pid = self.process.pid
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


@contextmanager
def service(
    *arguments: object, bounds: Sequence[Bounds] = BOUNDS, head: str = CONFIG
) -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        running = Service(Path(folder), *arguments, bounds=bounds, head=head)
        try:
            yield running
        finally:
            running.stop()
