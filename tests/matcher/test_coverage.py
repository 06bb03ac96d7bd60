"""Covers as ranges, compared with sets of small numbers."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.conjunctions import Range
from dovetail.matcher.coverage import (
    EVERYTHING,
    Ranges,
    contains,
    intersection,
    is_nothing,
    normal,
    nothing,
    rows_of,
    union,
    within,
)

_RANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=5)


def members(ranges: Ranges) -> set[int]:
    return {value for value in range(13) for low, high in ranges if low <= value < high}


@given(_RANGES, _RANGES)
def test_unions_and_intersections(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    mine, theirs = normal(one), normal(other)
    (both,), (common,) = union((mine,), (theirs,)), intersection((mine,), (theirs,))
    assert members(both) == members(mine) | members(theirs)
    assert members(common) == members(mine) & members(theirs)
    assert contains((mine,), (theirs,)) == (members(theirs) <= members(mine))
    # One form only: what is equal compares equal.
    assert (mine == theirs) == (members(mine) == members(theirs))
    inside = within(np.arange(13, dtype=np.float64), mine)
    assert set(np.flatnonzero(inside).tolist()) == members(mine)


@given(_RANGES, _RANGES)
def test_rows_have_the_ranges_of_all_dimensions(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    cover = (normal(one), normal(other))
    rows = rows_of(cover)
    assert len(rows) == max(map(len, cover))
    for dimension, ranges in enumerate(cover):
        found = [(low[dimension], high[dimension]) for low, high in rows]
        assert found[: len(ranges)] == list(ranges)
        assert all(low > high for low, high in found[len(ranges) :])


def test_everything_and_nothing() -> None:
    assert is_nothing(nothing(3))
    assert not is_nothing(((), EVERYTHING))
    assert within(np.array([-1e308, 0.0, math.nan]), EVERYTHING).tolist() == [True, True, False]
    assert normal([(-math.inf, 3), (3, math.inf)]) == EVERYTHING
    assert normal([(5, 5), (7, 2), (1, 2)]) == (Range(1, 2),)
