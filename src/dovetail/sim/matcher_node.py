"""A matcher on the virtual clock: the real one, with a service time for what it matches. Pure.

The time that a job takes is a model: so much for a question, for a point of it, and for each box
held along its dimension. The default is what one core was seen to need (BlueDove's boxes in four
dimensions, up to 40,000 of them; the index looks at few, so a box costs little). Whoever compares
schemes chooses other figures, as those of an engine that looks at every box.

A matcher that stalls hears and does nothing until it goes on, as a process that is stopped.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dovetail.attributes.partition import Tokens
from dovetail.cluster.gossip import Event, Presence
from dovetail.matcher.answers import Job
from dovetail.matcher.matcher_messages import ANSWERED, LOADS
from dovetail.matcher.matcher_side import Back
from dovetail.matcher.relocation import MoveOrder
from dovetail.matcher.segment_tables import MATCHER, Phase

if TYPE_CHECKING:
    from dovetail.sim.matching_world import MatchingWorld

TICK_SECONDS = 0.1
HEARING_SECONDS = 1.5
"""Gossip goes round for so long before a matcher chooses its place."""

BROKER = "broker"
"""The key of a broker's record."""


class Costs(NamedTuple):
    """Of matching."""

    question_seconds: float = 1.5e-4
    point_seconds: float = 3e-7
    box_seconds: float = 1.1e-10

    def seconds(self, job: Job) -> float:
        return self.of(len(job.questions), job.points, job.boxes)

    def of(self, questions: int, points: int, boxes: int) -> float:
        of_points = points * (self.point_seconds + boxes * self.box_seconds)
        return questions * self.question_seconds + of_points


class MatcherNode:
    """One life of a matcher."""

    def __init__(
        self,
        world: "MatchingWorld",
        name: str,
        met: list[str],
        planned: Mapping[str, Tokens] | None = None,
    ) -> None:
        self.name = name
        self.is_stalled = False
        self.busy_seconds = 0.0
        self.points = 0
        self._world = world
        self._is_working = False
        self._missed: list[Callable[[], None]] = []
        self._joins_at = world.clock.now + HEARING_SECONDS
        self._planned = planned
        self._brokers: set[str] = set()
        self.back = Back(
            name,
            world.layouts,
            world.clock.now,
            stale_seconds=world.asking_seconds,
            queue_points_max=world.queue_points_max,
            job_points_max=world.job_points_max,
        )
        world.gossip.start(name, met)
        self.node = world.gossip.nodes[name]
        world.links.attach(self)
        world.clock.after(world.random.random() * TICK_SECONDS, self._tick)

    @property
    def is_running(self) -> bool:
        return self.node.is_running

    @property
    def is_serving(self) -> bool:
        joining = self.back.joining
        return self.is_running and joining is not None and joining.phase is Phase.SERVING

    # What happens to it ---------------------------------------------------------------------------

    def leave(self) -> None:
        self.back.leave(self._world.clock.now)

    def move(self, order: MoveOrder) -> None:
        """By a plan; who is stalled hears of it later."""

        def take() -> None:
            self.back.move(order, self._world.clock.now)

        self._unless_stalled(take)

    def crash(self) -> None:
        self.node.stop()
        self._world.links.detach(self)

    def stall(self, seconds: float) -> None:
        if not self.is_stalled:
            self.is_stalled = self.node.is_paused = True
            self._world.clock.after(seconds, self._go_on)

    def _go_on(self) -> None:
        self.is_stalled = self.node.is_paused = False
        missed, self._missed = self._missed, []
        for call in missed:
            if self.is_running:
                call()

    def _unless_stalled(self, call: Callable[[], None]) -> None:
        if self.is_stalled:
            self._missed.append(call)
        elif self.is_running:
            call()

    # Time -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.is_running:
            return
        self._world.clock.after(TICK_SECONDS, self._tick)
        if self.is_stalled:
            return
        now = self._world.clock.now
        self._heed()
        if self.back.joining is None and now >= self._joins_at:
            self.back.join(now, self._planned)
        loads, record = self.back.tick(now, self._brokers)
        for broker in self._brokers if loads is not None else ():
            self._world.links.answer(self, broker, LOADS, loads or b"")
        if record is not None:
            self.node.gossip.put(MATCHER, record)
        if self.back.joining is not None and self.back.joining.is_gone(now):
            self.node.leave()
            self._world.links.detach(self)

    def _heed(self) -> None:
        """What gossip has found out."""
        events, self.node.events = self.node.events, []
        for event in events:
            self._heed_one(event)

    def _heed_one(self, event: Event) -> None:
        name = event.name
        state = self.node.gossip.state(name)
        is_alive = event.presence is Presence.ALIVE and state is not None
        record = state.value(MATCHER) if is_alive and state is not None else None
        self.back.matcher_tells(name, record)
        if is_alive and state is not None and state.value(BROKER) is not None:
            self._brokers.add(name)
        elif not is_alive:
            self._brokers.discard(name)
        if event.presence is None:
            self.back.forget(name)

    # Frames ---------------------------------------------------------------------------------------

    def connected(self, name: str) -> None:
        """Matchers dial nobody."""

    def lost(self, name: str) -> None:
        """And nobody is lost to them."""

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """They send nothing that could be answered."""

    def receive(
        self, name: str, kind: int, body: bytes, answer: Callable[[int, bytes], object]
    ) -> None:
        def take() -> None:
            self.back.receive(name, kind, body, answer, self._world.clock.now)
            self._work()

        self._unless_stalled(take)

    # Work -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._is_working or self.is_stalled or not self.is_running:
            return
        answering = self.back.answering
        job = answering.next_job(self._world.clock.now)
        if job is not None:
            self._is_working = True
            seconds = self._world.costs.seconds(job)
            self._world.clock.after(seconds, self._finish, job, seconds)
            return
        wakes_at = answering.wakes_at()
        if wakes_at is not None:
            self._world.clock.at(wakes_at, self._work)

    def _finish(self, job: Job, seconds: float) -> None:
        def answer() -> None:
            self._is_working = False
            self.busy_seconds += seconds
            self.points += job.points
            for asker, body in self.back.answering.finish(job, seconds):
                self._world.links.answer(self, asker, ANSWERED, body)
            self._work()

        self._unless_stalled(answer)
