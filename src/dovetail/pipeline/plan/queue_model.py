"""Model the queues of matchers: distribute points as brokers do, and find the highest stable rate.

The only clock is the rate at which points come. Candidates and choices are the service's own
(matcher/candidate_choice.py). A broker knows a matcher's queue along each dimension, and its speed
there (attributes/policies.py). It does not see that the matcher shares its time among its queues.
So it sends a point where the queue of that dimension is done first, and a matcher that is fast
along several dimensions gets more than it can take. The model includes that. A model that gave each
point to the least busy matcher would rate bad places as good.

If no point has a choice, the rate follows from the busiest matcher's work. Otherwise the rate is
searched between one at which a queue grows and one at which none does. No Spark.
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
"""Points that are distributed with the same knowledge of queues, as between two reports."""

POINTS_TRIED_MAX = 4_000
"""Points for each rate that is tried."""

GROWTH_MAX = 0.03
"""Seconds of work a second by which a queue may grow; as in sim/saturation.py."""

PRECISION = 0.02
"""The search ends when the two rates differ by less than this share."""

_STEP = 1.25
_NOTHING = 1e-12


class QueueRun(NamedTuple):
    """The result of distributing points at one rate."""

    along: Floats
    """Seconds of work that each matcher got along each dimension."""
    asked: npt.NDArray[np.bool_]
    """By point and dimension: was the point asked along it?"""
    growth: float
    """Growth of the fastest-growing queue, in seconds of work a second."""


class BestRate(NamedTuple):
    """The highest rate at which no queue grows, and the run with all points at that rate."""

    rate: float
    run: QueueRun
    is_exact: bool
    """No point had a choice. Otherwise the rate also depends on what brokers know, and when."""


@dataclass(frozen=True)
class QueueModel:
    """Fixed points and matchers, which can be run at any rate."""

    candidates: Ints
    """By point and dimension: the matcher, or -1."""
    kinds: frozenset[int]
    spent: Floats
    """Seconds that each point costs at any matcher, without boxes."""
    held: Floats
    """Seconds that boxes add to each point, by matcher and dimension."""

    def best_rate(self) -> BestRate:
        at_once = self.at(math.inf)
        capacity = self._by_busiest(at_once)
        if not math.isfinite(capacity) or np.array_equal(at_once.asked, self.at(0.0).asked):
            return BestRate(capacity, at_once, is_exact=True)
        low, high, rate = 0.0, math.inf, capacity
        while not low or high / low > 1 + PRECISION:
            if self.at(rate, POINTS_TRIED_MAX).growth > GROWTH_MAX:
                high = rate
            else:
                low = rate
            rate = _between(low, high)
        return BestRate(low, self.at(low), is_exact=False)

    def _by_busiest(self, run: QueueRun) -> float:
        busiest = float(run.along.sum(axis=1).max(initial=0.0))
        return len(self.candidates) / busiest if busiest else math.inf

    def at(self, rate: float, points_max: int | None = None) -> QueueRun:
        """Run at this many points a second. 0: queues are always empty; infinity: all at once."""
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
        return QueueRun(along, asked, _growth(waiting, seconds) if waiting else 0.0)


def _work_off(queues: Floats, seconds: float) -> None:
    """Let each matcher work for this time, shared equally among its queues that have work."""
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
    """Return the growth of the fastest-growing queue, ignoring the first quarter of the run.

    A queue grows only if its mean rises from each third of the rest to the next.
    """
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
