"""A matcher, put together: frames come in, answers go out, and its phase changes. Pure.

    FEED      ->  holding (through answering)   ->  TAKEN, and LOADS when a feed begins
    ASKED     ->  answering  ->  jobs           ->  ANSWERED
    time      ->  joining    ->  our record for gossip;    LOADS, to every broker

Whoever drives this does jobs while there are some (`next_job`, `finish`), and says how long each
took. `tick` is called some twenty times a second.
"""

from collections.abc import Iterable, Mapping

from dovetail.attributes.partition import Tokens
from dovetail.errors import PeerError
from dovetail.matcher.answers import Answering
from dovetail.matcher.broker_side import Answer
from dovetail.matcher.join import Joining
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    MATCHER_QUEUE_POINTS_MAX,
    MATCHING_POINTS_MAX,
)
from dovetail.matcher.matcher_messages import ANSWERED, ASKED, FEED, LOADS, TAKEN
from dovetail.matcher.relocation import MoveOrder
from dovetail.matcher.segment_tables import View, decode_record, encode_record


class Back:
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
        self.view = View(layouts)
        self.answering = Answering(
            layouts,
            now,
            stale_seconds=stale_seconds,
            queue_points_max=queue_points_max,
            job_points_max=job_points_max,
        )
        self.joining: Joining | None = None
        self._told = b""

    def matcher_tells(self, name: str, record: bytes | None) -> None:
        """Another one, by gossip; None: it is dead, has left, or is no matcher."""
        told = None if record is None else decode_record(record)
        if told is not None:
            self.view.put(name, told)
        else:
            self.view.gone(name)

    def join(self, now: float, planned: Mapping[str, Tokens] | None = None) -> None:
        """When it is known who is there. `planned`: places by space, if they are not to choose."""
        self.joining = Joining(self.name, self.view, now, planned)

    def leave(self, now: float) -> None:
        if self.joining is not None:
            self.joining.leave(now)

    def move(self, order: MoveOrder, now: float) -> bool:
        """To the place that a plan has for us. False: not now."""
        return self.joining is not None and self.joining.move(order, now)

    def forget(self, broker: str) -> None:
        """It will not come back."""
        self.answering.forget(broker)

    def receive(self, name: str, kind: int, body: bytes, answer: Answer, now: float) -> None:
        """On a connection that a broker opened."""
        if kind == FEED:
            taken, is_begin = self.answering.fed(name, body)
            answer(TAKEN, taken)
            if is_begin:
                answer(LOADS, self.answering.loads())
        elif kind == ASKED:
            at_once = self.answering.asked(name, body, now)
            if at_once is not None:
                answer(ANSWERED, at_once)
        else:
            raise PeerError(f"a frame of kind {kind} for a broker, and this is a matcher")

    def tick(self, now: float, brokers: Iterable[str]) -> tuple[bytes | None, bytes | None]:
        """LOADS for all brokers, and our record for gossip, if there is news. `brokers`: live."""
        loads = self.answering.tick(now)
        if self.joining is None:
            return loads, None
        self.joining.is_busy(self.answering.busy_share)
        answering = self.answering
        self.joining.tick(now, brokers, answering.covers, answering.is_released)
        record = encode_record(self.joining.record)
        if record == self._told:
            return loads, None
        self._told = record
        return loads, record
