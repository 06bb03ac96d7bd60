"""Borders for matchers: compared with all possible cuts, and never worse than even borders."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dovetail.attributes.partition import Bounds, Segments
from dovetail.matcher.layout import Layout
from dovetail.pipeline.plan.borders import (
    DimensionCells,
    begins_and_ends,
    cell_of,
    cut_evenly,
    edges_of,
    least_bound,
)
from dovetail.pipeline.plan.cost import measure
from dovetail.pipeline.plan.load import Floats, PointCosts, SpaceSample, copies, estimate_load
from dovetail.pipeline.plan.placement import even_places, plan_places
from dovetail.pipeline.plan.planner import NOBODY, DimensionCounts, SpaceCounts, space_figures
from dovetail.sim import workload

BOUNDS = (Bounds(0.0, workload.LENGTH),) * 4
COSTS = PointCosts()


def counts(size: int) -> some.SearchStrategy[list[int]]:
    return some.lists(some.integers(0, 9), min_size=size, max_size=size)


@some.composite
def small_cells(draw: some.DrawFn) -> DimensionCells:
    size = draw(some.integers(1, 8))
    points = np.array(draw(counts(size)), float)
    pairs = draw(some.lists(some.tuples(*[some.integers(0, size - 1)] * 2), max_size=6))
    begins = np.bincount([min(pair) for pair in pairs], minlength=size)
    ends = np.bincount([max(pair) for pair in pairs], minlength=size)
    seconds = points * draw(some.sampled_from([0.0, 1.0]))
    price = draw(some.sampled_from([0.0, 0.5]))
    edges = np.arange(size + 1.0)
    return DimensionCells(edges, points, seconds, begins.astype(float), ends.astype(float), price)


def busiest(cells: DimensionCells, begins: list[int]) -> float:
    return max(
        cells.work(first, last)
        for first, last in zip(begins, [*begins[1:], len(cells)], strict=True)
    )


@settings(max_examples=200)
@given(small_cells(), some.integers(1, 8))
def test_no_other_cut_gives_the_busiest_less_work(cells: DimensionCells, segments: int) -> None:
    segments = min(segments, len(cells))
    best = min(
        busiest(cells, [0, *borders])
        for borders in combinations(range(1, len(cells)), segments - 1)
    )
    begins = cut_evenly(cells, segments)
    assert begins == sorted({*begins})
    assert (begins[0], len(begins)) == (0, segments)
    assert busiest(cells, begins) == pytest.approx(best)
    assert least_bound(cells, segments) <= best + 1e-9


@given(some.lists(some.tuples(*[some.floats(-2, 12)] * 2), max_size=20))
def test_boxes_that_overlap_cells(pairs: list[tuple[float, float]]) -> None:
    edges = np.array([0.0, 1.0, 2.5, 4.0, 10.0])
    lows = np.array([min(pair) for pair in pairs if pair[0] != pair[1]])
    highs = np.array([max(pair) for pair in pairs if pair[0] != pair[1]])
    begins, ends = begins_and_ends(edges, lows, highs)
    cells = DimensionCells(edges, np.ones(4), np.zeros(4), begins, ends, 1.0)
    cut_there = Segments({f"{place}": edge for place, edge in enumerate(edges[:-1])})
    for place in range(4):
        low, high = cut_there.segment(f"{place}")
        assert cells.work(place, place + 1) == np.count_nonzero((lows < high) & (highs > low))


@given(some.lists(some.floats(-5, 15), max_size=60), some.integers(1, 20))
def test_edges_lie_within_the_bounds(values: list[float], count: int) -> None:
    given_values = np.array(values, float)
    edges = edges_of(given_values, 0.0, 10.0, count)
    assert (edges[0], edges[-1]) == (0.0, 10.0)
    assert (np.diff(edges) > 0).all()
    cells = cell_of(edges, given_values)
    assert ((cells >= 0) & (cells < len(edges) - 1)).all()


def test_a_frequent_value_has_a_cell_of_its_own() -> None:
    values = np.concatenate((np.full(500, 3.0), np.linspace(0, 10, 500)))
    edges = edges_of(values, 0.0, 10.0, 16)
    assert {3.0, np.nextafter(3.0, 10)} <= {*edges}


def a_sample(
    points: Floats, columns: tuple[int, ...] = (0, 1, 2, 3), **boxes: float
) -> SpaceSample:
    lows, highs = workload.boxes(1_000, 1, **boxes)  # type: ignore[arg-type]
    return SpaceSample(Layout("s", BOUNDS, columns), points, lows, highs, 10.0)


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_is_never_estimated_worse_than_even_borders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = workload.points(
        700, seed, skewed=int(rng.integers(0, 5)), missing_share=float(rng.choice([0.0, 0.2]))
    )
    columns = [(0, 1, 2, 3), (1, 3), (2,)][seed % 3]
    sample = a_sample(points, columns, open_share=float(rng.choice([0.0, 0.4])))
    matchers = int(rng.integers(1, 9))
    costs = COSTS._replace(is_by_dimension=bool(seed % 2), box_seconds=1e-9)
    planned = plan_places(sample, matchers, costs)
    even = estimate_load(sample, even_places(sample, matchers), costs)
    assert planned.load.seconds.max() <= even.seconds.max()
    assert planned.load.capacity >= even.capacity
    assert len({*planned.places}) == matchers
    for dimension in range(len(columns)):
        tokens = sorted(place[dimension] for place in planned.places)
        assert all(0.0 <= token < workload.LENGTH for token in tokens)
        assert tokens[0] == 0.0
        assert len({*tokens}) == matchers


def test_a_city_in_a_country() -> None:
    """All points are in a hundredth of the bounds: even borders leave them to one or two."""
    rng = np.random.default_rng(0)
    points = np.full((2_000, 4), np.nan)
    points[:, :2] = rng.normal(480, 10, (2_000, 2))
    centres = rng.normal(480, 15, (500, 2))
    lows, highs = np.full((500, 4), -np.inf), np.full((500, 4), np.inf)
    lows[:, :2], highs[:, :2] = centres - 3, centres + 3
    sample = SpaceSample(Layout("s", BOUNDS, (0, 1, 2, 3)), points, lows, highs)
    even = estimate_load(sample, even_places(sample, 8), COSTS)
    planned = plan_places(sample, 8, COSTS)
    assert even.unevenness > 3.5
    assert planned.load.unevenness < 1.05
    assert planned.load.questions == 1.0


def test_with_a_choice_even_borders_are_as_good() -> None:
    sample = a_sample(workload.points(2_000, skewed=4))
    even = estimate_load(sample, even_places(sample, 5), COSTS)
    assert even.unevenness < 1.05
    assert even.questions == 1.0
    assert estimate_load(sample.of([0]), even_places(sample.of([0]), 5), COSTS).unevenness > 1.2


def test_copies_of_a_box() -> None:
    lows, highs = np.array([[0.0] * 4, [100.0] * 4]), np.array([[10.0] * 4, [400.0] * 4])
    sample = SpaceSample(Layout("s", BOUNDS, (0,)), np.zeros((0, 4)), lows, highs)
    assert copies(sample, even_places(sample, 4)) == 1.5
    assert plan_places(sample, 4, COSTS).places == even_places(sample, 4)


def test_a_space_without_clauses() -> None:
    none = np.zeros((0, 4))
    layout = Layout("s", BOUNDS, (0, 1), names=tuple("abcd"))
    sample = SpaceSample(layout, workload.points(50), none, none)
    edges = np.array([0.0, workload.LENGTH])
    empty = DimensionCounts(edges, np.array([50.0]), np.zeros(1), np.zeros(1))
    figures = space_figures(SpaceCounts(sample, 50, 0, [empty] * 4), 50, 3, measure(sample).costs)
    assert figures.why == NOBODY
    assert figures.planned == figures.even
    assert figures.planned.capacity is None
    assert [*figures.places] == even_places(sample, 3)
