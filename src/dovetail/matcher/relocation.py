"""Moves matchers to the places of a plan while publications flow. Pure.

    a broker             each matcher
      | -- MOVE -------->  |  its record has the new place besides the old one
      |                    |  brokers feed it the boxes of the new place; it serves the old one
      |                    |  all live brokers have fed it: its record says that it is ready
      |                    |  all moving matchers are ready: the plan is in force everywhere
      |                    v  it serves the new place, and drops the old one

Rules:

- The order has all places, so each matcher knows which others to wait for. It does not wait for
  dead ones, and never longer than MATCHER_MOVE_SECONDS_MAX.
- Some nodes learn earlier than others that a plan is in force. Both tables work meanwhile: every
  matcher has the boxes for either, and keeps the old ones for FEED_NARROW_SECONDS.
- A later plan replaces an earlier one. A plan concerns the matchers that are there. One that joins
  meanwhile, or restarts after a crash, takes half of another one's place as usual.
- The broker that received the plan assigns the places: plan_assignment.py.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from dovetail.limits import CLUSTER_NODES_MAX
from dovetail.matcher.limits import MATCHER_MOVE_SECONDS_MAX
from dovetail.matcher.matcher_messages import Name, Number
from dovetail.matcher.segment_tables import (
    MatcherDirectory,
    MatcherRecord,
    Phase,
    Places,
    PlannedMove,
)


class MoveOrder(Struct, frozen=True, array_like=True):
    """MOVE: the place of each matcher."""

    number: Number
    places: Annotated[dict[Name, Places], Meta(max_length=CLUSTER_NODES_MAX)]


order_decoder = msgspec.msgpack.Decoder(MoveOrder)


class Relocation:
    """One matcher's move to its place in a plan."""

    def __init__(self, name: str, order: MoveOrder, now: float) -> None:
        self.record = PlannedMove(order.number, len(order.places), order.places[name])
        self.is_complete = False
        self._others = [other for other in order.places if other != name]
        self._since = now

    def tick(self, now: float, directory: MatcherDirectory, is_fed: bool) -> bool:
        """Return whether something has changed. `is_fed`: it has the boxes of the new place."""
        is_late = now - self._since >= MATCHER_MOVE_SECONDS_MAX
        others = [
            directory.records[name]
            for name in self._others
            if name in directory.records and directory.records[name].phase is Phase.SERVING
        ]
        if not self.record.is_ready:
            # Until all others know the plan, neighbours may still have other segments.
            have_heard = all(one.plan >= self.record.number for one in others)
            if is_late or (have_heard and is_fed):
                self.record = replace(self.record, is_ready=True)
                self._since = now
                return True
            return False
        self.is_complete = (
            is_late
            or directory.is_in_force(self.record)
            or all(self._is_ready(one) for one in others)
        )
        return self.is_complete

    def _is_ready(self, other: MatcherRecord) -> bool:
        if other.plan != self.record.number:
            return other.plan > self.record.number
        return other.move is None or other.move.is_ready
