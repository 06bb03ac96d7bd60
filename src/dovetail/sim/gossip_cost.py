"""The bytes that a node sends in gossip, by the size of the cluster. Pure.

Nodes gossip by the code of the service (gossip_cluster.py). A tenth are brokers; the others
announce a matcher's record of four tokens. In a quiet cluster only heartbeats change; in a busy one
the record of every matcher changes each second, because its load does. For clusters that are too
large to simulate, the cost is computed: a node talks to about log N others a second, and two nodes
exchange bytes in proportion to N, plus a constant. `LinearFit` is fitted to the simulated sizes.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dovetail.attributes.partition import Bounds, even_tokens
from dovetail.matcher.segment_tables import MATCHER, MatcherRecord, Phase, encode_record
from dovetail.sim import workload
from dovetail.sim.gossip_cluster import GossipCluster

MATCHERS_A_BROKER = 10
"""BlueDove IV-B."""
BROKERS_MIN = 2
SPACE = "s#0123456789abcdef"
"""A space identifier as long as on the wire."""


def brokers_of(matchers: int) -> int:
    return max(BROKERS_MIN, matchers // MATCHERS_A_BROKER)


def gossip_partners(nodes: int) -> int:
    """Return how many others a node asks each second (`Gossip._draw`)."""
    return max(1, round(math.log(nodes)))


def records_of(matchers: int, load: float = 0.5) -> dict[str, bytes]:
    """Return the encoded records of matchers with even segments."""
    names = [f"matcher-{number:03d}" for number in range(matchers)]
    bounds = (Bounds(0.0, workload.LENGTH),) * workload.DIMENSIONS
    return {
        name: encode_record(MatcherRecord(Phase.SERVING, {SPACE: tokens}, load))
        for name, tokens in even_tokens(names, bounds).items()
    }


def gossip_bytes(matchers: int, seed: int, seconds: int, *, is_busy: bool) -> float:
    """Return the mean bytes per second that a matcher sends, once all nodes know each other."""
    cluster = GossipCluster(seed)
    records, brokers = records_of(matchers), brokers_of(matchers)
    contacts = [f"broker-{number}" for number in range(BROKERS_MIN)]
    for number in range(brokers):
        cluster.start(f"broker-{number}", contacts)
    for name, record in records.items():
        cluster.start(name, contacts)
        cluster.nodes[name].gossip.put(MATCHER, record)
    nodes = brokers + matchers
    while any(len(node.live) < nodes for node in cluster.running):
        cluster.run(1.0)
    cluster.run(2.0)
    before = sum(cluster.network.bytes_sent[name] for name in records)
    for second in range(seconds):
        if is_busy:
            for name, record in records_of(matchers, 0.5 + 0.1 * (second % 2 + 1)).items():
                cluster.nodes[name].gossip.put(MATCHER, record)
        cluster.run(1.0)
    sent = sum(cluster.network.bytes_sent[name] for name in records) - before
    return sent / matchers / seconds


class LinearFit(NamedTuple):
    """The bytes that two nodes exchange, as a linear function of the number of nodes."""

    constant_bytes: float
    bytes_per_node: float

    @classmethod
    def through(cls, found: Mapping[int, float]) -> "LinearFit":
        """Fit to bytes per second that a matcher sends, by number of matchers."""
        nodes = [matchers + brokers_of(matchers) for matchers in found]
        exchanged = [
            sent / gossip_partners(count) for count, sent in zip(nodes, found.values(), strict=True)
        ]
        bytes_per_node, constant_bytes = np.polyfit(nodes, exchanged, 1)
        return cls(float(constant_bytes), float(bytes_per_node))

    def bytes_sent(self, matchers: int) -> float:
        nodes = matchers + brokers_of(matchers)
        return gossip_partners(nodes) * (self.constant_bytes + self.bytes_per_node * nodes)
