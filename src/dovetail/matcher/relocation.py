"""Matchers move to the places of a plan while publications flow. Pure.

    a broker             each matcher
      | -- MOVE -------->  |  its record has its new place besides the one it has
      |                    |  brokers feed it what it will answer for there, it answers as before
      |                    |  all live brokers have: it is ready, and says so by gossip
      |                    |  all who move are ready: the plan is in force, everywhere at once
      |                    v  it is in its new place, and the old one is forgotten

Rules:

- The order has the places of all, so each knows whom to wait for. Who is dead is not waited for,
  and nobody is for longer than MATCHER_MOVE_SECONDS_MAX.
- While some know that a plan is in force and others do not, both are right: every matcher has what
  it answers for in either table, and keeps the old part for FEED_NARROW_SECONDS.
- A later plan takes the place of an earlier one. Who joins meanwhile, and who comes back after a
  crash, takes half of another one's place as ever: a plan is given to those who are there.
- Who gets which place is decided by the broker that was given the plan: plan_assignment.py.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from dovetail.limits import CLUSTER_NODES_MAX
from dovetail.matcher.limits import MATCHER_MOVE_SECONDS_MAX
from dovetail.matcher.matcher_messages import Name, Number
from dovetail.matcher.segment_tables import MatcherRecord, Move, Phase, Places, View


class MoveOrder(Struct, frozen=True, array_like=True):
    """MOVE: who shall be where."""

    number: Number
    places: Annotated[dict[Name, Places], Meta(max_length=CLUSTER_NODES_MAX)]


order_decoder = msgspec.msgpack.Decoder(MoveOrder)


class Moving:
    """One matcher's way to its place."""

    def __init__(self, name: str, order: MoveOrder, now: float) -> None:
        self.record = Move(order.number, len(order.places), order.places[name])
        self.is_there = False
        self._others = [other for other in order.places if other != name]
        self._since = now

    def tick(self, now: float, view: View, is_fed: bool) -> bool:
        """Has something changed? `is_fed`: brokers have fed what it will answer for."""
        is_late = now - self._since >= MATCHER_MOVE_SECONDS_MAX
        others = [
            view.records[name]
            for name in self._others
            if name in view.records and view.records[name].phase is Phase.SERVING
        ]
        if not self.record.is_ready:
            # Until all have heard of it, what is next to our place may be another's.
            have_heard = all(one.plan >= self.record.number for one in others)
            if is_late or (have_heard and is_fed):
                self.record = replace(self.record, is_ready=True)
                self._since = now
                return True
            return False
        self.is_there = (
            is_late or view.is_in_force(self.record) or all(self._is_ready(one) for one in others)
        )
        return self.is_there

    def _is_ready(self, other: MatcherRecord) -> bool:
        if other.plan != self.record.number:
            return other.plan > self.record.number
        return other.move is None or other.move.is_ready
