"""A simulated cluster with clients at all brokers, and random faults."""

from collections.abc import Callable, Sequence
from random import Random

from dovetail.attributes.space import Space
from support.clusters.clients import PersistentReceiver, PersistentSender
from support.clusters.simulated_cluster import SimulatedCluster

NAMES = ("a", "b", "c")


class FaultScenario:
    """Clients at all brokers of a cluster, and random faults of brokers, links and clients."""

    spaces: Sequence[Space] = ()
    sender = PersistentSender

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = self.make_cluster(seed)
        self.receivers = self.make_receivers()
        self.senders = [
            self.sender(
                self.cluster, home, f"sender-{home}-{qos}", b"t/%s%d/x" % (home.encode(), qos), qos
            )
            for home in NAMES
            for qos in (1, 2)
        ]
        self.story: list[str] = []
        self._pump()

    def make_cluster(self, seed: int) -> SimulatedCluster:
        return SimulatedCluster(seed, *NAMES, spaces=self.spaces)

    def make_receivers(self) -> Sequence[PersistentReceiver]:
        return [
            PersistentReceiver(self.cluster, home, f"receiver-{home}-{qos}", topic_filter, qos)
            for home in NAMES
            for qos, topic_filter in ((1, "t/#"), (2, "t/+/x"))
        ]

    @property
    def clients(self) -> list[PersistentReceiver | PersistentSender]:
        return [*self.receivers, *self.senders]

    def _pump(self) -> None:
        for client in self.receivers:
            client.pump()
        if all(receiver.ready for receiver in self.receivers):
            for sender in self.senders:
                sender.pump()
        self.cluster.clock.after(0.02, self._pump)

    def strike(self) -> None:
        cluster, random = self.cluster, self.random
        name = random.choice(NAMES)
        node = cluster.nodes[name]
        faults: dict[str, Callable[[], object]] = {
            "kill": lambda: cluster.kill(name) if node.is_running else cluster.start(name),
            "pause": lambda: cluster.pause(name, not node.is_paused),
            "cut": lambda: cluster.cut(name),
            "heal": cluster.heal,
            "drop": lambda: cluster.drop(name),
            "lose": lambda: random.choice(self.clients).lose(),
        }
        fault = random.choice(list(faults))
        faults[fault]()
        self.story.append(f"{cluster.clock.now:.2f}: {fault} {name}")

    def is_ready(self) -> bool:
        """May faults begin?"""
        return all(receiver.ready for receiver in self.receivers)

    def end(self) -> None:
        for sender in self.senders:
            sender.is_sending = False
        self.cluster.heal()
        for name in NAMES:
            self.cluster.pause(name, False)
            if not self.cluster.nodes[name].is_running:
                self.cluster.start(name)

    def is_quiet(self) -> bool:
        return all(sender.is_done for sender in self.senders) and all(
            node.mesh.outbox(peer).count == 0
            for node in self.cluster.nodes.values()
            for peer in NAMES
            if peer != node.name
        )

    def play(self, strikes: int) -> None:
        """Run from the first subscription, through so many faults, until all is quiet."""
        self.cluster.run_until(self.is_ready, seconds_max=5)
        self.cluster.run(0.5)
        for _ in range(strikes):
            self.strike()
            self.cluster.run(self.random.uniform(0, 0.5))
        self.end()
        for _ in range(60):
            self.cluster.run(0.5)
            if self.is_quiet():
                break
        self.cluster.run(1)
