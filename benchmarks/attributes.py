"""Publications with attributes through real processes: one broker, and none, one or two matchers.

BlueDove's boxes are where-clauses of one client, so that a publication is matched with all of them
and delivered once at most: what is measured is the way to the verdict, and not the fan-out. A
publisher keeps so many QoS 1 publications under way; PUBACK says that one has gone on. Response
times are of publications one at a time, from PUBLISH to the delivery. CPU seconds are the
processes' own: where the time goes. Clients, broker and matchers share the machine's cores.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _load_contenders import free_port
from _measure import ratio, table
from dovetail.attributes import workload
from dovetail.broker import codec
from dovetail.broker.packets import (
    MQTT_5,
    Connect,
    PacketType,
    Publish,
    Reasons,
    Subscribe,
    SubscriptionRequest,
)
from dovetail.broker.properties import forwardable_properties

NAMES = "abcd"
TOPIC = b"bench/point"
WINDOW = 500
FILTERS_AT_ONCE = 20
READ_BYTES = 1 << 20
PATIENCE_SECONDS = 120.0

_STARTED = time.monotonic()


def progress(what: str) -> None:
    print(f"[{time.monotonic() - _STARTED:4.0f} s] {what}", file=sys.stderr, flush=True)


class Client:
    """A connection that is waited on; packets go in and come out."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.send(codec.encode(MQTT_5, Connect(MQTT_5, name)))
        self.take(1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def take(self, count: int) -> list[tuple[int, bytes]]:
        """At least so many packets: first bytes and bodies."""
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


def clause(low: float, high: float, name: str) -> str:
    return f"{name}>={low:.3f}&{name}<{high:.3f}"


def subscribe(client: Client, boxes: int) -> None:
    lows, highs = workload.boxes(boxes)
    filters = [
        "bench/#?" + "&".join(map(clause, low, high, NAMES))
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
    ]
    for first in range(0, boxes, FILTERS_AT_ONCE):
        requests = [SubscriptionRequest(text) for text in filters[first : first + FILTERS_AT_ONCE]]
        client.send(codec.encode(MQTT_5, Subscribe(1, requests)))
        ((kind, body),) = client.take(1)
        answer = codec.decode(MQTT_5, kind, body)
        assert isinstance(answer, Reasons)
        assert not any(answer.reasons), answer
        if first % 10_000 == 0 and first:
            progress(f"{first:,} of {boxes:,} boxes")


def packets(count: int, qos: int) -> list[bytes]:
    points = workload.points(count, seed=os.getpid())
    return [
        codec.encode(
            MQTT_5,
            Publish(
                TOPIC,
                b"x" * 64,
                qos,
                packet_id=number % 65_000 + 1 if qos else 0,
                properties=forwardable_properties(
                    user=tuple(
                        (name, f"{value:.3f}")
                        for name, value in zip(NAMES, point.tolist(), strict=True)
                    )
                ),
            ),
        )
        for number, point in enumerate(points)
    ]


def publish(publisher: Client, sent: list[bytes]) -> float:
    """Seconds until all have gone on."""
    began = time.perf_counter()
    under_way = next_one = done = 0
    while done < len(sent):
        room = min(WINDOW - under_way, len(sent) - next_one)
        if room:
            publisher.send(b"".join(sent[next_one : next_one + room]))
            next_one += room
            under_way += room
        answers = publisher.take(1)
        assert all(kind >> 4 == PacketType.PUBACK for kind, _ in answers)
        done += len(answers)
        under_way -= len(answers)
    return time.perf_counter() - began


def response_times(publisher: Client, subscriber: Client, count: int) -> list[float]:
    """Of publications in the middle of all, so that there is a box for each."""
    values = forwardable_properties(user=tuple((name, "500") for name in NAMES))
    packet = codec.encode(MQTT_5, Publish(TOPIC, b"x" * 64, properties=values))
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        publisher.send(packet)
        subscriber.take(1)
        seconds.append(time.perf_counter() - began)
    return seconds


class Service:
    """`dovetail up` with so many matchers."""

    def __init__(self, matchers: int, folder: Path) -> None:
        self.port = free_port()
        config = folder / "dovetail.toml"
        dimensions = "".join(f"{name} = [0, {workload.LENGTH:g}]\n" for name in NAMES)
        config.write_text(
            '[spaces.bench]\ntopics = "bench/#"\n[spaces.bench.dimensions]\n' + dimensions
        )
        more = ["--matchers", str(matchers)] if matchers else []
        place = ["--port", str(self.port), "--data", str(folder / "data"), "--config", str(config)]
        program = Path(sys.executable).with_name("dovetail")
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [str(program), "up", *place, *more], stdout=output, stderr=output
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "is up" not in self._output.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"it did not start:\n{self._output.read_text()}")
            time.sleep(0.05)

    def cpu_seconds(self) -> dict[str, float]:
        """Of the process that was started, and of those that it has started, in their order."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        ticks = os.sysconf("SC_CLK_TCK")
        found = {}
        for number, child in enumerate((self.process.pid, *map(int, children.split()))):
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            found[f"{number}"] = (int(fields[11]) + int(fields[12])) / ticks
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


@contextmanager
def service(matchers: int) -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        running = Service(matchers, Path(folder))
        try:
            yield running
        finally:
            running.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=workload.BOXES)
    parser.add_argument("--publications", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--matchers", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    sent = packets(options.publications, 1)
    rates: dict[int, list[float]] = {}
    rows = []
    for matchers in options.matchers:
        with service(matchers) as running:
            subscriber = Client(running.port, "subscriber")
            progress(f"{matchers} matchers: {options.boxes:,} boxes")
            subscribe(subscriber, options.boxes)
            publisher = Client(running.port, "publisher")
            publish(publisher, sent[: options.publications // 10])
            before = running.cpu_seconds()
            rates[matchers] = []
            for _ in range(options.rounds):
                subscriber.socket.settimeout(PATIENCE_SECONDS)
                seconds = publish(publisher, sent)
                rates[matchers].append(seconds)
                drain(subscriber)
                progress(f"{matchers} matchers: {options.publications / seconds:,.0f} a second")
            after = running.cpu_seconds()
            waits = response_times(publisher, subscriber, 200)
            each = options.publications * options.rounds
            used = [f"{(after[key] - before[key]) / each * 1e6:.1f}" for key in before]
            rate = options.publications / statistics.median(rates[matchers])
            rows.append(
                (
                    matchers,
                    f"{rate:,.0f}",
                    f"{statistics.median(waits) * 1e3:.2f}",
                    f"{sorted(waits)[int(len(waits) * 0.99)] * 1e3:.2f}",
                    " + ".join(used),
                )
            )
            for client in (publisher, subscriber):
                client.close()
    table(
        f"One broker, {options.boxes:,} boxes of one client, QoS 1",
        ("matchers", "publications/s", "p50 ms", "p99 ms", "CPU µs each, by process"),
        [tuple(map(str, row)) for row in rows],
    )
    first, *others = options.matchers
    for matchers in others:
        faster = ratio(rates[first], rates[matchers])
        print(f"{matchers} matchers against {first}: {faster:.2f} x")


def drain(client: Client) -> None:
    """What is there, so that the broker is not held up."""
    client.socket.setblocking(False)
    try:
        while client.socket.recv(READ_BYTES):
            pass
    except BlockingIOError:
        pass
    client.socket.settimeout(PATIENCE_SECONDS)


if __name__ == "__main__":
    main()
