"""What happens to a whole cluster over minutes (BlueDove IV-C and IV-E): experiments. Pure.

Brokers and matchers are the machines of the service on the virtual clock (matching_world.py):
gossip, joins, feeds, questions, answers, and questions that are put again. Publications come
evenly.

    growth      the rate rises step by step; where matchers are too busy (autoscaler.py), one more
                is started, chooses its place and takes its boxes while publications flow
    crashes     one matcher after another falls silent, as a machine that loses power: nobody is
                told, connections do not break
    overhead    what matchers tell each other and the brokers when nothing changes

There are fewer boxes than in the paper, and each takes longer in proportion.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from dovetail.matcher.autoscaler import Bounds, Place, Scaling, Standing
from dovetail.matcher.matcher_messages import LOADS
from dovetail.sim.broker_node import BrokerNode, Published
from dovetail.sim.matcher_node import MatcherNode
from dovetail.sim.matching_world import MatchingWorld
from dovetail.sim.saturation import points_of
from dovetail.sim.systems import SYSTEMS, Setting

JOIN_SECONDS = 20.0
"""Until the first matchers have their places and boxes."""
SMOOTHED_SECONDS = 3
DROP = 0.1
"""A response time falls when its mean of so many seconds is so much below the highest one."""
FOR_EVER = 1e9
_MANY = 1 << 40


class Second(NamedTuple):
    """Of publications that came in it."""

    rate: float
    matchers: int
    """That serve."""
    response_seconds: float
    """Mean, until it is known who gets it."""
    late: float
    """Share that had to be asked about again, as the first who was asked did not answer."""


class Join(NamedTuple):
    """Seconds of the episode at which a new matcher was started, served, and was felt."""

    started: float
    serves: float
    falls: float
    """Infinite: never."""


@dataclass(frozen=True)
class Steps:
    """How the rate rises."""

    first_rate: float
    more: float
    seconds: int
    steps: int


class Growth(NamedTuple):
    seconds: list[Second]
    joins: list[Join]


class Crashes(NamedTuple):
    seconds: list[Second]
    at: list[float]
    lost: int
    """Deliveries that were due and never came."""
    doubled: int
    due: int


class Overhead(NamedTuple):
    """Bytes a second that a matcher sends."""

    gossip: float
    load_per_broker: float


class _Episode:
    """A world with even publications, looked at second by second."""

    def __init__(self, world: MatchingWorld, setting: Setting, seed: int) -> None:
        self.world = world
        self.setting = setting
        self._points = chain.from_iterable(some.tolist() for some in points_of(setting, seed))
        self.brokers: list[BrokerNode] = [
            world.start_broker(f"broker-{number}") for number in range(setting.brokers)
        ]
        for name, tokens in setting.placement(world.layout).table.tokens.items():
            world.start_matcher(name, tokens)
        lows, highs = setting.drawn_boxes(seed)
        for place, broker in enumerate(self.brokers):
            own = slice(place, None, setting.brokers)
            world.subscribe(broker.name, lows[own], highs[own])
        world.run(JOIN_SECONDS)
        assert self.serving == setting.matchers
        self.asked: list[tuple[float, int, list[Published]]] = []

    @property
    def serving(self) -> int:
        nodes = self.world.matchers.values()
        return sum(node.is_serving and not node.is_stalled for node in nodes)

    def second(self, rate: float) -> None:
        """Of publications, at even times, by the brokers in turn."""
        clock, count = self.world.clock, round(rate)
        begin, came = clock.now, []
        for number in range(count):
            clock.run_until(begin + (number + 1) / count)
            broker = self.brokers[number % len(self.brokers)]
            came += broker.publish(broker.name, [next(self._points)])
        self.asked.append((rate, self.serving, came))

    def seconds(self) -> list[Second]:
        """When all have their verdict."""
        while any(broker.front.asking.open_points for broker in self.brokers):
            self.world.run(1.0)
        return [self._second(*one) for one in self.asked]

    def _second(self, rate: float, matchers: int, came: Sequence[Published]) -> Second:
        times = np.array([_response_seconds(one) for one in came])
        late = float((times > self.world.question_seconds).mean())
        return Second(rate, matchers, float(times.mean()), late)


def _response_seconds(published: Published) -> float:
    assert published.judged_at is not None
    return published.judged_at - published.at


def growth(setting: Setting, seed: int, steps: Steps, bounds: Bounds) -> Growth:
    """From the setting's number of matchers to the bounds' at most."""
    system = SYSTEMS["adaptive"]
    world = MatchingWorld(
        seed,
        setting.layout(system.scheme),
        policy=system.policy,
        costs=setting.costs,
        # As matching takes longer than it does, nobody may give up.
        question_seconds=FOR_EVER,
        asking_seconds=FOR_EVER,
        queue_points_max=_MANY,
        job_points_max=setting.job_points_max,
        order_waiting_max=_MANY,
        is_delivered=False,
    )
    episode, scaling = _Episode(world, setting, seed), Scaling(bounds)
    names = [*world.matchers]
    names += [f"matcher-{number:03d}" for number in range(len(names), bounds.count_most)]
    started: dict[str, float] = {}
    serves: dict[str, float] = {}
    busy = dict.fromkeys(names, 0.0)
    for step in range(steps.steps):
        for _ in range(steps.seconds):
            episode.second(steps.first_rate + step * steps.more)
            now = float(len(episode.asked))
            places = list(_places(world, names, busy))
            for place in places:
                if place.name in started and place.standing is Standing.SERVING:
                    serves.setdefault(place.name, now)
            change = scaling.decide(places, now)
            if change is not None and change.is_start:
                world.start_matcher(change.name)
                started[change.name] = now
    seconds = episode.seconds()
    joins = []
    for name, at in started.items():
        there = serves.get(name, math.inf)
        joins.append(Join(at, there, _falls_at(seconds, at, there)))
    return Growth(seconds, joins)


def _places(world: MatchingWorld, names: Sequence[str], busy: dict[str, float]) -> Iterator[Place]:
    for name in names:
        node = world.matchers.get(name)
        if node is None:
            yield Place(name, Standing.AWAY)
        elif not node.is_serving:
            yield Place(name, Standing.COMING)
        else:
            share = node.busy_seconds - busy[name]
            busy[name] = node.busy_seconds
            yield Place(name, Standing.SERVING, share)


def _falls_at(seconds: Sequence[Second], started: float, serves: float) -> float:
    """The end of the first second of its service in which it is lower than since its start."""
    start = round(started)
    highest = 0.0
    for end in range(start, len(seconds) + 1):
        few = [one.response_seconds for one in seconds[max(end - SMOOTHED_SECONDS, 0) : end]]
        mean = sum(few) / len(few)
        highest = max(highest, mean)
        if end >= serves and mean < (1 - DROP) * highest:
            return float(end)
    return math.inf


def crashes(setting: Setting, seed: int, rate: float, count: int, every_seconds: int) -> Crashes:
    """With the time limits of the service."""
    system = SYSTEMS["adaptive"]
    layout = setting.layout(system.scheme)
    world = MatchingWorld(seed, layout, policy=system.policy, costs=setting.costs, job_points_max=1)
    episode = _Episode(world, setting, seed)
    at = []
    for turn in range(count + 1):
        if turn:
            at.append(float(turn * every_seconds))
            _busiest(world).stall(FOR_EVER)
        for _ in range(every_seconds):
            episode.second(rate)
    seconds = episode.seconds()
    world.run(1.0)  # what is posted arrives
    return Crashes(seconds, at, *_account(world))


def _busiest(world: MatchingWorld) -> MatcherNode:
    there = [node for node in world.matchers.values() if not node.is_stalled]
    return max(there, key=lambda node: node.points)


def _account(world: MatchingWorld) -> tuple[int, int, int]:
    """Deliveries that are missing, that came again, and that were due."""
    lows = np.array([box.lows for box in world.subscribed])
    highs = np.array([box.highs for box in world.subscribed])
    places = {id(box): place for place, box in enumerate(world.subscribed)}
    came: dict[int, list[int]] = {}
    for published, subscribed in world.delivered:
        came.setdefault(published.number, []).append(places[id(subscribed)])
    lost = doubled = due = 0
    for one in world.published:
        wanted = set(np.flatnonzero(world.is_inside(lows, highs, one.values)).tolist())
        found = came.get(one.number, [])
        due += len(wanted)
        lost += len(wanted.difference(found))
        doubled += len(found) - len(set(found))
    return lost, doubled, due


def overhead(setting: Setting, seed: int, rate: float, seconds: int) -> Overhead:
    """Of a cluster that nothing happens to but publications."""
    system = SYSTEMS["adaptive"]
    world = MatchingWorld(
        seed,
        setting.layout(system.scheme),
        policy=system.policy,
        costs=setting.costs,
        job_points_max=1,
        is_delivered=False,
    )
    episode = _Episode(world, setting, seed)
    gossip, links = Counter(world.gossip.network.bytes_sent), Counter(world.links.bytes_sent)
    for _ in range(seconds):
        episode.second(rate)
    per = len(world.matchers) * seconds
    told = sum(world.links.bytes_sent[name, LOADS] - links[name, LOADS] for name in world.matchers)
    talked = sum(world.gossip.network.bytes_sent[name] - gossip[name] for name in world.matchers)
    return Overhead(talked / per, told / per / setting.brokers)
