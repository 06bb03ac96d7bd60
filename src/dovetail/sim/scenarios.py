"""Experiments with a whole cluster over minutes (BlueDove IV-C and IV-E). Pure.

Brokers and matchers run the code of the service on the virtual clock (matching_cluster.py): gossip,
joins, feeds, questions, answers and repeated questions. Publications come evenly.

    run_growth          the rate rises step by step; when matchers are too busy (autoscaler.py), a
                        new one starts, chooses its segments and takes its boxes meanwhile
    run_crashes         one matcher after another falls silent, like a machine that loses power:
                        connections do not break
    measure_overhead    the bytes that matchers send to each other and to brokers when nothing
                        changes

There are fewer boxes than in the paper, and each takes longer in proportion.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from dovetail.matcher.autoscaler import Autoscaler, MatcherProcess, ProcessState, ScalingSettings
from dovetail.matcher.matcher_messages import LOADS
from dovetail.sim.broker_node import PublicationRecord
from dovetail.sim.matcher_node import SimulatedMatcher
from dovetail.sim.matching_cluster import MatchingCluster
from dovetail.sim.saturation import points_of, start_nodes, unlimited_cluster
from dovetail.sim.systems import SYSTEMS, MatcherTestbed

SMOOTHED_SECONDS = 3
DROP = 0.1
"""A response time has dropped when its mean over `SMOOTHED_SECONDS` is so much below the peak."""
FOR_EVER = 1e9


class SecondSummary(NamedTuple):
    """The publications that came in one second."""

    rate: float
    matchers: int
    """Matchers that serve."""
    response_seconds: float
    """Mean time until the broker knows the receivers."""
    late: float
    """Share of repeated questions: the first matcher did not answer in time."""


class JoinTimes(NamedTuple):
    """When a new matcher started and served, and when response times dropped, in seconds."""

    started: float
    serves: float
    drops: float
    """Infinite if response times did not drop."""


@dataclass(frozen=True)
class RateSteps:
    """The steps in which the rate rises."""

    first_rate: float
    rate_step: float
    seconds: int
    steps: int


class GrowthResult(NamedTuple):
    seconds: list[SecondSummary]
    joins: list[JoinTimes]


class CrashResult(NamedTuple):
    seconds: list[SecondSummary]
    at: list[float]
    lost: int
    """Due deliveries that never came."""
    doubled: int
    due: int


class OverheadResult(NamedTuple):
    """Bytes per second that a matcher sends."""

    gossip: float
    load_per_broker: float


class _Scenario:
    """A cluster with even publications, observed second by second."""

    def __init__(self, cluster: MatchingCluster, testbed: MatcherTestbed, seed: int) -> None:
        self.cluster = cluster
        self.testbed = testbed
        self._points = chain.from_iterable(some.tolist() for some in points_of(testbed, seed))
        self.brokers = start_nodes(cluster, testbed, seed)
        self.history: list[tuple[float, int, list[PublicationRecord]]] = []

    @property
    def serving(self) -> int:
        nodes = self.cluster.matchers.values()
        return sum(node.is_serving and not node.is_stalled for node in nodes)

    def run_second(self, rate: float) -> None:
        """Publish at even times for one second, by the brokers in turn."""
        clock, count = self.cluster.clock, round(rate)
        begin, published = clock.now, []
        for number in range(count):
            clock.run_until(begin + (number + 1) / count)
            broker = self.brokers[number % len(self.brokers)]
            published += broker.publish(broker.name, [next(self._points)])
        self.history.append((rate, self.serving, published))

    def finish(self) -> list[SecondSummary]:
        """Wait until all publications have a verdict, and return the seconds."""
        while any(broker.side.questions.open_points for broker in self.brokers):
            self.cluster.run(1.0)
        return [self._summarize(*one) for one in self.history]

    def _summarize(
        self, rate: float, matchers: int, came: Sequence[PublicationRecord]
    ) -> SecondSummary:
        times = np.array([_response_seconds(one) for one in came])
        late = float((times > self.cluster.question_seconds).mean())
        return SecondSummary(rate, matchers, float(times.mean()), late)


def _response_seconds(published: PublicationRecord) -> float:
    assert published.judged_at is not None
    return published.judged_at - published.at


def run_growth(
    testbed: MatcherTestbed, seed: int, steps: RateSteps, bounds: ScalingSettings
) -> GrowthResult:
    """Raise the rate, and add matchers up to the maximum of `bounds`."""
    cluster = unlimited_cluster(SYSTEMS["adaptive"], testbed, seed)
    scenario, scaling = _Scenario(cluster, testbed, seed), Autoscaler(bounds)
    names = [*cluster.matchers]
    names += [f"matcher-{number:03d}" for number in range(len(names), bounds.count_most)]
    started: dict[str, float] = {}
    serves: dict[str, float] = {}
    busy = dict.fromkeys(names, 0.0)
    for step in range(steps.steps):
        for _ in range(steps.seconds):
            scenario.run_second(steps.first_rate + step * steps.rate_step)
            now = float(len(scenario.history))
            places = list(_places(cluster, names, busy))
            for place in places:
                if place.name in started and place.state is ProcessState.SERVING:
                    serves.setdefault(place.name, now)
            change = scaling.decide(places, now)
            if change is not None and change.is_start:
                cluster.start_matcher(change.name)
                started[change.name] = now
    seconds = scenario.finish()
    joins = []
    for name, at in started.items():
        served_at = serves.get(name, math.inf)
        joins.append(JoinTimes(at, served_at, _first_drop_at(seconds, at, served_at)))
    return GrowthResult(seconds, joins)


def _places(
    cluster: MatchingCluster, names: Sequence[str], busy: dict[str, float]
) -> Iterator[MatcherProcess]:
    for name in names:
        node = cluster.matchers.get(name)
        if node is None:
            yield MatcherProcess(name, ProcessState.AWAY)
        elif not node.is_serving:
            yield MatcherProcess(name, ProcessState.COMING)
        else:
            share = node.busy_seconds - busy[name]
            busy[name] = node.busy_seconds
            yield MatcherProcess(name, ProcessState.SERVING, share)


def _first_drop_at(seconds: Sequence[SecondSummary], started: float, serves: float) -> float:
    """Return the end of the first second of service in which response times have dropped."""
    start = round(started)
    highest = 0.0
    for end in range(start, len(seconds) + 1):
        few = [one.response_seconds for one in seconds[max(end - SMOOTHED_SECONDS, 0) : end]]
        mean = sum(few) / len(few)
        highest = max(highest, mean)
        if end >= serves and mean < (1 - DROP) * highest:
            return float(end)
    return math.inf


def run_crashes(
    testbed: MatcherTestbed, seed: int, rate: float, count: int, every_seconds: int
) -> CrashResult:
    """Crash the busiest matcher `count` times, with the time limits of the service."""
    system = SYSTEMS["adaptive"]
    layout = testbed.layout(system.scheme)
    cluster = MatchingCluster(
        seed, layout, policy=system.policy, costs=testbed.costs, job_points_max=1
    )
    scenario = _Scenario(cluster, testbed, seed)
    at = []
    for turn in range(count + 1):
        if turn:
            at.append(float(turn * every_seconds))
            _busiest(cluster).stall(FOR_EVER)
        for _ in range(every_seconds):
            scenario.run_second(rate)
    seconds = scenario.finish()
    cluster.run(1.0)  # posted publications arrive
    return CrashResult(seconds, at, *_account(cluster))


def _busiest(cluster: MatchingCluster) -> SimulatedMatcher:
    there = [node for node in cluster.matchers.values() if not node.is_stalled]
    return max(there, key=lambda node: node.points)


def _account(cluster: MatchingCluster) -> tuple[int, int, int]:
    """Count the deliveries that are lost, doubled and due."""
    lows = np.array([box.lows for box in cluster.subscribed])
    highs = np.array([box.highs for box in cluster.subscribed])
    places = {id(box): place for place, box in enumerate(cluster.subscribed)}
    came: dict[int, list[int]] = {}
    for published, subscribed in cluster.delivered:
        came.setdefault(published.number, []).append(places[id(subscribed)])
    lost = doubled = due = 0
    for one in cluster.published:
        wanted = set(np.flatnonzero(cluster.is_inside(lows, highs, one.values)).tolist())
        found = came.get(one.number, [])
        due += len(wanted)
        lost += len(wanted.difference(found))
        doubled += len(found) - len(set(found))
    return lost, doubled, due


def measure_overhead(
    testbed: MatcherTestbed, seed: int, rate: float, seconds: int
) -> OverheadResult:
    """Measure a cluster in which only publications happen."""
    system = SYSTEMS["adaptive"]
    cluster = MatchingCluster(
        seed,
        testbed.layout(system.scheme),
        policy=system.policy,
        costs=testbed.costs,
        job_points_max=1,
        is_delivered=False,
    )
    scenario = _Scenario(cluster, testbed, seed)
    gossip, connections = (
        Counter(cluster.gossip.network.bytes_sent),
        Counter(cluster.connections.bytes_sent),
    )
    for _ in range(seconds):
        scenario.run_second(rate)
    per = len(cluster.matchers) * seconds
    told = sum(
        cluster.connections.bytes_sent[name, LOADS] - connections[name, LOADS]
        for name in cluster.matchers
    )
    talked = sum(
        cluster.gossip.network.bytes_sent[name] - gossip[name] for name in cluster.matchers
    )
    return OverheadResult(talked / per, told / per / testbed.brokers)
