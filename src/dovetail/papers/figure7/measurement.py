"""One point of figure 7: what a broker gets through, and how long its messages take.

The broker is a process (search_broker.py), its two clients are here (clients.py). Each measurement
ends with a question to the broker: it must have searched once for each message, and a sweep's
search must have had exactly the queries that were asked for. A figure of anything else is none.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dovetail.errors import DovetailError
from dovetail.papers.figure7.clients import Traffic, traffic
from dovetail.papers.figure7.query_cost import LEVELS, PAYLOAD_BYTES, SWEEP, Point
from dovetail.papers.figure7.search_broker import SearchingBroker, searching_broker
from dovetail.papers.wildcard.simulation import LEVEL_LETTERS, draw_text

PACED_MESSAGES_PER_SECOND = 1_000
"""A quarter or less of what the broker takes at any point on a slow machine."""

WARM_UP_SHARE = 0.1
"""Of the time of a measurement, before it."""


@dataclass(frozen=True)
class Bench:
    """A broker, and its clients."""

    broker: SearchingBroker
    traffic: Traffic


@contextlib.contextmanager
def prepared(seed: int) -> Iterator[Bench]:
    rng = np.random.default_rng(seed)
    levels = draw_levels(rng)
    with (
        searching_broker(seed) as broker,
        traffic(broker.port, levels, rng.bytes(PAYLOAD_BYTES)) as clients,
    ):
        yield Bench(broker, clients)


def draw_levels(rng: np.random.Generator) -> bytes:
    """What all topics have after their first level."""
    return b"/".join(level.tobytes() for level in draw_text(rng, (LEVELS - 1,), LEVEL_LETTERS))


def measure_point(bench: Bench, point: Point, seconds: float) -> dict[str, object]:
    """A row, but for its round. Full load has twice the time that paced messages have."""
    before = bench.traffic.received
    bench.broker.order(point)
    bench.traffic.saturate(WARM_UP_SHARE * seconds)
    load = bench.traffic.saturate(seconds)
    paced = bench.traffic.pace(PACED_MESSAGES_PER_SECOND, seconds / 2)
    searched = bench.broker.order(Point(SWEEP, 0))
    messages = bench.traffic.received - before
    if searched.topics != messages:
        raise DovetailError(
            f"the broker searched {searched.topics:,} times for {messages:,} messages, "
            "so the times are not of searches."
        )
    if point.kind == SWEEP and searched.queries != messages * point.queries:
        raise DovetailError(
            f"the broker asked {searched.queries:,} queries for {messages:,} messages, "
            f"and not {point.queries:,} each."
        )
    return {
        "kind": point.kind,
        "queries": round(searched.queries / messages),
        "messages_per_second": load.rate,
        "full_load_mean_ms": load.latency_seconds * 1e3,
        "paced_median_ms": float(np.median(paced)) * 1e3,
        "paced_p99_ms": float(np.quantile(paced, 0.99)) * 1e3,
        "messages": messages,
    }
