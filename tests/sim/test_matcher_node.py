"""Brokers and matchers on a virtual clock: every publication reaches its boxes, once, in order.

A failing seed is in the test's name, and can be replayed: `pytest "test_matcher_node.py::...[17]"`.
"""

import math
from collections import Counter
from random import Random

import numpy as np
import pytest

from dovetail.attributes.partition import Bounds, Tokens
from dovetail.attributes.policies import POLICIES
from dovetail.attributes.scheme import Scheme
from dovetail.matcher.layout import Layout
from dovetail.matcher.plan_assignment import assigned
from dovetail.matcher.relocation import MoveOrder
from dovetail.sim import workload
from dovetail.sim.broker_node import PublicationRecord, SubscribedBox
from dovetail.sim.matcher_node import MatchingCosts
from dovetail.sim.matching_cluster import MatchingCluster

LAYOUT = Layout("s", (Bounds(0, 1_000),) * 4, (0, 1, 2, 3))
STALL_SECONDS_MAX = 2.0
"""The time from a publication to its verdict, with any fault."""

SETTLE_SECONDS = 25.0
"""The time until gossip has spread, feeds are complete, and no matcher is avoided any more."""


def make_cluster(
    seed: int, brokers: int, matchers: int, layout: Layout = LAYOUT
) -> MatchingCluster:
    random = Random(seed)
    cluster = MatchingCluster(
        seed,
        layout,
        policy=POLICIES[random.choice(sorted(POLICIES))],
        costs=MatchingCosts(1e-4, random.choice([1e-6, 1e-3]), random.choice([1e-10, 1e-7])),
    )
    for number in range(brokers):
        cluster.start_broker(f"broker-{number}")
    for number in range(matchers):
        cluster.start_matcher(f"matcher-{number:02d}")
    return cluster


def subscribe(cluster: MatchingCluster, count: int, random: Random) -> None:
    lows, highs = workload.boxes(
        count, random.randrange(1 << 30), open_share=random.choice([0.0, 0.3])
    )
    # No wide boxes: matchers would not be asked about their brokers.
    kinds = cluster.layout.kinds(lows, highs)
    keep = np.flatnonzero(kinds)
    if len(keep):
        broker = random.choice(running_brokers(cluster))
        cluster.subscribe(broker, lows[keep], highs[keep])


def running_brokers(cluster: MatchingCluster) -> list[str]:
    return [name for name, node in cluster.brokers.items() if node.is_running]


def publish(cluster: MatchingCluster, random: Random) -> list[PublicationRecord]:
    broker = random.choice(running_brokers(cluster))
    points = workload.points(random.randrange(1, 6), random.randrange(1 << 30))
    return cluster.brokers[broker].publish(f"{broker}/{random.randrange(3)}", points.tolist())


def has(box: SubscribedBox, published: PublicationRecord) -> bool:
    return all(
        low <= value < high or (low == -math.inf and high == math.inf)
        for low, high, value in zip(box.lows, box.highs, published.values, strict=True)
    )


def check(cluster: MatchingCluster, lost: set[int], history: object = None) -> None:
    """Check that each box that all brokers knew got each publication once."""
    delivered = Counter((id(one.published), id(one.subscribed)) for one in cluster.delivered)
    assert max(delivered.values(), default=1) == 1, history
    for one in cluster.published:
        if one.number in lost:
            continue
        assert one.released_at is not None, (one.number, history)
        assert one.released_at - one.at <= STALL_SECONDS_MAX, (one.number, history)
    lows = np.array([box.lows for box in cluster.subscribed])
    highs = np.array([box.highs for box in cluster.subscribed])
    for one in cluster.published:
        for place in np.flatnonzero(cluster.is_inside(lows, highs, one.values)).tolist():
            box = cluster.subscribed[place]
            if one.number not in lost and is_due(box, one):
                assert delivered[id(one), id(box)] == 1, (one.number, one.at, box.broker, history)
    for delivery in cluster.delivered:
        assert has(delivery.subscribed, delivery.published)
    check_order(cluster, history)


