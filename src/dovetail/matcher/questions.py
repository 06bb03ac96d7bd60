"""A broker asks matchers which brokers have boxes that a publication falls in. Pure.

Sketches already name the brokers that may have boxes for a publication: a superset. Matchers only
remove brokers from it. If matchers do not answer for a broker, in time and for sure, it gets the
publication as if there were no matchers, and searches its boxes itself.

    submit ──> flush ──> QUESTION ──> ANSWER ──> verdict
                           │  no answer in MATCHER_ANSWER_SECONDS_MAX, or the matcher is gone
                           └──> the next candidate ──> ... ──> every broker that may have boxes

Rules:

- Matchers are not asked about a broker that has boxes without a narrow dimension, or that has not
  announced its boxes. It always gets the publication.
- For every other broker, the question has the version of its boxes that is known here. So a matcher
  finds every box whose client has its SUBACK, or it is unsure.
- A matcher that did not answer is passed over for a while. A late answer is ignored.
- A verdict says which brokers have boxes for a publication. The receiving broker finds the boxes
  again itself: that costs it some microseconds, a hundred numbers would be as long as most
  publications, and boxes may have changed meanwhile. With `is_listing`, a verdict also has the
  numbers of the boxes, and the life of the broker that they belong to.
- The load that matchers report decides which candidate is asked (load_estimate.py). Points that are
  submitted together for the same brokers are asked about together.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Generic, NamedTuple

import numpy as np

from dovetail.attributes.policies import DimensionLoad, LoadTracker, Policy, adaptive
from dovetail.matcher.announcement import AnnouncedBoxes, BoxDirectory
from dovetail.matcher.candidate_choice import Choice, Rows
from dovetail.matcher.feed import Send
from dovetail.matcher.layout import Floats
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    MATCHER_ANSWER_SECONDS_MAX,
    OPEN_POINTS_MAX,
    QUESTION_POINTS_MAX,
)
from dovetail.matcher.load_estimate import LoadEstimator
from dovetail.matcher.matcher_messages import (
    QUESTION,
    MatcherQuestion,
    answer_decoder,
    decoded,
    encode,
    loads_decoder,
)
from dovetail.matcher.question_batch import QuestionBatch, Submissions, Tag, Verdict
from dovetail.matcher.segment_tables import MatcherDirectory, Placement


class QuestionScope(NamedTuple):
    """Brokers that may have boxes for a publication, by whether matchers are asked about them."""

    unsure: tuple[str, ...]
    """They get the publication without a question."""
    asked: Mapping[str, AnnouncedBoxes]


class _OpenQuestion(NamedTuple, Generic[Tag]):
    """A question that a matcher has not answered yet."""

    matcher: str
    batch: QuestionBatch[Tag]
    rows: Rows
    kinds: frozenset[int]
    deadline: float


class MatcherQuestions(Generic[Tag]):
    """One broker's questions to matchers, from submitted publications to verdicts."""

    def __init__(
        self,
        directory: MatcherDirectory,
        announced: BoxDirectory,
        send: Send,
        random: Random,
        *,
        policy: Policy = adaptive,
        policies: Mapping[str, Policy] | None = None,
        question_seconds: float = MATCHER_ANSWER_SECONDS_MAX,
        asking_seconds: float = ASKING_SECONDS_MAX,
        open_points_max: int = OPEN_POINTS_MAX,
        is_listing: bool = False,
    ) -> None:
        """`policies` has the spaces with another policy than `policy`."""
        own = policies or {}
        self._directory = directory
        self._announced = announced
        self._send = send
        self.question_seconds = question_seconds
        self.asking_seconds = asking_seconds
        self._open_points_max = open_points_max
        self._is_listing = is_listing
        loads = {space: LoadTracker(own.get(space, policy), random) for space in directory.layouts}
        self.estimator = LoadEstimator(loads, random)
        self._submitted: dict[tuple[str, tuple[str, ...]], list[tuple[Tag, Floats]]] = {}
        self._open: dict[int, _OpenQuestion[Tag]] = {}
        # A matcher may still answer what an earlier life of ours has asked.
        self._number = random.getrandbits(62)
        self._done: list[Verdict[Tag]] = []
        self.open_points = 0
        """Publications that wait for a verdict."""

    # Publications ---------------------------------------------------------------------------------

    def submit(self, space: str, values: Sequence[float], brokers: Iterable[str], tag: Tag) -> None:
        """Submit a publication's values, and the brokers that may have boxes for it."""
        self.submit_many(space, np.array([values], np.float64), brokers, tag)

    def submit_many(self, space: str, points: Floats, brokers: Iterable[str], tag: Tag) -> None:
        """Submit publications, a row of values each, for which the same brokers may have boxes.

        Their verdicts come in parts.
        """
        key = (space, tuple(sorted(brokers)))
        self._submitted.setdefault(key, []).append((tag, points))

    def flush(self, now: float) -> None:
        """Ask about all that was submitted."""
        submitted, self._submitted = self._submitted, {}
        for (space, brokers), waiting in submitted.items():
            submissions = Submissions.of(
                [tag for tag, _ in waiting], [len(points) for _, points in waiting]
            )
            points = waiting[0][1] if len(waiting) == 1 else np.vstack([one for _, one in waiting])
            for first in range(0, len(points), QUESTION_POINTS_MAX):
                end = first + QUESTION_POINTS_MAX
                part = submissions.part(first, end)
                self._begin(space, brokers, points[first:end], part, now)

    def take_verdicts(self) -> list[Verdict[Tag]]:
        done, self._done = self._done, []
        return done

    def _begin(
        self,
        space: str,
        brokers: tuple[str, ...],
        points: Floats,
        submissions: Submissions[Tag],
        now: float,
    ) -> None:
        unsure, asked = self.scope(space, brokers, len(points))
        batch = QuestionBatch(
            space,
            points,
            submissions,
            brokers,
            unsure,
            asked,
            now + self.asking_seconds,
            is_listing=self._is_listing,
        )
        self.open_points += len(points)
        self._ask(batch, np.arange(len(points)), batch.kinds, now)

    def scope(self, space: str, brokers: Iterable[str], points: int) -> QuestionScope:
        """Divide brokers into those to ask matchers about and the others.

        Brokers without boxes are left out.
        """
        unsure = []
        asked: dict[str, AnnouncedBoxes] = {}
        is_full = self.open_points + points > self._open_points_max
        for broker in brokers:
            known = self._announced.of(broker, space)
            if known is None or known.is_wide or is_full:
                unsure.append(broker)
            elif known.kinds:
                asked[broker] = known
        return QuestionScope(tuple(unsure), asked)

    def _finish(self, batch: QuestionBatch[Tag], rows: Rows) -> None:
        """Make verdicts of those points that have no open question left."""
        done = rows[batch.unanswered[rows] == 0]
        if len(done):
            self._done += batch.verdicts(done)
            self.open_points -= len(done)

    # Questions ------------------------------------------------------------------------------------

    def _ask(
        self, batch: QuestionBatch[Tag], rows: Rows, kinds: frozenset[int], now: float
    ) -> None:
        """Send the questions of these points. Candidates that cannot be reached are passed over."""
        pending = [(rows, kinds)]
        touched = rows
        while pending:
            rows, kinds = pending.pop()
            if not kinds:
                continue
            placement = self._directory.now(batch.space)
            if not placement.names:
                batch.mark_unsure(rows, kinds)
                continue
            usable = self.estimator.usable(placement, now)
            weighed = self.estimator.estimate(placement, batch.points[rows], kinds, usable, now)
            for stuck, helpless in weighed.choices.stuck:
                batch.mark_unsure(rows[stuck], helpless)
            for choice in weighed.choices.asked:
                pending += self._send_to_each(
                    batch, placement, rows, weighed.candidates, choice, now
                )
        self._finish(batch, touched)

    def _send_to_each(
        self,
        batch: QuestionBatch[Tag],
        placement: Placement,
        rows: Rows,
        candidates: Rows,
        choice: Choice,
        now: float,
    ) -> list[tuple[Rows, frozenset[int]]]:
        """Send one question to each candidate of these points. Return what could not be sent."""
        unsent = []
        owners = candidates[choice.rows, choice.dimension]
        for owner in np.unique(owners).tolist():
            matcher = placement.names[owner]
            chosen = rows[choice.rows[owners == owner]]
            self._number += 1
            question = MatcherQuestion(
                self._number,
                batch.space,
                choice.dimension,
                sorted(choice.kinds),
                batch.versions,
                batch.points[chosen].astype("<f8").tobytes(),
                batch.is_listing,
            )
            if self._send(matcher, QUESTION, encode(question)):
                deadline = min(now + self.question_seconds, batch.deadline)
                self._open[self._number] = _OpenQuestion(
                    matcher, batch, chosen, choice.kinds, deadline
                )
                batch.unanswered[chosen] += 1
                self.estimator.loads[batch.space].record_sent(
                    matcher, choice.dimension, len(chosen)
                )
            else:
                self.estimator.pass_over(matcher, now)
                unsent.append((chosen, choice.kinds))
        return unsent

    # Answers --------------------------------------------------------------------------------------

    def answered(self, matcher: str, body: bytes) -> None:
        """Handle ANSWER."""
        answer = decoded(answer_decoder, body)
        question = self._open.get(answer.number)
        if question is None or question.matcher != matcher:
            return  # it was given up
        del self._open[answer.number]
        question.batch.add_answer(question.rows, answer)
        question.batch.unanswered[question.rows] -= 1
        self._finish(question.batch, question.rows)

    def tick(self, now: float) -> None:
        """Pass over matchers that have not answered in time, and ask others."""
        late = [number for number, question in self._open.items() if question.deadline <= now]
        for matcher in {self._open[number].matcher for number in late}:
            self.estimator.pass_over(matcher, now)
        self._give_up(late, now)

    def matcher_is_up(self, name: str) -> None:
        """A connection to the matcher came up."""
        self.estimator.is_up(name)

    def matcher_is_gone(self, name: str, now: float) -> None:
        """The connection is lost or the matcher is dead, so it will not answer open questions."""
        self.estimator.pass_over(name, now)
        self.estimator.forget(name)
        self._give_up([key for key, one in self._open.items() if one.matcher == name], now)

    def _give_up(self, numbers: list[int], now: float) -> None:
        for number in numbers:
            question = self._open.pop(number)
            batch = question.batch
            batch.unanswered[question.rows] -= 1
            if now < batch.deadline:
                self._ask(batch, question.rows, question.kinds, now)
            else:
                batch.mark_unsure(question.rows, question.kinds)
                self._finish(batch, question.rows)

    def receive_loads(self, matcher: str, body: bytes, now: float) -> None:
        """Handle LOADS. Clocks differ, so the loads count as measured now."""
        for row in decoded(loads_decoder, body).rows:
            loads = self.estimator.loads.get(row.space)
            if loads is not None:
                load = DimensionLoad(now, row.queue, row.arrival_rate, row.matching_rate, row.boxes)
                loads.record_report(matcher, row.dimension, load)
