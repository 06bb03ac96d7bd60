"""Gossip on a seeded network: all nodes agree soon after the last fault.

A failing seed is in the test's name. To replay it: `pytest "test_gossip_cluster.py::...[17]"`.
"""

from random import Random

import pytest

from dovetail.cluster.gossip import Presence
from dovetail.sim.gossip_cluster import GossipCluster, LocalClock
from dovetail.sim.network import QUIET, NetworkConditions

AGREED_SECONDS_MAX = 20
"""Counted from the last fault."""


def names(count: int) -> list[str]:
    return [f"node-{number:02d}" for number in range(count)]


def make_cluster(seed: int, count: int, conditions: NetworkConditions) -> GossipCluster:
    """All are told of the first only, and start one after the other on clocks that differ.

    Nothing happens before the last has been let in: nobody else knows where it is.
    """
    cluster = GossipCluster(seed, conditions)
    for name in names(count):
        clock = LocalClock(cluster.random.uniform(-500, 500), cluster.random.uniform(0.97, 1.03))
        cluster.start(name, names(1), clock)
        cluster.nodes[name].gossip.put("address", name.encode())
        cluster.run(cluster.random.uniform(0, 0.3))
    while not all(node.gossip.live() for node in cluster.running):
        cluster.run(1)
    return cluster


class RandomFaults:
    """Random faults of a cluster."""

    def __init__(self, cluster: GossipCluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.history: list[str] = []

    def strike(self) -> None:
        deeds = [self.crash, self.restart, self.leave, self.cut, self.heal, self.pause, self.tell]
        deed = self.random.choice(deeds)
        deed()
        self.history.append(f"{self.cluster.clock.now:.1f}: {deed.__name__}")

    def random_name(self) -> str:
        return self.random.choice(list(self.cluster.nodes))

    def crash(self) -> None:
        if len(self.cluster.running) > 2:
            self.cluster.crash(self.random_name())

    def leave(self) -> None:
        if len(self.cluster.running) > 2:
            name = self.random_name()
            if self.cluster.nodes[name].is_running:
                self.cluster.nodes[name].leave()

    def restart(self) -> None:
        """Under its old name, knowing everybody's address; maybe with a clock that went back."""
        name = self.random_name()
        if self.cluster.nodes[name].is_running:
            self.cluster.crash(name)
        clock = self.cluster.clocks[name]
        clock.offset_seconds += self.random.choice([0.0, 0.0, 100.0, -400.0])
        self.cluster.start(name, list(self.cluster.nodes))
        self.cluster.nodes[name].gossip.put("address", name.encode())

    def cut(self) -> None:
        chosen = [name for name in self.cluster.nodes if self.random.random() < 0.5]
        self.cluster.network.cut(chosen)

    def heal(self) -> None:
        self.cluster.network.heal()

    def pause(self) -> None:
        node = self.cluster.nodes[self.random_name()]
        node.is_paused = not node.is_paused

    def tell(self) -> None:
        node = self.cluster.nodes[self.random_name()]
        if node.is_running:
            key = self.random.choice(["segments", "load", "sketch"])
            node.gossip.put(key, self.random.randbytes(self.random.randrange(200)))

    def end(self) -> None:
        self.cluster.network.heal()
        self.cluster.network.conditions = QUIET
        for node in self.cluster.nodes.values():
            node.is_paused = False


def seconds_until_agreed(cluster: GossipCluster) -> int:
    for second in range(AGREED_SECONDS_MAX):
        if not cluster.disagreements():
            return second
        cluster.run(1)
    return AGREED_SECONDS_MAX


@pytest.mark.parametrize("seed", range(100))
def test_all_nodes_agree_soon_after_the_last_fault(seed: int) -> None:
    random = Random(seed)
    conditions = NetworkConditions(
        (0.001, random.choice([0.002, 0.3])), random.uniform(0, 0.3), 0.1
    )
    cluster = make_cluster(seed, random.randrange(2, 13), conditions)
    faults = RandomFaults(cluster, random)
    for _ in range(random.randrange(20)):
        faults.strike()
        cluster.run(random.uniform(0, 8))
    faults.end()
    cluster.run(5)  # who was silent until now may still be given up for it
    assert seconds_until_agreed(cluster) < AGREED_SECONDS_MAX, (
        f"seed {seed}: {cluster.disagreements()[:5]}",
        faults.history,
    )
    # And it stays so: a quiet network has no suspects.
    for _ in range(20):
        cluster.run(1)
        assert not cluster.disagreements(), (f"seed {seed}", faults.history)


def test_a_hundred_nodes_with_a_fifth_of_messages_lost() -> None:
    cluster = make_cluster(7, 100, NetworkConditions((0.001, 0.1), loss=0.2))
    assert seconds_until_agreed(cluster) < AGREED_SECONDS_MAX
    for name in names(100)[10:15]:
        cluster.crash(name)
    cluster.start("node-12", ["node-03"])
    assert seconds_until_agreed(cluster) < AGREED_SECONDS_MAX, cluster.disagreements()[:5]


def test_a_node_that_leaves_is_gone_without_being_suspected() -> None:
    cluster = make_cluster(3, 8, QUIET)
    cluster.run(10)
    cluster.nodes["node-04"].leave()
    cluster.run(0.1)
    for node in cluster.running:
        assert node.gossip.presence("node-04") is Presence.LEFT
        assert [event.presence for event in node.events if event.name == "node-04"].count(
            Presence.DEAD
        ) == 0


def test_a_paused_node_does_not_suspect_the_others() -> None:
    cluster = make_cluster(4, 5, QUIET)
    cluster.run(20)
    sleeper = cluster.nodes["node-02"]
    sleeper.is_paused = True
    cluster.run(60)
    assert all(
        node.gossip.presence("node-02") is Presence.DEAD
        for node in cluster.running
        if node is not sleeper
    )
    sleeper.events.clear()
    sleeper.is_paused = False
    assert seconds_until_agreed(cluster) < 10
    assert all(event.presence is not Presence.DEAD for event in sleeper.events)


def test_dead_nodes_are_forgotten_and_old_records_do_not_revive_them() -> None:
    cluster = GossipCluster(5, NetworkConditions(loss=0.2), forget_seconds=30)
    for name in names(6):
        cluster.start(name, names(1))
        cluster.run(0.2)
    cluster.run(10)
    cluster.crash("node-05")
    cluster.run(120)
    for node in cluster.running:
        assert node.gossip.state("node-05") is None
        presences = [event.presence for event in node.events if event.name == "node-05"]
        assert presences[-2:] == [Presence.DEAD, None], presences
        assert presences.count(None) == 1
    cluster.start("node-05", ["node-00"])
    assert seconds_until_agreed(cluster) < AGREED_SECONDS_MAX


def test_a_seed_repeats_a_run() -> None:
    def history(seed: int) -> object:
        cluster = make_cluster(seed, 6, NetworkConditions((0.001, 0.2), 0.2, 0.1))
        faults = RandomFaults(cluster, Random(seed))
        for _ in range(10):
            faults.strike()
            cluster.run(3)
        return [(node.name, node.events) for node in cluster.nodes.values()], faults.history

    assert history(11) == history(11)
    assert history(11) != history(12)
