"""The page of a BlueDove run."""

import dataclasses
import re
from datetime import UTC, datetime

import pyarrow as pa

from dovetail.papers.bluedove.figure_model import Figure
from dovetail.papers.bluedove.figures import FIGURES
from dovetail.papers.bluedove.paper_numbers import compare
from dovetail.papers.bluedove.report import BlueDoveRun, render_bluedove
from dovetail.papers.bluedove.run_configuration import EVENT, ROWS, TrialMeans
from dovetail.papers.bluedove.scale_experiments import MATCHERS
from support.html_pages import check_balanced


def rows_of(figure: Figure) -> list[dict[str, object]]:
    """Return rows as of a run: a value for each configuration."""
    course = [1.0, 2.0, 3.0] if figure.along in ("time", "matchers") else [0.0]
    shown = [
        (one, curve.measure or figure.measure, at)
        for panel in figure.panels
        for curve in panel.curves
        for _, one in curve.points
        for at in (_own_places(figure) if curve.is_own else course)
    ]
    shown += [
        (one, check.measure, 0.0) for check in figure.checks for one in (check.whole, check.scaled)
    ]
    return [
        {
            **dataclasses.asdict(one),
            "trial": 0,
            "measure": measure,
            "at": at,
            "value": 1_000.0 + number + at,
        }
        for number, (one, measure, at) in enumerate(sorted(set(shown)))
    ]


def _own_places(figure: Figure) -> list[float]:
    return [float(at) for at in (range(len(figure.names)) if figure.names else MATCHERS)]


def page(*names: str) -> str:
    figures = tuple(FIGURES[name] for name in names or FIGURES)
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    for figure in figures:
        for row in rows_of(figure):
            rows.setdefault(tuple(value for name, value in row.items() if name != "value"), row)
    measured = TrialMeans(pa.Table.from_pylist(list(rows.values()), ROWS))
    run = BlueDoveRun(42, 1, figures, datetime(2026, 1, 2, 3, 4, tzinfo=UTC), {"Spark": "4.3.0"})
    return render_bluedove(run, measured, compare(measured))


def test_has_every_figure_and_loads_nothing_from_elsewhere() -> None:
    text = page()
    check_balanced(text)
    for name, figure in FIGURES.items():
        (section,) = re.findall(rf'<section id="figure-{name}">.*?</section>', text, re.DOTALL)
        charts = 0 if figure.along == "names" else len(figure.panels)
        assert section.count('<svg class="chart"') == charts
        assert all(name in section for name in figure.names)
    assert not re.search(r"https?:|src=|@import|url\(|<script|<link", text)


def test_scaled_runs_are_compared_with_full_runs() -> None:
    text = page("scale-boxes")
    assert "How far the scaling can be trusted" in text
    assert "Not all of this can be run in full" in text
    assert text.count("that stand for them") == len(FIGURES["scale-boxes"].checks)
    assert "Where scaling ends" in text
    assert "Where scaling ends" not in page("7")


def test_events_are_drawn() -> None:
    figure = FIGURES["9"]
    (one,) = set(figure.configurations)
    event = {**dataclasses.asdict(one), "trial": 0, "measure": EVENT, "at": 2.0, "value": 4.0}
    measured = TrialMeans(pa.Table.from_pylist([*rows_of(figure), event], ROWS))
    run = BlueDoveRun(1, 1, (figure,), datetime(2026, 1, 2, tzinfo=UTC), {})
    assert "a matcher is started at 2 s" in render_bluedove(run, measured, [])


def test_shows_which_figures_were_run() -> None:
    text = page("7")
    for said in ("<dd>42</dd>", "2026-01-02 03:04 UTC", "<dd>4.3.0</dd>", "not in this run"):
        assert said in text
    assert 'id="figure-6a"' not in text
    assert '<td data-label="Paper">114,000 msg/s</td>' in text
