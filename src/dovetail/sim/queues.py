"""Queues of matchers on a virtual clock, without boxes and frames: how long points wait. Pure.

Most of what a simulated cluster does (matching_world.py) has no part in how long a point waits:
frames, feeds, gossip, the search itself. Here are candidates, policies, what matchers tell of their
load, and queues that share a matcher's time; the first three by the code of the service. How many
boxes a matcher holds along a dimension is counted once. So a publication costs a thirtieth of what
it does there, and experiments can have as many as they need. A test holds one against the other.

Points are addressed before they are published (`addressed`), thousands at a time: who their
candidates are depends on segments alone.
"""

import math
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from dovetail.attributes import policies
from dovetail.attributes.limits import LOAD_WINDOW_SECONDS
from dovetail.attributes.policies import Load, Loads, Meter
from dovetail.matcher.candidate_choice import choose
from dovetail.matcher.layout import Floats
from dovetail.sim import box_counts
from dovetail.sim.clock import Clock
from dovetail.sim.matcher_node import TICK_SECONDS, Costs
from dovetail.sim.systems import Setting, System

LINK_SECONDS = 0.001
_UNKNOWN_COST = 1e-9


Asked = tuple[str, int]
"""A matcher, and the dimension that it is asked along."""
Candidates = tuple[Asked, ...]


class _Question(NamedTuple):
    came_at: float
    points: int


class _Matcher:
    """One server, with a queue for each dimension."""

    def __init__(self, name: str, boxes: Sequence[int]) -> None:
        self.name = name
        self.boxes = boxes
        self.queues: list[deque[_Question]] = [deque() for _ in boxes]
        self.points = [0] * len(boxes)
        self.meters = [Meter(0.0) for _ in boxes]
        self.busy_seconds = 0.0
        self.is_working = False
        # Time that each queue has had, as in matcher/answers.py.
        self._used = [0.0] * len(boxes)
        self._used_least = 0.0

    def next_queue(self) -> int | None:
        waiting = [dimension for dimension, queue in enumerate(self.queues) if queue]
        if not waiting:
            return None
        chosen = min(waiting, key=self._used.__getitem__)
        self._used_least = max(self._used_least, self._used[chosen])
        return chosen

    def took(self, dimension: int, points: int, seconds: float) -> None:
        self.busy_seconds += seconds
        self.meters[dimension].matched(points, seconds)
        self._used[dimension] = max(self._used[dimension], self._used_least) + seconds


