"""The matcher's side of matching, assembled: boxes, questions and its phase. Pure.

    FEED      ->  held boxes (through answers)  ->  FEED_REPLY, and LOADS when a feed starts
    QUESTION  ->  answers    ->  jobs           ->  ANSWER
    time      ->  lifecycle  ->  our record for gossip;    LOADS, to every broker

The caller does jobs while there are some (`answers.next_job`, `answers.answer`), and reports how
long each took. It calls `tick` some twenty times a second.
"""

from collections.abc import Iterable, Mapping

from dovetail.attributes.partition import Tokens
from dovetail.errors import PeerError
from dovetail.matcher.answers import MatcherAnswers
from dovetail.matcher.broker_side import Answer
from dovetail.matcher.layout import Layout
from dovetail.matcher.lifecycle import MatcherLifecycle
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    MATCHER_QUEUE_POINTS_MAX,
    MATCHING_POINTS_MAX,
)
from dovetail.matcher.matcher_messages import ANSWER, FEED, FEED_REPLY, LOADS, QUESTION
from dovetail.matcher.relocation import MoveOrder
from dovetail.matcher.segment_tables import MatcherDirectory, decode_record, encode_record


class MatcherSide:
    """One life of a matcher."""

    def __init__(
        self,
        name: str,
        layouts: Mapping[str, Layout],
        now: float,
        *,
        stale_seconds: float = ASKING_SECONDS_MAX,
        queue_points_max: int = MATCHER_QUEUE_POINTS_MAX,
        job_points_max: int = MATCHING_POINTS_MAX,
    ) -> None:
        self.name = name
        self.directory = MatcherDirectory(layouts)
        self.answers = MatcherAnswers(
            layouts,
            now,
            stale_seconds=stale_seconds,
            queue_points_max=queue_points_max,
            job_points_max=job_points_max,
        )
        self.lifecycle: MatcherLifecycle | None = None
        self._published = b""

    def receive_record(self, name: str, record: bytes | None) -> None:
        """Take another matcher's record from gossip. None: it is dead, or has left."""
        matcher_record = None if record is None else decode_record(record)
        if matcher_record is not None:
            self.directory.put(name, matcher_record)
        else:
            self.directory.gone(name)

    def join(self, now: float, planned: Mapping[str, Tokens] | None = None) -> None:
        """Begin to join, once gossip is known. `planned` has places by space, if given."""
        self.lifecycle = MatcherLifecycle(self.name, self.directory, now, planned)

    def leave(self, now: float) -> None:
        if self.lifecycle is not None:
            self.lifecycle.leave(now)

    def move(self, order: MoveOrder, now: float) -> bool:
        """Begin to move to our place in a plan. False: not now."""
        return self.lifecycle is not None and self.lifecycle.move(order, now)

    def forget(self, broker: str) -> None:
        """Forget a broker that will not come back."""
        self.answers.forget(broker)

    def receive(self, name: str, kind: int, body: bytes, answer: Answer, now: float) -> None:
        """Handle a frame on a connection that a broker opened."""
        if kind == FEED:
            taken, is_begin = self.answers.receive_feed(name, body)
            answer(FEED_REPLY, taken)
            if is_begin:
                answer(LOADS, self.answers.loads())
        elif kind == QUESTION:
            at_once = self.answers.receive_question(name, body, now)
            if at_once is not None:
                answer(ANSWER, at_once)
        else:
            raise PeerError(f"a frame of kind {kind} for a broker, and this is a matcher")

    def tick(self, now: float, brokers: Iterable[str]) -> tuple[bytes | None, bytes | None]:
        """Return LOADS for all brokers and our record for gossip, if changed. `brokers`: live."""
        loads = self.answers.tick(now)
        if self.lifecycle is None:
            return loads, None
        self.lifecycle.report_load(self.answers.busy_share)
        answers = self.answers
        self.lifecycle.tick(now, brokers, answers.covers, answers.is_released)
        record = encode_record(self.lifecycle.record)
        if record == self._published:
            return loads, None
        self._published = record
        return loads, record
