"""Brokers and matchers under a seeded clock: every publication reaches its boxes, once, in order.

A failing seed is in the test's name, and replays: `pytest "test_matcher_node.py::...[17]"`.
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
from dovetail.sim.broker_node import Published, Subscribed
from dovetail.sim.matcher_node import Costs
from dovetail.sim.matching_world import MatchingWorld

LAYOUT = Layout("s", (Bounds(0, 1_000),) * 4, (0, 1, 2, 3))
STALL_SECONDS_MAX = 2.0
"""From a publication to its verdict, whatever happens."""

SETTLE_SECONDS = 25.0
"""Until gossip has found out, feeds are complete, and nobody is passed over any more."""


def a_world(seed: int, brokers: int, matchers: int, layout: Layout = LAYOUT) -> MatchingWorld:
    random = Random(seed)
    world = MatchingWorld(
        seed,
        layout,
        policy=POLICIES[random.choice(sorted(POLICIES))],
        costs=Costs(1e-4, random.choice([1e-6, 1e-3]), random.choice([1e-10, 1e-7])),
    )
    for number in range(brokers):
        world.start_broker(f"broker-{number}")
    for number in range(matchers):
        world.start_matcher(f"matcher-{number:02d}")
    return world


def subscribe(world: MatchingWorld, count: int, random: Random) -> None:
    lows, highs = workload.boxes(
        count, random.randrange(1 << 30), open_share=random.choice([0.0, 0.3])
    )
    # No wide ones: their brokers would be asked about nothing.
    kinds = world.layout.kinds(lows, highs)
    keep = np.flatnonzero(kinds)
    if len(keep):
        broker = random.choice(running_brokers(world))
        world.subscribe(broker, lows[keep], highs[keep])


def running_brokers(world: MatchingWorld) -> list[str]:
    return [name for name, node in world.brokers.items() if node.is_running]


def publish(world: MatchingWorld, random: Random) -> list[Published]:
    broker = random.choice(running_brokers(world))
    points = workload.points(random.randrange(1, 6), random.randrange(1 << 30))
    return world.brokers[broker].publish(f"{broker}/{random.randrange(3)}", points.tolist())


def has(box: Subscribed, published: Published) -> bool:
    return all(
        low <= value < high or (low == -math.inf and high == math.inf)
        for low, high, value in zip(box.lows, box.highs, published.values, strict=True)
    )


def check(world: MatchingWorld, lost: set[int], story: object = None) -> None:
    """Whatever every broker knew of when it was published, and nothing twice."""
    delivered = Counter((id(one.published), id(one.subscribed)) for one in world.delivered)
    assert max(delivered.values(), default=1) == 1, story
    for one in world.published:
        if one.number in lost:
            continue
        assert one.released_at is not None, (one.number, story)
        assert one.released_at - one.at <= STALL_SECONDS_MAX, (one.number, story)
    lows = np.array([box.lows for box in world.subscribed])
    highs = np.array([box.highs for box in world.subscribed])
    for one in world.published:
        for place in np.flatnonzero(world.is_inside(lows, highs, one.values)).tolist():
            box = world.subscribed[place]
            if one.number not in lost and is_due(box, one):
                assert delivered[id(one), id(box)] == 1, (one.number, one.at, box.broker, story)
    for delivery in world.delivered:
        assert has(delivery.subscribed, delivery.published)
    check_order(world, story)


def is_due(box: Subscribed, one: Published) -> bool:
    """Its client had its SUBACK, and has not unsubscribed since."""
    is_known = box.known_at is not None and one.at > box.known_at
    is_left = box.ended_at is not None and box.ended_at <= one.at + STALL_SECONDS_MAX + 1
    return is_known and not is_left


def check_order(world: MatchingWorld, story: object) -> None:
    """Of one publisher, in one life of its broker, to one box."""
    last: dict[tuple[str, int, int], int] = {}
    for published, subscribed in world.delivered:
        key = (published.origin, published.life, id(subscribed))
        assert last.get(key, -1) < published.number, (key, published.number, story)
        last[key] = published.number


class Havoc:
    """Random things that happen to a world."""

    def __init__(self, world: MatchingWorld, random: Random) -> None:
        self.world = world
        self.random = random
        self.story: list[str] = []
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
        self.story.append(f"{self.world.clock.now:.2f}: {deed.__name__}")
        deed()

    def matchers(self) -> list[str]:
        return [name for name, node in self.world.matchers.items() if node.is_running]

    def join(self) -> None:
        self.count += 1
        self.world.start_matcher(f"matcher-{self.count}")

    def leave(self) -> None:
        for name in self.random.sample(self.matchers(), min(1, len(self.matchers()))):
            self.world.matchers[name].leave()

    def crash(self) -> None:
        for name in self.random.sample(self.matchers(), min(1, len(self.matchers()))):
            self.world.matchers[name].crash()

    def stall(self) -> None:
        for name in self.random.sample(self.matchers(), min(1, len(self.matchers()))):
            self.world.matchers[name].stall(self.random.choice([0.1, 0.5, 3.0, 15.0]))

    def break_link(self) -> None:
        pairs = [
            (dialer, acceptor)
            for dialer, acceptor in self.world.links.pairs()
            if acceptor in self.world.matchers
        ]
        for pair in self.random.sample(pairs, min(3, len(pairs))):
            self.world.links.break_(*pair)

    def plan(self) -> None:
        if not self.world.layout.is_copied:
            move(self.world, self.random)

    def restart_broker(self) -> None:
        name = self.random.choice(list(self.world.brokers))
        node = self.world.brokers[name]
        if node.is_running:
            node.crash()
            life = node.front.life
            self.lost |= {
                one.number
                for one in self.world.published
                if one.origin.startswith(name) and one.life == life and one.released_at is None
            }
            self.world.clock.after(self.random.uniform(0.01, 5), self.world.start_broker, name)

    def cut_off(self) -> None:
        some = [name for name in self.matchers() if self.random.random() < 0.4]
        self.world.cut_off(some)

    def heal(self) -> None:
        self.world.heal()

    def unsubscribe(self) -> None:
        there = [
            box
            for box in self.world.subscribed
            if box.ended_at is None and self.world.brokers[box.broker].is_running
        ]
        for box in self.random.sample(there, min(3, len(there))):
            self.world.brokers[box.broker].unsubscribe(box)


def places(world: MatchingWorld, count: int, random: Random) -> list[Tokens]:
    """Borders anywhere, and who has which on one dimension does not say which on another."""
    columns = []
    for low, high in world.layout.bounds:
        borders = [low, *(random.uniform(low, high) for _ in range(count - 1))]
        random.shuffle(borders)
        columns.append(borders)
    return [tuple(place) for place in zip(*columns, strict=True)]


def move(world: MatchingWorld, random: Random) -> dict[str, Tokens]:
    """All who serve are given other places, and hear of it one after the other."""
    there = {
        name: node.back.joining.record.tokens[world.space]
        for name, node in world.matchers.items()
        if node.is_serving and node.back.joining is not None
    }
    new = assigned(there, places(world, len(there), random), world.layout.bounds)
    number = 1_000 + int(world.clock.now * 1_000)
    order = MoveOrder(number, {name: {world.space: own} for name, own in new.items()})
    for name in there:
        world.clock.after(random.uniform(0, 0.2), world.matchers[name].move, order)
    return new


def some_layout(random: Random) -> Layout:
    scheme = random.choice([Scheme.MPARTITION, Scheme.MPARTITION, Scheme.P2P, Scheme.FULL])
    if scheme is Scheme.MPARTITION:
        columns = random.choice([(0, 1, 2, 3), (1, 3), (2,)])
        return Layout("s", LAYOUT.dimensions, columns, scheme)
    return Layout("s", LAYOUT.dimensions, (0,), scheme, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_every_publication_reaches_its_boxes_once(seed: int) -> None:
    random = Random(seed)
    world = a_world(seed, random.randrange(1, 4), random.randrange(0, 9), some_layout(random))
    havoc = Havoc(world, random)
    for _ in range(5):
        subscribe(world, random.randrange(1, 60), random)
    world.run(random.choice([0, 12, 12]))
    for _ in range(random.randrange(15)):
        havoc.strike()
        for _ in range(20):
            world.run(random.choice([0.01, 0.1]))
            if running_brokers(world):
                publish(world, random)
                if random.random() < 0.1:
                    subscribe(world, random.randrange(1, 4), random)
    world.heal()
    world.run(SETTLE_SECONDS)
    # Now that it is quiet, matchers answer for everything.
    quiet = [one for _ in range(20) for one in publish(world, random)]
    world.run(STALL_SECONDS_MAX)
    story = (f"seed {seed}", havoc.story)
    check(world, havoc.lost, story)
    are_there = any(node.is_serving for node in world.matchers.values())
    for one in quiet if are_there else ():
        assert one.broad == 0, (one.number, story)


def flow(world: MatchingWorld, random: Random, seconds: float) -> list[Published]:
    """Publications, some at a time."""
    found = []
    until = world.clock.now + seconds
    while world.clock.now < until:
        world.run(0.05)
        found += publish(world, random)
    return found


def test_matchers_come_and_go_and_nobody_else_has_to_look() -> None:
    """Joins and goodbyes, while publications flow: at no time is a matcher unsure."""
    random = Random(5)
    world = MatchingWorld(5, LAYOUT)
    for number in range(2):
        world.start_broker(f"broker-{number}")
    for number in range(4):
        world.start_matcher(f"matcher-{number}")
    lows, highs = workload.boxes(1_000, 1)
    for number in range(2):
        world.subscribe(f"broker-{number}", lows[number::2], highs[number::2])
    world.run(15)
    assert sum(node.is_serving for node in world.matchers.values()) == 4
    flowing = flow(world, random, 2)
    world.start_matcher("matcher-new")
    flowing += flow(world, random, 8)
    assert world.matchers["matcher-new"].is_serving
    assert world.matchers["matcher-new"].points > 0
    world.matchers["matcher-2"].leave()
    flowing += flow(world, random, 10)
    assert not world.matchers["matcher-2"].is_running
    world.run(2)
    assert [one.number for one in flowing if one.broad] == []
    check(world, set())


@pytest.mark.parametrize("seed", range(2))
def test_segments_move_and_nobody_else_has_to_look(seed: int) -> None:
    """While publications flow and boxes come, by two plans: at no time is a matcher unsure."""
    random = Random(seed)
    world = MatchingWorld(seed, LAYOUT)
    for number in range(2):
        world.start_broker(f"broker-{number}")
    for number in range(5):
        world.start_matcher(f"matcher-{number}")
    lows, highs = workload.boxes(1_000, seed)
    for number in range(2):
        world.subscribe(f"broker-{number}", lows[number::2], highs[number::2])
    world.run(15)
    flowing = flow(world, random, 1)
    for _ in range(2):
        planned = move(world, random)
        flowing += flow(world, random, 2)
        world.subscribe("broker-0", *workload.boxes(20, random.randrange(1_000)))
        flowing += flow(world, random, 6)
        views = [broker.front.view for broker in world.brokers.values()]
        views += [matcher.back.view for matcher in world.matchers.values()]
        for view in views:
            assert view.now(world.space).table.tokens == planned
            assert view.next(world.space).table.tokens == planned
    world.run(STALL_SECONDS_MAX)
    assert [one.number for one in flowing if one.broad] == []
    check(world, set())


def test_one_crashes_while_they_move() -> None:
    """The others do not wait for it, and get to their places."""
    random = Random(3)
    world = MatchingWorld(3, LAYOUT)
    world.start_broker("broker-0")
    world.start_broker("broker-1")
    for number in range(4):
        world.start_matcher(f"matcher-{number}")
    world.subscribe("broker-0", *workload.boxes(300, 3))
    world.run(15)
    planned = move(world, random)
    flow(world, random, 0.3)
    world.matchers["matcher-1"].crash()
    flow(world, random, SETTLE_SECONDS)
    del planned["matcher-1"]
    assert world.brokers["broker-1"].front.view.now(world.space).table.tokens == planned
    quiet = flow(world, random, 1)
    world.run(STALL_SECONDS_MAX)
    assert [one.number for one in quiet if one.broad] == []
    check(world, set())


def test_twenty_matchers_of_which_one_crashes() -> None:
    random = Random(6)
    world = MatchingWorld(6, LAYOUT)
    for number in range(2):
        world.start_broker(f"broker-{number}")
    for number in range(20):
        world.start_matcher(f"matcher-{number:02d}")
    lows, highs = workload.boxes(2_000, 2)
    for number in range(2):
        world.subscribe(f"broker-{number}", lows[number::2], highs[number::2])
    world.run(15)
    assert all(node.is_serving for node in world.matchers.values())
    before = flow(world, random, 2)
    assert [one.number for one in before if one.broad] == []
    busiest = max(world.matchers.values(), key=lambda node: node.points)
    busiest.crash()
    flow(world, random, 2)
    world.run(SETTLE_SECONDS / 2)
    after = flow(world, random, 1)
    world.run(STALL_SECONDS_MAX)
    assert [one.number for one in after if one.broad] == []
    check(world, set())


def test_a_seed_replays() -> None:
    def story(seed: int) -> object:
        random = Random(seed)
        world = a_world(seed, 2, 3)
        subscribe(world, 30, random)
        world.run(5)
        havoc = Havoc(world, random)
        for _ in range(4):
            havoc.strike()
            if running_brokers(world):
                flow(world, random, 0.5)
        return havoc.story, [(one.number, one.broad, one.released_at) for one in world.published]

    assert story(11) == story(11)
    assert story(11) != story(12)