class Queues:
    """A cluster, as far as time goes."""

    def __init__(self, system: System, setting: Setting, seed: int) -> None:
        layout = self._layout = setting.layout(system.scheme)
        placement = setting.placement(layout)
        self._placement = placement
        self._costs: Costs = setting.costs
        self._job_points_max = setting.job_points_max
        self._random = Random(seed)
        self.clock = Clock()
        lows, highs = setting.drawn_boxes(seed)
        kinds = layout.kinds(lows, highs)
        self._kinds = frozenset(np.unique(kinds).tolist()) - {0}
        self._is_one_enough = self._kinds <= {(1 << layout.searchable) - 1}
        self._matchers = {
            name: _Matcher(name, along)
            for name, along in zip(
                placement.names, box_counts.along(placement, lows, highs).tolist(), strict=True
            )
        }
        self._brokers = [
            Loads(system.policy, Random(self._random.random())) for _ in range(setting.brokers)
        ]
        self.waiting_points = 0
        """Without an answer."""
        self._response_seconds = 0.0
        self._answered_points = 0
        for matcher in self._matchers.values():
            self.clock.after(self._random.random() * TICK_SECONDS, self._tick, matcher)

    # Points ---------------------------------------------------------------------------------------

    def addressed(self, points: Floats) -> list[Candidates]:
        """Their candidates. Where everybody has everything there is one, drawn when it comes."""
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
        """That came at this broker together, addressed."""
        loads, now = self._brokers[broker], self.clock.now
        known: dict[Asked, float] = {}
        questions: dict[Asked, int] = {}
        for candidates in points:
            for asked in self._asked(candidates or self._anybody(), loads, known):
                questions[asked] = questions.get(asked, 0) + 1
            if loads.policy is policies.random:  # for each point anew
                known.clear()
        for (name, dimension), count in questions.items():
            loads.sent(name, dimension, count)
            self.waiting_points += count
            self.clock.at(now + LINK_SECONDS, self._come, self._matchers[name], dimension, count)

    def _anybody(self) -> Candidates:
        return ((self._random.choice(self._placement.names), 0),)

    def _asked(
        self, candidates: Candidates, loads: Loads, known: dict[Asked, float]
    ) -> Sequence[Asked]:
        """One where all boxes are narrow everywhere, and otherwise one for each kind of box."""
        if self._is_one_enough:
            return (self._best(candidates, loads, known),)
        costs = np.array([[self._cost(one, loads, known) for one in candidates]])
        chosen = choose(np.zeros(costs.shape, np.int64), self._kinds, costs)
        return [candidates[choice.dimension] for choice in chosen.asked]

    def _best(self, candidates: Candidates, loads: Loads, known: dict[Asked, float]) -> Asked:
        """The first of the cheapest."""
        best, least = candidates[0], math.inf
        for asked in candidates:
            cost = known.get(asked) or self._cost(asked, loads, known)
            if cost < least:
                best, least = asked, cost
        return best

    def _cost(self, asked: Asked, loads: Loads, known: dict[Asked, float]) -> float:
        """`known` has what those cost that were asked about before."""
        cost = known.get(asked)
        if cost is None:
            name, dimension = asked
            cost = loads.cost(name, dimension, self.clock.now)
            cost = known[asked] = cost or _UNKNOWN_COST * self._random.random()
        return cost

    def _come(self, matcher: _Matcher, dimension: int, points: int) -> None:
        matcher.meters[dimension].came(points)
        matcher.queues[dimension].append(_Question(self.clock.now, points))
        matcher.points[dimension] += points
        self._work(matcher)

    def _work(self, matcher: _Matcher) -> None:
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

    def _finish(self, matcher: _Matcher, dimension: int, points: int, seconds: float) -> None:
        matcher.is_working = False
        matcher.took(dimension, points, seconds)
        self.waiting_points -= points
        self._work(matcher)

    # Loads ----------------------------------------------------------------------------------------

    def _tick(self, matcher: _Matcher) -> None:
        self.clock.after(TICK_SECONDS, self._tick, matcher)
        for dimension, meter in enumerate(matcher.meters):
            points, boxes = matcher.points[dimension], matcher.boxes[dimension]
            load = meter.report(self.clock.now, points, boxes)
            if load is not None:
                self.clock.after(LINK_SECONDS, self._tell, matcher.name, dimension, load)

    def _tell(self, name: str, dimension: int, load: Load) -> None:
        for broker in self._brokers:
            broker.told(name, dimension, load._replace(at=self.clock.now))

    # For experiments ------------------------------------------------------------------------------

    def waited_seconds(self) -> list[float]:
        """At each matcher, how long whoever is next has waited."""
        now = self.clock.now
        return [
            max((now - queue[0].came_at for queue in one.queues if queue), default=0.0)
            for one in self._matchers.values()
        ]

    def busy_seconds(self) -> list[float]:
        return [one.busy_seconds for one in self._matchers.values()]

    def take_response_seconds(self) -> float:
        """From a point's coming to its answer, on average of those matched since the last call."""
        seconds, points = self._response_seconds, self._answered_points
        self._response_seconds, self._answered_points = 0.0, 0
        return seconds / max(points, 1)

    def run_empty(self) -> None:
        while self.waiting_points:
            self.clock.run_until(self.clock.now + LOAD_WINDOW_SECONDS)
