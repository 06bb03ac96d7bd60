"""The directory of matchers, from gossip, and the segment tables made of it. Pure.

A matcher gossips a record with its phase, its tokens in each space, and how busy it is. It goes
through these phases (lifecycle.py):

    JOINING    its tokens are chosen: brokers feed it, nobody asks it
    SERVING    it is asked
    LEAVING    it is still asked, while brokers feed its boxes to others
    AWAY       nobody asks it any more

So there are two segment tables. *Now* has serving and leaving matchers: brokers ask by it. *Next*
has joining and serving ones: brokers feed by both tables. A node that is dead or has left is in
neither. Nodes with the same records have the same tables. A broker with other records may ask a
matcher that is unsure, nothing worse.

A matcher that moves to its place in a plan (relocation.py) serves meanwhile. The next table has it
at its new place. The table of now follows once the plan is in force, for all moving matchers at
once: when every one of them has said that it is fed, or one has seen that and finished its move.
"""

import math
from collections.abc import Iterable, Mapping
from enum import IntEnum
from random import Random
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from dovetail.attributes.partition import SegmentTable, Tokens
from dovetail.cluster.limits import RECORD_BYTES_MAX
from dovetail.errors import ConfigError
from dovetail.limits import CLUSTER_NODES_MAX, SPACE_DIMENSIONS_MAX
from dovetail.matcher.coverage import EVERYTHING, Cover, normal, nothing, union
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.matcher_messages import SPACES_MAX, Number, SpaceId

MATCHER = "matcher"
"""The key of the gossip record."""


class Phase(IntEnum):
    JOINING = 1
    SERVING = 2
    LEAVING = 3
    AWAY = 4


_NOW = {Phase.SERVING, Phase.LEAVING}
_NEXT = {Phase.JOINING, Phase.SERVING}

_TokenList = Annotated[tuple[float, ...], Meta(max_length=SPACE_DIMENSIONS_MAX)]


Places = Annotated[dict[SpaceId, _TokenList], Meta(max_length=SPACES_MAX)]
"""A matcher's tokens, by space."""


class PlannedMove(Struct, frozen=True, array_like=True):
    """A matcher's place in a plan, and whether it is ready for it."""

    number: Number
    """The number of the plan; later plans have higher numbers."""
    movers: Annotated[int, Meta(ge=1, le=CLUSTER_NODES_MAX)]
    """How many matchers move by this plan, including this one."""
    tokens: Places
    """Its tokens in the planned spaces."""
    is_ready: bool = False
    """All live brokers have fed it the boxes of the new place."""


class MatcherRecord(Struct, frozen=True, array_like=True):
    phase: Phase
    tokens: Places
    load: Annotated[float, Meta(ge=0)] = 0.0
    """The share of time in which it is busy."""
    move: PlannedMove | None = None
    moved: Number = 0
    """The number of the plan by which it moved last; 0: none."""

    def next_tokens(self, space: str) -> Tokens | None:
        """Return its tokens in the next table."""
        if self.move is not None and space in self.move.tokens:
            return self.move.tokens[space]
        return self.tokens.get(space)

    @property
    def plan(self) -> int:
        """The number of the plan by which it moves, or has moved."""
        return self.moved if self.move is None else self.move.number


_decoder = msgspec.msgpack.Decoder(MatcherRecord)


def encode_record(record: MatcherRecord) -> bytes:
    data = msgspec.msgpack.encode(record)
    if len(data) > RECORD_BYTES_MAX:
        raise ConfigError(
            f"{len(record.tokens)} spaces are too many for one matcher to tell of",
            hint="Shorter names of spaces need less room.",
        )
    return data


