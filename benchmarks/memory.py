"""Measures a broker's memory: at rest, with 10,000 idle connections, with 1,000,000 subscriptions.

Each load meets a fresh process. The figure is its resident memory (VmRSS) after the answer to the
last packet. Mosquitto, where it is installed, gets the same load. With the subscriptions in place
publications must reach exactly their subscribers: an index that forgets would be small.
"""

import argparse
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import _load_wire as wire
from _load import HOST, STALL_SECONDS, Client, LoadError
from _load_contenders import Contender, Server, dovetail, mosquitto
from _measure import finish, table, verdict

MEGABYTE = 1 << 20
CONNECTIONS = 10_000
CONNECTIONS_MB_MAX = 500
CONNECTIONS_AT_ONCE = 50
KEEP_ALIVE_SECONDS = 60
SUBSCRIPTIONS = 1_000_000
SUBSCRIPTIONS_MB_MAX = 1_500
SUBSCRIBERS = 1_000
FILTERS_A_PACKET = 100
PUBLICATIONS = 200
SPARE_FILES = 500
_KEEP_ALIVE_AT = 10
METRICS = ("temperature", "humidity", "pressure", "vibration", "power", "status", "speed")


@dataclass
class Result:
    """Bytes before and after the load, and its duration."""

    rest: int
    loaded: int
    seconds: float
    items: int

    def row(self, name: str) -> list[str]:
        each = (self.loaded - self.rest) / self.items
        return [
            name,
            f"{self.rest / MEGABYTE:.0f}",
            f"{self.loaded / MEGABYTE:.0f}",
            f"{each:,.0f}",
            f"{self.seconds:.1f}",
        ]


def resident_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise LoadError("the broker is gone")


# Idle connections ---------------------------------------------------------------------------------


def connect_packet(number: int) -> bytes:
    version = wire.MQTT_5 if number % 2 else wire.MQTT_3_1_1
    packet = wire.connect(f"meter-{number:06d}", version)
    # The generator's own packets have no keep alive.
    keep_alive = KEEP_ALIVE_SECONDS.to_bytes(2, "big")
    return packet[:_KEEP_ALIVE_AT] + keep_alive + packet[_KEEP_ALIVE_AT + 2 :]


def open_connections(port: int, count: int, kept: list[socket.socket]) -> None:
    for start in range(0, count, CONNECTIONS_AT_ONCE):
        group = []
        for number in range(start, min(start + CONNECTIONS_AT_ONCE, count)):
            connection = socket.create_connection((HOST, port), STALL_SECONDS)
            kept.append(connection)
            group.append(connection)
            connection.sendall(connect_packet(number))
        for connection in group:
            answer = connection.recv(1_024)
            if len(answer) < 4 or answer[0] != wire.CONNACK << 4 or answer[3]:
                raise LoadError(f"a CONNECT was answered with {answer!r}")


def idle_connections(server: Server, count: int) -> Result:
    rest = resident_bytes(server.process_id)
    kept: list[socket.socket] = []
    started = time.perf_counter()
    try:
        open_connections(server.port, count, kept)
        seconds = time.perf_counter() - started
        return Result(rest, resident_bytes(server.process_id), seconds, count)
    finally:
        for connection in kept:
            connection.close()


# Subscriptions ------------------------------------------------------------------------------------


def topic(number: int) -> bytes:
    """Return a topic of six levels, as a company with many sites names them; all are different."""
    site, rest = number % 40, number // 40
    return b"acme/site-%02d/line-%02d/machine-%03d/sensor-%06d/%s" % (
        site,
        rest % 12,
        rest % 500,
        number,
        METRICS[number % len(METRICS)].encode(),
    )


def topic_filter(number: int) -> bytes:
    """Return a filter; one of ten has a wildcard, and still matches only its own topic."""
    name = topic(number)
    if number % 10:
        return name
    levels = name.split(b"/")
    levels[2 if number % 20 else 3] = b"+"
    return b"/".join(levels)


