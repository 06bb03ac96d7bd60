"""A matcher's way into the tables, and out of them. Pure.

    JOINING ───────────> SERVING ───────────> LEAVING ───────────────> AWAY ───────────────> gone
      all live brokers     leave()              all live brokers have    MATCHER_LINGER_SECONDS
      have fed it                               released it

Rules:

- Who joins takes the upper half of each segment of the most loaded matcher (BlueDove III-C), or of
  the one with most of the space where none is busy. Brokers feed it before anybody asks it.
- Some that join at once may choose the same place. One of them keeps it, who serves before who
  joins; in the tables the others have nothing there, and join anew elsewhere.
- Who leaves answers until all brokers have given others what it holds, and a little longer, until
  gossip has told that it is away.
- Neither waits for ever. What is missing then is found by brokers themselves.
- Who serves may be given another place (`move`), and serves on its way there: relocation.py.
"""

from collections.abc import Callable, Iterable, Mapping

from dovetail.attributes.limits import LOAD_CHANGE
from dovetail.attributes.partition import Table, Tokens
from dovetail.matcher.coverage import Cover
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    MATCHER_JOIN_SECONDS_MAX,
    MATCHER_LEAVE_SECONDS_MAX,
    MATCHER_LINGER_SECONDS,
)
from dovetail.matcher.relocation import MoveOrder, Moving
from dovetail.matcher.segment_tables import MatcherRecord, Phase, View, are_tokens

Fed = Callable[[str, Mapping[str, Cover]], bool]
"""Has this broker fed all that these covers need?"""

_BUSY_SHARE_MIN = 0.05
"""Less is nobody's burden."""


class Joining:
    """One life of a matcher."""

    def __init__(
        self, name: str, view: View, now: float, planned: Mapping[str, Tokens] | None = None
    ) -> None:
        """To begin with when gossip has told who is there. `view` has the others, and us.

        `planned`: places by space; it chooses where there is none.
        """
        self.name = name
        self.phase = Phase.JOINING
        self._view = view
        self._since = now
        self._load = 0.0
        self._moving: Moving | None = None
        self._moved = 0
        self._tokens = {
            space: (planned or {}).get(space) or _choose(view, space, layout)
            for space, layout in view.layouts.items()
        }
        self._enter()

    @property
    def record(self) -> MatcherRecord:
        move = None if self._moving is None else self._moving.record
        return MatcherRecord(self.phase, self._tokens, self._load, move, self._moved)

    def is_gone(self, now: float) -> bool:
        """Nobody asks us any more."""
        return self.phase is Phase.AWAY and now - self._since >= MATCHER_LINGER_SECONDS

    def leave(self, now: float) -> None:
        if self.phase in {Phase.JOINING, Phase.SERVING}:
            # Nobody asks who has not served.
            self._move(Phase.LEAVING if self.phase is Phase.SERVING else Phase.AWAY, now)

    def move(self, order: MoveOrder, now: float) -> bool:
        """To where a plan has us. False: we do not serve, or know a later one."""
        places = order.places.get(self.name, {})
        layouts = self._view.layouts
        if (
            self.phase is not Phase.SERVING
            or order.number <= self.record.plan
            or not places
            or not all(
                space in layouts and are_tokens(tokens, layouts[space])
                for space, tokens in places.items()
            )
        ):
            return False
        self._moving = Moving(self.name, order, now)
        self._enter()
        return True

    def tick(
        self, now: float, brokers: Iterable[str], fed: Fed, is_released: Callable[[str], bool]
    ) -> None:
        """`brokers`: those that are there."""
        if self.phase in {Phase.JOINING, Phase.SERVING} and self._give_way():
            self._move(Phase.JOINING, now)
        elif self.phase is Phase.JOINING:
            covers = {space: self._view.next(space).cover(self.name) for space in self._tokens}
            is_late = now - self._since >= MATCHER_JOIN_SECONDS_MAX
            if is_late or all(fed(broker, covers) for broker in brokers):
                self._move(Phase.SERVING, now)
        elif self.phase is Phase.LEAVING:
            is_late = now - self._since >= MATCHER_LEAVE_SECONDS_MAX
            if is_late or all(map(is_released, brokers)):
                self._move(Phase.AWAY, now)
        elif self._moving is not None:
            covers = {
                space: self._view.next(space).cover(self.name)
                for space in self._moving.record.tokens
            }
            is_fed = all(fed(broker, covers) for broker in brokers)
            if self._moving.tick(now, self._view, is_fed):
                self._go_on(self._moving)

    def _go_on(self, moving: Moving) -> None:
        if moving.is_there:
            self._tokens = {**self._tokens, **moving.record.tokens}
            self._moved = moving.record.number
            self._moving = None
        self._enter()

    def is_busy(self, share: float) -> None:
        """How busy we are, told when it has changed."""
        if abs(share - self._load) > LOAD_CHANGE * max(self._load, _BUSY_SHARE_MIN):
            self._load = share
            self._enter()

    def _move(self, phase: Phase, now: float) -> None:
        self.phase = phase
        self._since = now
        self._moving = None
        self._enter()

    def _enter(self) -> None:
        self._view.put(self.name, self.record)

    def _give_way(self) -> bool:
        """Somebody else has the same place, and it is for us to find another."""
        moved = {
            space: tokens
            for space in self._tokens
            if (tokens := self._other_place(space)) is not None
        }
        self._tokens = {**self._tokens, **moved}
        return bool(moved)

    def _other_place(self, space: str) -> Tokens | None:
        """All who have our place find others one after the other, and all think alike."""
        records = self._view.records
        if self._view.layouts[space].is_copied or self._moving is not None:
            return None
        tokens = self._tokens[space]
        # Who moves has a place of its own in the plan, and this one for a while only.
        there = [
            name
            for name, one in records.items()
            if one.move is None and one.tokens.get(space) == tokens
        ]
        serving = [name for name in there if records[name].phase is Phase.SERVING]
        joining = [name for name in there if records[name].phase is Phase.JOINING]
        keeper, *others = [*sorted(serving, reverse=True), *sorted(joining, reverse=True)]
        if keeper == self.name:
            return None
        table = self._view.next(space).table
        placed = {name: own for name, own in table.tokens.items() if name not in others}
        for name in others:
            table = Table(table.bounds, placed)
            placed[name] = table.half_of(table.widest())
            if name == self.name:
                break
        return placed[self.name]


def _choose(view: View, space: str, layout: Layout) -> Tokens:
    """Half of the most loaded one's segments."""
    placement = view.next(space)
    if not placement.names:
        return tuple(bound.low for bound in layout.bounds)
    table = placement.table
    busy = {name: view.records[name].load for name in placement.names}
    most = max(busy, key=lambda name: (busy[name], name))
    return table.half_of(most if busy[most] >= _BUSY_SHARE_MIN else table.widest())