def decode_record(data: bytes) -> MatcherRecord | None:
    """Return None if it cannot be read: gossip does not show which node is at fault."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Placement:
    """Some matchers' segments of a space: the cover of each, and the candidates of a point."""

    def __init__(self, layout: Layout, tokens: Mapping[str, Tokens]) -> None:
        self.layout = layout
        self.names = tuple(sorted(tokens))
        self.table = SegmentTable(layout.bounds, {name: tokens[name] for name in self.names})
        place = {name: number for number, name in enumerate(self.names)}
        self._order = [
            np.array([place[name] for name in segments.owners], np.int64)
            for segments in self.table.dimensions
        ]

    def cover(self, name: str) -> Cover:
        if name not in self.table.tokens:
            return nothing(self.layout.searchable)
        if self.layout.is_copied:
            return (EVERYTHING,)
        return tuple(normal([segments.segment(name)]) for segments in self.table.dimensions)

    def candidates(
        self, values: Floats, usable: npt.NDArray[np.bool_], random: Random
    ) -> npt.NDArray[np.int64]:
        """Return each point's candidate on each dimension, as an index of `names`.

        -1 means that the point has no value there. With full replication, the candidate is a random
        usable matcher, or any matcher if none is usable.
        """
        assert self.names, "somebody has to be there"
        found = np.full(values.shape, -1, np.int64)
        if self.layout.is_copied:
            chosen = np.flatnonzero(usable) if usable.any() else np.arange(len(self.names))
            found[:, 0] = random.choices(chosen.tolist(), k=len(values))
            return found
        for dimension, (segments, order) in enumerate(
            zip(self.table.dimensions, self._order, strict=True)
        ):
            column = values[:, dimension]
            found[:, dimension] = order[segments.places(column)]
            found[np.isnan(column), dimension] = -1
        return found


class MatcherDirectory:
    """All matchers that one node knows, and their segment tables. `changes` counts changes."""

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self.layouts = layouts
        self.records: dict[str, MatcherRecord] = {}
        self.changes = 0
        self._made: dict[tuple[str, bool], Placement] = {}

    def put(self, name: str, record: MatcherRecord) -> None:
        """Add or replace the record of a live matcher."""
        known = self.records.get(name)
        self.records[name] = record
        if known is None or _table_inputs(known) != _table_inputs(record):
            self._changed()

    def gone(self, name: str) -> None:
        if self.records.pop(name, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._made.clear()

    def now(self, space: str) -> Placement:
        return self._placement(space, is_now=True)

    def next(self, space: str) -> Placement:
        return self._placement(space, is_now=False)

    def _placement(self, space: str, *, is_now: bool) -> Placement:
        made = self._made.get((space, is_now))
        if made is None:
            layout = self.layouts[space]
            phases = _NOW if is_now else _NEXT
            tokens = {
                name: own
                for name, record in self.records.items()
                if record.phase in phases
                and (own := self._tokens(record, space, is_now=is_now)) is not None
                and are_tokens(own, layout)
            }
            made = self._made[space, is_now] = Placement(layout, tokens)
        return made

    def _tokens(self, record: MatcherRecord, space: str, *, is_now: bool) -> Tokens | None:
        move = record.move
        if move is None or (is_now and not self.is_in_force(move)):
            return record.tokens.get(space)
        return record.next_tokens(space)

    def is_in_force(self, move: PlannedMove) -> bool:
        """Do brokers ask by the plan of this move?"""
        by_it = [one for one in self.records.values() if one.plan == move.number]
        if any(one.moved == move.number for one in by_it):
            return True
        ready = [one for one in by_it if one.move is not None and one.move.is_ready]
        return len(ready) == move.movers

    def cover(self, space: str, name: str) -> Cover:
        """Return the cover that brokers feed a matcher: by the tables of now and next."""
        return union(self.now(space).cover(name), self.next(space).cover(name))

    def leaving(self) -> Iterable[str]:
        return [name for name, one in self.records.items() if one.phase is Phase.LEAVING]


def _table_inputs(record: MatcherRecord) -> tuple[object, ...]:
    """Return what of a record the tables depend on."""
    return record.phase, record.tokens, record.move, record.moved


def are_tokens(tokens: Tokens, layout: Layout) -> bool:
    """Return whether the tokens fit the space."""
    return len(tokens) == layout.searchable and all(math.isfinite(token) for token in tokens)