def subscribe_all(clients: list[Client], each: int) -> None:
    """Subscribe in turns, so that the filters of one client are not one branch of the tree."""
    for start in range(0, each, FILTERS_A_PACKET):
        for owner, client in enumerate(clients):
            numbers = range(start, min(start + FILTERS_A_PACKET, each))
            client.subscribe([topic_filter(owner * each + number) for number in numbers], 0)


def check_matches(port: int, clients: list[Client], each: int) -> None:
    """Check that publications reach exactly their subscribers."""
    chosen = random.Random(1).sample(range(len(clients) * each), PUBLICATIONS)
    publisher = Client(port, "publisher", wire.MQTT_5)
    for number in chosen:
        packet, _ = wire.publish(topic(number), b"%d" % number, 0, wire.MQTT_5)
        publisher.socket.sendall(packet)
    publisher.check_silent()  # by now the broker has passed all of them on
    for number in chosen:
        body = clients[number // each].expect(wire.PUBLISH)
        if topic(number) not in body or not body.endswith(b"%d" % number):
            raise LoadError(f"a subscriber to {topic(number)!r} got {body!r}")
    for client in clients:
        client.check_silent()
    publisher.close()


def subscriptions(server: Server, count: int) -> Result:
    clients: list[Client] = []
    each = count // SUBSCRIBERS
    try:
        for number in range(SUBSCRIBERS):
            version = wire.MQTT_5 if number % 2 else wire.MQTT_3_1_1
            clients.append(Client(server.port, f"application-{number:04d}", version))
        rest = resident_bytes(server.process_id)
        started = time.perf_counter()
        subscribe_all(clients, each)
        seconds = time.perf_counter() - started
        loaded = resident_bytes(server.process_id)
        check_matches(server.port, clients, each)
        return Result(rest, loaded, seconds, SUBSCRIBERS * each)
    finally:
        for client in clients:
            client.close()


# All of it ----------------------------------------------------------------------------------------


def measure(contender: Contender, load: Callable[[Server, int], Result], count: int) -> Result:
    server = Server(contender, "throughput")
    try:
        server.wait_until_ready()
        return load(server, count)
    except LoadError as error:
        raise LoadError(f"{contender.name}: {error}{server.describe_end()}") from None
    finally:
        server.stop()


def compare(
    title: str,
    noun: str,
    limit_mb: float,
    load: Callable[[Server, int], Result],
    count: int,
) -> None:
    results = {}
    for contender in (dovetail(), mosquitto()):
        if contender.missing:
            print(f"{contender.name} takes no part: {contender.missing}")
            continue
        results[contender.name] = measure(contender, load, count)
    table(
        title,
        ["broker", "MB before", "MB after", f"bytes a {noun}", "s"],
        [result.row(name) for name, result in results.items()],
    )
    if "Dovetail" not in results:
        raise LoadError("there is no Dovetail to measure")
    loaded = results["Dovetail"].loaded / MEGABYTE
    verdict(f"MB with {count:,} {noun}s", loaded, limit_mb, at_most=True)


def raise_file_limit(files: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        sys.exit(
            f"benchmarks/memory.py: {files:,} open files are needed, and {hard:,} are allowed "
            "here (ulimit -Hn); --connections N needs fewer"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    if sys.platform != "linux":
        sys.exit("benchmarks/memory.py: it reads /proc, which only Linux has")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--subscriptions", type=int, default=SUBSCRIPTIONS)
    options = parser.parse_args()
    # Then servers are ended as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Servers inherit the limit.
    raise_file_limit(max(options.connections, SUBSCRIBERS) + SPARE_FILES)
    compare(
        f"{options.connections:,} idle connections, half of them MQTT 3.1.1",
        "connection",
        CONNECTIONS_MB_MAX,
        idle_connections,
        options.connections,
    )
    compare(
        f"{options.subscriptions:,} subscriptions of six levels, {SUBSCRIBERS:,} clients",
        "subscription",
        SUBSCRIPTIONS_MB_MAX,
        subscriptions,
        options.subscriptions,
    )
    finish()


if __name__ == "__main__":
    try:
        main()
    except LoadError as error:
        sys.exit(f"benchmarks/memory.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
