"""A matcher at work: questions wait in a queue for each dimension, and are answered in turn. Pure.

    asked ──> queue of its space and dimension ──> job ──> answers
                │  ^
                v  │ the feed has come, or FEED_WAIT_SECONDS_MAX is over
               waiting for boxes that are on their way

Rules:

- Queues share the time evenly, so that a dimension on which matching takes long does not hold up
  the others (BlueDove III-B). A job is of one queue, and has as many questions as are worth one
  search.
- Whoever drives this says how long a job took; the loads that are told come of it.
- A question that is too old is answered with "unsure" at once: who asked has gone on. So is one
  that finds the queues full, and one about a space that is not known here.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dovetail.attributes.limits import LOAD_WINDOW_SECONDS
from dovetail.attributes.policies import Load, Meter
from dovetail.matcher.coverage import Cover
from dovetail.matcher.held_boxes import HeldSpace, unsure
from dovetail.matcher.kernels.grouping import UNSURE
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    FEED_WAIT_SECONDS_MAX,
    MATCHER_QUEUE_POINTS_MAX,
    MATCHING_POINTS_MAX,
)
from dovetail.matcher.matcher_messages import (
    AnsweredBody,
    AskedBody,
    LoadRow,
    LoadsBody,
    TakenBody,
    asked_decoder,
    decoded,
    encode,
    feed_decoder,
)

Key = tuple[str, int]
"""A space and a dimension."""


class Waiting(NamedTuple):
    asker: str
    question: AskedBody
    points: int
    came_at: float
    feeds_until: float
    """It may wait for feeds."""


class Job(NamedTuple):
    """Questions along one dimension, and how much work they are."""

    space: str
    dimension: int
    questions: list[Waiting]
    stale: list[Waiting]
    points: int
    boxes: int
    """That are held along this dimension."""


class Answering:
    """One matcher's boxes and queues."""

    def __init__(
        self,
        layouts: Mapping[str, Layout],
        now: float,
        *,
        stale_seconds: float = ASKING_SECONDS_MAX,
        queue_points_max: int = MATCHER_QUEUE_POINTS_MAX,
        job_points_max: int = MATCHING_POINTS_MAX,
    ) -> None:
        self.spaces = {space: HeldSpace(layout) for space, layout in layouts.items()}
        self._stale_seconds = stale_seconds
        self._queue_points_max = queue_points_max
        self._job_points_max = job_points_max
        keys = [
            (space, dimension)
            for space, layout in layouts.items()
            for dimension in range(layout.searchable)
        ]
        self._queues: dict[Key, deque[Waiting]] = {key: deque() for key in keys}
        self._points: dict[Key, int] = dict.fromkeys(keys, 0)
        self._meters = {key: Meter(now) for key in keys}
        self._used: dict[Key, float] = dict.fromkeys(keys, 0.0)  # seconds, see `next_job`
        self._used_least = 0.0
        self._parked: list[Waiting] = []
        self._told: dict[Key, LoadRow] = {}
        self._busy_seconds = 0.0
        self._busy_since = now
        self.busy_share = 0.0
        self.points_answered = 0
        self.points_unsure = 0
        """Of these, how many were unsure of some broker."""

    # Feeds ----------------------------------------------------------------------------------------

    def fed(self, broker: str, body: bytes) -> tuple[bytes, bool]:
        """FEED. The answer is TAKEN; and is this the begin of a feed?"""
        step = decoded(feed_decoder, body)
        space = self.spaces.get(step.space)
        if space is None:
            unknown = TakenBody(step.space, step.life, step.epoch, 0, is_unknown=True)
            return encode(unknown), False
        taken = space.take(broker, step)
        if step.version is not None and self._parked:
            self._unpark(step.space)
        return encode(taken), not step.sequence

    def forget(self, broker: str) -> None:
        for space in self.spaces.values():
            space.forget(broker)

    def covers(self, broker: str, covers: Mapping[str, Cover]) -> bool:
        """Has the broker fed all that these need?"""
        return all(self.spaces[space].covers(broker, cover) for space, cover in covers.items())

    def is_released(self, broker: str) -> bool:
        return all(space.is_released(broker) for space in self.spaces.values())

    # Questions ------------------------------------------------------------------------------------

    @property
    def points_waiting(self) -> int:
        return sum(self._points.values())

    def waited_seconds(self, now: float) -> float:
        """Of all questions that wait in queues, how long has the oldest?"""
        return max((now - queue[0].came_at for queue in self._queues.values() if queue), default=0)

    def asked(self, asker: str, body: bytes, now: float) -> bytes | None:
        """ASKED. An answer, if there is one at once."""
        question = decoded(asked_decoder, body)
        space = self.spaces.get(question.space)
        if space is None:
            return encode(_unsure_of_all(question))
        points = len(space.points(question))
        key = (question.space, question.dimension)
        self._meters[key].came(points)
        if self.points_waiting + points > self._queue_points_max:
            answer = unsure(question, points)
            self._count(points, answer)
            return encode(answer)
        until = now + FEED_WAIT_SECONDS_MAX
        self._queues[key].append(Waiting(asker, question, points, now, until))
        self._points[key] += points
        return None

    def next_job(self, now: float) -> Job | None:
        """The next work to do, if there is some."""
        self._release(now)
        waiting = [key for key, queue in self._queues.items() if queue]
        while waiting:
            key = min(waiting, key=self._used.__getitem__)
            # Who had nothing to do has no claim to the time that others used meanwhile.
            self._used_least = max(self._used_least, self._used[key])
            job = self._job(key, now)
            if job is not None:
                return job
            waiting.remove(key)
        return None

    def _job(self, key: Key, now: float) -> Job | None:
        queue, space = self._queues[key], self.spaces[key[0]]
        questions: list[Waiting] = []
        stale: list[Waiting] = []
        points = 0
        while queue and (not points or points + queue[0].points <= self._job_points_max):
            one = queue.popleft()
            self._points[key] -= one.points
            if now - one.came_at > self._stale_seconds:
                stale.append(one)
            elif now < one.feeds_until and space.is_behind(one.question.subjects):
                self._parked.append(one)
            else:
                questions.append(one)
                points += one.points
        if not questions and not stale:
            return None
        return Job(*key, questions, stale, points, space.boxes_along()[key[1]])

    def finish(self, job: Job, seconds: float) -> list[tuple[str, bytes]]:
        """The answers, and to whom, of who knows beforehand how long it takes."""
        self.took(job, seconds)
        return self.answers(job)

    def answers(self, job: Job) -> list[tuple[str, bytes]]:
        """And to whom. `took` is to be told how long it was."""
        answers = [(one, unsure(one.question, one.points)) for one in job.stale]
        if job.questions:
            found = self.spaces[job.space].answer([one.question for one in job.questions])
            answers += zip(job.questions, found, strict=True)
        for one, answer in answers:
            self._count(one.points, answer)
        return [(one.asker, encode(answer)) for one, answer in answers]

    def worked(self, seconds: float) -> None:
        """On what was fed and asked, besides jobs."""
        self._busy_seconds += seconds

    def took(self, job: Job, seconds: float) -> None:
        self._busy_seconds += seconds
        if job.questions:
            self._meters[job.space, job.dimension].matched(job.points, seconds)
        key = (job.space, job.dimension)
        self._used[key] = max(self._used[key], self._used_least) + seconds

    def _count(self, points: int, answer: AnsweredBody) -> None:
        self.points_answered += points
        if points and answer.counts:
            counts = np.frombuffer(answer.counts, "<u4").reshape(points, -1)
            self.points_unsure += int(np.count_nonzero((counts == UNSURE).any(axis=1)))

    # Waiting for feeds ----------------------------------------------------------------------------

    def wakes_at(self) -> float | None:
        """When a question has waited for feeds long enough."""
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

    def _return(self, due: list[Waiting]) -> None:
        """To the front: they came before those who wait there."""
        for one in reversed(due):
            key = (one.question.space, one.question.dimension)
            self._queues[key].appendleft(one)
            self._points[key] += one.points

    # Loads ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> bytes | None:
        """LOADS, if they are worth telling."""
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
                row = self._told[space, dimension] = LoadRow(space, dimension, *load[1:])
                rows.append(row)
        return encode(LoadsBody(rows)) if rows else None

    def loads_now(self) -> Mapping[Key, Load]:
        """For people: queues and boxes as they are, rates of the last window, told or not."""
        along = {space: held.boxes_along() for space, held in self.spaces.items()}
        return {
            (space, dimension): Load(
                0.0,
                self._points[space, dimension],
                meter.arrival_rate,
                meter.matching_rate,
                along[space][dimension],
            )
            for (space, dimension), meter in self._meters.items()
        }

    def loads(self) -> bytes:
        """LOADS, all that were told: for a broker that was not there."""
        return encode(LoadsBody(list(self._told.values())))


def _unsure_of_all(question: AskedBody) -> AnsweredBody:
    """Of a space that is not known how many points there are is not known either."""
    return AnsweredBody(question.number, b"", b"")
