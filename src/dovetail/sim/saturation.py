"""How many publications a second matchers can take (BlueDove IV-B to IV-D): an experiment. Pure.

The paper's definition: a system is saturated where matching falls behind what comes, so that queues
grow, and response times with them, as long as it lasts. Here a rate is too high if at some matcher
the time that questions wait grows from each third of a trial to the next, and by more than
`GROWTH_MAX` of the time that has passed. Between a rate that is too high and one that is not the
search goes on until they are `precision` apart. Queues run empty between trials.

What differs from the paper, so that a run takes seconds:

- Matching takes a hundred times as long, and rates are as much lower. Queues in seconds of work,
  and the second between reports of load, are the same.
- Publications come at even times, and their points are spread evenly: a lattice that the seed
  shifts. At a hundredth of the rate, points that were drawn would shake queues ten times as much.
- Nobody gives up: questions may take for ever, and no queue is full.

The same can be asked of the whole plane (`Plane`), which takes thirty times as long.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from dovetail.matcher.layout import Floats
from dovetail.sim import workload
from dovetail.sim.clock import Clock
from dovetail.sim.matching_world import MatchingWorld
from dovetail.sim.queues import Queues
from dovetail.sim.systems import SYSTEMS, Setting, System

GROWTH_MAX = 0.03
SAMPLE_SECONDS = 0.25
SETTLE_SECONDS = 20.0
"""Until all matchers have joined and have their boxes."""
_STEP = 1.5
_QUICKER = 4
_LATTICE_POINTS = 4_096
_FOR_EVER = 1e9
_MANY = 1 << 40


class Cluster(Protocol):
    """What a trial needs of one."""

    @property
    def clock(self) -> Clock: ...

    def addressed(self, points: Floats) -> list[Any]:
        """Points as `publish` takes them: what does not depend on time is done beforehand."""

    def publish(self, broker: int, points: Sequence[Any]) -> None: ...

    def waited_seconds(self) -> list[float]:
        """At each matcher, how long whoever is next has waited."""

    def busy_seconds(self) -> list[float]:
        """That each matcher has worked."""

    def run_empty(self) -> None:
        """Until nobody waits."""


Making = Callable[[System, Setting, int], Cluster]


@dataclass(frozen=True)
class Search:
    """How rates are tried."""

    first_rate: float = 100.0
    precision: float = 0.02
    seconds_min: float = 60.0
    """Of a trial; before each there is a third of it that does not count."""
    publications_min: int = 20_000
    """In a trial: at low rates it takes longer. What chance does to queues evens out."""


class Trial(NamedTuple):
    """One rate."""

    rate: float
    is_saturated: bool
    growth: float
    """Of the time that questions wait, where it grows most: seconds a second."""
    busy: tuple[float, ...]
    """Share of its time that each matcher worked."""


class Saturation(NamedTuple):
    """A row of the experiment."""

    system: str
    setting: Setting
    seed: int
    rate: float
    """The highest one, in publications a second, that queues did not grow at."""
    trials: tuple[Trial, ...]

    @property
    def unevenness(self) -> float:
        """Of matchers' loads at that rate: standard deviation by mean (BlueDove IV-D)."""
        busy = np.array(next(one.busy for one in self.trials if one.rate == self.rate))
        return float(busy.std() / busy.mean())


def saturation(
    name: str,
    setting: Setting,
    seed: int,
    search: Search | None = None,
    make: Making = Queues,
) -> Saturation:
    """Of one of the `SYSTEMS`."""
    search = search or Search()
    cluster = make(SYSTEMS[name], setting, seed)
    points = addressed_points(cluster, setting, seed)
    # Now everybody knows how fast everybody is.
    trial(cluster, setting, search, points, search.first_rate / 2)
    trials: list[Trial] = []

    def is_too_high(rate: float) -> bool:
        trials.append(trial(cluster, setting, search, points, rate))
        return trials[-1].is_saturated

    rate = _highest(search.first_rate, search.precision, is_too_high)
    return Saturation(name, setting, seed, rate, tuple(trials))


def boxes_held(name: str, setting: Setting, seed: int, search: Search | None = None) -> int:
    """The most, about, that can be held at the search's first rate (BlueDove IV-C)."""
    search = search or Search()
    rate = search.first_rate
    quick = replace(
        search,
        seconds_min=search.seconds_min / _QUICKER,
        publications_min=search.publications_min // _QUICKER,
    )

    def is_too_many(boxes: float) -> bool:
        held = replace(setting, boxes=round(boxes))
        cluster = Queues(SYSTEMS[name], held, seed)
        points = addressed_points(cluster, held, seed)
        trial(cluster, held, quick, points, rate / 2)
        return trial(cluster, held, search, points, rate).is_saturated

    return round(_highest(setting.boxes, search.precision, is_too_many))


