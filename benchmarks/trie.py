"""Measures the exact index: memory and time a match as it grows to a million filters.

Its peer is a tree of nested dicts, as a simple Python broker would have it. There are two
workloads: the paper's (every level a random string, the worst for a tree: nearly nothing is shared)
and a plant of sites, machines and sensors, as people name topics.
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from _measure import filters, table, topics
from dovetail.papers.wildcard.simulation import Workload
from dovetail.topics.trie import FilterTrie

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
MATCHES = 2_000
ROUNDS = 7
PEER_MAX = 100_000
"""The most filters of the peer: with a million of six random levels it takes 3 GB."""


class DictTrie:
    """Nested dicts. Ends, with and without `#`, have keys that no level can have."""

    def __init__(self) -> None:
        self.root: dict[Any, Any] = {}

    def add(self, topic_filter: str) -> None:
        node = self.root
        for level in topic_filter.split("/"):
            node = node.setdefault(level, {})
        node[None] = topic_filter

    def match(self, topic: str) -> list[str]:
        levels = topic.split("/")
        found: list[str] = []
        self._walk(self.root, levels, 0, found, reserved=topic.startswith("$"))
        return found

    def _walk(
        self, node: dict[Any, Any], levels: list[str], at: int, found: list[str], *, reserved: bool
    ) -> None:
        wildcards = not (reserved and at == 0)
        if wildcards and "#" in node:
            found.append(node["#"][None])
        if at == len(levels):
            if None in node:
                found.append(node[None])
            return
        if levels[at] in node:
            self._walk(node[levels[at]], levels, at + 1, found, reserved=reserved)
        if wildcards and "+" in node:
            self._walk(node["+"], levels, at + 1, found, reserved=reserved)


def random_levels(rng: np.random.Generator, count: int) -> tuple[Iterator[bytes], list[bytes]]:
    workload = Workload(levels=6, wildcard_only=False)
    return iter(filters(rng, workload, count)), list(topics(rng, MATCHES, 6))


def plant(rng: np.random.Generator, count: int) -> tuple[Iterator[bytes], list[bytes]]:
    """Return filters and topics like site/line/machine/sensor, with or without wildcards."""

    def draw(wildcards: bool) -> bytes:
        site, line, sensor = rng.integers(200), rng.integers(50), rng.integers(20)
        machine = rng.integers(max(count // 5_000, 1))
        levels = [f"site{site}", f"line{line}", f"machine{machine}", f"sensor{sensor}"]
        if wildcards and rng.random() < 0.2:
            levels[rng.integers(4)] = "+"
        if wildcards and rng.random() < 0.05:
            levels[3] = "#"
        return "/".join(levels).encode()

    return (draw(True) for _ in range(count)), [draw(False) for _ in range(MATCHES)]


def microseconds(match: Callable[[Any], object], published: list[Any]) -> float:
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for topic in published:
            match(topic)
        rounds.append(time.perf_counter() - started)
    return statistics.median(rounds) / len(published) * 1e6


def measure(name: str, workload: Callable[..., tuple[Iterator[bytes], list[bytes]]]) -> None:
    rows = []
    for count in COUNTS:
        rng = np.random.default_rng(count)
        subscribed, published = workload(rng, count)
        trie = FilterTrie[int]()
        text = 0
        started = time.perf_counter()
        for number, topic_filter in enumerate(subscribed):
            trie[topic_filter] = number
            text += len(topic_filter)
        adding = time.perf_counter() - started
        found = sum(len(trie.match(topic)) for topic in published)
        ours = microseconds(trie.match, published)
        theirs, against = "-", "-"
        if count <= PEER_MAX:
            peer = DictTrie()
            subscribed, published = workload(np.random.default_rng(count), count)
            for topic_filter in subscribed:
                peer.add(topic_filter.decode())
            texts = [topic.decode() for topic in published]
            assert found == sum(len(peer.match(topic)) for topic in texts)
            peer_time = microseconds(peer.match, texts)
            theirs, against = f"{peer_time:.1f}", f"{peer_time / ours:.2f}"
        rows.append(
            [
                f"{count:,}",
                f"{len(trie):,}",
                f"{text / count:.0f}",
                f"{trie.nbytes / len(trie):.0f}",
                f"{trie.nbytes / 1e6:.0f}",
                f"{adding / count * 1e6:.1f}",
                f"{found / len(published):.2f}",
                f"{ours:.1f}",
                theirs,
                against,
            ]
        )
    table(
        f"{name}: medians of {ROUNDS} rounds of {MATCHES:,} matches",
        [
            "filters",
            "distinct",
            "text B",
            "B/filter",
            "MB",
            "µs/add",
            "matches",
            "µs/match",
            "dicts µs",
            "dicts / ours",
        ],
        rows,
    )


if __name__ == "__main__":
    measure("Six random levels, half with wildcards", random_levels)
    measure("Sites, lines, machines, sensors", plant)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory of the whole process: {peak:,.0f} MB", file=sys.stdout)
