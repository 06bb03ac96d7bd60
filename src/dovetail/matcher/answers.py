"""A matcher's question queues, one for each dimension, and the answers. Pure.

    QUESTION ──> queue of its space and dimension ──> job ──> ANSWER
                   │  ^
                   v  │ the feed has come, or FEED_WAIT_SECONDS_MAX is over
                  parked: waits for boxes that are on their way

Rules:

- Queues share the time evenly, so that a dimension on which matching takes long does not hold up
  the others (BlueDove III-B). A job takes questions from one queue, as many as are worth one
  search.
- The caller reports how long each job took. The reported loads come from that.
- A question that is too old is answered with "unsure" at once: its broker no longer waits. So is a
  question that finds the queues full, or that is about an unknown space.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dovetail.attributes.limits import LOAD_WINDOW_SECONDS
from dovetail.attributes.policies import DimensionLoad, LoadMeter
from dovetail.matcher.coverage import Cover
from dovetail.matcher.held_boxes import HeldBoxes, unsure
from dovetail.matcher.kernels.grouping import UNSURE
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    FEED_WAIT_SECONDS_MAX,
    MATCHER_QUEUE_POINTS_MAX,
    MATCHING_POINTS_MAX,
)
from dovetail.matcher.matcher_messages import (
    FeedReply,
    LoadRow,
    LoadsMessage,
    MatcherAnswer,
    MatcherQuestion,
    decoded,
    encode,
    feed_decoder,
    question_decoder,
)

Key = tuple[str, int]
"""A space and a dimension."""


class PendingQuestion(NamedTuple):
    asker: str
    question: MatcherQuestion
    points: int
    came_at: float
    feeds_until: float
    """Until then it may wait for boxes."""


class MatchingJob(NamedTuple):
    """Questions along one dimension that are answered by one search."""

    space: str
    dimension: int
    questions: list[PendingQuestion]
    stale: list[PendingQuestion]
    points: int
    boxes: int
    """Boxes that are held along this dimension."""


class MatcherAnswers:
    """One matcher's boxes and question queues."""

    def __init__(
        self,
        layouts: Mapping[str, Layout],
        now: float,
        *,
        stale_seconds: float = ASKING_SECONDS_MAX,
        queue_points_max: int = MATCHER_QUEUE_POINTS_MAX,
        job_points_max: int = MATCHING_POINTS_MAX,
    ) -> None:
        self.spaces = {space: HeldBoxes(layout) for space, layout in layouts.items()}
        self._stale_seconds = stale_seconds
        self._queue_points_max = queue_points_max
        self._job_points_max = job_points_max
        keys = [
            (space, dimension)
            for space, layout in layouts.items()
            for dimension in range(layout.searchable)
        ]
        self._queues: dict[Key, deque[PendingQuestion]] = {key: deque() for key in keys}
        self._points: dict[Key, int] = dict.fromkeys(keys, 0)
        self._meters = {key: LoadMeter(now) for key in keys}
        self._used: dict[Key, float] = dict.fromkeys(keys, 0.0)  # seconds, see `next_job`
        self._used_least = 0.0
        self._parked: list[PendingQuestion] = []
        self._reported: dict[Key, LoadRow] = {}
        self._busy_seconds = 0.0
        self._busy_since = now
        self.busy_share = 0.0
        self.points_answered = 0
        self.points_unsure = 0
        """Answered points that were unsure about at least one broker."""

    # Feeds ----------------------------------------------------------------------------------------

    def receive_feed(self, broker: str, body: bytes) -> tuple[bytes, bool]:
        """Handle FEED. Return the FEED_REPLY, and whether a feed has started."""
        step = decoded(feed_decoder, body)
        space = self.spaces.get(step.space)
        if space is None:
            unknown = FeedReply(step.space, step.life, step.epoch, 0, is_unknown=True)
            return encode(unknown), False
        taken = space.take(broker, step)
        if step.version is not None and self._parked:
            self._unpark(step.space)
        return encode(taken), not step.sequence

    def forget(self, broker: str) -> None:
        for space in self.spaces.values():
            space.forget(broker)

    def covers(self, broker: str, covers: Mapping[str, Cover]) -> bool:
        """Has the broker fed all boxes that these covers need?"""
        return all(self.spaces[space].covers(broker, cover) for space, cover in covers.items())

    def is_released(self, broker: str) -> bool:
        return all(space.is_released(broker) for space in self.spaces.values())

    # Questions ------------------------------------------------------------------------------------

    @property
    def points_waiting(self) -> int:
        return sum(self._points.values())

    def waited_seconds(self, now: float) -> float:
        """Return how long the oldest queued question has waited."""
        return max((now - queue[0].came_at for queue in self._queues.values() if queue), default=0)

    def receive_question(self, asker: str, body: bytes, now: float) -> bytes | None:
        """Handle QUESTION: queue it. Return the ANSWER if it is "unsure" at once."""
        question = decoded(question_decoder, body)
        space = self.spaces.get(question.space)
        if space is None:
            return encode(_unsure_of_all(question))
        points = len(space.points(question))
        key = (question.space, question.dimension)
        self._meters[key].record_arrived(points)
        if self.points_waiting + points > self._queue_points_max:
            answer = unsure(question, points)
            self._count(points, answer)
            return encode(answer)
        until = now + FEED_WAIT_SECONDS_MAX
        self._queues[key].append(PendingQuestion(asker, question, points, now, until))
        self._points[key] += points
        return None

    def next_job(self, now: float) -> MatchingJob | None:
        """Return the next job, or None."""
        self._release(now)
        waiting = [key for key, queue in self._queues.items() if queue]
        while waiting:
            key = min(waiting, key=self._used.__getitem__)
            # A queue that was empty gets no credit for the time that others used meanwhile.
            self._used_least = max(self._used_least, self._used[key])
            job = self._job(key, now)
            if job is not None:
                return job
            waiting.remove(key)
        return None

    def _job(self, key: Key, now: float) -> MatchingJob | None:
        queue, space = self._queues[key], self.spaces[key[0]]
        questions: list[PendingQuestion] = []
        stale: list[PendingQuestion] = []
        points = 0
        while queue and (not points or points + queue[0].points <= self._job_points_max):
            one = queue.popleft()
            self._points[key] -= one.points
            if now - one.came_at > self._stale_seconds:
                stale.append(one)
            elif now < one.feeds_until and space.is_behind(one.question.brokers):
                self._parked.append(one)
            else:
                questions.append(one)
                points += one.points
        if not questions and not stale:
            return None
        return MatchingJob(*key, questions, stale, points, space.boxes_along()[key[1]])

    def finish_job(self, job: MatchingJob, seconds: float) -> list[tuple[str, bytes]]:
        """Answer a job whose duration is known beforehand (in simulations)."""
        self.record_job(job, seconds)
        return self.answer(job)

    def answer(self, job: MatchingJob) -> list[tuple[str, bytes]]:
        """Return each asker and its ANSWER. Then report the duration with `record_job`."""
        answers = [(one, unsure(one.question, one.points)) for one in job.stale]
        if job.questions:
            found = self.spaces[job.space].answer([one.question for one in job.questions])
            answers += zip(job.questions, found, strict=True)
        for one, answer in answers:
            self._count(one.points, answer)
        return [(one.asker, encode(answer)) for one, answer in answers]

    def record_other_work(self, seconds: float) -> None:
        """Count the time spent on received frames as busy."""
        self._busy_seconds += seconds

    def record_job(self, job: MatchingJob, seconds: float) -> None:
        self._busy_seconds += seconds
        if job.questions:
            self._meters[job.space, job.dimension].record_matched(job.points, seconds)
        key = (job.space, job.dimension)
        self._used[key] = max(self._used[key], self._used_least) + seconds

    def _count(self, points: int, answer: MatcherAnswer) -> None:
        self.points_answered += points
        if points and answer.counts:
            counts = np.frombuffer(answer.counts, "<u4").reshape(points, -1)
            self.points_unsure += int(np.count_nonzero((counts == UNSURE).any(axis=1)))

    # Waiting for feeds ----------------------------------------------------------------------------

    def next_wake(self) -> float | None:
        """Return the time at which the first parked question stops waiting."""
        return min((one.feeds_until for one in self._parked), default=None)

    def _unpark(self, space: str) -> None:
        due = [one for one in self._parked if one.question.space == space]
        self._parked = [one for one in self._parked if one.question.space != space]
        self._return(due)

    def _release(self, now: float) -> None:
        if self._parked:
            due = [one for one in self._parked if one.feeds_until <= now]
            self._parked = [one for one in self._parked if one.feeds_until > now]
            self._return(due)

    def _return(self, due: list[PendingQuestion]) -> None:
        """Put questions back at the front of their queues: they came first."""
        for one in reversed(due):
            key = (one.question.space, one.question.dimension)
            self._queues[key].appendleft(one)
            self._points[key] += one.points

    # Loads ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> bytes | None:
        """Return LOADS if some load is due."""
        passed = now - self._busy_since
        if passed >= LOAD_WINDOW_SECONDS:
            self.busy_share = min(self._busy_seconds / passed, 1.0)
            self._busy_seconds, self._busy_since = 0.0, now
        rows = []
        for (space, dimension), meter in self._meters.items():
            if not meter.is_due(now):
                continue
            boxes = self.spaces[space].boxes_along()[dimension]
            load = meter.report(now, self._points[space, dimension], boxes)
            if load is not None:
                row = self._reported[space, dimension] = LoadRow(space, dimension, *load[1:])
                rows.append(row)
        return encode(LoadsMessage(rows)) if rows else None

    def loads_now(self) -> Mapping[Key, DimensionLoad]:
        """Return current queues and boxes, and the rates of the last window, for reports."""
        along = {space: held.boxes_along() for space, held in self.spaces.items()}
        return {
            (space, dimension): DimensionLoad(
                0.0,
                self._points[space, dimension],
                meter.arrival_rate,
                meter.matching_rate,
                along[space][dimension],
            )
            for (space, dimension), meter in self._meters.items()
        }

    def loads(self) -> bytes:
        """Return LOADS with the last reported row of each dimension, for a new broker."""
        return encode(LoadsMessage(list(self._reported.values())))


def _unsure_of_all(question: MatcherQuestion) -> MatcherAnswer:
    """Answer a question whose number of points is unknown, as its space is."""
    return MatcherAnswer(question.number, b"", b"")
