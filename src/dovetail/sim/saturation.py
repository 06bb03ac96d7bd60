"""A search for the highest rate that matchers sustain (BlueDove IV-B to IV-D). Pure.

The paper's definition: a system is saturated when matching falls behind arrivals, so that queues
and response times grow for as long as it lasts. Here a rate is too high if, at some matcher, the
time that questions wait grows from each third of a trial to the next, and by more than `GROWTH_MAX`
of the time that has passed. The search narrows the interval between a sustained rate and one that
is too high, down to `precision`. Queues run empty between trials.

Differences from the paper, which let a run take seconds:

- Matching takes a hundred times as long, and rates are a hundred times lower. Queues in seconds of
  work, and the second between load reports, are the same.
- Publications come at even times, and their points are spread evenly: a lattice that the seed
  shifts. At a hundredth of the rate, random points would make queues vary ten times as much.
- There are no time-outs, and no queue is ever full.

`FullModel` simulates everything; it takes thirty times as long as `Queues`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from dovetail.matcher.layout import Floats
from dovetail.sim import workload
from dovetail.sim.broker_node import SimulatedBroker
from dovetail.sim.clock import Clock
from dovetail.sim.matching_cluster import MatchingCluster
from dovetail.sim.queues import Queues
from dovetail.sim.systems import SYSTEMS, MatcherTestbed, System

GROWTH_MAX = 0.03
SAMPLE_SECONDS = 0.25
JOIN_SECONDS = 20.0
"""Time for all matchers to join and get their boxes."""
_STEP = 1.5
_QUICKER = 4
_LATTICE_POINTS = 4_096
_FOR_EVER = 1e9
_MANY = 1 << 40


class ClusterModel(Protocol):
    """The interface of a simulated cluster that a trial needs."""

    @property
    def clock(self) -> Clock: ...

    def addressed(self, points: Floats) -> list[Any]:
        """Prepare points for `publish`: do the work that does not depend on time."""

    def publish(self, broker: int, points: Sequence[Any]) -> None: ...

    def waited_seconds(self) -> list[float]:
        """Return for each matcher how long its next question has waited."""

    def busy_seconds(self) -> list[float]:
        """Return how long each matcher has worked."""

    def run_empty(self) -> None:
        """Run until no question waits."""


ModelFactory = Callable[[System, MatcherTestbed, int], ClusterModel]


@dataclass(frozen=True)
class RateSearch:
    """The parameters of the search."""

    first_rate: float = 100.0
    precision: float = 0.02
    seconds_min: float = 60.0
    """The length of a trial, which starts with a third as much warm-up."""
    publications_min: int = 20_000
    """At low rates a trial is longer, so that random effects even out."""


class RateTrial(NamedTuple):
    """The result of one rate."""

    rate: float
    is_saturated: bool
    growth: float
    """Growth of the waiting time at the worst matcher, in seconds per second."""
    busy: tuple[float, ...]
    """The share of the time that each matcher worked."""


class Saturation(NamedTuple):
    """The result of a search."""

    system: str
    testbed: MatcherTestbed
    seed: int
    rate: float
    """The highest rate at which queues did not grow, in publications per second."""
    trials: tuple[RateTrial, ...]

    @property
    def unevenness(self) -> float:
        """Standard deviation of the matchers' loads by their mean (BlueDove IV-D)."""
        busy = np.array(next(one.busy for one in self.trials if one.rate == self.rate))
        return float(busy.std() / busy.mean())


def saturation(
    name: str,
    testbed: MatcherTestbed,
    seed: int,
    search: RateSearch | None = None,
    make: ModelFactory = Queues,
) -> Saturation:
    """Find the saturation rate of one of the `SYSTEMS`."""
    search = search or RateSearch()
    cluster = make(SYSTEMS[name], testbed, seed)
    points = addressed_points(cluster, testbed, seed)
    # After this, brokers know the speed of all matchers.
    run_trial(cluster, testbed, search, points, search.first_rate / 2)
    trials: list[RateTrial] = []

    def is_too_high(rate: float) -> bool:
        trials.append(run_trial(cluster, testbed, search, points, rate))
        return trials[-1].is_saturated

    rate = _highest(search.first_rate, search.precision, is_too_high)
    return Saturation(name, testbed, seed, rate, tuple(trials))


