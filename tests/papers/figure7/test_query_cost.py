"""Figure 7: the numbers of queries are exact, and points include the methods' counts."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dovetail.papers.figure7 import query_cost
from dovetail.papers.figure7.query_cost import SWEEP, PointTiming, SearchPoint
from dovetail.papers.wildcard import simulation
from dovetail.papers.wildcard.comparison import averages
from dovetail.topics.sketches import METHODS
from dovetail.topics.topic_column import TopicColumn

TOPICS = TopicColumn.of([f"{number}/b/c/d/e/f/g/h/i/j" for number in range(50)])


def test_the_filter_is_the_papers() -> None:
    sketch, pool = query_cost.draw_strings(5)
    assert sketch.elements == query_cost.ELEMENTS
    assert (sketch.bits, sketch.geometry.hashes) == (143_776, 10)
    assert len(pool) == query_cost.POOL
    assert {len(text) for text in pool} == {query_cost.ELEMENT_LETTERS}
    found, queries = sketch.search_column(pool)
    assert (queries == 1).all()
    assert np.count_nonzero(found) < 30  # 4 of 4,096 in the mean
    assert sketch.false_positive_rate == pytest.approx(0.001, rel=0.1)


@pytest.mark.parametrize("queries", [0, 1, 7, 3_000])
def test_searches_make_the_requested_number_of_queries(queries: int) -> None:
    search = query_cost.string_search(queries, 5)
    assert search(TOPICS) == 50 * queries
    assert search(TopicColumn.of(["a"])) == queries


def test_mean_queries_equal_the_wildcard_experiment() -> None:
    cells = simulation.cells((6,), query_cost.TRIALS)
    value = simulation.PANELS[1].values.index(10)
    of_panel = (pc.field("panel_index") == 1) & (pc.field("value_index") == value)
    rows = [
        row
        for batch in simulation.measure_batches(iter(cells.filter(of_panel).to_batches()), seed=9)
        for row in batch.to_pylist()
    ]
    assert {(row["panel"], row["value"]) for row in rows} == {("b", 10)}
    expected = averages(pa.Table.from_pylist(rows, simulation.ROWS))
    measured = query_cost.counts(9)
    assert measured == expected
    assert query_cost.mean_queries(measured) == {
        method: expected[6, "b", 10.0, method].queries for method in METHODS
    }


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_own_search_has_the_queries_of_its_trial(method: str) -> None:
    search = query_cost.method_search(method, 9)
    (row,) = (
        row
        for row in simulation.measure_cell(9, 6, query_cost.PANEL_INDEX, query_cost.VALUE_INDEX, 0)
        if row["method"] == method
    )
    assert search(TOPICS) == 50 * int(str(row["queries"]))


def test_points_include_the_mean_queries() -> None:
    marks = {"bf": 2_047.0, "bfp": 1_564.6, "prefix": 28.8, "lines": 15.2}
    points = query_cost.points(marks, (0, 29, 100))
    assert [point.queries for point in points if point.kind == SWEEP] == [
        *(0, 15, 29, 100, 1_565, 2_047)
    ]
    assert [point.kind for point in points[6:]] == list(METHODS)


def test_medians_over_the_rounds() -> None:
    rows = [
        {
            "round": number,
            "kind": kind,
            "queries": 10,
            "messages_per_second": rate,
            "full_load_mean_ms": 1.0,
            "paced_median_ms": 2.0,
            "paced_p99_ms": 3.0,
            "messages": 1,
        }
        for kind in (SWEEP, "bf")
        for number, rate in enumerate((5.0, 900.0, 7.0))
    ]
    assert query_cost.medians(pa.Table.from_pylist(rows, query_cost.ROWS)) == {
        SearchPoint(SWEEP, 10): PointTiming(7.0, 1.0, 2.0, 3.0),
        SearchPoint("bf"): PointTiming(7.0, 1.0, 2.0, 3.0),
    }


@pytest.mark.parametrize(("falling", "verdicts"), [(True, [True] * 3), (False, [False] * 3)])
def test_verdicts(falling: bool, verdicts: list[bool]) -> None:
    measured = query_cost.counts(9)
    points = query_cost.points(query_cost.mean_queries(measured), (0, 3_000))
    sweep = [point for point in points if point.kind == SWEEP]
    timings = {
        point: PointTiming(
            1_000.0 / place if falling else 1.0 * place, place if falling else 9 - place, 1, 1
        )
        for place, point in enumerate(sweep, 1)
    }
    timings |= {SearchPoint(method): PointTiming(10, 1, 1, 1) for method in METHODS}
    rows = query_cost.compare(measured, timings)
    assert [row.agrees for row in rows[:3]] == verdicts
    assert [row.paper for row in rows[3:5]] == ["29.7", "1,570.0"]
