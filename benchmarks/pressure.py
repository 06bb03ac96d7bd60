"""Measures what a burst for a slow receiver loses: Dovetail, with and without waits, and Mosquitto.

A publisher sends a burst at QoS 0 as fast as the broker takes it. Its only receiver reads a fixed
number of bytes a second. Each broker has its own default limits; "Mosquitto without limits" may
queue as much as it likes.

In a second burst, another process sends PINGREQ again and again, and records the longest wait for
PINGRESP: it has nothing to do with the burst. All else is of the first burst. The last column is
the CPU time of the broker for each message that it was sent.
"""

import argparse
import socket
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import _load_wire as wire
from _load import HOST, Client
from _load_contenders import Contender, Purpose, Server, dovetail, mosquitto, running
from _measure import finish, table, verdict
from stalls import Prober

PAYLOAD_BYTES = 64
READ_BYTES = 65_536
END_INTERVAL_SECONDS = 0.1
RATES = {"2.5 MB/s": 2.5e6, "10 MB/s": 10e6, "50 MB/s": 50e6}
LOST_PERCENT_MAX = 0.0
END, _ = wire.publish(b"end", b"the end of the burst", 0, wire.MQTT_3_1_1)


def without_waits() -> Contender:
    usual = dovetail()

    def prepare(port: int, folder: Path, purpose: Purpose) -> list[str]:
        configuration = folder / "dovetail.toml"
        configuration.write_text("[mqtt]\npublisher_wait_seconds = 0\n")
        return [*usual.prepare(port, folder, purpose), "--config", str(configuration)]

    return Contender("Dovetail without waits", prepare, usual.missing)


def mosquitto_with_limits() -> Contender:
    usual = mosquitto()

    def prepare(port: int, folder: Path, purpose: Purpose) -> list[str]:
        command = usual.prepare(port, folder, purpose)
        configuration = Path(command[-1])
        lines = configuration.read_text().splitlines(keepends=True)
        configuration.write_text("".join(line for line in lines if not line.startswith("max_")))
        return command

    return Contender("Mosquitto", prepare, usual.missing)


def mosquitto_without_limits() -> Contender:
    usual = mosquitto()
    return Contender("Mosquitto without limits", usual.prepare, usual.missing)


class SlowReceiver:
    """A thread that reads what a subscriber gets, at a fixed rate, up to the end of the burst."""

    def __init__(self, port: int, bytes_per_second: float) -> None:
        self._client = Client(port, "receiver", wire.MQTT_3_1_1)
        self._client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
        self._client.subscribe([b"burst", b"end"], 0)
        self._bytes_per_second = bytes_per_second
        self.received = bytearray()
        self.is_done = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        began = time.perf_counter()
        while not self.received.endswith(END):
            self.received += self._client.socket.recv(READ_BYTES)
            due = began + len(self.received) / self._bytes_per_second
            time.sleep(max(due - time.perf_counter(), 0))
        self.is_done.set()

    def close(self) -> None:
        self._thread.join()
        self._client.close()


@dataclass(frozen=True)
class Result:
    lost_percent: float
    seconds: float
    """The time of the publisher for the burst."""
    cpu_microseconds: float
    """For each message sent to the broker."""
    longest_wait_ms: float = 0.0
    """Of the client that only pings."""


def measure(server: Server, count: int, bytes_per_second: float) -> Result:
    """Measure two bursts: others only ping during the second one, as that takes time, too."""
    result = measure_burst(server, count, bytes_per_second)
    prober = Prober(server.port)
    prober.longest_wait()
    measure_burst(server, count, bytes_per_second)
    longest_wait = prober.longest_wait()
    prober.stop()
    return replace(result, longest_wait_ms=longest_wait * 1e3)


def measure_burst(server: Server, count: int, bytes_per_second: float) -> Result:
    packet, layout = wire.publish(b"burst", bytes(PAYLOAD_BYTES), 0, wire.MQTT_3_1_1)
    burst = packet * count
    receiver = SlowReceiver(server.port, bytes_per_second)
    publisher = socket.create_connection((HOST, server.port))
    publisher.sendall(wire.connect("publisher", wire.MQTT_3_1_1))
    cpu = server.cpu_seconds()
    began = time.perf_counter()
    publisher.sendall(burst)
    seconds = time.perf_counter() - began
    while not receiver.is_done.wait(END_INTERVAL_SECONDS):
        publisher.sendall(END)  # again and again: the broker may drop it
    cpu = server.cpu_seconds() - cpu
    publisher.close()
    receiver.close()
    ends = receiver.received.count(END)
    received, rest = divmod(len(receiver.received) - ends * len(END), layout.packet_bytes)
    if rest:
        raise SystemExit(f"{server.contender.name} has altered a message")
    return Result(100 * (1 - received / count), seconds, cpu / count * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300_000, help="messages of a burst (300,000)")
    count = parser.parse_args().count
    contenders = [
        dovetail(),
        without_waits(),
        mosquitto_with_limits(),
        mosquitto_without_limits(),
    ]
    results: dict[tuple[str, str], Result] = {}
    for contender in contenders:
        if contender.missing is not None:
            print(f"without {contender.name}: {contender.missing}")
            continue
        print(f"{contender.name} ...", flush=True)
        with running([contender], "throughput") as servers:
            server = servers[contender.name]
            server.wait_until_ready()
            for rate, bytes_per_second in RATES.items():
                results[rate, contender.name] = measure(server, count, bytes_per_second)
    table(
        f"A burst of {count:,} messages of {PAYLOAD_BYTES} bytes for a client that reads slowly",
        ["it reads", "", "lost", "publisher, s", "others' longest wait, ms", "CPU µs a message"],
        [
            [
                rate,
                name,
                f"{one.lost_percent:.1f} %",
                f"{one.seconds:.2f}",
                f"{one.longest_wait_ms:.1f}",
                f"{one.cpu_microseconds:.2f}",
            ]
            for (rate, name), one in sorted(results.items(), key=lambda item: RATES[item[0][0]])
        ],
    )
    lost = max(one.lost_percent for (_, name), one in results.items() if name == "Dovetail")
    verdict("the largest share that Dovetail loses, %", lost, LOST_PERCENT_MAX, at_most=True)
    finish()


if __name__ == "__main__":
    main()
