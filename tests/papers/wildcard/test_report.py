"""The page is complete, and loads nothing from elsewhere."""

import re
from datetime import UTC, datetime

import pytest

from dovetail.papers.wildcard.comparison import METHOD_NAMES, Average, compare
from dovetail.papers.wildcard.report import WildcardRun, render
from dovetail.papers.wildcard.simulation import FIGURES, PANELS
from dovetail.topics.sketches import METHODS
from support.html_pages import check_balanced

MEASURED = {
    (figure, panel.letter, value, method): Average(1000.0 / (index + 1), 0.5, 10, 0)
    for figure in FIGURES
    for panel in PANELS
    for value in panel.values
    for index, method in enumerate(METHODS)
}


def page(figures: tuple[int, ...] = (4, 5, 6)) -> str:
    finished = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    measured = {key: average for key, average in MEASURED.items() if key[0] in figures}
    run = WildcardRun(42, 10, figures, finished, {"Spark": "4.3.0"})
    return render(run, measured, compare(measured))


def test_methods_have_names() -> None:
    assert tuple(METHOD_NAMES) == METHODS


def test_elements_are_balanced() -> None:
    check_balanced(page())


@pytest.mark.parametrize("figure", [4, 5, 6])
@pytest.mark.parametrize("letter", "abcd")
def test_has_every_panel_with_its_values(figure: int, letter: str) -> None:
    (panel,) = re.findall(
        rf'<figure class="panel" id="figure-{figure}{letter}">.*?</figure>', page()
    )
    points = next(len(panel.values) for panel in PANELS if panel.letter == letter)
    assert panel.count("<title>") == points * len(METHODS)
    assert panel.count("<tr>") == points + 1
    assert "1,000.0 ± 0.5" in panel


def test_has_the_comparison_table() -> None:
    text = page()
    for said in ("29.7", "1,570.0", "&lt; 2 %", "b = 1,437,759, k = 10"):
        assert f'<td data-label="Paper">{said}</td>' in text
    assert text.count('<tr><th scope="row">') >= 6


def test_shows_the_parameters() -> None:
    text = page()
    for said in ("<dd>42</dd>", "<dd>10</dd>", "2026-01-02 03:04 UTC", "<dd>4.3.0</dd>"):
        assert said in text


def test_loads_nothing_from_elsewhere() -> None:
    text = page()
    assert not re.search(r"https?:|src=|@import|url\(|<script|<link", text)
    assert "prefers-color-scheme: dark" in text


def test_leaves_out_figures_that_were_not_run() -> None:
    text = page((4,))
    assert 'id="figure-4a"' in text
    assert 'id="figure-6b"' not in text
    assert "not in this run" in text
