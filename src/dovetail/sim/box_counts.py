"""Counts how many boxes each matcher holds, without feeding them. Pure.

The segments of a dimension lie in a row, so a range overlaps a run of segments: two numbers. Thus
millions of boxes and thousands of matchers are counted in seconds. `Layout.along`, which the
service uses, looks at each box for each matcher. A test compares the two.

To count all boxes of a matcher, the runs of a box's dimensions are merged. For that, matchers must
have the same order along each dimension, as even segments have.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.partition import Segments
from dovetail.matcher.layout import Floats
from dovetail.matcher.segment_tables import Placement

CountArray = npt.NDArray[np.int64]


class Holdings(NamedTuple):
    """Numbers of boxes by matcher, in the order of `Placement.names`."""

    along: CountArray
    """Boxes held along each searchable dimension."""
    held: CountArray
    """All boxes that the matcher holds, each counted once."""

    @classmethod
    def zero(cls, matchers: int, dimensions: int) -> "Holdings":
        return cls(np.zeros((matchers, dimensions), np.int64), np.zeros(matchers, np.int64))

    def __add__(self, other: object) -> "Holdings":
        """Add the counts of other boxes."""
        assert isinstance(other, Holdings)
        return Holdings(self.along + other.along, self.held + other.held)


def along(placement: Placement, lows: Floats, highs: Floats) -> CountArray:
    """Return the boxes held along each searchable dimension, by matcher."""
    names = placement.names
    if placement.layout.is_copied:
        return np.full((len(names), 1), len(lows))
    return _along(placement, *_runs(placement, lows, highs))


def count(placement: Placement, lows: Floats, highs: Floats) -> Holdings:
    names = placement.names
    if placement.layout.is_copied:
        return Holdings(along(placement, lows, highs), np.full(len(names), len(lows)))
    first, last = _runs(placement, lows, highs)
    owners = {segments.owners for segments in placement.table.dimensions}
    assert len(owners) == 1, "matchers stand in the same order along each dimension"
    held = np.zeros(len(names), np.int64)
    held[_order(placement, placement.table.dimensions[0])] = _held(first, last, len(names))
    return Holdings(_along(placement, first, last), held)


def _runs(placement: Placement, lows: Floats, highs: Floats) -> tuple[CountArray, CountArray]:
    """Return the first and the last segment that each box overlaps in each dimension."""
    layout = placement.layout
    kinds = layout.kinds(lows, highs)
    first = np.empty((len(lows), layout.searchable), np.int64)
    last = np.empty_like(first)
    for dimension, segments in enumerate(placement.table.dimensions):
        column = layout.columns[dimension]
        first[:, dimension] = segments.places(lows[:, column])
        # A range ends before its upper border.
        last[:, dimension] = segments.places(np.nextafter(highs[:, column], -np.inf))
        last[kinds >> dimension & 1 == 0, dimension] = -1
    return first, last


def _along(placement: Placement, first: CountArray, last: CountArray) -> CountArray:
    names = placement.names
    found = np.zeros((len(names), first.shape[1]), np.int64)
    for dimension, segments in enumerate(placement.table.dimensions):
        found[_order(placement, segments), dimension] = _overlaps(
            first[:, dimension], last[:, dimension], len(names)
        )
    return found


def _order(placement: Placement, segments: Segments) -> CountArray:
    place = {name: number for number, name in enumerate(placement.names)}
    return np.array([place[name] for name in segments.owners], np.int64)


def _overlaps(first: CountArray, last: CountArray, matchers: int) -> CountArray:
    """Return how many runs contain each place."""
    is_there = last >= first
    begin = np.bincount(first[is_there], minlength=matchers + 1)
    end = np.bincount(last[is_there] + 1, minlength=matchers + 1)
    return np.cumsum(begin - end)[:matchers]


def _held(first: CountArray, last: CountArray, matchers: int) -> CountArray:
    """Return how many boxes contain each place in at least one of their runs."""
    order = np.argsort(first, axis=1)
    first, last = np.take_along_axis(first, order, 1), np.take_along_axis(last, order, 1)
    found = np.zeros(matchers, np.int64)
    reached = np.full(len(first), -1)
    for place in range(first.shape[1]):
        found += _overlaps(np.maximum(first[:, place], reached + 1), last[:, place], matchers)
        reached = np.maximum(reached, last[:, place])
    return found
