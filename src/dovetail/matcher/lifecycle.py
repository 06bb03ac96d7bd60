"""The phases of a matcher's life: it joins the segment tables, serves and leaves. Pure.

    JOINING ───────────> SERVING ───────────> LEAVING ───────────────> AWAY ───────────────> gone
      all live brokers     leave()              all live brokers have    MATCHER_LINGER_SECONDS
      have fed it                               released it

Rules:

- A joining matcher takes the upper half of each segment of the most loaded matcher (BlueDove
  III-C). If none is busy, it takes half of the one with most of the space. Brokers feed it before
  anybody asks it.
- Matchers that join at once may choose the same place. One of them keeps it, a serving one before a
  joining one. The others have nothing there in the tables, and join again elsewhere.
- A leaving matcher answers until all brokers have fed its boxes to others. It then lingers until
  gossip has spread that it is away.
- Both waits have a limit. Boxes that are missing then are found by their brokers.
- A serving matcher may be given another place (`move`). It serves meanwhile: relocation.py.
"""

from collections.abc import Callable, Iterable, Mapping

from dovetail.attributes.limits import LOAD_CHANGE
from dovetail.attributes.partition import SegmentTable, Tokens
from dovetail.matcher.coverage import Cover
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    MATCHER_JOIN_SECONDS_MAX,
    MATCHER_LEAVE_SECONDS_MAX,
    MATCHER_LINGER_SECONDS,
)
from dovetail.matcher.relocation import MoveOrder, Relocation
from dovetail.matcher.segment_tables import MatcherDirectory, MatcherRecord, Phase, are_tokens

HasFed = Callable[[str, Mapping[str, Cover]], bool]
"""Has this broker fed all boxes that these covers need?"""

_BUSY_SHARE_MIN = 0.05
"""A matcher below this load counts as idle."""


class MatcherLifecycle:
    """The phases, tokens and record of one matcher, from joining to leaving."""

    def __init__(
        self,
        name: str,
        directory: MatcherDirectory,
        now: float,
        planned: Mapping[str, Tokens] | None = None,
    ) -> None:
        """Join. Make it when gossip has told which matchers there are.

        `planned` has places by space. For other spaces it chooses a place itself.
        """
        self.name = name
        self.phase = Phase.JOINING
        self._directory = directory
        self._since = now
        self._load = 0.0
        self._relocation: Relocation | None = None
        self._moved = 0
        self._tokens = {
            space: (planned or {}).get(space) or _choose(directory, space, layout)
            for space, layout in directory.layouts.items()
        }
        self._publish()

    @property
    def record(self) -> MatcherRecord:
        move = None if self._relocation is None else self._relocation.record
        return MatcherRecord(self.phase, self._tokens, self._load, move, self._moved)

    def is_gone(self, now: float) -> bool:
        """Has it left long enough ago that nobody asks it any more?"""
        return self.phase is Phase.AWAY and now - self._since >= MATCHER_LINGER_SECONDS

    def leave(self, now: float) -> None:
        if self.phase in {Phase.JOINING, Phase.SERVING}:
            # Nobody asks a matcher that has not served.
            self._move(Phase.LEAVING if self.phase is Phase.SERVING else Phase.AWAY, now)

    def move(self, order: MoveOrder, now: float) -> bool:
        """Move to the place in a plan. False: it does not serve, or knows a later plan."""
        places = order.places.get(self.name, {})
        layouts = self._directory.layouts
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
        self._relocation = Relocation(self.name, order, now)
        self._publish()
        return True

    def tick(
        self,
        now: float,
        brokers: Iterable[str],
        has_fed: HasFed,
        is_released: Callable[[str], bool],
    ) -> None:
        """Change the phase if it is time. `brokers` are the live ones."""
        if self.phase in {Phase.JOINING, Phase.SERVING} and self._resolve_conflict():
            self._move(Phase.JOINING, now)
        elif self.phase is Phase.JOINING:
            covers = {space: self._directory.next(space).cover(self.name) for space in self._tokens}
            is_late = now - self._since >= MATCHER_JOIN_SECONDS_MAX
            if is_late or all(has_fed(broker, covers) for broker in brokers):
                self._move(Phase.SERVING, now)
        elif self.phase is Phase.LEAVING:
            is_late = now - self._since >= MATCHER_LEAVE_SECONDS_MAX
            if is_late or all(map(is_released, brokers)):
                self._move(Phase.AWAY, now)
        elif self._relocation is not None:
            covers = {
                space: self._directory.next(space).cover(self.name)
                for space in self._relocation.record.tokens
            }
            is_fed = all(has_fed(broker, covers) for broker in brokers)
            if self._relocation.tick(now, self._directory, is_fed):
                self._advance(self._relocation)

    def _advance(self, relocation: Relocation) -> None:
        if relocation.is_complete:
            self._tokens = {**self._tokens, **relocation.record.tokens}
            self._moved = relocation.record.number
            self._relocation = None
        self._publish()

    def report_load(self, share: float) -> None:
        """Publish how busy we are if that has changed enough."""
        if abs(share - self._load) > LOAD_CHANGE * max(self._load, _BUSY_SHARE_MIN):
            self._load = share
            self._publish()

    def _move(self, phase: Phase, now: float) -> None:
        self.phase = phase
        self._since = now
        self._relocation = None
        self._publish()

    def _publish(self) -> None:
        self._directory.put(self.name, self.record)

    def _resolve_conflict(self) -> bool:
        """Choose another place where another matcher keeps ours. True: we have changed places."""
        moved = {
            space: tokens
            for space in self._tokens
            if (tokens := self._other_place(space)) is not None
        }
        self._tokens = {**self._tokens, **moved}
        return bool(moved)

    def _other_place(self, space: str) -> Tokens | None:
        """Return our new place if another matcher keeps ours.

        All matchers with this place get others one after the other. Each computes the same result.
        """
        records = self._directory.records
        if self._directory.layouts[space].is_copied or self._relocation is not None:
            return None
        tokens = self._tokens[space]
        # A moving matcher has another place in the plan, and keeps this one for a while only.
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
        table = self._directory.next(space).table
        placed = {name: own for name, own in table.tokens.items() if name not in others}
        for name in others:
            table = SegmentTable(table.bounds, placed)
            placed[name] = table.half_of(table.widest())
            if name == self.name:
                break
        return placed[self.name]


def _choose(directory: MatcherDirectory, space: str, layout: Layout) -> Tokens:
    """Return half of the segments of the most loaded matcher."""
    placement = directory.next(space)
    if not placement.names:
        return tuple(bound.low for bound in layout.bounds)
    table = placement.table
    busy = {name: directory.records[name].load for name in placement.names}
    most = max(busy, key=lambda name: (busy[name], name))
    return table.half_of(most if busy[most] >= _BUSY_SHARE_MIN else table.widest())
