"""A cluster of nodes that do nothing but gossip, on a virtual clock and a seeded network. Pure.

Each node has its own clock, which is off by some seconds and runs a little fast or slow. An
incarnation is the node's start time on that clock. A node whose clock went back learns that by
gossip.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from dovetail.cluster.gossip import Gossip, PresenceEvent, decode, encode
from dovetail.sim.clock import Clock
from dovetail.sim.network import Network, NetworkConditions


@dataclass
class LocalClock:
    """The clock of one node: offset and rate against the virtual clock."""

    offset_seconds: float = 0.0
    rate: float = 1.0

    def read(self, now: float) -> float:
        return self.offset_seconds + now * self.rate


class GossipNode:
    """One incarnation of a node. `contacts`: the nodes whose addresses it knows at its start."""

    def __init__(self, cluster: "GossipCluster", name: str, contacts: Iterable[str]) -> None:
        self.name = name
        self.is_running = True
        self.is_paused = False
        self.events: list[PresenceEvent] = []
        self._cluster = cluster
        self._contacts = [other for other in contacts if other != name]
        incarnation = round(self.now * 1_000) + 1_000_000_000
        self.gossip = Gossip(
            name,
            incarnation,
            self.now,
            Random(cluster.random.random()),
            forget_seconds=cluster.forget_seconds,
        )
        cluster.network.attach(name, self._receive)
        # No two nodes start at the same moment.
        cluster.clock.after(cluster.random.random() * self.gossip.interval_seconds, self._tick)

    @property
    def now(self) -> float:
        return self._cluster.clocks[self.name].read(self._cluster.clock.now)

    @property
    def live(self) -> set[str]:
        return {self.name, *self.gossip.live()}

    def _tick(self) -> None:
        if not self.is_running:
            return
        if not self.is_paused:
            if not self.gossip.live():
                self._introduce_contacts()
            for receiver, message in self.gossip.tick(self.now):
                self._cluster.network.send(self.name, receiver, encode(message))
            self.events += self.gossip.take_events()
        rate = self._cluster.clocks[self.name].rate
        self._cluster.clock.after(self.gossip.interval_seconds / rate, self._tick)

    def _introduce_contacts(self) -> None:
        """Stand in for the transport: a new connection names the node at its other end."""
        cluster = self._cluster
        for other in self._contacts:
            node = cluster.nodes.get(other)
            if node is None or not node.is_running or node.is_paused:
                continue
            if cluster.network.is_open(self.name, other):
                self.gossip.introduce(other, node.gossip.table.own.incarnation, self.now)
                node.gossip.introduce(self.name, self.gossip.table.own.incarnation, node.now)

    def _receive(self, sender: str, data: bytes) -> None:
        if self.is_paused:
            return
        answer = self.gossip.receive(decode(data), self.now)
        self.events += self.gossip.take_events()
        if answer is not None:
            self._cluster.network.send(self.name, sender, encode(answer))

    def leave(self) -> None:
        for receiver, message in self.gossip.leave():
            self._cluster.network.send(self.name, receiver, encode(message))
        self.stop()

    def stop(self) -> None:
        self.is_running = False
        self._cluster.network.detach(self.name)


class GossipCluster:
    """Nodes by name. Tests start, stop and crash them."""

    def __init__(
        self,
        seed: int,
        conditions: NetworkConditions | None = None,
        *,
        forget_seconds: float = 3_600.0,
    ) -> None:
        self.random = Random(seed)
        self.clock = Clock()
        self.network = Network(
            self.clock, Random(self.random.random()), conditions or NetworkConditions()
        )
        self.clocks: dict[str, LocalClock] = {}
        self.nodes: dict[str, GossipNode] = {}
        self.forget_seconds = forget_seconds

    def start(
        self, name: str, contacts: Iterable[str] = (), clock: LocalClock | None = None
    ) -> None:
        """Start a node, or restart it after a crash."""
        if clock is not None or name not in self.clocks:
            self.clocks[name] = clock or LocalClock()
        self.nodes[name] = GossipNode(self, name, contacts)

    def crash(self, name: str) -> None:
        self.nodes[name].stop()

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    @property
    def running(self) -> list[GossipNode]:
        return [node for node in self.nodes.values() if node.is_running]

    def disagreements(self) -> list[str]:
        """List the nodes whose view differs from the truth."""
        there = {node.name for node in self.running}
        found = []
        for node in self.running:
            if node.live != there:
                found.append(f"{node.name} has {sorted(node.live ^ there)} wrong")
            for other in self.running:
                known = node.gossip.state(other.name)
                own = other.gossip.table.own
                if (
                    known is None
                    or known.incarnation != own.incarnation
                    or known.records != own.records
                ):
                    found.append(f"{node.name} has an old record of {other.name}")
        return found
