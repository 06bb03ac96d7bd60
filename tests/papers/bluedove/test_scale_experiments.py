"""Small experiments beyond the paper: what grows with matchers, and how good samples are."""

import dataclasses
from functools import cache

import pyarrow as pa
import pytest

from dovetail.papers.bluedove.run_configuration import (
    CANDIDATES,
    CHATTER,
    COPIES,
    GOSSIP_BUSY,
    GOSSIP_QUIET,
    HOLDS,
    HOLDS_BYTES,
    HOLDS_MOST,
    LIMIT,
    LIMIT_INDEX,
    MATCHES,
    NARROW,
    RATE,
    ROWS,
    SCALED,
    TABLE_BYTES,
    WIDE,
    Configuration,
    Effort,
    TrialMeans,
)
from dovetail.papers.bluedove.runner import measure_configuration
from dovetail.papers.bluedove.scale_experiments import BOXES, MATCHERS
from dovetail.papers.bluedove.scale_figures import (
    SCALE_FIGURES,
    holding_configuration,
    with_boxes,
    with_counted_boxes,
)
from dovetail.papers.bluedove.scaling_limits import find_scaling_limits
from dovetail.sim import workload
from dovetail.sim.saturation import RateSearch

SMALL = Effort(
    scale_search=RateSearch(precision=0.15, seconds_min=6.0, publications_min=600),
    drawn_max=2_000,
    gossip_matchers=(8, 12, 20),
    gossip_seconds=2,
)


@cache
def measured(one: Configuration) -> dict[str, float]:
    return {measure: value for measure, _, value in measure_configuration(one, 1, SMALL)}


def test_wide_boxes_are_copied_and_narrow_ones_are_not() -> None:
    few, many = (measured(holding_configuration(matchers, WIDE)) for matchers in (5, 50))
    assert many[COPIES] > 5 * few[COPIES]
    assert many[HOLDS_MOST] > 0.6 * few[HOLDS_MOST]
    narrow_few, narrow_many = (
        measured(holding_configuration(matchers, NARROW)) for matchers in (5, 50)
    )
    assert narrow_many[COPIES] < 1.5 * narrow_few[COPIES]
    assert narrow_many[HOLDS_MOST] < 0.3 * narrow_few[HOLDS_MOST]
    # So with more matchers each of them sustains a higher rate.
    assert many[LIMIT] < 20 * few[LIMIT] < narrow_many[LIMIT] / narrow_few[LIMIT] * few[LIMIT]
    for one in (few, narrow_few):
        assert one[HOLDS] <= one[HOLDS_MOST]
        assert 80 * one[HOLDS_MOST] < one[HOLDS_BYTES] < 400 * one[HOLDS_MOST]
        assert one[LIMIT_INDEX] > one[LIMIT]
        assert 1 < one[CANDIDATES] <= workload.DIMENSIONS
    assert many[TABLE_BYTES] == pytest.approx(10 * few[TABLE_BYTES], rel=0.1)


def test_a_sample_stands_for_all() -> None:
    """2,000 boxes are drawn here; each stands for 20 or 200."""
    one, ten = (
        measured(with_boxes(holding_configuration(5, WIDE), count, 1_000))
        for count in (40_000, 400_000)
    )
    assert ten[HOLDS] == pytest.approx(10 * one[HOLDS])
    assert ten[MATCHES] == pytest.approx(10 * one[MATCHES])
    assert ten[LIMIT] == pytest.approx(one[LIMIT] / 10)
    larger = measured(with_boxes(holding_configuration(5, WIDE), 40_000, 2_000))
    assert larger[HOLDS] == pytest.approx(one[HOLDS], rel=0.03)
    assert larger[LIMIT] == pytest.approx(one[LIMIT], rel=0.1)


def test_simulated_rates_are_below_the_best_rate() -> None:
    rate = measured(Configuration(SCALED, matchers=5))[RATE]
    limit = measured(holding_configuration(5, WIDE))[LIMIT]
    assert 0.5 * limit < rate < 1.05 * limit
    # Rates are in real time, however much time was stretched.
    slower = measured(with_boxes(Configuration(SCALED, matchers=5), 4_000_000, 2_000))[RATE]
    assert slower == pytest.approx(rate / 100, rel=0.2)


def test_gossip_is_simulated_and_extrapolated() -> None:
    found: dict[str, dict[float, float]] = {}
    for measure, at, value in measure_configuration(Configuration(CHATTER), 1, SMALL):
        found.setdefault(measure, {})[at] = value
    assert sorted(found[GOSSIP_QUIET]) == sorted({8, 12, *MATCHERS})
    quiet, busy = found[GOSSIP_QUIET], found[GOSSIP_BUSY]
    assert quiet[20] < busy[20]
    assert quiet[2_000] > 100 * quiet[20]


def test_scaling_limits_come_from_figures_that_were_run() -> None:
    assert find_scaling_limits(TrialMeans(pa.Table.from_pylist([], ROWS))) == []
    rows = [
        {**dataclasses.asdict(one), "trial": 0, "measure": measure, "at": at, "value": 2_000.0}
        for figure in SCALE_FIGURES
        for panel in figure.panels
        for curve in panel.curves
        for _, one in curve.points
        for measure in (curve.measure or figure.measure, TABLE_BYTES, HOLDS_MOST)
        for at in ((float(count) for count in MATCHERS) if curve.is_own else (0.0,))
    ]
    unique = {tuple(row.values()): row for row in rows}
    found = find_scaling_limits(TrialMeans(pa.Table.from_pylist(list(unique.values()), ROWS)))
    said = " ".join(limit.evidence for limit in found)
    assert "A matcher sends 2.0 to 2.0 kB a second with 20" in said
    assert "saturate at 2,000 messages a second" in said
    assert len(found) == 9


def test_boxes_are_counted_up_to_the_maximum() -> None:
    drawn = {
        count: with_counted_boxes(holding_configuration(20, WIDE), count).drawn for count in BOXES
    }
    assert drawn == {
        40_000: 0,
        400_000: 0,
        4_000_000: 0,
        40_000_000: 400_000,
        100_000_000: 400_000,
    }
