"""Small cases of hypotheses: they move numbers in the direction that follows by hand."""

import numpy as np
import pytest

from dovetail.papers.bluedove.hypotheses import ENDS, HYPOTHESES, Hypothesis
from dovetail.papers.bluedove.run_configuration import (
    FLAT_CHANGE,
    NARROW,
    OVER_FULL,
    OVER_FULL_FEW,
    OVER_P2P,
    OVER_P2P_SECOND,
    REASONS,
    Configuration,
    Effort,
)
from dovetail.papers.bluedove.runner import measure_configuration
from dovetail.sim import workload

PLACES = {tried.name: place for place, tried in enumerate(HYPOTHESES)}


def test_each_hypothesis_changes_one_thing() -> None:
    values = measure_configuration(Configuration(REASONS, width=NARROW), 1, Effort(drawn_max=2_000))
    found: dict[str, dict[float, float]] = {}
    for measure, at, value in values:
        found.setdefault(measure, {})[at] = value
    assert {len(one) for one in found.values()} == {len(HYPOTHESES)}
    usual = PLACES["as in all figures"]
    for name, place in PLACES.items():
        if "power" in name:
            assert found[OVER_FULL][place] > found[OVER_FULL][usual]
        if "costs as much" in name:
            assert found[OVER_FULL][place] < found[OVER_FULL][usual]
            assert found[OVER_P2P][place] < found[OVER_P2P][usual]
            assert found[FLAT_CHANGE][usual] < found[FLAT_CHANGE][place] < 0
    ends = PLACES["hot spots from end to end (0, 333, 667, 1,000)"]
    assert found[OVER_P2P][ends] > found[OVER_P2P][usual] > found[OVER_P2P_SECOND][usual]
    assert found[OVER_FULL][usual] > found[OVER_FULL_FEW][usual] > 1


def test_the_unit_of_time_is_a_look_at_all_boxes() -> None:
    boxes = np.array([0.0, 10_000.0, 40_000.0])
    assert Hypothesis("").seconds(boxes).tolist() == [0, 0.25, 1]
    assert Hypothesis("", power=0.5).seconds(boxes).tolist() == [0, 0.5, 1]
    assert Hypothesis("", fixed_boxes=4_000.0).seconds(boxes) == pytest.approx([0.1, 0.35, 1.1])


def test_boxes_are_dense_where_the_hot_spots_are() -> None:
    lows, highs = workload.boxes(4_000, 1, width=NARROW, centres=np.array(ENDS))
    near_an_end = ((lows + highs) / 2)[:, [0, -1]] < workload.LENGTH / 5
    assert near_an_end[:, 0].mean() > 0.5
    assert near_an_end[:, 1].mean() < 0.05
