"""mPartition (BlueDove III-A): which matchers hold a box, and which of them a point may go to.

Pure. Each matcher has a token on every searchable dimension of a space. Its segment goes from its
token to the next one; the lowest segment begins at minus infinity. So the table of segments is a
function of the tokens of the matchers that are there, and all who know the same matchers have the
same table:

    tokens    A 0        C 250      B 500                 D 750
    segments  [-inf, 250) [250, 500) [500, 750)            [750, inf)

Rules:

- A box is *narrow* on a dimension where its range takes up no more than WIDE_SHARE of the bounds,
  and is not open on both sides, whatever the share is.
  Along each dimension on which it is narrow it is held by every matcher whose segment its range
  overlaps; along others by nobody. So no box is copied to all matchers because one of its ranges
  is open. On which dimensions a box is narrow is its *kind*, a mask of bits, and depends on the
  space alone: it does not change as matchers come and go.
- The matcher whose segment a point falls in along a dimension is a *candidate*: it alone finds all
  matching boxes that are narrow on that dimension, and no other is asked for them.
- Where all boxes are narrow everywhere, as in the paper, any one candidate is enough. Otherwise a
  point goes to so many candidates that each kind of box that there is is narrow on the dimension of
  one of them; each is told the kinds that it answers for, so nothing is found twice.
- A box that is narrow nowhere is no matcher's: its subscriber's broker checks it.
- A point that lacks an attribute can only match boxes that leave it open, so kinds that are narrow
  there are not asked for.
- Where all copies of a box would be with one matcher, its clockwise neighbours along the other
  dimensions hold it, too.
- Who joins takes the upper half of the most loaded matcher's segment on each dimension; who leaves,
  or dies, leaves its segments to those below it. Tokens of others do not move.
"""

import bisect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.conjunctions import Range
from dovetail.attributes.limits import WIDE_SHARE

Tokens = tuple[float, ...]
"""A matcher's, one for each searchable dimension."""


OPEN = Range(-math.inf, math.inf)


class Bounds(NamedTuple):
    """Of a searchable dimension."""

    low: float
    high: float


def kind_of(
    ranges: Sequence[Range], bounds: Sequence[Bounds], wide_share: float = WIDE_SHARE
) -> int:
    """On which dimensions a box is narrow: bit i for dimension i."""
    return sum(
        1 << dimension
        for dimension, (one, bound) in enumerate(zip(ranges, bounds, strict=True))
        if one != OPEN and _width(one, bound) <= wide_share * (bound.high - bound.low)
    )


def _width(one: Range, bound: Bounds) -> float:
    """Of what lies within the bounds; what lies outside is in one segment at each end."""
    return min(one.high, bound.high) - max(one.low, bound.low)


