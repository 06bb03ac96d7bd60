"""The layout of a space: its dimensions, and how matchers share it. Pure.

The layout's identifier on the wire is a digest of all that decides which matcher holds a box, and
what the numbers of a box mean: bounds, names and order of dimensions, and the scheme
(attributes/scheme.py). Brokers and matchers with different settings of a space therefore ignore
each other. That costs needless forwarding, and no matches.

Full replication has one dimension that places no box: all its values are 0, and each matcher covers
all of it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.attributes.limits import WIDE_SHARE
from dovetail.attributes.partition import Bounds
from dovetail.attributes.scheme import Scheme
from dovetail.attributes.space import Space
from dovetail.matcher.coverage import Cover, is_nothing, rows_of

Floats = npt.NDArray[np.float64]
Kinds = npt.NDArray[np.uint16]

_DIGEST_BYTES = 8


@dataclass(frozen=True)
class Layout:
    """One space. Boxes and points have a value for each dimension, searchable or not."""

    name: str
    dimensions: tuple[Bounds, ...]
    columns: tuple[int, ...]
    """The dimensions that boxes are placed by, as indexes: the searchable ones."""
    scheme: Scheme = Scheme.MPARTITION
    wide_share: float = WIDE_SHARE
    names: tuple[str, ...] = ()
    """The names of the dimensions. They tell dimensions with equal bounds apart."""

    @cached_property
    def id(self) -> str:
        """The identifier on the wire."""
        meaning = msgspec.json.encode(
            (
                self.dimensions,
                self.columns,
                self.scheme,
                float(self.wide_share).hex(),
                self.names,
            )
        )
        digest = hashlib.blake2b(meaning, digest_size=_DIGEST_BYTES).hexdigest()
        return f"{self.name}#{digest}"

    @cached_property
    def bounds(self) -> tuple[Bounds, ...]:
        """The bounds of the searchable dimensions."""
        return tuple(self.dimensions[column] for column in self.columns)

    @property
    def searchable(self) -> int:
        return len(self.columns)

    @property
    def is_copied(self) -> bool:
        return self.scheme is Scheme.FULL

    def name_of(self, dimension: int) -> str:
        """Return the name of a searchable dimension; empty for full replication."""
        if self.is_copied:
            return ""
        column = self.columns[dimension]
        return self.names[column] if self.names else str(column)

    def values(self, points: Floats) -> Floats:
        """Return the points' values on the searchable dimensions; NaN where one is missing."""
        if self.is_copied:
            return np.zeros((len(points), 1))
        return points[:, self.columns]

    def kinds(self, lows: Floats, highs: Floats) -> Kinds:
        """Return on which searchable dimensions each box is narrow, as `partition.kind_of` does."""
        if self.is_copied:
            return np.ones(len(lows), np.uint16)
        low, high = lows[:, self._taken], highs[:, self._taken]
        width = np.minimum(high, self._highs) - np.maximum(low, self._lows)
        is_narrow = width <= self.wide_share * (self._highs - self._lows)
        is_narrow &= (low != -np.inf) | (high != np.inf)
        return is_narrow @ self._bits

    def along(self, lows: Floats, highs: Floats, kinds: Kinds, cover: Cover) -> Kinds:
        """Return along which dimensions a matcher with this cover holds each box; 0: none."""
        if self.is_copied:
            return np.zeros_like(kinds) if is_nothing(cover) else kinds
        low, high = lows[:, self._taken], highs[:, self._taken]
        overlaps = np.zeros(low.shape, np.bool_)
        for begin, end in rows_of(cover):
            overlaps |= (low < end) & (high > begin)
        return (overlaps @ self._bits) & kinds

    # All columns at once: boxes often come one by one, and each call of NumPy has its cost.

    @cached_property
    def _taken(self) -> slice | list[int]:
        """The columns, as a slice if they are neighbours: that takes a tenth of the time."""
        first = self.columns[0]
        is_run = self.columns == tuple(range(first, first + len(self.columns)))
        return slice(first, first + len(self.columns)) if is_run else list(self.columns)

    @cached_property
    def _lows(self) -> Floats:
        return np.array([bound.low for bound in self.bounds], float)

    @cached_property
    def _highs(self) -> Floats:
        return np.array([bound.high for bound in self.bounds], float)

    @cached_property
    def _bits(self) -> Kinds:
        return np.uint16(1) << np.arange(self.searchable, dtype=np.uint16)


def layout_of(space: Space) -> Layout:
    scheme, along = space.sharing.scheme, space.sharing.along
    bounds = tuple(Bounds(one.low, one.high) for one in space.dimensions)
    columns = [place for place, one in enumerate(space.dimensions) if one.is_searchable]
    if scheme is not Scheme.MPARTITION:
        named = [place for place in columns if space.dimensions[place].name == along]
        columns = (named or columns)[:1]
    # In the baselines (p2p, full) the width of a range decides nothing.
    share = WIDE_SHARE if scheme is Scheme.MPARTITION else 1.0
    names = tuple(one.name for one in space.dimensions)
    return Layout(space.name, bounds, tuple(columns), scheme, share, names)


def layouts_of(layouts: Sequence[Layout]) -> dict[str, Layout]:
    """Return the layouts by their identifiers on the wire."""
    return {layout.id: layout for layout in layouts}
