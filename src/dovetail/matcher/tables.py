"""Who the matchers are: what each tells by gossip, and the tables of segments made of it. Pure.

A matcher's record has its phase, its tokens in each space, and how busy it is. Its phases, which
joining.py moves it through:

    JOINING    its tokens are chosen: brokers feed it, nobody asks it
    SERVING    it is asked
    LEAVING    it is still asked, while others are fed what it answers for
    AWAY       nobody asks it any more

So there are two tables. Points are asked for by the one of *now*: who serves or leaves. Boxes are
fed by that one and the *next*: who joins or serves. A node that is dead, or has left, is in
neither. All who know the same records have the same tables, and those who do not meet a matcher
that is unsure, at worst.
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
from dovetail.config import RECORD_BYTES_MAX, SPACE_DIMENSIONS_MAX
from dovetail.errors import ConfigError
from dovetail.matcher.bodies import SPACES_MAX, SpaceId
from dovetail.matcher.covers import EVERYTHING, Cover, normal, nothing, union
from dovetail.matcher.layout import Floats, Layout

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


class MatcherRecord(Struct, frozen=True, array_like=True):
    phase: Phase
    tokens: Annotated[dict[SpaceId, _TokenList], Meta(max_length=SPACES_MAX)]
    load: Annotated[float, Meta(ge=0)] = 0.0
    """The share of the time that it is busy."""


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
        if known is None or (known.phase, known.tokens) != (record.phase, record.tokens):
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
                name: record.tokens[space]
                for name, record in self.records.items()
                if record.phase in phases and _are_tokens(record.tokens.get(space), layout)
            }
            made = self._made[space, is_now] = Placement(layout, tokens)
        return made

    def cover(self, space: str, name: str) -> Cover:
        """What a broker feeds a matcher: all that anybody may ask it, now or soon."""
        return union(self.now(space).cover(name), self.next(space).cover(name))

    def leaving(self) -> Iterable[str]:
        return [name for name, one in self.records.items() if one.phase is Phase.LEAVING]


def _are_tokens(tokens: Tokens | None, layout: Layout) -> bool:
    return (
        tokens is not None
        and len(tokens) == layout.searchable
        and all(math.isfinite(token) for token in tokens)
    )
