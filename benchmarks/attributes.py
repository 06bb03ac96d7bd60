"""Measures publications with attributes through real processes.

- *matching*: one or two matchers alone, asked by a process that does nothing else. It measures
  points a second through their connections, and the CPU time of a point: once as brokers ask, who
  need the brokers with boxes for it, and once with all boxes listed, as BlueDove's matchers find
  them.
- *publications*: two brokers, and none, one or two matchers. All boxes are where-clauses of one
  client at the second broker. A publication comes to the first broker, is matched with all boxes
  and delivered at most once: this measures the path, and not the fan-out. A publisher has a fixed
  number of QoS 1 publications in flight; PUBACK says that one is done. Nearly every publication is
  in some of BlueDove's boxes. With narrow boxes a third is in some, and matchers save the second
  broker the rest. Response times are of single publications, from PUBLISH to the delivery.
- *alone*: one broker, which evaluates its clauses itself.

CPU seconds show where the time goes, by process. All processes share the machine's cores.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path

from _attributes_process import (
    NAMES,
    PATIENCE_SECONDS,
    READ_BYTES,
    Client,
    progress,
    service,
    subscribe,
)
from _attributes_stub_broker import StubBroker
from _measure import ratio, table
from _ports import reserve
from dovetail import codec
from dovetail.attributes.space import Dimension, Space
from dovetail.cluster.secret import make_secret, read_secret
from dovetail.codec.packets import MQTT_5, PacketType, Publish
from dovetail.codec.properties import forwardable_properties
from dovetail.matcher.layout import layout_of
from dovetail.sim import workload

TOPIC = b"bench/point"
WINDOW = 500
QUESTIONS_UNDER_WAY = 16
WIDTHS = {"BlueDove's": workload.WIDTH, "narrow": 60.0}
PAPER_RATE = 114_000
"""The rate of BlueDove's 20 matchers, 80 cores."""


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
    """Publish `sent`, and return the seconds until all are acknowledged."""
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


def response_times(
    publisher: Client, subscriber: Client, box: tuple[list[float], list[float]], count: int
) -> list[float]:
    """Return response times of publications in the middle of a box, so that one matches."""
    middle = [(low + high) / 2 for low, high in zip(*box, strict=True)]
    values = forwardable_properties(
        user=tuple((name, f"{value:.3f}") for name, value in zip(NAMES, middle, strict=True))
    )
    seconds = []
    for number in range(count):
        payload = f"{number:064}".encode()
        packet = codec.encode(MQTT_5, Publish(TOPIC, payload, properties=values))
        began = time.perf_counter()
        publisher.send(packet)
        while not any(body.endswith(payload) for _, body in subscriber.take(1)):
            pass  # something that was published before
        seconds.append(time.perf_counter() - began)
    return seconds


def microseconds(before: dict[str, float], after: dict[str, float], count: int) -> list[str]:
    """Return the CPU µs of each process for one of `count` publications."""
    return [f"{(after[key] - before[key]) / count * 1e6:.1f}" for key in before]


# Matchers alone -----------------------------------------------------------------------------------