class Segments:
    """One dimension, cut."""

    def __init__(self, tokens: Mapping[str, float]) -> None:
        """By matcher. Of two with the same token the one whose name comes last has the segment."""
        placed = sorted((token, name) for name, token in tokens.items())
        self.owners = tuple(name for _, name in placed)
        self._starts = [token for token, _ in placed]
        self._start_array = np.array(self._starts)
        self._place = {name: place for place, name in enumerate(self.owners)}

    def owner(self, value: float) -> str:
        return self.owners[self._at(value)]

    def _at(self, value: float) -> int:
        return max(bisect.bisect_right(self._starts, value) - 1, 0)

    def places(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Of many values, their owners' places in `owners`."""
        return np.maximum(np.searchsorted(self._start_array, values, side="right") - 1, 0)

    def segment(self, name: str) -> Range:
        """What it answers for; empty where another one has its token, too."""
        place = self._place[name]
        is_last = place == len(self._starts) - 1
        return Range(
            self._starts[place] if place else -math.inf,
            math.inf if is_last else self._starts[place + 1],
        )

    def overlapping(self, one: Range) -> tuple[str, ...]:
        """Whose segments the range overlaps, from low to high."""
        if one.low >= one.high:
            return ()
        last = max(bisect.bisect_left(self._starts, one.high) - 1, 0)
        return self.owners[self._at(one.low) : last + 1]

    def clockwise(self, name: str) -> str:
        """Whose segment comes next; after the last the first."""
        return self.owners[(self._place[name] + 1) % len(self.owners)]


@dataclass(frozen=True, slots=True)
class Question:
    """A candidate, and what it is asked for."""

    matcher: str
    dimension: int
    kinds: frozenset[int]


class Table:
    """All segments of a space."""

    def __init__(self, bounds: Sequence[Bounds], tokens: Mapping[str, Tokens]) -> None:
        self.bounds = tuple(bounds)
        self.tokens = dict(tokens)
        self.dimensions = tuple(
            Segments({name: own[dimension] for name, own in tokens.items()})
            for dimension in range(len(self.bounds))
        )

    # Boxes ----------------------------------------------------------------------------------------

    def holders(self, ranges: Sequence[Range], kind: int) -> dict[str, int]:
        """Matchers that hold a box, and along which dimensions, as a mask."""
        holders: dict[str, int] = {}
        for dimension in bits_of(kind):
            for name in self.dimensions[dimension].overlapping(ranges[dimension]):
                holders[name] = holders.get(name, 0) | 1 << dimension
        if len(holders) == 1:
            self._add_neighbours(holders, kind)
        return holders

    def _add_neighbours(self, holders: dict[str, int], kind: int) -> None:
        """All copies are with one matcher: others have some, too."""
        (only,) = holders
        _, *others = bits_of(kind)
        for dimension in others:
            neighbour = self.dimensions[dimension].clockwise(only)
            holders[neighbour] = holders.get(neighbour, 0) | 1 << dimension

    # Points ---------------------------------------------------------------------------------------

    def candidates(self, point: Sequence[float]) -> tuple[str | None, ...]:
        """One for each dimension; None where the point has no value."""
        return tuple(
            None if math.isnan(value) else segments.owner(value)
            for segments, value in zip(self.dimensions, point, strict=True)
        )

    def questions(
        self, candidates: Sequence[str | None], kinds: Iterable[int], costs: Sequence[float]
    ) -> list[Question]:
        """Whom to ask so that each of these kinds of boxes is answered for once, at little cost."""
        missing = sum(1 << place for place, name in enumerate(candidates) if name is None)
        open_kinds = {kind for kind in kinds if kind and not kind & missing}
        questions = []
        for dimension in _cover(open_kinds, costs):
            name = candidates[dimension]
            assert name is not None
            answered = frozenset(kind for kind in open_kinds if kind >> dimension & 1)
            open_kinds -= answered
            questions.append(Question(name, dimension, answered))
        return questions

    # Matchers come and go -------------------------------------------------------------------------

    def half_of(self, name: str) -> Tokens:
        """Where the upper half of each of a matcher's segments begins.

        A first segment begins before its token, and that may be its middle, when those below have
        gone. Then who joins takes the lower half: with the same token it would get nothing.
        """
        return tuple(
            middle if (middle := _middle(segments.segment(name), bound)) != token else bound.low
            for segments, bound, token in zip(
                self.dimensions, self.bounds, self.tokens[name], strict=True
            )
        )

    def widest(self) -> str:
        """Who has most of the space, for when no load is known."""
        return max(self.tokens, key=lambda name: (self._share(name), name))

    def _share(self, name: str) -> float:
        return sum(
            max(_width(segments.segment(name), bound), 0.0) / (bound.high - bound.low)
            for segments, bound in zip(self.dimensions, self.bounds, strict=True)
        )


def even_tokens(names: Sequence[str], bounds: Sequence[Bounds]) -> dict[str, Tokens]:
    """Segments of the same length, for matchers that begin together."""
    return {
        name: tuple(low + (high - low) * place / len(names) for low, high in bounds)
        for place, name in enumerate(names)
    }


def bits_of(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _middle(segment: Range, bound: Bounds) -> float:
    low = min(max(segment.low, bound.low), bound.high)
    high = max(min(segment.high, bound.high), bound.low)
    return low + (max(high, low) - low) / 2


def _cover(kinds: set[int], costs: Sequence[float]) -> list[int]:
    """Dimensions such that each kind has one of them. A greedy choice.

    Those come first that a kind has no other for: often they cover all the rest.
    """
    chosen = 0
    for kind in kinds:
        if kind & (kind - 1) == 0:
            chosen |= kind
    left = {kind for kind in kinds if not kind & chosen}
    while left:
        usable = {dimension for kind in left for dimension in bits_of(kind)}
        best = min(
            usable,
            key=lambda dimension: (
                costs[dimension] / sum(kind >> dimension & 1 for kind in left),
                dimension,
            ),
        )
        chosen |= 1 << best
        left = {kind for kind in left if not kind >> best & 1}
    return list(bits_of(chosen))
