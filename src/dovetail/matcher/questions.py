"""A broker asks matchers whose boxes a publication falls in. The publisher's side; pure.

The broker knows which brokers may have boxes for a publication: by their sketches, a superset.
Matchers only narrow that. What they do not answer for, in time and for sure, goes to the broker in
question as if there were no matchers, and it looks through its boxes itself.

    submit ──> flush ──> ASKED ──> ANSWERED ──> verdict
                           │  no answer in MATCHER_ANSWER_SECONDS_MAX, or the matcher is gone
                           └──> the next candidate ──> ... ──> every broker that may want it

Rules:

- A broker with boxes that no matcher answers for (narrow nowhere), or of whose boxes nothing is
  known, is not asked about: it always gets the publication.
- Of every other the question says which version of its boxes is known here. So what a client has
  its SUBACK for is found, or the matcher is unsure.
- A matcher that did not answer is passed over for a while. An answer that comes after the question
  was given up is not looked at.
- A verdict says which brokers have boxes for a publication. A broker that gets it looks for whose
  they are itself: that costs it some microseconds, a hundred numbers would be as long as most
  publications, and boxes may have changed meanwhile. Where they are asked for (`is_listing`), a
  verdict has numbers of boxes, and the life of the broker that they are of.
- Who is asked is decided by the load that matchers tell (load_estimate.py); points that came
  together and want the same are asked together.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Generic, NamedTuple

import numpy as np

from dovetail.attributes.policies import Load, Loads, Policy, adaptive
from dovetail.matcher.announcement import Known, KnownBoxes
from dovetail.matcher.candidate_choice import Choice, Rows
from dovetail.matcher.feed import Send
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    MATCHER_ANSWER_SECONDS_MAX,
    OPEN_POINTS_MAX,
    QUESTION_POINTS_MAX,
)
from dovetail.matcher.load_estimate import Weighing
from dovetail.matcher.matcher_messages import (
    ASKED,
    AskedBody,
    answered_decoder,
    decoded,
    encode,
    loads_decoder,
)
from dovetail.matcher.question_batch import Batch, Tag, Verdict
from dovetail.matcher.segment_tables import Placement, View


class Subjects(NamedTuple):
    """Brokers that may have boxes for a publication."""

    broad: tuple[str, ...]
    """They get it in any case."""
    asked: Mapping[str, Known]


class _Open(NamedTuple, Generic[Tag]):
    """A question that a matcher has."""

    matcher: str
    batch: Batch[Tag]
    rows: Rows
    kinds: frozenset[int]
    deadline: float


class Asking(Generic[Tag]):
    """One broker's questions."""

    def __init__(
        self,
        view: View,
        known: KnownBoxes,
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
        """`policies`: of spaces that have another than `policy`."""
        own = policies or {}
        self._view = view
        self._known = known
        self._send = send
        self.question_seconds = question_seconds
        self.asking_seconds = asking_seconds
        self._open_points_max = open_points_max
        self._is_listing = is_listing
        loads = {space: Loads(own.get(space, policy), random) for space in view.layouts}
        self.weighing = Weighing(loads, random)
        self._submitted: dict[tuple[str, tuple[str, ...]], list[tuple[Tag, Sequence[float]]]] = {}
        self._open: dict[int, _Open[Tag]] = {}
        # A matcher may still answer what an earlier life of ours has asked.
        self._number = random.getrandbits(62)
        self._done: list[Verdict[Tag]] = []
        self.open_points = 0
        """Publications that wait for a verdict."""

    # Publications ---------------------------------------------------------------------------------

    def submit(self, space: str, values: Sequence[float], broad: Iterable[str], tag: Tag) -> None:
        """A publication's values in the space, and the brokers that may have boxes for it."""
        key = (space, tuple(sorted(broad)))
        self._submitted.setdefault(key, []).append((tag, values))

    def flush(self, now: float) -> None:
        """What was submitted is asked for."""
        submitted, self._submitted = self._submitted, {}
        for (space, brokers), waiting in submitted.items():
            for first in range(0, len(waiting), QUESTION_POINTS_MAX):
                self._begin(space, brokers, waiting[first : first + QUESTION_POINTS_MAX], now)

    def take_verdicts(self) -> list[Verdict[Tag]]:
        done, self._done = self._done, []
        return done

    def _begin(
        self,
        space: str,
        brokers: tuple[str, ...],
        waiting: Sequence[tuple[Tag, Sequence[float]]],
        now: float,
    ) -> None:
        broad, asked = self.subjects(space, brokers, len(waiting))
        batch = Batch(
            space,
            np.array([values for _, values in waiting], np.float64),
            [tag for tag, _ in waiting],
            broad,
            asked,
            now + self.asking_seconds,
            is_listing=self._is_listing,
        )
        self.open_points += len(waiting)
        self._ask(batch, np.arange(len(waiting)), batch.kinds, now)

    def subjects(self, space: str, brokers: Iterable[str], points: int) -> Subjects:
        """Which of these brokers matchers are asked about. Those without boxes are left out."""
        broad = []
        asked: dict[str, Known] = {}
        is_full = self.open_points + points > self._open_points_max
        for broker in brokers:
            known = self._known.of(broker, space)
            if known is None or known.is_wide or is_full:
                broad.append(broker)
            elif known.kinds:
                asked[broker] = known
        return Subjects(tuple(broad), asked)

    def _settle(self, batch: Batch[Tag], rows: Rows) -> None:
        """Some of their questions have come to their end; who has none left has a verdict."""
        done = rows[batch.left[rows] == 0].tolist()
        self._done += batch.verdicts(done)
        self.open_points -= len(done)

    # Questions ------------------------------------------------------------------------------------

    def _ask(self, batch: Batch[Tag], rows: Rows, kinds: frozenset[int], now: float) -> None:
        """Ask candidates until each has its questions; who cannot be reached is passed over."""
        pending = [(rows, kinds)]
        touched = rows
        while pending:
            rows, kinds = pending.pop()
            if not kinds:
                continue
            placement = self._view.now(batch.space)
            if not placement.names:
                batch.doubt(rows, kinds)
                continue
            usable = self.weighing.usable(placement, now)
            weighed = self.weighing.weigh(placement, batch.points[rows], kinds, usable, now)
            for stuck, helpless in weighed.choices.stuck:
                batch.doubt(rows[stuck], helpless)
            for choice in weighed.choices.asked:
                pending += self._send_to_each(
                    batch, placement, rows, weighed.candidates, choice, now
                )
        self._settle(batch, touched)

    def _send_to_each(
        self,
        batch: Batch[Tag],
        placement: Placement,
        rows: Rows,
        candidates: Rows,
        choice: Choice,
        now: float,
    ) -> list[tuple[Rows, frozenset[int]]]:
        """One question to each candidate of these points. Those that could not go come back."""
        unsent = []
        owners = candidates[choice.rows, choice.dimension]
        for owner in np.unique(owners).tolist():
            matcher = placement.names[owner]
            chosen = rows[choice.rows[owners == owner]]
            self._number += 1
            question = AskedBody(
                self._number,
                batch.space,
                choice.dimension,
                sorted(choice.kinds),
                batch.subjects,
                batch.points[chosen].astype("<f8").tobytes(),
                batch.is_listing,
            )
            if self._send(matcher, ASKED, encode(question)):
                deadline = min(now + self.question_seconds, batch.deadline)
                self._open[self._number] = _Open(matcher, batch, chosen, choice.kinds, deadline)
                batch.left[chosen] += 1
                self.weighing.loads[batch.space].sent(matcher, choice.dimension, len(chosen))
            else:
                self.weighing.pass_over(matcher, now)
                unsent.append((chosen, choice.kinds))
        return unsent

    # Answers --------------------------------------------------------------------------------------

    def answered(self, matcher: str, body: bytes) -> None:
        """ANSWERED."""
        answer = decoded(answered_decoder, body)
        question = self._open.get(answer.number)
        if question is None or question.matcher != matcher:
            return  # it was given up
        del self._open[answer.number]
        question.batch.take(question.rows, answer)
        question.batch.left[question.rows] -= 1
        self._settle(question.batch, question.rows)

    def tick(self, now: float) -> None:
        """Who has not answered in time is passed over, and others are asked."""
        late = [number for number, question in self._open.items() if question.deadline <= now]
        for matcher in {self._open[number].matcher for number in late}:
            self.weighing.pass_over(matcher, now)
        self._give_up(late, now)

    def matcher_is_up(self, name: str) -> None:
        """There is a connection to it."""
        self.weighing.is_up(name)

    def matcher_is_gone(self, name: str, now: float) -> None:
        """Its connection is lost, or it is dead: nothing that it was asked will be answered."""
        self.weighing.pass_over(name, now)
        self.weighing.forget(name)
        self._give_up([key for key, one in self._open.items() if one.matcher == name], now)

    def _give_up(self, numbers: list[int], now: float) -> None:
        for number in numbers:
            question = self._open.pop(number)
            batch = question.batch
            batch.left[question.rows] -= 1
            if now < batch.deadline:
                self._ask(batch, question.rows, question.kinds, now)
            else:
                batch.doubt(question.rows, question.kinds)
                self._settle(batch, question.rows)

    def told(self, matcher: str, body: bytes, now: float) -> None:
        """LOADS. Clocks differ: what a load was at some time there, it is here now."""
        for row in decoded(loads_decoder, body).rows:
            loads = self.weighing.loads.get(row.space)
            if loads is not None:
                load = Load(now, row.queue, row.arrival_rate, row.matching_rate, row.boxes)
                loads.told(matcher, row.dimension, load)
