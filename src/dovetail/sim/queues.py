"""A fast model of matchers: queues on a virtual clock, without boxes and frames. Pure.

It computes how long points wait. Most of what a simulated cluster does (matching_cluster.py) has no
influence on that: frames, feeds, gossip, the search itself. The model has candidates, policies and
load reports, by the code of the service, and queues that share a matcher's time. It counts once how
many boxes a matcher holds along a dimension. So a publication costs a thirtieth of its cost in the
full simulation. A test compares the two.

Candidates depend on segments alone. So `addressed` finds them before points are published, for
thousands of points at a time.
"""

import math
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from dovetail.attributes import policies
from dovetail.attributes.limits import LOAD_WINDOW_SECONDS
from dovetail.attributes.policies import DimensionLoad, LoadMeter, LoadTracker
from dovetail.matcher.candidate_choice import choose
from dovetail.matcher.layout import Floats
from dovetail.sim import box_counts
from dovetail.sim.clock import Clock
from dovetail.sim.matcher_node import TICK_SECONDS, MatchingCosts
from dovetail.sim.systems import MatcherTestbed, System

LINK_SECONDS = 0.001
_UNKNOWN_COST = 1e-9


Target = tuple[str, int]
"""A matcher, and the dimension that it searches."""
Candidates = tuple[Target, ...]


class _QueuedQuestion(NamedTuple):
    came_at: float
    points: int


class _MatcherQueues:
    """One server, with a queue for each dimension."""

    def __init__(self, name: str, boxes: Sequence[int]) -> None:
        self.name = name
        self.boxes = boxes
        self.queues: list[deque[_QueuedQuestion]] = [deque() for _ in boxes]
        self.points = [0] * len(boxes)
        self.meters = [LoadMeter(0.0) for _ in boxes]
        self.busy_seconds = 0.0
        self.is_working = False
        # The time that each queue has used, as in matcher/answers.py.
        self._used = [0.0] * len(boxes)
        self._used_least = 0.0

    def next_queue(self) -> int | None:
        waiting = [dimension for dimension, queue in enumerate(self.queues) if queue]
        if not waiting:
            return None
        chosen = min(waiting, key=self._used.__getitem__)
        self._used_least = max(self._used_least, self._used[chosen])
        return chosen

    def record_job(self, dimension: int, points: int, seconds: float) -> None:
        self.busy_seconds += seconds
        self.meters[dimension].record_matched(points, seconds)
        self._used[dimension] = max(self._used[dimension], self._used_least) + seconds


