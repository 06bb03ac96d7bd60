"""The comparison with the paper's numbers, from made-up rows."""

import math

import pyarrow as pa
import pytest

from dovetail.papers.wildcard.comparison import (
    Average,
    Averages,
    averages,
    compare,
    expected_bfp_queries,
    scientific,
    with_error,
)
from dovetail.papers.wildcard.simulation import PANELS, ROWS


def rows(
    figure: int, panel: str, value: float, method: str, *queries: int
) -> list[dict[str, object]]:
    return [
        {
            "figure": figure,
            "panel": panel,
            "parameter": "p",
            "value": value,
            "trial": trial,
            "method": method,
            "queries": count,
            "found": count == 1,
            "bits": 8,
            "filters": 1,
        }
        for trial, count in enumerate(queries)
    ]


def as_in_the_paper() -> Averages:
    found = [
        *rows(6, "b", 10.0, "prefix", 29, 30, 30),
        *rows(6, "b", 10.0, "bfp", 1560, 1570, 1580),
        *(row for figure in (4, 5, 6) for row in rows(figure, "c", 0.0, "bfp", 1)),
    ]
    for method in ("bf", "bfp", "prefix"):
        for panel in PANELS[:3]:
            for value in panel.values:
                if (panel.letter, value) != ("c", 0):
                    found += rows(4, panel.letter, value, method, 1, 1)
    return averages(pa.Table.from_pylist(found, ROWS))


def test_averages() -> None:
    table = pa.Table.from_pylist(
        [*rows(4, "a", 1.0, "bf", 1, 2, 3), *rows(4, "a", 1.0, "bfp", 5)], ROWS
    )
    assert averages(table) == {
        (4, "a", 1.0, "bf"): Average(2.0, math.sqrt(1 / 3), 3, 1),
        (4, "a", 1.0, "bfp"): Average(5.0, 0.0, 1, 0),
    }


def test_everything_agrees_with_the_papers_own_numbers() -> None:
    compared = compare(as_in_the_paper())
    assert [(row.paper, row.ours, row.agrees) for row in compared] == [
        ("29.7", "29.7 ± 0.3", True),
        ("1,570.0", "1,570.0 ± 5.8", True),
        ("< 2 %", "1.89 %", True),
        ("most", "bf 14, bfp 15, prefix 14 of 15", True),
        ("1", "1 (figure 4, 5, 6)", True),
        ("b = 1,437,759, k = 10", "b = 1,437,759, k = 10", True),
    ]


def test_other_numbers_do_not() -> None:
    table = pa.Table.from_pylist(
        [
            *rows(6, "b", 10.0, "prefix", 20, 21, 20),
            *rows(6, "b", 10.0, "bfp", 790, 800, 780),
            *rows(6, "c", 0.0, "bfp", 2),
        ],
        ROWS,
    )
    verdicts = [row.agrees for row in compare(averages(table))]
    assert verdicts == [False, False, False, None, False, True]


def test_figures_that_were_not_run_are_named_so() -> None:
    compared = compare({})
    assert [row.ours for row in compared[:5]] == ["not in this run"] * 5
    assert [row.agrees for row in compared[:5]] == [None] * 5


def test_expected_bfp_queries_are_the_papers() -> None:
    assert expected_bfp_queries() == pytest.approx(1_570, abs=0.5)


def test_text() -> None:
    assert with_error(Average(1234.56, 0.04, 10, 0)) == "1,234.6 ± 0.0"
    assert with_error(Average(3, 0, 1, 0)) == "3.0"
    assert scientific(1e-9) == "1e-9"
    assert scientific(1e-12) == "1e-12"
