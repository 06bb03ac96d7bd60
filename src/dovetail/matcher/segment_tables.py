"""Who the matchers are: what each tells by gossip, and the tables of segments made of it. Pure.

A matcher's record has its phase, its tokens in each space, and how busy it is. Its phases, which
join.py moves it through:

    JOINING    its tokens are chosen: brokers feed it, nobody asks it
    SERVING    it is asked
    LEAVING    it is still asked, while others are fed what it answers for
    AWAY       nobody asks it any more

So there are two tables. Points are asked for by the one of *now*: who serves or leaves. Boxes are
fed by that one and the *next*: who joins or serves. A node that is dead, or has left, is in
neither. All who know the same records have the same tables, and those who do not meet a matcher
that is unsure, at worst.

Who moves to the place that a plan has for it (relocation.py) serves meanwhile. In the next table it
is there; in that of now only once the plan is in force, which is for all who move by it at once:
when every one of them has said that it is fed, or one has seen that and gone.
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

from dovetail.attributes.partition import Table, Tokens
from dovetail.cluster.limits import RECORD_BYTES_MAX
from dovetail.errors import ConfigError
from dovetail.limits import CLUSTER_NODES_MAX, SPACE_DIMENSIONS_MAX
from dovetail.matcher.coverage import EVERYTHING, Cover, normal, nothing, union
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.matcher_messages import SPACES_MAX, Number, SpaceId

MATCHER = "matcher"
"""The key of the record."""


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


class Move(Struct, frozen=True, array_like=True):
    """Where a plan has a matcher, and how far it is."""

    number: Number
    """Of the plan: later ones have higher ones."""
    movers: Annotated[int, Meta(ge=1, le=CLUSTER_NODES_MAX)]
    """Who move by this plan, with this one."""
    tokens: Places
    """In the spaces that are planned."""
    is_ready: bool = False
    """All live brokers have fed what it will answer for."""


class MatcherRecord(Struct, frozen=True, array_like=True):
    phase: Phase
    tokens: Places
    load: Annotated[float, Meta(ge=0)] = 0.0
    """The share of the time that it is busy."""
    move: Move | None = None
    moved: Number = 0
    """The plan by which it has moved last; 0: none."""

    def soon(self, space: str) -> Tokens | None:
        """Where it is going to be."""
        if self.move is not None and space in self.move.tokens:
            return self.move.tokens[space]
        return self.tokens.get(space)

    @property
    def plan(self) -> int:
        """By which it moves, or has moved."""
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
    """None if it is none: of gossip nobody knows who got it wrong."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Placement:
    """Some matchers' parts of a space: what each holds, and who may be asked about a point."""

    def __init__(self, layout: Layout, tokens: Mapping[str, Tokens]) -> None:
        self.layout = layout
        self.names = tuple(sorted(tokens))
        self.table = Table(layout.bounds, {name: tokens[name] for name in self.names})
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
        """Of each point one for each dimension, as places in `names`; -1: it has no value there.

        Where every matcher has everything it is any that is usable, if there is one.
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


class View:
    """What one node knows of all matchers. `changes` counts what may change a table."""

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self.layouts = layouts
        self.records: dict[str, MatcherRecord] = {}
        self.changes = 0
        self._made: dict[tuple[str, bool], Placement] = {}

    def put(self, name: str, record: MatcherRecord) -> None:
        """A live matcher's."""
        known = self.records.get(name)
        self.records[name] = record
        if known is None or _placing(known) != _placing(record):
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
        return record.soon(space)

    def is_in_force(self, move: Move) -> bool:
        """Are points asked for by the plan of this move?"""
        by_it = [one for one in self.records.values() if one.plan == move.number]
        if any(one.moved == move.number for one in by_it):
            return True
        ready = [one for one in by_it if one.move is not None and one.move.is_ready]
        return len(ready) == move.movers

    def cover(self, space: str, name: str) -> Cover:
        """What a broker feeds a matcher: all that anybody may ask it, now or soon."""
        return union(self.now(space).cover(name), self.next(space).cover(name))

    def leaving(self) -> Iterable[str]:
        return [name for name, one in self.records.items() if one.phase is Phase.LEAVING]


def _placing(record: MatcherRecord) -> tuple[object, ...]:
    """What of a record decides about tables."""
    return record.phase, record.tokens, record.move, record.moved


def are_tokens(tokens: Tokens, layout: Layout) -> bool:
    """Do they fit the space?"""
    return len(tokens) == layout.searchable and all(math.isfinite(token) for token in tokens)
