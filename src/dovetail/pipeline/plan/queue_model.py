"""Points dealt out over matchers as brokers do it, and the rate at which somebody's queue grows.

No Spark, and no clock but the points': so many come in a second. Candidates and choices are the
service's own (matcher/candidate_choice.py). What a broker knows of a matcher is its queue along
each dimension, and how fast it is there (attributes/policies.py); that the matcher's time is shared
among its queues, it does not see. So points are sent where the queue of that dimension is done
first, and a matcher that is quick along several dimensions gets more than it can take. Places are
judged with that: dealing out work to whoever has least of it would call places good that are not.

Where no point has a choice, the rate follows from the busiest matcher's work. Otherwise rates are
tried, between one at which a queue grows and one at which none does.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.matcher.candidate_choice import choose

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CHUNK = 32
"""Points that are dealt out by the same knowledge of queues, as between two reports."""

POINTS_TRIED_MAX = 4_000
"""For each rate that is tried."""

GROWTH_MAX = 0.03
"""Seconds of work a second, by which a queue may grow; as in sim/saturation.py."""

PRECISION = 0.02
"""By which the two rates are apart at the end."""

_STEP = 1.25
_NOTHING = 1e-12


class Dealt(NamedTuple):
    """At one rate."""

    along: Floats
    """Seconds of work that each matcher got along each dimension."""
    asked: npt.NDArray[np.bool_]
    """Along which dimensions each point was asked."""
    growth: float
    """Of the queue that grows most: seconds of work a second."""


class Best(NamedTuple):
    """The highest rate at which no queue grows, and what all points come to there."""

    rate: float
    dealt: Dealt
    is_exact: bool
    """No point had a choice. Otherwise what brokers know, and when, decides some of it."""


@dataclass(frozen=True)
class Dealing:
    """Points and matchers that do not change."""

    candidates: Ints
    """By point and dimension: the matcher, or -1."""
    kinds: frozenset[int]
    spent: Floats
    """Seconds that each point costs, whoever is asked."""
    held: Floats
    """Seconds that boxes add to each point, by matcher and dimension."""

    def best_rate(self) -> Best:
        piled = self.at(math.inf)
        capacity = self._by_busiest(piled)
        if not math.isfinite(capacity) or np.array_equal(piled.asked, self.at(0.0).asked):
            return Best(capacity, piled, is_exact=True)
        low, high, rate = 0.0, math.inf, capacity
        while not low or high / low > 1 + PRECISION:
            if self.at(rate, POINTS_TRIED_MAX).growth > GROWTH_MAX:
                high = rate
            else:
                low = rate
            rate = _between(low, high)
        return Best(low, self.at(low), is_exact=False)

    def _by_busiest(self, dealt: Dealt) -> float:
        busiest = float(dealt.along.sum(axis=1).max(initial=0.0))
        return len(self.candidates) / busiest if busiest else math.inf

    def at(self, rate: float, points_max: int | None = None) -> Dealt:
        """So many points a second; 0: each finds nobody at work; infinity: all come at once."""
        chosen, spent = self.candidates[:points_max], self.spent[:points_max]
        matchers, dimensions = self.held.shape
        columns = np.arange(dimensions)
        queues, along = np.zeros(self.held.shape), np.zeros(self.held.shape)
        asked = np.zeros(chosen.shape, np.bool_)
        waiting = []
        for first in range(0, len(chosen), CHUNK):
            own, price = chosen[first : first + CHUNK], spent[first : first + CHUNK]
            costs = queues[own, columns] + self.held[own, columns] + price[:, np.newaxis]
            for choice in choose(own, self.kinds, costs).asked:
                owners = own[choice.rows, choice.dimension]
                work = price[choice.rows] + self.held[owners, choice.dimension]
                done = np.bincount(owners, work, matchers)
                queues[:, choice.dimension] += done
                along[:, choice.dimension] += done
                asked[first + choice.rows, choice.dimension] = True
            _work_off(queues, len(own) / rate if rate else math.inf)
            waiting.append(queues.sum(axis=1))
        seconds = len(chosen) / rate if rate else math.inf
        return Dealt(along, asked, _growth(waiting, seconds) if waiting else 0.0)


def _work_off(queues: Floats, seconds: float) -> None:
    """Each matcher shares its time among its queues, as long as they have something."""
    if math.isinf(seconds):
        queues[:] = 0.0
        return
    left = np.full(len(queues), seconds)
    for _ in range(queues.shape[1]):
        waiting = queues > _NOTHING
        counts = waiting.sum(axis=1)
        share = left / np.maximum(counts, 1)
        done = np.where(waiting, np.minimum(queues, share[:, np.newaxis]), 0.0)
        queues -= done
        left -= done.sum(axis=1)


def _growth(waiting: list[Floats], seconds: float) -> float:
    """From each third to the next, after a quarter that does not count."""
    counted = np.array(waiting)[len(waiting) // 4 :]
    if len(counted) < 3 or not math.isfinite(seconds) or not seconds:
        return 0.0
    thirds = np.array([part.mean(axis=0) for part in np.array_split(counted, 3)])
    is_growing = (np.diff(thirds, axis=0) > 0).all(axis=0)
    passed = seconds * len(counted) / len(waiting) * 2 / 3
    return float(np.where(is_growing, (thirds[-1] - thirds[0]) / passed, 0.0).max())


def _between(low: float, high: float) -> float:
    if not low:
        return high / _STEP
    return low * _STEP if math.isinf(high) else math.sqrt(low * high)
