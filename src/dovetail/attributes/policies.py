"""Policies that choose the candidate for a point (BlueDove III-B), and the loads of matchers. Pure.

A matcher has a queue and rates for each dimension, and reports them as a load:

    queue            points that wait
    arrival rate     points a second that arrived, over the last LOAD_WINDOW_SECONDS
    matching rate    points a second that it can match
    boxes            boxes that it holds along this dimension

A policy computes a cost from it. The candidate with the lowest cost gets the point:

    adaptive               (queue now + 1) / matching rate, where the queue now is the reported one,
                           plus the arrivals and minus the matches since
    response time          the same with the reported queue
    subscription amount    the number of boxes to search
    random                 a random number

Rules:

- Arrivals after a report differ from those before: a broker that finds a matcher idle sends there,
  and so do others. A broker counts what it sends itself, and assumes for the others the rate that
  they had. (The paper uses the rate of all.)
- A matcher reports a load when it differs by LOAD_CHANGE from the last report, at the earliest at
  the end of a window.
- A candidate without a report costs nothing, so it is tried. The same holds for one that has
  matched nothing so far and has an empty queue.
- A candidate that has not answered is passed over (`PASSED_OVER`); the sender decides that.
"""

import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from dovetail.attributes.limits import LOAD_CHANGE, LOAD_WINDOW_SECONDS

PASSED_OVER = math.inf


class DimensionLoad(NamedTuple):
    """The load of one dimension of a matcher, at a time."""

    at: float
    queue: int
    arrival_rate: float
    matching_rate: float
    boxes: int


class TrackedLoad:
    """A reported load, and the points that we have sent there since."""

    __slots__ = ("load", "others_rate", "sent")

    def __init__(self, load: DimensionLoad, others_rate: float) -> None:
        self.load = load
        self.others_rate = others_rate
        self.sent = 0

    def queue(self, now: float) -> float:
        """Estimate the queue now."""
        passed = now - self.load.at
        arrived = self.sent + self.others_rate * passed
        return max(self.load.queue + arrived - self.load.matching_rate * passed, 0.0)


Policy = Callable[[TrackedLoad, float, Random], float]
"""Returns the cost of sending a point now."""


def adaptive(tracked: TrackedLoad, now: float, _random: Random) -> float:
    return _processing_seconds(tracked.queue(now), tracked.load.matching_rate)


def response_time(tracked: TrackedLoad, _now: float, _random: Random) -> float:
    return _processing_seconds(tracked.load.queue, tracked.load.matching_rate)


def subscription_amount(tracked: TrackedLoad, _now: float, _random: Random) -> float:
    return tracked.load.boxes


def random(_tracked: TrackedLoad, _now: float, random: Random) -> float:
    return random.random()


POLICIES: dict[str, Policy] = {
    "adaptive": adaptive,
    "response-time": response_time,
    "subscription-amount": subscription_amount,
    "random": random,
}


def _processing_seconds(queue: float, matching_rate: float) -> float:
    if not matching_rate:
        return PASSED_OVER if queue else 0.0
    return (queue + 1) / matching_rate


class LoadTracker:
    """The loads of all matchers as one broker knows them."""

    def __init__(self, policy: Policy, random: Random) -> None:
        self.policy = policy
        self._random = random
        self._loads: dict[tuple[str, int], TrackedLoad] = {}

    def record_report(self, matcher: str, dimension: int, load: DimensionLoad) -> None:
        """Take a report. One that is older than the last is ignored."""
        tracked = self._loads.get((matcher, dimension))
        others_rate = load.arrival_rate
        if tracked is not None:
            passed = load.at - tracked.load.at
            if passed < 0:
                return
            if passed:
                others_rate = max(others_rate - tracked.sent / passed, 0.0)
        self._loads[matcher, dimension] = TrackedLoad(load, others_rate)

    def record_sent(self, matcher: str, dimension: int, points: int) -> None:
        tracked = self._loads.get((matcher, dimension))
        if tracked is not None:
            tracked.sent += points

    def forget(self, matcher: str) -> None:
        for key in [key for key in self._loads if key[0] == matcher]:
            del self._loads[key]

    def load_of(self, matcher: str, dimension: int) -> TrackedLoad | None:
        """Return the load of a matcher's dimension; None before its first report."""
        return self._loads.get((matcher, dimension))

    def cost(self, matcher: str, dimension: int, now: float) -> float:
        tracked = self._loads.get((matcher, dimension))
        return 0.0 if tracked is None else self.policy(tracked, now, self._random)


class LoadMeter:
    """Measures a matcher's own load along one dimension."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._arrived = 0
        self._matched = 0
        self._busy_seconds = 0.0
        self._reported: DimensionLoad | None = None
        self.arrival_rate = 0.0
        """The rate of the last window."""
        self.matching_rate = 0.0
        """The rate of the last window with matches."""

    def record_arrived(self, points: int) -> None:
        self._arrived += points

    def record_matched(self, points: int, seconds: float) -> None:
        """Count points that were matched, and the time that it took."""
        self._matched += points
        self._busy_seconds += seconds

    def is_due(self, now: float) -> bool:
        """Is the window complete?"""
        return now - self._since >= LOAD_WINDOW_SECONDS

    def report(self, now: float, queue: int, boxes: int) -> DimensionLoad | None:
        """End a complete window. Return the load if it has changed enough to report."""
        passed = now - self._since
        if passed < LOAD_WINDOW_SECONDS:
            return None
        if self._matched and self._busy_seconds:
            self.matching_rate = self._matched / self._busy_seconds
        self.arrival_rate = self._arrived / passed
        load = DimensionLoad(now, queue, self.arrival_rate, self.matching_rate, boxes)
        self._since = now
        self._arrived = self._matched = 0
        self._busy_seconds = 0.0
        if self._reported is not None and not _differs(load, self._reported):
            return None
        self._reported = load
        return load


def _differs(load: DimensionLoad, reported: DimensionLoad) -> bool:
    return any(
        abs(is_now - was) > LOAD_CHANGE * max(was, 1)
        for is_now, was in zip(load[1:], reported[1:], strict=True)
    )