def boxes_held(
    name: str, testbed: MatcherTestbed, seed: int, search: RateSearch | None = None
) -> int:
    """Return about how many boxes a system holds at the search's first rate (BlueDove IV-C)."""
    search = search or RateSearch()
    rate = search.first_rate
    quick = replace(
        search,
        seconds_min=search.seconds_min / _QUICKER,
        publications_min=search.publications_min // _QUICKER,
    )

    def is_too_many(boxes: float) -> bool:
        held = replace(testbed, boxes=round(boxes))
        cluster = Queues(SYSTEMS[name], held, seed)
        points = addressed_points(cluster, held, seed)
        run_trial(cluster, held, quick, points, rate / 2)
        return run_trial(cluster, held, search, points, rate).is_saturated

    return round(_highest(testbed.boxes, search.precision, is_too_many))


def response_times(
    name: str,
    testbed: MatcherTestbed,
    seed: int,
    rate: float,
    seconds: int,
    search: RateSearch | None = None,
) -> list[float]:
    """Return the mean response time of each second at one rate (BlueDove IV-B)."""
    cluster = Queues(SYSTEMS[name], testbed, seed)
    points = addressed_points(cluster, testbed, seed)
    run_trial(cluster, testbed, search or RateSearch(), points, rate / 2)
    cluster.take_response_seconds()
    found = []
    for _ in range(seconds):
        _flow(cluster, testbed, points, rate, 1.0)
        found.append(cluster.take_response_seconds())
    return found


def _highest(first: float, precision: float, is_too_much: Callable[[float], bool]) -> float:
    """Return the highest value that is not too much."""
    low, high, value = 0.0, math.inf, first
    while not low or high / low > 1 + precision:
        if is_too_much(value):
            high = value
        else:
            low = value
        value = _between(low, high)
    return low


def _between(low: float, high: float) -> float:
    if not low:
        return high / _STEP
    return low * _STEP if math.isinf(high) else math.sqrt(low * high)


def run_trial(
    cluster: ClusterModel,
    testbed: MatcherTestbed,
    search: RateSearch,
    points: Iterator[Any],
    rate: float,
) -> RateTrial:
    seconds = max(search.seconds_min, search.publications_min / rate)
    _flow(cluster, testbed, points, rate, seconds / 3)
    busy = np.array(cluster.busy_seconds())
    waited = _flow(cluster, testbed, points, rate, seconds)
    busy = np.array(cluster.busy_seconds()) - busy
    cluster.run_empty()
    thirds = np.array([part.mean(axis=0) for part in np.array_split(waited, 3)])
    is_growing = (np.diff(thirds, axis=0) > 0).all(axis=0)
    growth = (thirds[-1] - thirds[0]) / (seconds * 2 / 3)
    worst = float(np.where(is_growing, growth, 0.0).max())
    return RateTrial(rate, worst > GROWTH_MAX, worst, tuple((busy / seconds).tolist()))


def _flow(
    cluster: ClusterModel,
    testbed: MatcherTestbed,
    points: Iterator[Any],
    rate: float,
    seconds: float,
) -> Floats:
    """Publish for `seconds`, and return samples of `waited_seconds`."""
    clock = cluster.clock
    begin = sample_at = clock.now
    turns = round(rate * seconds / testbed.points_at_once)
    samples = []
    for turn in range(turns):
        clock.run_until(begin + (turn + 1) * seconds / turns)
        if clock.now >= sample_at:
            samples.append(cluster.waited_seconds())
            sample_at += SAMPLE_SECONDS
        cluster.publish(turn % testbed.brokers, list(islice(points, testbed.points_at_once)))
    return np.array(samples)


