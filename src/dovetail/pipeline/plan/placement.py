"""Plan places for the matchers of a space, so that the busiest has as little work as possible.

    points and boxes of a sample  ->  cells of each dimension  ->  borders  ->  places  ->  loads

1. Each searchable dimension is cut separately, by the questions along it (borders.py).
2. A place has a segment of each dimension, in any combination. Three are tried: in order, as if the
   matchers had started together; shifted, so that a point in the middle of all dimensions has
   several candidates; and the busiest of one dimension with the least busy of the others.
3. Points are distributed over these places as brokers would (load.py). The resulting questions
   along each dimension are the input of the next round.

The places with the highest capacity are the plan. Even borders stay unless the gain is clear. If
points have a choice of matchers, even borders are often as good, and the estimate may be wrong by
`GAIN_MIN_CHOICE`, so a smaller gain may be a loss. No Spark.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.partition import Tokens, even_tokens
from dovetail.pipeline.plan.borders import (
    DimensionCells,
    begins_and_ends,
    cell_of,
    cut_evenly,
    edges_of,
)
from dovetail.pipeline.plan.load import Floats, MatcherLoad, PointCosts, SpaceSample, estimate_load

CELLS = 1_024
"""Cells of a dimension. Borders lie between cells."""

ROUNDS = 4
"""Rounds of cutting and distributing."""

GAIN_MIN, GAIN_MIN_CHOICE = 0.05, 0.25
"""The share by which planned borders must raise the capacity of even ones; the second value
applies if points have a choice of matchers."""


class PlannedPlaces(NamedTuple):
    places: list[Tokens]
    load: MatcherLoad


def even_places(sample: SpaceSample, matchers: int) -> list[Tokens]:
    names = [f"{number:06d}" for number in range(matchers)]
    return [*even_tokens(names, sample.layout.bounds).values()]


def plan_places(
    sample: SpaceSample, matchers: int, costs: PointCosts, rounds: int = ROUNDS
) -> PlannedPlaces:
    """Return the best places that were found."""
    places = even_places(sample, matchers)
    even = best = PlannedPlaces(places, estimate_load(sample, places, costs))
    if matchers == 1 or not len(sample.points):
        return best
    edges = [_edges(sample, dimension, matchers) for dimension in range(sample.layout.searchable)]
    asked = np.ones((len(sample.points), sample.layout.searchable), np.bool_)
    for _ in range(rounds):
        segments = [
            _borders(sample, dimension, edges[dimension], asked[:, dimension], matchers, costs)
            for dimension in range(sample.layout.searchable)
        ]
        tried = [
            PlannedPlaces(places, estimate_load(sample, places, costs))
            for places in _paired(segments, best)
        ]
        found = max(tried, key=_rank)
        best = max(best, found, key=_rank)
        if np.array_equal(found.load.asked, asked):
            break
        asked = found.load.asked
    wanted = GAIN_MIN if best.load.is_exact and even.load.is_exact else GAIN_MIN_CHOICE
    return best if best.load.capacity > (1 + wanted) * even.load.capacity else even


def _rank(one: PlannedPlaces) -> tuple[float, float]:
    """Rank places by capacity, and then by less work in total."""
    return one.load.capacity, -float(one.load.seconds.sum())


def _edges(sample: SpaceSample, dimension: int, matchers: int) -> Floats:
    bound = sample.layout.bounds[dimension]
    values = sample.layout.values(sample.points)[:, dimension]
    return edges_of(values[~np.isnan(values)], bound.low, bound.high, max(CELLS, 4 * matchers))


def _borders(
    sample: SpaceSample,
    dimension: int,
    edges: Floats,
    asked: npt.NDArray[np.bool_],
    matchers: int,
    costs: PointCosts,
) -> list[float]:
    """Return where the segments of a dimension begin, for these questions along it."""
    values = sample.layout.values(sample.points)[:, dimension]
    counted = asked & ~np.isnan(values)
    if not counted.any():
        counted = ~np.isnan(values)
    cells = cell_of(edges, values[counted])
    spent = costs.point_seconds + costs.match_seconds * sample.matches[counted]
    column = sample.layout.columns[dimension]
    is_narrow = (sample.kinds >> np.uint16(dimension) & 1).astype(np.bool_)
    begins, ends = begins_and_ends(
        edges, sample.lows[is_narrow, column], sample.highs[is_narrow, column]
    )
    count = len(edges) - 1
    made = DimensionCells(
        edges,
        np.bincount(cells, minlength=count).astype(np.float64),
        np.bincount(cells, spent, count).astype(np.float64),
        begins,
        ends,
        costs.box_seconds * sample.box_scale,
    )
    return [float(edges[place]) for place in cut_evenly(made, matchers)]


def _paired(segments: Sequence[Sequence[float]], best: PlannedPlaces) -> Iterator[list[Tokens]]:
    """Yield combinations of these segments as places."""
    matchers, dimensions = len(segments[0]), len(segments)
    yield [*zip(*segments, strict=True)]
    if dimensions == 1:
        return
    for shift in {1, matchers // 2, max(matchers // dimensions, 1)} - {0}:
        yield [
            tuple(own[(place + shift * number) % matchers] for number, own in enumerate(segments))
            for place in range(matchers)
        ]
    # Combine the busiest segments of earlier dimensions with the least busy of the next one.
    total = best.load.along[:, 0].copy()
    columns = [[*segments[0]]]
    for number in range(1, dimensions):
        order = np.argsort(-total, kind="stable")
        own = np.argsort(best.load.along[:, number], kind="stable")
        column = [0.0] * matchers
        for busy, light in zip(order.tolist(), own.tolist(), strict=True):
            column[busy] = segments[number][light]
            total[busy] += best.load.along[light, number]
        columns.append(column)
    yield [*zip(*columns, strict=True)]
