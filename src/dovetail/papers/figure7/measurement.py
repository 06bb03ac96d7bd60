"""Measures one point of figure 7: a broker's throughput, and the latency of its messages.

The broker is a process (search_broker.py); its two clients are here (clients.py). Each measurement
ends with a check: the broker must have searched once for each message, and each search of a sweep
must have made exactly the requested number of queries. Otherwise the measurement fails.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dovetail.errors import DovetailError
from dovetail.papers.figure7.clients import Traffic, traffic
from dovetail.papers.figure7.query_cost import LEVELS, PAYLOAD_BYTES, SWEEP, SearchPoint
from dovetail.papers.figure7.search_broker import SearchBroker, start_search_broker
from dovetail.papers.wildcard.simulation import LEVEL_LETTERS, draw_text

PACED_MESSAGES_PER_SECOND = 1_000
"""At most a quarter of the broker's throughput at any point on a slow machine."""

WARM_UP_SHARE = 0.1
"""The warm-up, as a share of the measurement's time."""


@dataclass(frozen=True)
class Bench:
    """A broker and its clients."""

    broker: SearchBroker
    traffic: Traffic


@contextlib.contextmanager
def start_bench(seed: int) -> Iterator[Bench]:
    rng = np.random.default_rng(seed)
    levels = draw_levels(rng)
    with (
        start_search_broker(seed) as broker,
        traffic(broker.port, levels, rng.bytes(PAYLOAD_BYTES)) as clients,
    ):
        yield Bench(broker, clients)


def draw_levels(rng: np.random.Generator) -> bytes:
    """Draw the levels of all topics after the first."""
    return b"/".join(level.tobytes() for level in draw_text(rng, (LEVELS - 1,), LEVEL_LETTERS))


def measure_point(bench: Bench, point: SearchPoint, seconds: float) -> dict[str, object]:
    """Return a row without its round. Full load takes twice the time of paced messages."""
    before = bench.traffic.received
    bench.broker.set_search(point)
    bench.traffic.saturate(WARM_UP_SHARE * seconds)
    load = bench.traffic.saturate(seconds)
    paced = bench.traffic.pace(PACED_MESSAGES_PER_SECOND, seconds / 2)
    searched = bench.broker.set_search(SearchPoint(SWEEP, 0))
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