def addressed_points(cluster: ClusterModel, testbed: MatcherTestbed, seed: int) -> Iterator[Any]:
    return chain.from_iterable(map(cluster.addressed, points_of(testbed, seed)))


def points_of(testbed: MatcherTestbed, seed: int) -> Iterator[Floats]:
    return lattice(seed, testbed.skewed, testbed.spread)


def lattice(seed: int, skewed: int = 0, spread: float = workload.SPREAD) -> Iterator[Floats]:
    """Yield points that fill all dimensions evenly: an endless, shifted Kronecker sequence.

    They come in arrays of thousands. In the last `skewed` dimensions they are as dense as the
    centres of boxes.
    """
    ratio = 2.0
    for _ in range(64):  # the root of x ** (dimensions + 1) == x + 1
        ratio = (1 + ratio) ** (1 / (workload.DIMENSIONS + 1))
    steps = ratio ** -np.arange(1.0, workload.DIMENSIONS + 1)
    shift = np.random.default_rng(seed).random(workload.DIMENSIONS)
    columns = range(workload.DIMENSIONS - skewed, workload.DIMENSIONS)
    shares = {column: workload.shares(column, spread) for column in columns}
    axis = np.linspace(0.0, workload.LENGTH, workload.SHARES)
    first = 1
    while True:
        numbers = np.arange(first, first + _LATTICE_POINTS)[:, np.newaxis]
        evenly = (numbers * steps + shift) % 1.0
        points = evenly * workload.LENGTH
        for column, share in shares.items():
            points[:, column] = np.interp(evenly[:, column], share, axis)
        yield points
        first += _LATTICE_POINTS


def unlimited_cluster(system: System, testbed: MatcherTestbed, seed: int) -> MatchingCluster:
    """Return a cluster without time-outs and bounds: matching takes longer than in reality."""
    return MatchingCluster(
        seed,
        testbed.layout(system.scheme),
        policy=system.policy,
        costs=testbed.costs,
        question_seconds=_FOR_EVER,
        asking_seconds=_FOR_EVER,
        queue_points_max=_MANY,
        job_points_max=testbed.job_points_max,
        order_waiting_max=_MANY,
        is_delivered=False,
    )


def start_nodes(
    cluster: MatchingCluster, testbed: MatcherTestbed, seed: int
) -> list[SimulatedBroker]:
    """Start the testbed's nodes, and wait until all matchers serve. Return the brokers."""
    brokers = [cluster.start_broker(f"broker-{number}") for number in range(testbed.brokers)]
    for name, tokens in testbed.placement(cluster.layout).table.tokens.items():
        cluster.start_matcher(name, tokens)
    lows, highs = testbed.drawn_boxes(seed)
    for place, broker in enumerate(brokers):
        own = slice(place, None, testbed.brokers)
        cluster.subscribe(broker.name, lows[own], highs[own])
    cluster.run(JOIN_SECONDS)
    assert all(node.is_serving for node in cluster.matchers.values())
    return brokers


class FullModel:
    """The full simulation: gossip, feeds, frames, and a search for each point."""

    def __init__(self, system: System, testbed: MatcherTestbed, seed: int) -> None:
        self._cluster = unlimited_cluster(system, testbed, seed)
        self._brokers = start_nodes(self._cluster, testbed, seed)
        self.clock = self._cluster.clock

    def addressed(self, points: Floats) -> list[list[float]]:
        """Leave the choice of candidates to the brokers."""
        found: list[list[float]] = points.tolist()
        return found

    def publish(self, broker: int, points: Sequence[Sequence[float]]) -> None:
        node = self._brokers[broker]
        node.publish(node.name, points)
        self._cluster.published.clear()

    def waited_seconds(self) -> list[float]:
        nodes = self._cluster.matchers.values()
        return [node.side.answers.waited_seconds(self.clock.now) for node in nodes]

    def busy_seconds(self) -> list[float]:
        return [node.busy_seconds for node in self._cluster.matchers.values()]

    def run_empty(self) -> None:
        while any(broker.side.questions.open_points for broker in self._brokers):
            self._cluster.run(1.0)
