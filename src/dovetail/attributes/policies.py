"""Which candidate gets a point (BlueDove III-B), and what matchers say of their load. Pure.

A matcher has a queue and rates for each dimension. What it says of one of them is a load:

    queue            points that wait
    arrival rate     points a second that came, over the last LOAD_WINDOW_SECONDS
    matching rate    points a second that it can match
    boxes            that it holds along this dimension

A policy makes a cost of it, and the candidate with the lowest one gets the point:

    adaptive               (queue now + 1) / matching rate, where the queue now is what it was, and
                           what has come and been matched since
    response time          the same with the queue as it was
    subscription amount    how many boxes there are to look at
    random                 any number

Rules:

- What has come since the last load was told is not what came before: a broker that finds a matcher
  idle sends there, and so do others. It counts what it sends itself, and takes for the others the
  rate that they had. (The paper takes the rate of all.)
- A load is told when it differs from the last one that was told by LOAD_CHANGE, and at the end of a
  window at the earliest.
- A candidate of whom nothing is known yet costs nothing: it is tried. So is one that has matched
  nothing so far and has nothing to do.
- One that has not answered is passed over (`PASSED_OVER`), which is for who sends to decide.
"""

import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from dovetail.attributes.limits import LOAD_CHANGE, LOAD_WINDOW_SECONDS

PASSED_OVER = math.inf


class Load(NamedTuple):
    """Of one dimension of a matcher, at a time."""

    at: float
    queue: int
    arrival_rate: float
    matching_rate: float
    boxes: int


class Known:
    """A load, and what we have sent there since it was told."""

    __slots__ = ("load", "others_rate", "sent")

    def __init__(self, load: Load, others_rate: float) -> None:
        self.load = load
        self.others_rate = others_rate
        self.sent = 0

    def queue(self, now: float) -> float:
        """What waits there now, about."""
        passed = now - self.load.at
        came = self.sent + self.others_rate * passed
        return max(self.load.queue + came - self.load.matching_rate * passed, 0.0)


Policy = Callable[[Known, float, Random], float]
"""The cost of a point, now."""


def adaptive(known: Known, now: float, _random: Random) -> float:
    return _processing_seconds(known.queue(now), known.load.matching_rate)


def response_time(known: Known, _now: float, _random: Random) -> float:
    return _processing_seconds(known.load.queue, known.load.matching_rate)


def subscription_amount(known: Known, _now: float, _random: Random) -> float:
    return known.load.boxes


def random(_known: Known, _now: float, random: Random) -> float:
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


class Loads:
    """What one broker knows of all matchers."""

    def __init__(self, policy: Policy, random: Random) -> None:
        self.policy = policy
        self._random = random
        self._loads: dict[tuple[str, int], Known] = {}

    def told(self, matcher: str, dimension: int, load: Load) -> None:
        """A report; one that comes late is older than what is known."""
        known = self._loads.get((matcher, dimension))
        others_rate = load.arrival_rate
        if known is not None:
            passed = load.at - known.load.at
            if passed < 0:
                return
            if passed:
                others_rate = max(others_rate - known.sent / passed, 0.0)
        self._loads[matcher, dimension] = Known(load, others_rate)

    def sent(self, matcher: str, dimension: int, points: int) -> None:
        known = self._loads.get((matcher, dimension))
        if known is not None:
            known.sent += points

    def forget(self, matcher: str) -> None:
        for key in [key for key in self._loads if key[0] == matcher]:
            del self._loads[key]

    def state(self, matcher: str, dimension: int) -> Known | None:
        """None: it has told nothing."""
        return self._loads.get((matcher, dimension))

    def cost(self, matcher: str, dimension: int, now: float) -> float:
        known = self._loads.get((matcher, dimension))
        return 0.0 if known is None else self.policy(known, now, self._random)


class Meter:
    """A matcher's own, for one dimension."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._came = 0
        self._matched = 0
        self._busy_seconds = 0.0
        self._told: Load | None = None
        self.arrival_rate = 0.0
        """Of the last window."""
        self.matching_rate = 0.0
        """Of the last one in which something was matched."""

    def came(self, points: int) -> None:
        self._came += points

    def matched(self, points: int, seconds: float) -> None:
        """So many points took so long."""
        self._matched += points
        self._busy_seconds += seconds

    def is_due(self, now: float) -> bool:
        """Is there a window to report of?"""
        return now - self._since >= LOAD_WINDOW_SECONDS

    def report(self, now: float, queue: int, boxes: int) -> Load | None:
        """What to tell the brokers, if it is worth it."""
        passed = now - self._since
        if passed < LOAD_WINDOW_SECONDS:
            return None
        if self._matched and self._busy_seconds:
            self.matching_rate = self._matched / self._busy_seconds
        self.arrival_rate = self._came / passed
        load = Load(now, queue, self.arrival_rate, self.matching_rate, boxes)
        self._since = now
        self._came = self._matched = 0
        self._busy_seconds = 0.0
        if self._told is not None and not _differs(load, self._told):
            return None
        self._told = load
        return load


def _differs(load: Load, told: Load) -> bool:
    return any(
        abs(is_now - was) > LOAD_CHANGE * max(was, 1)
        for is_now, was in zip(load[1:], told[1:], strict=True)
    )
