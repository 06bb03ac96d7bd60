"""Places for the matchers of a space, so that the busiest has as little to do as can be. No Spark.

    points and boxes of a sample  ->  cells of each dimension  ->  borders  ->  places  ->  loads

1. Each searchable dimension is cut on its own, by how much is asked along it (borders.py).
2. A place is a segment of each dimension. Which go together is free: in order, as where matchers
   began together; shifted against each other, so that what lies in the middle of all dimensions
   has several candidates; or the busiest of one with the least busy of the others.
3. Points are dealt out over these places as brokers would (load.py). How much is asked
   along each dimension, and where, comes out, and with that it is cut again, some times.

What takes the highest rate is the plan, and even borders stay unless that is clearly more. Where
points have a choice of matchers, even ones often do as well, and the estimate may be wrong by
`GAIN_MIN_CHOICE`; who moves for less may lose by it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.partition import Tokens, even_tokens
from dovetail.pipeline.plan.borders import Cells, begins_and_ends, cell_of, cut, edges_of
from dovetail.pipeline.plan.load import Costs, Floats, Load, Sample, load_of

CELLS = 1_024
"""Of a dimension: borders lie between them."""

ROUNDS = 4
"""Of cutting and dealing out."""

GAIN_MIN, GAIN_MIN_CHOICE = 0.05, 0.25
"""What other borders have to add to what matchers take with even ones; and where points have a
choice."""


class Planned(NamedTuple):
    places: list[Tokens]
    load: Load


def even_places(sample: Sample, matchers: int) -> list[Tokens]:
    names = [f"{number:06d}" for number in range(matchers)]
    return [*even_tokens(names, sample.layout.bounds).values()]


def plan(sample: Sample, matchers: int, costs: Costs, rounds: int = ROUNDS) -> Planned:
    """The best places that were found."""
    places = even_places(sample, matchers)
    even = best = Planned(places, load_of(sample, places, costs))
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
            Planned(places, load_of(sample, places, costs)) for places in _paired(segments, best)
        ]
        found = max(tried, key=_taken)
        best = max(best, found, key=_taken)
        if np.array_equal(found.load.asked, asked):
            break
        asked = found.load.asked
    wanted = GAIN_MIN if best.load.is_exact and even.load.is_exact else GAIN_MIN_CHOICE
    return best if best.load.capacity > (1 + wanted) * even.load.capacity else even


def _taken(one: Planned) -> tuple[float, float]:
    """What matchers take; of the same, who spend less on it."""
    return one.load.capacity, -float(one.load.seconds.sum())


def _edges(sample: Sample, dimension: int, matchers: int) -> Floats:
    bound = sample.layout.bounds[dimension]
    values = sample.layout.values(sample.points)[:, dimension]
    return edges_of(values[~np.isnan(values)], bound.low, bound.high, max(CELLS, 4 * matchers))


def _borders(
    sample: Sample,
    dimension: int,
    edges: Floats,
    asked: npt.NDArray[np.bool_],
    matchers: int,
    costs: Costs,
) -> list[float]:
    """Where the segments of a dimension begin, with what is asked along it."""
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
    made = Cells(
        edges,
        np.bincount(cells, minlength=count).astype(np.float64),
        np.bincount(cells, spent, count).astype(np.float64),
        begins,
        ends,
        costs.box_seconds * sample.box_scale,
    )
    return [float(edges[place]) for place in cut(made, matchers)]


def _paired(segments: Sequence[Sequence[float]], best: Planned) -> Iterator[list[Tokens]]:
    """Places of these segments."""
    matchers, dimensions = len(segments[0]), len(segments)
    yield [*zip(*segments, strict=True)]
    if dimensions == 1:
        return
    for shift in {1, matchers // 2, max(matchers // dimensions, 1)} - {0}:
        yield [
            tuple(own[(place + shift * number) % matchers] for number, own in enumerate(segments))
            for place in range(matchers)
        ]
    # The busiest of one dimension with the least busy of those before.
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
