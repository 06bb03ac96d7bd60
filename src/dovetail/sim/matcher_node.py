"""A matcher on the virtual clock: the real matcher with a simulated service time. Pure.

The time of a job is a model: a cost per question, per point, and per box that is held along the
dimension. The defaults were measured on one core with up to 40,000 of BlueDove's boxes in four
dimensions; the index looks at few boxes, so a box costs little. Comparisons of schemes use other
costs, such as those of an engine that looks at every box.

A stalled matcher receives and does nothing until it resumes, like a stopped process.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dovetail.attributes.partition import Tokens
from dovetail.cluster.gossip import Presence, PresenceEvent
from dovetail.matcher.answers import MatchingJob
from dovetail.matcher.matcher_messages import ANSWER, LOADS
from dovetail.matcher.matcher_side import MatcherSide
from dovetail.matcher.relocation import MoveOrder
from dovetail.matcher.segment_tables import MATCHER, Phase

if TYPE_CHECKING:
    from dovetail.sim.matching_cluster import MatchingCluster

TICK_SECONDS = 0.1
GOSSIP_SECONDS = 1.5
"""A matcher listens to gossip for so long before it chooses its segments."""

BROKER = "broker"
"""The key of a broker's record."""


class MatchingCosts(NamedTuple):
    """The cost model of matching."""

    question_seconds: float = 1.5e-4
    point_seconds: float = 3e-7
    box_seconds: float = 1.1e-10

    def seconds(self, job: MatchingJob) -> float:
        return self.of(len(job.questions), job.points, job.boxes)

    def of(self, questions: int, points: int, boxes: int) -> float:
        of_points = points * (self.point_seconds + boxes * self.box_seconds)
        return questions * self.question_seconds + of_points


class SimulatedMatcher:
    """One incarnation of a matcher."""

    def __init__(
        self,
        cluster: "MatchingCluster",
        name: str,
        contacts: list[str],
        planned: Mapping[str, Tokens] | None = None,
    ) -> None:
        self.name = name
        self.is_stalled = False
        self.busy_seconds = 0.0
        self.points = 0
        self._cluster = cluster
        self._is_working = False
        self._postponed: list[Callable[[], None]] = []
        self._joins_at = cluster.clock.now + GOSSIP_SECONDS
        self._planned = planned
        self._brokers: set[str] = set()
        self.side = MatcherSide(
            name,
            cluster.layouts,
            cluster.clock.now,
            stale_seconds=cluster.asking_seconds,
            queue_points_max=cluster.queue_points_max,
            job_points_max=cluster.job_points_max,
        )
        cluster.gossip.start(name, contacts)
        self.node = cluster.gossip.nodes[name]
        cluster.connections.attach(self)
        cluster.clock.after(cluster.random.random() * TICK_SECONDS, self._tick)

    @property
    def is_running(self) -> bool:
        return self.node.is_running

    @property
    def is_serving(self) -> bool:
        lifecycle = self.side.lifecycle
        return self.is_running and lifecycle is not None and lifecycle.phase is Phase.SERVING

    # Events ---------------------------------------------------------------------------------------

    def leave(self) -> None:
        self.side.leave(self._cluster.clock.now)

    def move(self, order: MoveOrder) -> None:
        """Order a move by a plan. A stalled matcher gets the order when it resumes."""

        def take() -> None:
            self.side.move(order, self._cluster.clock.now)

        self._unless_stalled(take)

    def crash(self) -> None:
        self.node.stop()
        self._cluster.connections.detach(self)

    def stall(self, seconds: float) -> None:
        if not self.is_stalled:
            self.is_stalled = self.node.is_paused = True
            self._cluster.clock.after(seconds, self._resume)

    def _resume(self) -> None:
        self.is_stalled = self.node.is_paused = False
        postponed, self._postponed = self._postponed, []
        for call in postponed:
            if self.is_running:
                call()

    def _unless_stalled(self, call: Callable[[], None]) -> None:
        if self.is_stalled:
            self._postponed.append(call)
        elif self.is_running:
            call()

    # Time -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.is_running:
            return
        self._cluster.clock.after(TICK_SECONDS, self._tick)
        if self.is_stalled:
            return
        now = self._cluster.clock.now
        self._apply_gossip_events()
        if self.side.lifecycle is None and now >= self._joins_at:
            self.side.join(now, self._planned)
        loads, record = self.side.tick(now, self._brokers)
        for broker in self._brokers if loads is not None else ():
            self._cluster.connections.answer(self, broker, LOADS, loads or b"")
        if record is not None:
            self.node.gossip.put(MATCHER, record)
        if self.side.lifecycle is not None and self.side.lifecycle.is_gone(now):
            self.node.leave()
            self._cluster.connections.detach(self)

    def _apply_gossip_events(self) -> None:
        """Tell the matcher what gossip has found out."""
        events, self.node.events = self.node.events, []
        for event in events:
            self._apply_gossip_event(event)

    def _apply_gossip_event(self, event: PresenceEvent) -> None:
        name = event.name
        state = self.node.gossip.state(name)
        is_alive = event.presence is Presence.ALIVE and state is not None
        record = state.value(MATCHER) if is_alive and state is not None else None
        self.side.receive_record(name, record)
        if is_alive and state is not None and state.value(BROKER) is not None:
            self._brokers.add(name)
        elif not is_alive:
            self._brokers.discard(name)
        if event.presence is None:
            self.side.forget(name)

    # Frames ---------------------------------------------------------------------------------------

    def connected(self, name: str) -> None:
        """Unused: matchers dial nobody."""

    def lost(self, name: str) -> None:
        """Unused: matchers have no connections of their own."""

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """Unused: matchers send nothing that could be answered."""

    def receive(
        self, name: str, kind: int, body: bytes, answer: Callable[[int, bytes], object]
    ) -> None:
        def take() -> None:
            self.side.receive(name, kind, body, answer, self._cluster.clock.now)
            self._work()

        self._unless_stalled(take)

    # Work -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._is_working or self.is_stalled or not self.is_running:
            return
        answers = self.side.answers
        job = answers.next_job(self._cluster.clock.now)
        if job is not None:
            self._is_working = True
            seconds = self._cluster.costs.seconds(job)
            self._cluster.clock.after(seconds, self._finish, job, seconds)
            return
        wakes_at = answers.next_wake()
        if wakes_at is not None:
            self._cluster.clock.at(wakes_at, self._work)

    def _finish(self, job: MatchingJob, seconds: float) -> None:
        def answer() -> None:
            self._is_working = False
            self.busy_seconds += seconds
            self.points += job.points
            for asker, body in self.side.answers.finish_job(job, seconds):
                self._cluster.connections.answer(self, asker, ANSWER, body)
            self._work()

        self._unless_stalled(answer)
