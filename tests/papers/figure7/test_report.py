"""The page of a broker run: curves, marks, and the paper's statements."""

import re
from datetime import UTC, datetime

from dovetail.papers.figure7.query_cost import (
    PointTiming,
    SearchPoint,
    compare,
    mean_queries,
    points,
)
from dovetail.papers.figure7.report import CHARTED, MEASURES, BrokerRun, render_broker
from dovetail.papers.wildcard.comparison import Average
from dovetail.topics.sketches import METHODS
from support.html_pages import check_balanced

COUNTS = {"bf": 2_047.0, "bfp": 1_564.6, "prefix": 28.8, "lines": 15.2}
MEASURED = {(6, "b", 10.0, method): Average(count, 0.5, 10, 0) for method, count in COUNTS.items()}
POINTS = points(mean_queries(MEASURED), (0, 100))
TIMINGS = {
    point: PointTiming(100_000.0 / (place + 1), place + 0.5, 0.25, 0.75)
    for place, point in enumerate(POINTS)
}


def page() -> str:
    run = BrokerRun(42, 3, 0.5, datetime(2026, 1, 2, 3, 4, tzinfo=UTC), {"NumPy": "2.4"})
    return render_broker(run, MEASURED, TIMINGS, compare(MEASURED, TIMINGS))


def test_elements_are_balanced() -> None:
    check_balanced(page())


def test_has_every_chart_with_points_and_marks() -> None:
    charts = re.findall(r'<figure class="panel">.*?</figure>', page())
    assert len(charts) == len(CHARTED)
    for chart in charts:
        assert chart.count("<title>") == len(POINTS)
        assert chart.count('class="place ') == len(METHODS)


def test_has_the_values() -> None:
    (table,) = re.findall(r'<table class="values">.*?</table>', page())
    assert table.count("<tr>") == len(POINTS) + 1
    assert table.count('<td class="number">') == len(POINTS) * len(MEASURES)
    assert "1,565 queries" in table
    assert f"{TIMINGS[SearchPoint('lines')].messages_per_second:,.0f}" in table


def test_shows_the_parameters() -> None:
    text = page()
    for said in ("<dd>42</dd>", "<dd>0.5</dd>", "2026-01-02 03:04 UTC", "15.2 cache lines"):
        assert said in text
    assert "not run" not in text


def test_loads_nothing_from_elsewhere() -> None:
    assert not re.search(r"https?:|src=|@import|url\(|<script|<link", page())
