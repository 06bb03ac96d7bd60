"""mPartition (BlueDove III-A): which matchers hold a box, and which of them may answer for a point.

Pure. Each matcher has a token on every searchable dimension of a space. Its segment goes from its
token to the next one; the lowest segment begins at minus infinity. So the table of segments is a
function of the tokens, and all nodes that know the same matchers have the same table:

    tokens    A 0        C 250      B 500                 D 750
    segments  [-inf, 250) [250, 500) [500, 750)            [750, inf)

Rules:

- A box is *narrow* on a dimension if its range takes up at most WIDE_SHARE of the bounds and is not
  open on both sides. Along such a dimension, every matcher whose segment overlaps the range holds
  the box. Along its other dimensions no matcher holds it, so an open range does not copy a box to
  all matchers. The *kind* of a box is the mask of its narrow dimensions. It depends on the space
  alone, and does not change as matchers come and go.
- A point's *candidate* along a dimension is the matcher whose segment has the point's value. It has
  all matching boxes that are narrow on that dimension, and no other matcher is asked for them.
- If all boxes are narrow everywhere, as in the paper, one candidate is enough. Otherwise a point
  goes to several candidates, so that each existing kind is narrow on the dimension of one of them.
  Each is told the kinds that it answers for, so nothing is found twice.
- A box that is narrow nowhere has no matcher: its subscriber's broker checks it.
- A point without an attribute can only match boxes that leave it open, so kinds that are narrow
  there are not asked for.
- If one matcher would have all copies of a box, its clockwise neighbours along the other dimensions
  hold the box too.
- A matcher that joins takes the upper half of the most loaded matcher's segment on each dimension.
  When a matcher leaves or dies, the matchers below it take over its segments. No other token moves.
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
"""The tokens of a matcher, one for each searchable dimension."""


OPEN = Range(-math.inf, math.inf)


class Bounds(NamedTuple):
    """The bounds of a searchable dimension."""

    low: float
    high: float


def kind_of(
    ranges: Sequence[Range], bounds: Sequence[Bounds], wide_share: float = WIDE_SHARE
) -> int:
    """Return the dimensions on which a box is narrow: bit i for dimension i."""
    return sum(
        1 << dimension
        for dimension, (one, bound) in enumerate(zip(ranges, bounds, strict=True))
        if one != OPEN and _width(one, bound) <= wide_share * (bound.high - bound.low)
    )


def _width(one: Range, bound: Bounds) -> float:
    """Return the width within the bounds. Values outside are in the first or the last segment."""
    return min(one.high, bound.high) - max(one.low, bound.low)


class Segments:
    """The segments of one dimension."""

    def __init__(self, tokens: Mapping[str, float]) -> None:
        """Take tokens by matcher. Of two equal tokens, the last name has the segment."""
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
        """Return for each value the index of its owner in `owners`."""
        return np.maximum(np.searchsorted(self._start_array, values, side="right") - 1, 0)

    def segment(self, name: str) -> Range:
        """Return a matcher's segment; empty if another matcher has its token and the segment."""
        place = self._place[name]
        is_last = place == len(self._starts) - 1
        return Range(
            self._starts[place] if place else -math.inf,
            math.inf if is_last else self._starts[place + 1],
        )

    def overlapping(self, one: Range) -> tuple[str, ...]:
        """Return the matchers whose segments overlap the range, from low to high."""
        if one.low >= one.high:
            return ()
        last = max(bisect.bisect_left(self._starts, one.high) - 1, 0)
        return self.owners[self._at(one.low) : last + 1]

    def clockwise(self, name: str) -> str:
        """Return the owner of the next segment; after the last comes the first."""
        return self.owners[(self._place[name] + 1) % len(self.owners)]


@dataclass(frozen=True, slots=True)
class ChosenCandidate:
    """A candidate that is asked about a point, and the kinds that it answers for."""

    matcher: str
    dimension: int
    kinds: frozenset[int]


class SegmentTable:
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
        """Return the matchers that hold a box, and for each the mask of dimensions."""
        holders: dict[str, int] = {}
        for dimension in bits_of(kind):
            for name in self.dimensions[dimension].overlapping(ranges[dimension]):
                holders[name] = holders.get(name, 0) | 1 << dimension
        if len(holders) == 1:
            self._add_neighbours(holders, kind)
        return holders

    def _add_neighbours(self, holders: dict[str, int], kind: int) -> None:
        """Give the only holder's clockwise neighbours copies too."""
        (only,) = holders
        _, *others = bits_of(kind)
        for dimension in others:
            neighbour = self.dimensions[dimension].clockwise(only)
            holders[neighbour] = holders.get(neighbour, 0) | 1 << dimension

    # Points ---------------------------------------------------------------------------------------

    def candidates(self, point: Sequence[float]) -> tuple[str | None, ...]:
        """Return a candidate for each dimension; None where the point has no value."""
        return tuple(
            None if math.isnan(value) else segments.owner(value)
            for segments, value in zip(self.dimensions, point, strict=True)
        )

    def choose_candidates(
        self, candidates: Sequence[str | None], kinds: Iterable[int], costs: Sequence[float]
    ) -> list[ChosenCandidate]:
        """Choose candidates at little cost, so that each of these kinds has one.

        The oracle of matcher/candidate_choice.py, which does this for arrays of points.
        """
        missing = sum(1 << place for place, name in enumerate(candidates) if name is None)
        open_kinds = {kind for kind in kinds if kind and not kind & missing}
        chosen = []
        for dimension in _cover(open_kinds, costs):
            name = candidates[dimension]
            assert name is not None
            answered = frozenset(kind for kind in open_kinds if kind >> dimension & 1)
            open_kinds -= answered
            chosen.append(ChosenCandidate(name, dimension, answered))
        return chosen

    # Matchers come and go -------------------------------------------------------------------------

    def half_of(self, name: str) -> Tokens:
        """Return the tokens at which the upper halves of a matcher's segments begin.

        The first segment begins before its token. When matchers below have left, the token may be
        in the middle. Then the joining matcher takes the lower half: with an equal token it would
        get nothing.
        """
        return tuple(
            middle if (middle := _middle(segments.segment(name), bound)) != token else bound.low
            for segments, bound, token in zip(
                self.dimensions, self.bounds, self.tokens[name], strict=True
            )
        )

    def widest(self) -> str:
        """Return the matcher with most of the space, for when no load is known."""
        return max(self.tokens, key=lambda name: (self._share(name), name))

    def _share(self, name: str) -> float:
        return sum(
            max(_width(segments.segment(name), bound), 0.0) / (bound.high - bound.low)
            for segments, bound in zip(self.dimensions, self.bounds, strict=True)
        )


def even_tokens(names: Sequence[str], bounds: Sequence[Bounds]) -> dict[str, Tokens]:
    """Return tokens for segments of equal length, for matchers that start together."""
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
    """Choose dimensions greedily, so that each kind is narrow on one of them.

    First come those that are a kind's only one: often they cover all the rest.
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
