"""Clients at all brokers of a simulated cluster, and things that happen to these."""

from collections.abc import Callable, Sequence
from random import Random

from dovetail.attributes.space import Space
from support.clusters.clients import Receiver, Sender
from support.clusters.world import Cluster

NAMES = ("a", "b", "c")


class Drama:
    """Clients at all brokers, and things that happen to these."""

    spaces: Sequence[Space] = ()
    sender = Sender

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

    def make_cluster(self, seed: int) -> Cluster:
        return Cluster(seed, *NAMES, spaces=self.spaces)

    def make_receivers(self) -> Sequence[Receiver]:
        return [
            Receiver(self.cluster, home, f"receiver-{home}-{qos}", topic_filter, qos)
            for home in NAMES
            for qos, topic_filter in ((1, "t/#"), (2, "t/+/x"))
        ]

    @property
    def clients(self) -> list[Receiver | Sender]:
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
        deeds: dict[str, Callable[[], object]] = {
            "kill": lambda: cluster.kill(name) if node.is_running else cluster.start(name),
            "pause": lambda: cluster.pause(name, not node.is_paused),
            "cut": lambda: cluster.cut(name),
            "heal": cluster.heal,
            "drop": lambda: cluster.drop(name),
            "lose": lambda: random.choice(self.clients).lose(),
        }
        deed = random.choice(list(deeds))
        deeds[deed]()
        self.story.append(f"{cluster.clock.now:.2f}: {deed} {name}")

    def is_ready(self) -> bool:
        """For something to happen?"""
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
            node.mesh.owed(peer).count == 0
            for node in self.cluster.nodes.values()
            for peer in NAMES
            if peer != node.name
        )

    def play(self, strikes: int) -> None:
        """From the first subscription until all is quiet, or should be."""
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
