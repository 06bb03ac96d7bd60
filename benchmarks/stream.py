"""Compares a space that Spark serves with the same space served live, in one run.

    throughput   publications at QoS 1 as fast as they are acknowledged, until all is delivered
    latency      publications at a modest rate: from PUBLISH to delivery
    source       all these rows through readStream.format("dovetail"), to nowhere

Clients have the BlueDove paper's boxes, at QoS 1, and acknowledge what comes. The publisher, the
clients and Spark's driver share this process; Spark has `--cores` of this machine.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from _attributes_process import CONFIG, NAMES, Client, clause_of, progress, service
from _measure import finish, table
from _ports import reserve
from attributes import TOPIC, publish
from dovetail import codec
from dovetail.codec.packets import MQTT_5, Ack, PacketType, Publish, Subscribe, SubscriptionRequest
from dovetail.codec.properties import forwardable_properties
from dovetail.pipeline import register
from dovetail.pipeline.serve.query import serve
from dovetail.pipeline.spark.spark_session import open_session
from dovetail.sim import workload

FILTERS_AT_ONCE = 50
QUIET_SECONDS = 60
"""After this silence nothing more will come."""


class Subscriber(threading.Thread):
    """Acknowledges messages, and records their times."""

    def __init__(self, port: int, number: int, boxes: tuple[np.ndarray, np.ndarray]) -> None:
        super().__init__(daemon=True)
        self.boxes = boxes
        self.count = 0
        self.last_at = time.perf_counter()
        self.waits: list[float] = []
        self._client = Client(port, f"subscriber-{number}")
        lows, highs = boxes
        filters = [
            f"bench/#?{clause_of(low, high)}"
            for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
        ]
        for first in range(0, len(filters), FILTERS_AT_ONCE):
            some = [SubscriptionRequest(one, 1) for one in filters[first : first + FILTERS_AT_ONCE]]
            self._client.send(codec.encode(MQTT_5, Subscribe(1, some)))
            self._client.take(1)
        self.start()

    def run(self) -> None:
        while True:
            try:
                found = self._client.take(1)
            except (OSError, SystemExit):
                return
            now = time.perf_counter()
            answers = []
            for kind, body in found:
                packet = codec.decode(MQTT_5, kind, body)
                if isinstance(packet, Publish):
                    sent_at = float(packet.payload)
                    if sent_at:
                        self.waits.append(now - sent_at)
                    answers.append(codec.encode(MQTT_5, Ack(PacketType.PUBACK, packet.packet_id)))
            self.count += len(answers)
            self.last_at = now
            self._client.send(b"".join(answers))

    def wants(self, points: np.ndarray) -> int:
        """Return how many of the points are in its boxes, by comparing all."""
        lows, highs = self.boxes
        return sum(bool(((lows <= one) & (one < highs)).all(axis=1).any()) for one in points)

    def close(self) -> None:
        self._client.close()


def packet(point: np.ndarray, number: int, sent_at: float) -> bytes:
    values = tuple((name, f"{value:.3f}") for name, value in zip(NAMES, point, strict=True))
    return codec.encode(
        MQTT_5,
        Publish(
            TOPIC,
            f"{sent_at:064.9f}".encode(),
            1,
            packet_id=number % 65_000 + 1,
            properties=forwardable_properties(user=values),
        ),
    )


@dataclass
class EngineResult:
    """The figures of one engine."""

    publications_a_second: float = 0.0
    deliveries_a_second: float = 0.0
    deliveries: int = 0
    waits: list[float] = field(default_factory=list)
    rows_a_second: float = 0.0


def points_of(count: int, seed: int) -> np.ndarray:
    """Return points as they are published: with three digits."""
    rounded: np.ndarray = np.round(workload.points(count, seed), 3)
    return rounded


def throughput(
    run: EngineResult, publisher: Client, subscribers: list[Subscriber], count: int
) -> None:
    points = points_of(count, 7)
    wanted = sum(one.wants(points) for one in subscribers)
    before = sum(one.count for one in subscribers)
    sent = [packet(point, number, 0.0) for number, point in enumerate(points)]
    began = time.perf_counter()
    publish(publisher, sent)
    wait(subscribers, before + wanted)
    seconds = max(one.last_at for one in subscribers) - began
    run.deliveries = wanted
    run.publications_a_second = count / seconds
    run.deliveries_a_second = wanted / seconds


def latency(
    run: EngineResult, publisher: Client, subscribers: list[Subscriber], rate: float, seconds: float
) -> None:
    points = points_of(round(rate * seconds), 8)
    before = sum(one.count for one in subscribers)
    wanted = sum(one.wants(points) for one in subscribers)
    for one in subscribers:
        one.waits.clear()
    began = time.perf_counter()
    for number, point in enumerate(points):
        time.sleep(max(began + number / rate - time.perf_counter(), 0))
        publisher.send(packet(point, number, time.perf_counter()))
        publisher.take(1)
    wait(subscribers, before + wanted)
    run.waits = [wait for one in subscribers for wait in one.waits]


def wait(subscribers: list[Subscriber], count: int) -> None:
    began = time.perf_counter()
    while (there := sum(one.count for one in subscribers)) < count:
        last = max(began, *(one.last_at for one in subscribers))
        if time.perf_counter() - last > QUIET_SECONDS:
            raise SystemExit(f"{there:,} deliveries came, and {count:,} should have")
        time.sleep(0.002)
    assert there == count, f"{there:,} deliveries came, and {count:,} should have"


def source(run: EngineResult, spark: SparkSession, url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        query = (
            spark.readStream.format("dovetail")
            .options(url=url, maxRowsPerTask=20_000)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [one for one in query.recentProgress if one["numInputRows"]]
    # How long the query takes to start is not counted.
    seconds = sum(one["durationMs"]["triggerExecution"] for one in batches) / 1e3
    run.rows_a_second = sum(one["numInputRows"] for one in batches) / seconds


@contextmanager
def cluster(engine: str, options: argparse.Namespace) -> Iterator[tuple[int, str]]:
    """Run a cluster; yield the port of the first broker, and its HTTP address."""
    port = reserve(options.brokers)
    counts = ["--brokers", options.brokers] * (options.brokers > 1)
    matchers = ["--matchers", options.matchers] * (engine == "live" and options.matchers > 0)
    head = CONFIG.replace(
        'topics = "bench/#"\n', f'topics = "bench/#"\nengine = "{engine}"\n'
    ).replace("[spaces.bench]", '[archive]\nfolder = "archive"\n[spaces.bench]')
    with service("up", "--port", port, "--data", "data", *counts, *matchers, head=head) as running:
        yield port, running.url()


def measure_engine(
    engine: str, spark: SparkSession | None, options: argparse.Namespace
) -> EngineResult:
    run = EngineResult()
    lows, highs = workload.boxes(options.boxes, 1)
    with cluster(engine, options) as (port, url), tempfile.TemporaryDirectory() as folder:
        shares = np.array_split(np.arange(options.boxes), options.subscribers)
        subscribers = [
            Subscriber(
                port + options.brokers - 1, number, (lows[own].round(3), highs[own].round(3))
            )
            for number, own in enumerate(shares)
        ]
        publisher = Client(port, "publisher")
        query = None if spark is None else serve(spark, url, Path(folder) / "checkpoint")
        progress(f"{engine}: a first round")
        throughput(EngineResult(), publisher, subscribers, max(options.publications // 10, 100))
        progress(f"{engine}: {options.publications:,} publications")
        throughput(run, publisher, subscribers, options.publications)
        progress(f"{engine}: {options.rate} a second for {options.seconds} s")
        latency(run, publisher, subscribers, options.rate, options.seconds)
        if spark is not None and query is not None:
            query.stop()
            progress("rows alone")
            source(run, spark, url)
        for one in (publisher, *subscribers):
            one.close()
    return run


def row(name: str, run: EngineResult, live: EngineResult) -> tuple[str, ...]:
    p50, p99 = (float(np.percentile(run.waits, share)) for share in (50, 99))
    times = float(np.percentile(live.waits, 50))
    return (
        name,
        f"{run.publications_a_second:,.0f}",
        f"{run.deliveries_a_second:,.0f}",
        f"{run.publications_a_second / live.publications_a_second:.2f}",
        f"{p50 * 1e3:,.1f}",
        f"{p99 * 1e3:,.1f}",
        f"{p50 / times:,.0f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boxes", type=int, default=10_000)
    parser.add_argument("--subscribers", type=int, default=10, help="who share the boxes")
    parser.add_argument("--publications", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=50, help="a second, for latency")
    parser.add_argument("--seconds", type=float, default=20, help="of that")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--matchers", type=int, default=0, help="of the live cluster")
    parser.add_argument("--cores", type=int, default=2, help="for Spark")
    options = parser.parse_args()
    live = measure_engine("live", None, options)
    progress("Spark starts")
    with open_session(f"local[{options.cores}]") as spark:
        register(spark)
        served = measure_engine("spark", spark, options)
    table(
        f"{options.boxes:,} boxes of {options.subscribers} clients, "
        f"{live.deliveries / options.publications:.1f} deliveries a publication",
        (
            "served",
            "publications/s",
            "deliveries/s",
            "times live",
            "p50 ms",
            "p99 ms",
            "times live",
        ),
        [row("live", live, live), row("by Spark", served, live)],
    )
    print(f"Rows alone through readStream: {served.rows_a_second:,.0f} a second")
    finish()


if __name__ == "__main__":
    main()