def is_due(box: SubscribedBox, one: PublicationRecord) -> bool:
    """Return whether the client had its SUBACK and was still subscribed."""
    is_known = box.known_at is not None and one.at > box.known_at
    is_left = box.ended_at is not None and box.ended_at <= one.at + STALL_SECONDS_MAX + 1
    return is_known and not is_left


def check_order(cluster: MatchingCluster, history: object) -> None:
    """Check the order per publisher, incarnation of its broker, and box."""
    last: dict[tuple[str, int, int], int] = {}
    for published, subscribed in cluster.delivered:
        key = (published.origin, published.life, id(subscribed))
        assert last.get(key, -1) < published.number, (key, published.number, history)
        last[key] = published.number


class RandomFaults:
    """Random faults of a cluster."""

    def __init__(self, cluster: MatchingCluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.history: list[str] = []
        self.lost: set[int] = set()
        self.count = 100

    def strike(self) -> None:
        deeds = [
            self.join,
            self.leave,
            self.crash,
            self.stall,
            self.break_link,
            self.restart_broker,
            self.cut_off,
            self.heal,
            self.unsubscribe,
            self.plan,
        ]
        deed = self.random.choice(deeds)
        self.history.append(f"{self.cluster.clock.now:.2f}: {deed.__name__}")
        deed()

    def matchers(self) -> list[str]:
        return [name for name, node in self.cluster.matchers.items() if node.is_running]

    def join(self) -> None:
        self.count += 1
        self.cluster.start_matcher(f"matcher-{self.count}")

    def leave(self) -> None:
        for name in self.random.sample(self.matchers(), min(1, len(self.matchers()))):
            self.cluster.matchers[name].leave()

    def crash(self) -> None:
        for name in self.random.sample(self.matchers(), min(1, len(self.matchers()))):
            self.cluster.matchers[name].crash()

    def stall(self) -> None:
        for name in self.random.sample(self.matchers(), min(1, len(self.matchers()))):
            self.cluster.matchers[name].stall(self.random.choice([0.1, 0.5, 3.0, 15.0]))

    def break_link(self) -> None:
        pairs = [
            (dialer, acceptor)
            for dialer, acceptor in self.cluster.connections.pairs()
            if acceptor in self.cluster.matchers
        ]
        for pair in self.random.sample(pairs, min(3, len(pairs))):
            self.cluster.connections.break_(*pair)

    def plan(self) -> None:
        if not self.cluster.layout.is_copied:
            move(self.cluster, self.random)

    def restart_broker(self) -> None:
        name = self.random.choice(list(self.cluster.brokers))
        node = self.cluster.brokers[name]
        if node.is_running:
            node.crash()
            life = node.side.life
            self.lost |= {
                one.number
                for one in self.cluster.published
                if one.origin.startswith(name) and one.life == life and one.released_at is None
            }
            self.cluster.clock.after(self.random.uniform(0.01, 5), self.cluster.start_broker, name)

    def cut_off(self) -> None:
        some = [name for name in self.matchers() if self.random.random() < 0.4]
        self.cluster.cut_off(some)

    def heal(self) -> None:
        self.cluster.heal()

    def unsubscribe(self) -> None:
        there = [
            box
            for box in self.cluster.subscribed
            if box.ended_at is None and self.cluster.brokers[box.broker].is_running
        ]
        for box in self.random.sample(there, min(3, len(there))):
            self.cluster.brokers[box.broker].unsubscribe(box)


def random_segments(cluster: MatchingCluster, count: int, random: Random) -> list[Tokens]:
    """Draw segment borders and owners, independently for each dimension."""
    columns = []
    for low, high in cluster.layout.bounds:
        borders = [low, *(random.uniform(low, high) for _ in range(count - 1))]
        random.shuffle(borders)
        columns.append(borders)
    return [tuple(place) for place in zip(*columns, strict=True)]


def move(cluster: MatchingCluster, random: Random) -> dict[str, Tokens]:
    """Order all serving matchers to move, one after the other."""
    there = {
        name: node.side.lifecycle.record.tokens[cluster.space]
        for name, node in cluster.matchers.items()
        if node.is_serving and node.side.lifecycle is not None
    }
    new = assigned(there, random_segments(cluster, len(there), random), cluster.layout.bounds)
    number = 1_000 + int(cluster.clock.now * 1_000)
    order = MoveOrder(number, {name: {cluster.space: own} for name, own in new.items()})
    for name in there:
        cluster.clock.after(random.uniform(0, 0.2), cluster.matchers[name].move, order)
    return new


def random_layout(random: Random) -> Layout:
    scheme = random.choice([Scheme.MPARTITION, Scheme.MPARTITION, Scheme.P2P, Scheme.FULL])
    if scheme is Scheme.MPARTITION:
        columns = random.choice([(0, 1, 2, 3), (1, 3), (2,)])
        return Layout("s", LAYOUT.dimensions, columns, scheme)
    return Layout("s", LAYOUT.dimensions, (0,), scheme, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_every_publication_reaches_its_boxes_once(seed: int) -> None:
    random = Random(seed)
    cluster = make_cluster(
        seed, random.randrange(1, 4), random.randrange(0, 9), random_layout(random)
    )
    faults = RandomFaults(cluster, random)
    for _ in range(5):
        subscribe(cluster, random.randrange(1, 60), random)
    cluster.run(random.choice([0, 12, 12]))
    for _ in range(random.randrange(15)):
        faults.strike()
        for _ in range(20):
            cluster.run(random.choice([0.01, 0.1]))
            if running_brokers(cluster):
                publish(cluster, random)
                if random.random() < 0.1:
                    subscribe(cluster, random.randrange(1, 4), random)
    cluster.heal()
    cluster.run(SETTLE_SECONDS)
    # Without faults, matchers answer for everything.
    quiet = [one for _ in range(20) for one in publish(cluster, random)]
    cluster.run(STALL_SECONDS_MAX)
    history = (f"seed {seed}", faults.history)
    check(cluster, faults.lost, history)
    are_there = any(node.is_serving for node in cluster.matchers.values())
    for one in quiet if are_there else ():
        assert one.unsure == 0, (one.number, history)


def publish_for(
    cluster: MatchingCluster, random: Random, seconds: float
) -> list[PublicationRecord]:
    """Publish in small batches for `seconds`."""
    found = []
    until = cluster.clock.now + seconds
    while cluster.clock.now < until:
        cluster.run(0.05)
        found += publish(cluster, random)
    return found


def test_matchers_are_never_unsure_while_others_join_and_leave() -> None:
    """Matchers join and leave while publications flow."""
    random = Random(5)
    cluster = MatchingCluster(5, LAYOUT)
    for number in range(2):
        cluster.start_broker(f"broker-{number}")
    for number in range(4):
        cluster.start_matcher(f"matcher-{number}")
    lows, highs = workload.boxes(1_000, 1)
    for number in range(2):
        cluster.subscribe(f"broker-{number}", lows[number::2], highs[number::2])
    cluster.run(15)
    assert sum(node.is_serving for node in cluster.matchers.values()) == 4
    flowing = publish_for(cluster, random, 2)
    cluster.start_matcher("matcher-new")
    flowing += publish_for(cluster, random, 8)
    assert cluster.matchers["matcher-new"].is_serving
    assert cluster.matchers["matcher-new"].points > 0
    cluster.matchers["matcher-2"].leave()
    flowing += publish_for(cluster, random, 10)
    assert not cluster.matchers["matcher-2"].is_running
    cluster.run(2)
    assert [one.number for one in flowing if one.unsure] == []
    check(cluster, set())


@pytest.mark.parametrize("seed", range(2))
def test_matchers_are_never_unsure_while_segments_move(seed: int) -> None:
    """Two plans move segments while publications flow and boxes are added."""
    random = Random(seed)
    cluster = MatchingCluster(seed, LAYOUT)
    for number in range(2):
        cluster.start_broker(f"broker-{number}")
    for number in range(5):
        cluster.start_matcher(f"matcher-{number}")
    lows, highs = workload.boxes(1_000, seed)
    for number in range(2):
        cluster.subscribe(f"broker-{number}", lows[number::2], highs[number::2])
    cluster.run(15)
    flowing = publish_for(cluster, random, 1)
    for _ in range(2):
        planned = move(cluster, random)
        flowing += publish_for(cluster, random, 2)
        cluster.subscribe("broker-0", *workload.boxes(20, random.randrange(1_000)))
        flowing += publish_for(cluster, random, 6)
        views = [broker.side.directory for broker in cluster.brokers.values()]
        views += [matcher.side.directory for matcher in cluster.matchers.values()]
        for directory in views:
            assert directory.now(cluster.space).table.tokens == planned
            assert directory.next(cluster.space).table.tokens == planned
    cluster.run(STALL_SECONDS_MAX)
    assert [one.number for one in flowing if one.unsure] == []
    check(cluster, set())


def test_a_matcher_crashes_while_segments_move() -> None:
    """The others do not wait for it, and complete their moves."""
    random = Random(3)
    cluster = MatchingCluster(3, LAYOUT)
    cluster.start_broker("broker-0")
    cluster.start_broker("broker-1")
    for number in range(4):
        cluster.start_matcher(f"matcher-{number}")
    cluster.subscribe("broker-0", *workload.boxes(300, 3))
    cluster.run(15)
    planned = move(cluster, random)
    publish_for(cluster, random, 0.3)
    cluster.matchers["matcher-1"].crash()
    publish_for(cluster, random, SETTLE_SECONDS)
    del planned["matcher-1"]
    assert cluster.brokers["broker-1"].side.directory.now(cluster.space).table.tokens == planned
    quiet = publish_for(cluster, random, 1)
    cluster.run(STALL_SECONDS_MAX)
    assert [one.number for one in quiet if one.unsure] == []
    check(cluster, set())


def test_one_of_twenty_matchers_crashes() -> None:
    random = Random(6)
    cluster = MatchingCluster(6, LAYOUT)
    for number in range(2):
        cluster.start_broker(f"broker-{number}")
    for number in range(20):
        cluster.start_matcher(f"matcher-{number:02d}")
    lows, highs = workload.boxes(2_000, 2)
    for number in range(2):
        cluster.subscribe(f"broker-{number}", lows[number::2], highs[number::2])
    cluster.run(15)
    assert all(node.is_serving for node in cluster.matchers.values())
    before = publish_for(cluster, random, 2)
    assert [one.number for one in before if one.unsure] == []
    busiest = max(cluster.matchers.values(), key=lambda node: node.points)
    busiest.crash()
    publish_for(cluster, random, 2)
    cluster.run(SETTLE_SECONDS / 2)
    after = publish_for(cluster, random, 1)
    cluster.run(STALL_SECONDS_MAX)
    assert [one.number for one in after if one.unsure] == []
    check(cluster, set())


def test_a_seed_repeats_a_run() -> None:
    def history(seed: int) -> object:
        random = Random(seed)
        cluster = make_cluster(seed, 2, 3)
        subscribe(cluster, 30, random)
        cluster.run(5)
        faults = RandomFaults(cluster, random)
        for _ in range(4):
            faults.strike()
            if running_brokers(cluster):
                publish_for(cluster, random, 0.5)
        return faults.history, [
            (one.number, one.unsure, one.released_at) for one in cluster.published
        ]

    assert history(11) == history(11)
    assert history(11) != history(12)