class Queues:
    """The queues of a cluster's matchers, and the loads that its brokers know."""

    def __init__(self, system: System, testbed: MatcherTestbed, seed: int) -> None:
        layout = self._layout = testbed.layout(system.scheme)
        placement = testbed.placement(layout)
        self._placement = placement
        self._costs: MatchingCosts = testbed.costs
        self._job_points_max = testbed.job_points_max
        self._random = Random(seed)
        self.clock = Clock()
        lows, highs = testbed.drawn_boxes(seed)
        kinds = layout.kinds(lows, highs)
        self._kinds = frozenset(np.unique(kinds).tolist()) - {0}
        self._is_one_enough = self._kinds <= {(1 << layout.searchable) - 1}
        self._matchers = {
            name: _MatcherQueues(name, along)
            for name, along in zip(
                placement.names, box_counts.along(placement, lows, highs).tolist(), strict=True
            )
        }
        self._brokers = [
            LoadTracker(system.policy, Random(self._random.random()))
            for _ in range(testbed.brokers)
        ]
        self.waiting_points = 0
        """Points without an answer."""
        self._response_seconds = 0.0
        self._answered_points = 0
        for matcher in self._matchers.values():
            self.clock.after(self._random.random() * TICK_SECONDS, self._tick, matcher)

    # Points ---------------------------------------------------------------------------------------

    def addressed(self, points: Floats) -> list[Candidates]:
        """Return the candidates of points. With full replication they are drawn in `publish`."""
        if self._layout.is_copied:
            return [()] * len(points)
        names = self._placement.names
        usable = np.ones(len(names), np.bool_)
        found = self._placement.candidates(self._layout.values(points), usable, self._random)
        return [
            tuple((names[place], dimension) for dimension, place in enumerate(row))
            for row in found.tolist()
        ]

    def publish(self, broker: int, points: Sequence[Candidates]) -> None:
        """Publish addressed points that came to this broker together."""
        loads, now = self._brokers[broker], self.clock.now
        costs_known: dict[Target, float] = {}
        questions: dict[Target, int] = {}
        for candidates in points:
            for target in self._targets(candidates or self._any_matcher(), loads, costs_known):
                questions[target] = questions.get(target, 0) + 1
            if loads.policy is policies.random:  # each point draws anew
                costs_known.clear()
        for (name, dimension), count in questions.items():
            loads.record_sent(name, dimension, count)
            self.waiting_points += count
            self.clock.at(now + LINK_SECONDS, self._enqueue, self._matchers[name], dimension, count)

    def _any_matcher(self) -> Candidates:
        return ((self._random.choice(self._placement.names), 0),)

    def _targets(
        self, candidates: Candidates, loads: LoadTracker, costs_known: dict[Target, float]
    ) -> Sequence[Target]:
        """Choose one target if all boxes are narrow everywhere, else one for each kind of box."""
        if self._is_one_enough:
            return (self._best(candidates, loads, costs_known),)
        costs = np.array([[self._cost(one, loads, costs_known) for one in candidates]])
        chosen = choose(np.zeros(costs.shape, np.int64), self._kinds, costs)
        return [candidates[choice.dimension] for choice in chosen.asked]

    def _best(
        self, candidates: Candidates, loads: LoadTracker, costs_known: dict[Target, float]
    ) -> Target:
        """Return the first of the cheapest candidates."""
        best, least = candidates[0], math.inf
        for target in candidates:
            cost = costs_known.get(target) or self._cost(target, loads, costs_known)
            if cost < least:
                best, least = target, cost
        return best

    def _cost(self, target: Target, loads: LoadTracker, costs_known: dict[Target, float]) -> float:
        """Return the cost of a target. `costs_known` caches costs."""
        cost = costs_known.get(target)
        if cost is None:
            name, dimension = target
            cost = loads.cost(name, dimension, self.clock.now)
            cost = costs_known[target] = cost or _UNKNOWN_COST * self._random.random()
        return cost

    def _enqueue(self, matcher: _MatcherQueues, dimension: int, points: int) -> None:
        matcher.meters[dimension].record_arrived(points)
        matcher.queues[dimension].append(_QueuedQuestion(self.clock.now, points))
        matcher.points[dimension] += points
        self._work(matcher)

    def _work(self, matcher: _MatcherQueues) -> None:
        if matcher.is_working or (dimension := matcher.next_queue()) is None:
            return
        queue = matcher.queues[dimension]
        questions = points = 0
        came = 0.0
        while queue and (not points or points + queue[0].points <= self._job_points_max):
            question = queue.popleft()
            points += question.points
            came += question.came_at * question.points
            questions += 1
        matcher.points[dimension] -= points
        matcher.is_working = True
        seconds = self._costs.of(questions, points, matcher.boxes[dimension])
        answered_at = self.clock.now + seconds + 2 * LINK_SECONDS
        self._response_seconds += answered_at * points - came
        self._answered_points += points
        self.clock.after(seconds, self._finish, matcher, dimension, points, seconds)

    def _finish(self, matcher: _MatcherQueues, dimension: int, points: int, seconds: float) -> None:
        matcher.is_working = False
        matcher.record_job(dimension, points, seconds)
        self.waiting_points -= points
        self._work(matcher)

    # Loads ----------------------------------------------------------------------------------------

    def _tick(self, matcher: _MatcherQueues) -> None:
        self.clock.after(TICK_SECONDS, self._tick, matcher)
        for dimension, meter in enumerate(matcher.meters):
            points, boxes = matcher.points[dimension], matcher.boxes[dimension]
            load = meter.report(self.clock.now, points, boxes)
            if load is not None:
                self.clock.after(LINK_SECONDS, self._report, matcher.name, dimension, load)

    def _report(self, name: str, dimension: int, load: DimensionLoad) -> None:
        for broker in self._brokers:
            broker.record_report(name, dimension, load._replace(at=self.clock.now))

    # For experiments ------------------------------------------------------------------------------

    def waited_seconds(self) -> list[float]:
        """Return for each matcher how long its next question has waited."""
        now = self.clock.now
        return [
            max((now - queue[0].came_at for queue in one.queues if queue), default=0.0)
            for one in self._matchers.values()
        ]

    def busy_seconds(self) -> list[float]:
        return [one.busy_seconds for one in self._matchers.values()]

    def take_response_seconds(self) -> float:
        """Return the mean time from arrival to answer of points matched since the last call."""
        seconds, points = self._response_seconds, self._answered_points
        self._response_seconds, self._answered_points = 0.0, 0
        return seconds / max(points, 1)

    def run_empty(self) -> None:
        while self.waiting_points:
            self.clock.run_until(self.clock.now + LOAD_WINDOW_SECONDS)
