"""Choose the dimensions, and so the matchers, that many points are asked along. Pure.

The choice covers each kind of box once, like `SegmentTable.choose_candidates`, but for arrays. A
point can be asked along a dimension where it has a value and its candidate is usable. Its cost
there is the candidate's cost.

- Kinds that are narrow where a point has no value cannot match it, and are not asked for.
- If kinds are narrow on only one usable dimension, the point is asked along it. For the other
  kinds each point takes the cheapest of the dimensions that they share. If they share none, the
  dimension with the lowest cost per kind is added.
- Kinds without a usable dimension are `stuck`: their brokers search their boxes themselves.

As in the paper, a point is asked about once where all boxes are narrow everywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.partition import bits_of

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Choice(NamedTuple):
    """Points that are asked along one dimension, for boxes of these kinds."""

    rows: Rows
    dimension: int
    kinds: frozenset[int]


class Choices(NamedTuple):
    asked: list[Choice]
    stuck: list[tuple[Rows, frozenset[int]]]


def choose(candidates: Rows, kinds: Iterable[int], costs: Floats) -> Choices:
    """Choose along which dimensions each point is asked.

    Candidates and costs are by point and dimension: -1 is no value, infinity not usable.
    """
    asked: list[Choice] = []
    stuck: list[tuple[Rows, frozenset[int]]] = []
    for missing, usable, rows in _grouped(candidates < 0, np.isfinite(costs)):
        possible = {kind for kind in kinds if kind and not kind & missing}
        uncovered = frozenset(kind for kind in possible if not kind & usable)
        if uncovered:
            stuck.append((rows, uncovered))
        asked += _cover(rows, possible - uncovered, usable, costs)
    return Choices(asked, stuck)


def _grouped(
    missing: npt.NDArray[np.bool_], finite: npt.NDArray[np.bool_]
) -> Iterator[tuple[int, int, Rows]]:
    """Group points that have values, and usable candidates, on the same dimensions."""
    dimensions = missing.shape[1]
    weights = 1 << np.arange(dimensions, dtype=np.int64)
    codes = missing @ weights << dimensions | (finite & ~missing) @ weights
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        yield code >> dimensions, code & (1 << dimensions) - 1, rows


def _cover(rows: Rows, kinds: set[int], usable: int, costs: Floats) -> Iterator[Choice]:
    while kinds:
        only = [kind & usable for kind in kinds if _is_one_bit(kind & usable)]
        common = reduce(and_, kinds, usable)
        if common:
            yield from _cheapest(rows, list(bits_of(common)), frozenset(kinds), costs)
            return
        dimension = (
            only[0].bit_length() - 1
            if only
            else _best(costs[rows], [kind & usable for kind in kinds])
        )
        answered = frozenset(kind for kind in kinds if kind >> dimension & 1)
        kinds = kinds - answered
        yield Choice(rows, dimension, answered)


def _cheapest(
    rows: Rows, dimensions: Sequence[int], kinds: frozenset[int], costs: Floats
) -> Iterator[Choice]:
    """Ask each point along the dimension that costs least."""
    if len(dimensions) == 1:
        yield Choice(rows, dimensions[0], kinds)
        return
    best = np.argmin(costs[rows][:, dimensions], axis=1)
    for place, dimension in enumerate(dimensions):
        chosen = rows[best == place]
        if len(chosen):
            yield Choice(chosen, dimension, kinds)


def _best(costs: Floats, kinds: Sequence[int]) -> int:
    """Return the dimension with the lowest mean cost per kind that it answers for."""
    usable = {dimension for kind in kinds for dimension in bits_of(kind)}
    mean = costs.mean(axis=0)
    return min(
        usable,
        key=lambda dimension: (
            mean[dimension] / sum(kind >> dimension & 1 for kind in kinds),
            dimension,
        ),
    )


def _is_one_bit(mask: int) -> bool:
    return mask & (mask - 1) == 0
