"""Whom to ask about many points at once, so that each kind of box is answered for once. Pure.

The same question as `partition.Table.questions`, for arrays: a point may be asked along a dimension
where it has a value and its candidate is usable, and costs what the candidate costs there.

- Kinds that are narrow where a point has no value cannot match it, and are not asked for.
- Kinds that are narrow on one usable dimension only decide that it is asked along. For those that
  are left each point takes the cheapest of the dimensions that they share; where they share none,
  the dimension is added that is the cheapest on the whole.
- Kinds without a usable dimension are `stuck`: their brokers look for themselves.

As in the paper, a point is asked for once where all boxes are narrow everywhere.
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
    """Points that are asked for along a dimension, for boxes of these kinds."""

    rows: Rows
    dimension: int
    kinds: frozenset[int]


class Choices(NamedTuple):
    asked: list[Choice]
    stuck: list[tuple[Rows, frozenset[int]]]


def choose(candidates: Rows, kinds: Iterable[int], costs: Floats) -> Choices:
    """Candidates and costs by point and dimension: -1 is no value, infinity not usable."""
    asked: list[Choice] = []
    stuck: list[tuple[Rows, frozenset[int]]] = []
    for missing, usable, rows in _alike(candidates < 0, np.isfinite(costs)):
        possible = {kind for kind in kinds if kind and not kind & missing}
        helpless = frozenset(kind for kind in possible if not kind & usable)
        if helpless:
            stuck.append((rows, helpless))
        asked += _cover(rows, possible - helpless, usable, costs)
    return Choices(asked, stuck)


def _alike(
    missing: npt.NDArray[np.bool_], finite: npt.NDArray[np.bool_]
) -> Iterator[tuple[int, int, Rows]]:
    """Points that have values, and usable candidates, on the same dimensions."""
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
    """Each point along the dimension that costs it least."""
    if len(dimensions) == 1:
        yield Choice(rows, dimensions[0], kinds)
        return
    best = np.argmin(costs[rows][:, dimensions], axis=1)
    for place, dimension in enumerate(dimensions):
        chosen = rows[best == place]
        if len(chosen):
            yield Choice(chosen, dimension, kinds)


def _best(costs: Floats, kinds: Sequence[int]) -> int:
    """The dimension that costs least for each kind that it answers for."""
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