def response_times(
    name: str, setting: Setting, seed: int, rate: float, seconds: int, search: Search | None = None
) -> list[float]:
    """At one rate, the mean of each second (BlueDove IV-B)."""
    cluster = Queues(SYSTEMS[name], setting, seed)
    points = addressed_points(cluster, setting, seed)
    trial(cluster, setting, search or Search(), points, rate / 2)
    cluster.take_response_seconds()
    found = []
    for _ in range(seconds):
        _flow(cluster, setting, points, rate, 1.0)
        found.append(cluster.take_response_seconds())
    return found


def _highest(first: float, precision: float, is_too_much: Callable[[float], bool]) -> float:
    """Of those that are not too much."""
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


def trial(
    cluster: Cluster, setting: Setting, search: Search, points: Iterator[Any], rate: float
) -> Trial:
    seconds = max(search.seconds_min, search.publications_min / rate)
    _flow(cluster, setting, points, rate, seconds / 3)
    busy = np.array(cluster.busy_seconds())
    waited = _flow(cluster, setting, points, rate, seconds)
    busy = np.array(cluster.busy_seconds()) - busy
    cluster.run_empty()
    thirds = np.array([part.mean(axis=0) for part in np.array_split(waited, 3)])
    is_growing = (np.diff(thirds, axis=0) > 0).all(axis=0)
    growth = (thirds[-1] - thirds[0]) / (seconds * 2 / 3)
    worst = float(np.where(is_growing, growth, 0.0).max())
    return Trial(rate, worst > GROWTH_MAX, worst, tuple((busy / seconds).tolist()))


def _flow(
    cluster: Cluster, setting: Setting, points: Iterator[Any], rate: float, seconds: float
) -> Floats:
    """Publications for so long; samples of how long those wait who are next."""
    clock = cluster.clock
    begin = sample_at = clock.now
    turns = round(rate * seconds / setting.points_at_once)
    samples = []
    for turn in range(turns):
        clock.run_until(begin + (turn + 1) * seconds / turns)
        if clock.now >= sample_at:
            samples.append(cluster.waited_seconds())
            sample_at += SAMPLE_SECONDS
        cluster.publish(turn % setting.brokers, list(islice(points, setting.points_at_once)))
    return np.array(samples)


def addressed_points(cluster: Cluster, setting: Setting, seed: int) -> Iterator[Any]:
    return chain.from_iterable(map(cluster.addressed, points_of(setting, seed)))


def points_of(setting: Setting, seed: int) -> Iterator[Floats]:
    return lattice(seed, setting.skewed, setting.spread)


def lattice(seed: int, skewed: int = 0, spread: float = workload.SPREAD) -> Iterator[Floats]:
    """Points that fill all dimensions evenly, without end: a Kronecker sequence, shifted.

    They come thousands at a time. In the last `skewed` dimensions they are as dense as the centres
    of boxes.
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


class Plane:
    """The whole plane: gossip, feeds, frames, and a search for each point."""

    def __init__(self, system: System, setting: Setting, seed: int) -> None:
        layout = setting.layout(system.scheme)
        self._world = MatchingWorld(
            seed,
            layout,
            policy=system.policy,
            costs=setting.costs,
            question_seconds=_FOR_EVER,
            asking_seconds=_FOR_EVER,
            queue_points_max=_MANY,
            job_points_max=setting.job_points_max,
            order_waiting_max=_MANY,
            is_delivered=False,
        )
        self.clock = self._world.clock
        self._brokers = [
            self._world.start_broker(f"broker-{number}") for number in range(setting.brokers)
        ]
        for name, tokens in setting.placement(layout).table.tokens.items():
            self._world.start_matcher(name, tokens)
        lows, highs = setting.drawn_boxes(seed)
        for place, broker in enumerate(self._brokers):
            own = slice(place, None, setting.brokers)
            self._world.subscribe(broker.name, lows[own], highs[own])
        self._world.run(SETTLE_SECONDS)
        assert all(node.is_serving for node in self._world.matchers.values())

    def addressed(self, points: Floats) -> list[list[float]]:
        """Brokers do it themselves."""
        found: list[list[float]] = points.tolist()
        return found

    def publish(self, broker: int, points: Sequence[Sequence[float]]) -> None:
        node = self._brokers[broker]
        node.publish(node.name, points)
        self._world.published.clear()

    def waited_seconds(self) -> list[float]:
        nodes = self._world.matchers.values()
        return [node.back.answering.waited_seconds(self.clock.now) for node in nodes]

    def busy_seconds(self) -> list[float]:
        return [node.busy_seconds for node in self._world.matchers.values()]

    def run_empty(self) -> None:
        while any(broker.front.asking.open_points for broker in self._brokers):
            self._world.run(1.0)
