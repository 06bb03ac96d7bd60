"""Covers: the values for which a matcher has every box, as ranges of each dimension. Pure.

A cover has one normal form (sorted, without touching or empty ranges), so that `==` compares
values. `union` and `intersection` work dimension by dimension.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from dovetail.attributes.conjunctions import Range

Ranges = tuple[Range, ...]
Cover = tuple[Ranges, ...]

EVERYTHING: Ranges = (Range(-math.inf, math.inf),)

_NOWHERE = Range(math.inf, -math.inf)
_KEPT_MAX = 64

Floats = npt.NDArray[np.float64]


def nothing(dimensions: int) -> Cover:
    return ((),) * dimensions


def is_nothing(cover: Cover) -> bool:
    return not any(cover)


def normal(ranges: Iterable[tuple[float, float]]) -> Ranges:
    """Return the ranges in normal form."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if low >= high:
            continue
        if found and low <= found[-1].high:
            found[-1] = Range(found[-1].low, max(high, found[-1].high))
        else:
            found.append(Range(low, high))
    return tuple(found)


def union(one: Cover, other: Cover) -> Cover:
    return tuple(normal(mine + theirs) for mine, theirs in zip(one, other, strict=True))


def intersection(one: Cover, other: Cover) -> Cover:
    return tuple(
        normal((max(a.low, b.low), min(a.high, b.high)) for a in mine for b in theirs)
        for mine, theirs in zip(one, other, strict=True)
    )


def contains(one: Cover, other: Cover) -> bool:
    return union(one, other) == one


@lru_cache(_KEPT_MAX)
def rows_of(cover: Cover) -> list[tuple[Floats, Floats]]:
    """Return the begins and ends of each dimension's first range, then of the second ones, ...

    A dimension with fewer ranges is filled up with one that nothing overlaps.
    """
    rows = zip_longest(*cover, fillvalue=_NOWHERE)
    return [
        (np.array([one.low for one in row]), np.array([one.high for one in row])) for row in rows
    ]


def within(values: Floats, ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Which of the values lie in one of the ranges?"""
    inside = np.zeros(len(values), np.bool_)
    for low, high in ranges:
        inside |= (values >= low) & (values < high)
    return inside
