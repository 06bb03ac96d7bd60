"""What gossip costs a node, by how many there are. Pure.

Nodes gossip by the code of the service (gossip_cluster.py): a tenth are brokers, the others tell a
matcher's record of four tokens. In a quiet cluster only hearts beat; in a busy one the record of
every matcher changes each second, as its load does. Beyond the sizes that can be simulated it is
computed: a node talks to about log N others a second, and what goes to and fro between two is in
proportion to N, with something that is always there. `Line` is fitted to the simulated sizes.
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
"""As long as on the wire."""


def brokers_of(matchers: int) -> int:
    return max(BROKERS_MIN, matchers // MATCHERS_A_BROKER)


def others_asked(nodes: int) -> int:
    """By each node, each second (`Gossip._draw`)."""
    return max(1, round(math.log(nodes)))


def records_of(matchers: int, load: float = 0.5) -> dict[str, bytes]:
    """What matchers with even segments tell, encoded."""
    names = [f"matcher-{number:03d}" for number in range(matchers)]
    bounds = (Bounds(0.0, workload.LENGTH),) * workload.DIMENSIONS
    return {
        name: encode_record(MatcherRecord(Phase.SERVING, {SPACE: tokens}, load))
        for name, tokens in even_tokens(names, bounds).items()
    }


def gossip_bytes(matchers: int, seed: int, seconds: int, *, is_busy: bool) -> float:
    """That a matcher sends in a second, on average; after all have met."""
    cluster = GossipCluster(seed)
    records, brokers = records_of(matchers), brokers_of(matchers)
    met = [f"broker-{number}" for number in range(BROKERS_MIN)]
    for number in range(brokers):
        cluster.start(f"broker-{number}", met)
    for name, record in records.items():
        cluster.start(name, met)
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


class Line(NamedTuple):
    """Bytes that two nodes exchange, for the number of nodes."""

    always: float
    a_node: float

    @classmethod
    def through(cls, found: Mapping[int, float]) -> "Line":
        """By matchers, what one sends a second."""
        nodes = [matchers + brokers_of(matchers) for matchers in found]
        exchanged = [
            sent / others_asked(count) for count, sent in zip(nodes, found.values(), strict=True)
        ]
        a_node, always = np.polyfit(nodes, exchanged, 1)
        return cls(float(always), float(a_node))

    def bytes_sent(self, matchers: int) -> float:
        nodes = matchers + brokers_of(matchers)
        return others_asked(nodes) * (self.always + self.a_node * nodes)
