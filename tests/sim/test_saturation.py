"""The rates at which queues begin to grow, against what can be computed by hand."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from dovetail.sim import workload
from dovetail.sim.matcher_node import Costs
from dovetail.sim.queues import Queues
from dovetail.sim.saturation import (
    Cluster,
    Plane,
    Search,
    Trial,
    addressed_points,
    boxes_held,
    lattice,
    response_times,
    saturation,
    trial,
)
from dovetail.sim.systems import SYSTEMS, Setting

COSTS = Costs(0.0, 0.0, 1e-4)
SETTING = Setting(matchers=4, boxes=1_000, costs=COSTS)
QUICK = Search(first_rate=100.0, precision=0.06, seconds_min=10.0, publications_min=800)


def one_trial(cluster: Cluster, setting: Setting, search: Search, seed: int, rate: float) -> Trial:
    return trial(cluster, setting, search, addressed_points(cluster, setting, seed), rate)


def at_once(name: str) -> float:
    """Where each point has one candidate only: what the busiest matcher can take."""
    layout = SETTING.layout(SYSTEMS[name].scheme)
    placement = SETTING.placement(layout)
    lows, highs = SETTING.drawn_boxes(1)
    kinds = layout.kinds(lows, highs)
    sizes = [
        np.count_nonzero(layout.along(lows, highs, kinds, placement.cover(one)))
        for one in placement.names
    ]
    return SETTING.matchers / (max(sizes) * COSTS.box_seconds)


@pytest.mark.parametrize("name", ["p2p", "full"])
def test_baselines_take_what_their_busiest_matcher_can(name: str) -> None:
    row = saturation(name, SETTING, 1, QUICK)
    assert row.rate == pytest.approx(at_once(name), rel=0.1)
    below = [one for one in row.trials if not one.is_saturated]
    assert max(max(one.busy) for one in below) <= 1.01
    assert max(one.rate for one in below) == row.rate


def test_policies_in_the_papers_order() -> None:
    """By how much needs longer trials."""
    names = ["adaptive", "subscription-amount", "random"]
    rates = [saturation(name, SETTING, 1, QUICK).rate for name in names]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 2 * rates[2]


def test_a_seed_replays() -> None:
    rows = [
        one_trial(Queues(SYSTEMS["adaptive"], SETTING, seed), SETTING, QUICK, seed, 100.0)
        for seed in (3, 3, 4)
    ]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


PLANE = Setting(matchers=4, boxes=400, costs=Costs(1e-4, 1e-4, 2.5e-4))
PLACES = ((0.0,) * 4, (100.0, 700.0, 300.0, 200.0), (600.0, 400.0, 100.0, 900.0), (500.0,) * 4)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("adaptive", PLANE),
        ("subscription-amount", PLANE),
        ("subscription-amount", replace(PLANE, ranged=2, boxes=200, places=PLACES)),
    ],
)
def test_queues_alone_are_as_busy_as_in_the_whole_plane(name: str, setting: Setting) -> None:
    search = Search(seconds_min=5.0, publications_min=1)
    busy = []
    for make in (Queues, Plane):
        cluster = make(SYSTEMS[name], setting, 2)
        points = addressed_points(cluster, setting, 2)
        # The first time nobody knows how fast the others are.
        for _ in range(2):
            row = trial(cluster, setting, search, points, 60.0)
        busy.append(row.busy)
    assert busy[0] == pytest.approx(busy[1], abs=0.06)
    assert min(busy[0]) > 0.1


def test_points_are_spread_evenly() -> None:
    points = np.concatenate(list(islice(lattice(1), 2)))[:5_000]
    assert points.shape == (5_000, workload.DIMENSIONS)
    for column in points.T:
        counts, _ = np.histogram(column, 20, (0.0, workload.LENGTH))
        assert counts.min() > 240
        assert counts.max() < 260
    # And dimensions do not follow each other.
    assert np.abs(np.corrcoef(points.T) - np.eye(workload.DIMENSIONS)).max() < 0.05


def test_skewed_points_follow_the_boxes() -> None:
    points = np.concatenate(list(islice(lattice(1, skewed=2), 2)))[:8_000]
    centres = workload.points(8_000, 1, skewed=2)
    for column in range(workload.DIMENSIONS):
        ours, theirs = (
            np.histogram(one[:, column], 10, (0.0, workload.LENGTH))[0] for one in (points, centres)
        )
        assert ours == pytest.approx(theirs, rel=0.15, abs=40)


def test_values_that_fill_little_of_their_bounds_are_in_one_quarter_of_them() -> None:
    setting = Setting(matchers=4, filled=0.01)
    layout = setting.layout(SYSTEMS["adaptive"].scheme)
    assert all(bound.high - bound.low == 100 * workload.LENGTH for bound in layout.bounds)
    table = setting.placement(layout).table
    for value in (0.0, workload.LENGTH - 1):
        assert {*table.candidates([value] * workload.DIMENSIONS)} == {"matcher-002"}
    assert Setting().layout(SYSTEMS["adaptive"].scheme).bounds == ((0.0, workload.LENGTH),) * 4


def test_boxes_have_ranges_in_turn() -> None:
    lows, highs = Setting(boxes=8, ranged=2).drawn_boxes(1)
    is_open = np.isneginf(lows) & np.isposinf(highs)
    assert (~is_open).sum(axis=1).tolist() == [2] * 8
    assert (~is_open).sum(axis=0).tolist() == [4] * workload.DIMENSIONS


def test_boxes_held_are_those_that_saturate_at_the_rate() -> None:
    rate = at_once("full") / 2
    held = boxes_held("full", SETTING, 1, replace(QUICK, first_rate=rate))
    assert held == pytest.approx(2 * SETTING.boxes, rel=0.15)


def test_response_times_grow_above_saturation_only() -> None:
    limit = at_once("full")
    below, above = (
        response_times("full", SETTING, 1, share * limit, 12, QUICK) for share in (0.6, 1.5)
    )
    assert max(below) < 1
    assert above[-1] > above[5] + 1 > above[0] + 2


def test_points_that_come_together_are_asked_about_together() -> None:
    """A question costs the same for any number of points, so there are fewer of them."""
    costs = Costs(question_seconds=0.01, point_seconds=0.0, box_seconds=0.0)
    busy = []
    for points_at_once, job_points_max in ((1, 1), (64, 64)):
        setting = Setting(
            matchers=2,
            boxes=100,
            costs=costs,
            points_at_once=points_at_once,
            job_points_max=job_points_max,
        )
        cluster = Queues(SYSTEMS["subscription-amount"], setting, 1)
        search = Search(seconds_min=10.0, publications_min=1)
        busy.append(sum(one_trial(cluster, setting, search, 1, 50.0).busy))
    assert busy[0] == pytest.approx(0.5, rel=0.1)
    assert busy[1] < 0.2