async def ask_matchers(
    matchers: int, folder: Path, options: argparse.Namespace, *, is_listing: bool
) -> list[tuple[str, ...]]:
    dimensions = tuple(Dimension(name, 0.0, workload.LENGTH) for name in NAMES)
    space = Space("bench", "bench/#", dimensions)
    secret = folder / "cluster.secret"
    make_secret(secret)
    stub = StubBroker(
        "stub", layout_of(space), options.boxes, read_secret(secret), is_listing=is_listing
    )
    port = (await stub.start()).port
    points = [tuple(point) for point in workload.points(options.points, seed=1).tolist()]
    rows = []
    running = []
    try:
        for number in range(matchers):
            context = service(
                *("node", "--role", "matcher", "--name", f"m{number}"),
                *("--join", f"127.0.0.1:{port}", "--secret-file", secret),
            )
            running.append((context, await asyncio.to_thread(context.__enter__)))
        await stub.until(lambda: stub.serving() == matchers, "matchers serve")
        for at_once in options.at_once:
            under_way = QUESTIONS_UNDER_WAY
            some = points[: max(len(points) // 4, 1) if at_once < 64 else len(points)]
            await stub.ask(some, at_once, under_way)
            before = {
                f"{n}{key}": value
                for n, (_, one) in enumerate(running)
                for key, value in one.cpu_seconds().items()
            }
            seconds = [await stub.ask(some, at_once, under_way) for _ in range(options.rounds)]
            after = {
                f"{n}{key}": value
                for n, (_, one) in enumerate(running)
                for key, value in one.cpu_seconds().items()
            }
            used = microseconds(before, after, len(some) * options.rounds)
            each = sum(map(float, used))
            rate = len(some) / statistics.median(seconds)
            rows.append(
                (
                    str(matchers),
                    "all boxes" if is_listing else "brokers",
                    str(at_once),
                    f"{rate:,.0f}",
                    " + ".join(used),
                    f"{1e6 / each:,.0f}" if each else "-",
                    f"{1e6 / each / PAPER_RATE:.2f}" if each else "-",
                    f"{stub.matches / len(some):.0f}" if is_listing else "-",
                    f"{stub.wanted / len(some):.0%}",
                    f"{stub.unsure}",
                )
            )
            progress(f"{matchers} matchers, {at_once} at once: {rate:,.0f} points a second")
    finally:
        for context, _ in running:
            await asyncio.to_thread(context.__exit__, None, None, None)
        await stub.stop()
    return rows


def matching(options: argparse.Namespace) -> None:
    counts = [count for count in options.matchers if count]
    rows = []
    for count, is_listing in product(counts, (False, True)):
        with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
            rows += asyncio.run(ask_matchers(count, Path(folder), options, is_listing=is_listing))
    table(
        f"Matchers alone, {options.boxes:,} of BlueDove's boxes",
        (
            "matchers",
            "answers",
            "points at once",
            "points/s",
            "CPU µs a point",
            "points/s of one core",
            f"x {PAPER_RATE:,}",
            "boxes a point",
            "wanted",
            "unsure",
        ),
        rows,
    )


# Publications -------------------------------------------------------------------------------------


def measure_brokers(
    brokers: int, matchers: int, width: float, sent: list[bytes], options: argparse.Namespace
) -> tuple[list[float], list[float], list[str]]:
    """Return seconds of rounds, response times, and CPU µs by process."""
    port = reserve(brokers)
    counts = ["--brokers", brokers] * (brokers > 1) + ["--matchers", matchers] * (matchers > 0)
    with service("up", "--port", port, "--data", "data", *counts) as running:
        subscriber = Client(port + brokers - 1, "subscriber")
        subscribe(subscriber, *workload.boxes(options.boxes, width=width))
        publisher = Client(port, "publisher")
        publish(publisher, sent[: len(sent) // 10])
        before = running.cpu_seconds()
        seconds = []
        for _ in range(options.rounds):
            seconds.append(publish(publisher, sent))
            drain(subscriber)
        after = running.cpu_seconds()
        lows, highs = workload.boxes(options.boxes, width=width)
        waits = response_times(publisher, subscriber, (lows[0].tolist(), highs[0].tolist()), 200)
        for client in (publisher, subscriber):
            client.close()
    return seconds, waits, microseconds(before, after, len(sent) * options.rounds)


def publications(options: argparse.Namespace, brokers: int) -> None:
    sent = packets(options.publications, 1)
    rows = []
    ratios = []
    for name, width in WIDTHS.items():
        rates: dict[int, list[float]] = {}
        for matchers in options.matchers if brokers > 1 else [0]:
            progress(f"{brokers} brokers, {matchers} matchers, {options.boxes:,} {name} boxes")
            rates[matchers], waits, used = measure_brokers(brokers, matchers, width, sent, options)
            rows.append(
                (
                    name,
                    str(matchers),
                    f"{len(sent) / statistics.median(rates[matchers]):,.0f}",
                    f"{statistics.median(waits) * 1e3:.2f}",
                    f"{sorted(waits)[int(len(waits) * 0.99)] * 1e3:.2f}",
                    " + ".join(used),
                )
            )
        first, *others = rates
        ratios += [
            f"{name} boxes, {count} matchers against {first}: "
            f"{ratio(rates[first], rates[count]):.2f} x"
            for count in others
        ]
    what = "Two brokers" if brokers > 1 else "One broker"
    table(
        f"{what}, {options.boxes:,} boxes of one client, QoS 1",
        ("boxes", "matchers", "publications/s", "p50 ms", "p99 ms", "CPU µs each, by process"),
        rows,
    )
    print("\n".join(ratios))


PARTS = {
    "matching": matching,
    "alone": lambda options: publications(options, 1),
    "publications": lambda options: publications(options, 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--boxes", type=int, default=workload.BOXES)
    parser.add_argument("--points", type=int, default=200_000, help="of matchers alone")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 64, 1_024])
    parser.add_argument("--publications", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--matchers", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    for part in options.parts:
        PARTS[part](options)


def drain(client: Client) -> None:
    """Read what has arrived, so that the broker is not blocked."""
    client.socket.setblocking(False)
    try:
        while client.socket.recv(READ_BYTES):
            pass
    except BlockingIOError:
        pass
    client.socket.settimeout(PATIENCE_SECONDS)


if __name__ == "__main__":
    main()
