"""The rates at which queues start to grow, against rates computed by hand."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from dovetail.sim import workload
from dovetail.sim.matcher_node import MatchingCosts
from dovetail.sim.queues import Queues
from dovetail.sim.saturation import (
    ClusterModel,
    FullModel,
    RateSearch,
    RateTrial,
    addressed_points,
    boxes_held,
    lattice,
    response_times,
    run_trial,
    saturation,
)
from dovetail.sim.systems import SYSTEMS, MatcherTestbed

COSTS = MatchingCosts(0.0, 0.0, 1e-4)
TESTBED = MatcherTestbed(matchers=4, boxes=1_000, costs=COSTS)
QUICK = RateSearch(first_rate=100.0, precision=0.06, seconds_min=10.0, publications_min=800)


def one_trial(
    cluster: ClusterModel, testbed: MatcherTestbed, search: RateSearch, seed: int, rate: float
) -> RateTrial:
    return run_trial(cluster, testbed, search, addressed_points(cluster, testbed, seed), rate)


def rate_of_busiest(name: str) -> float:
    """Return the limit of the busiest matcher if each point has one candidate."""
    layout = TESTBED.layout(SYSTEMS[name].scheme)
    placement = TESTBED.placement(layout)
    lows, highs = TESTBED.drawn_boxes(1)
    kinds = layout.kinds(lows, highs)
    sizes = [
        np.count_nonzero(layout.along(lows, highs, kinds, placement.cover(one)))
        for one in placement.names
    ]
    return TESTBED.matchers / (max(sizes) * COSTS.box_seconds)


@pytest.mark.parametrize("name", ["p2p", "full"])
def test_the_busiest_matcher_limits_the_baselines(name: str) -> None:
    row = saturation(name, TESTBED, 1, QUICK)
    assert row.rate == pytest.approx(rate_of_busiest(name), rel=0.1)
    below = [one for one in row.trials if not one.is_saturated]
    assert max(max(one.busy) for one in below) <= 1.01
    assert max(one.rate for one in below) == row.rate


def test_policies_have_the_order_of_the_paper() -> None:
    """The sizes of the differences would need longer trials."""
    names = ["adaptive", "subscription-amount", "random"]
    rates = [saturation(name, TESTBED, 1, QUICK).rate for name in names]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 2 * rates[2]


def test_a_seed_repeats_a_run() -> None:
    rows = [
        one_trial(Queues(SYSTEMS["adaptive"], TESTBED, seed), TESTBED, QUICK, seed, 100.0)
        for seed in (3, 3, 4)
    ]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


PLANE = MatcherTestbed(matchers=4, boxes=400, costs=MatchingCosts(1e-4, 1e-4, 2.5e-4))
PLACES = ((0.0,) * 4, (100.0, 700.0, 300.0, 200.0), (600.0, 400.0, 100.0, 900.0), (500.0,) * 4)


@pytest.mark.parametrize(
    ("name", "testbed"),
    [
        ("adaptive", PLANE),
        ("subscription-amount", PLANE),
        ("subscription-amount", replace(PLANE, ranged=2, boxes=200, places=PLACES)),
    ],
)
def test_queues_have_the_same_load_as_the_full_model(name: str, testbed: MatcherTestbed) -> None:
    search = RateSearch(seconds_min=5.0, publications_min=1)
    busy = []
    for make in (Queues, FullModel):
        cluster = make(SYSTEMS[name], testbed, 2)
        points = addressed_points(cluster, testbed, 2)
        # In the first trial brokers do not know the speed of matchers.
        for _ in range(2):
            row = run_trial(cluster, testbed, search, points, 60.0)
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
    # And dimensions are independent.
    assert np.abs(np.corrcoef(points.T) - np.eye(workload.DIMENSIONS)).max() < 0.05


def test_skewed_points_follow_the_boxes() -> None:
    points = np.concatenate(list(islice(lattice(1, skewed=2), 2)))[:8_000]
    centres = workload.points(8_000, 1, skewed=2)
    for column in range(workload.DIMENSIONS):
        ours, theirs = (
            np.histogram(one[:, column], 10, (0.0, workload.LENGTH))[0] for one in (points, centres)
        )
        assert ours == pytest.approx(theirs, rel=0.15, abs=40)


def test_values_that_fill_little_of_their_bounds_lie_in_one_quarter() -> None:
    testbed = MatcherTestbed(matchers=4, filled=0.01)
    layout = testbed.layout(SYSTEMS["adaptive"].scheme)
    assert all(bound.high - bound.low == 100 * workload.LENGTH for bound in layout.bounds)
    table = testbed.placement(layout).table
    for value in (0.0, workload.LENGTH - 1):
        assert {*table.candidates([value] * workload.DIMENSIONS)} == {"matcher-002"}
    assert (
        MatcherTestbed().layout(SYSTEMS["adaptive"].scheme).bounds == ((0.0, workload.LENGTH),) * 4
    )


def test_boxes_have_ranges_in_turn() -> None:
    lows, highs = MatcherTestbed(boxes=8, ranged=2).drawn_boxes(1)
    is_open = np.isneginf(lows) & np.isposinf(highs)
    assert (~is_open).sum(axis=1).tolist() == [2] * 8
    assert (~is_open).sum(axis=0).tolist() == [4] * workload.DIMENSIONS


def test_boxes_held_saturate_at_the_rate() -> None:
    rate = rate_of_busiest("full") / 2
    held = boxes_held("full", TESTBED, 1, replace(QUICK, first_rate=rate))
    assert held == pytest.approx(2 * TESTBED.boxes, rel=0.15)


def test_response_times_grow_above_saturation_only() -> None:
    limit = rate_of_busiest("full")
    below, above = (
        response_times("full", TESTBED, 1, share * limit, 12, QUICK) for share in (0.6, 1.5)
    )
    assert max(below) < 1
    assert above[-1] > above[5] + 1 > above[0] + 2


def test_points_that_arrive_together_share_a_question() -> None:
    """A question costs the same for any number of points, so brokers send fewer."""
    costs = MatchingCosts(question_seconds=0.01, point_seconds=0.0, box_seconds=0.0)
    busy = []
    for points_at_once, job_points_max in ((1, 1), (64, 64)):
        testbed = MatcherTestbed(
            matchers=2,
            boxes=100,
            costs=costs,
            points_at_once=points_at_once,
            job_points_max=job_points_max,
        )
        cluster = Queues(SYSTEMS["subscription-amount"], testbed, 1)
        search = RateSearch(seconds_min=10.0, publications_min=1)
        busy.append(sum(one_trial(cluster, testbed, search, 1, 50.0).busy))
    assert busy[0] == pytest.approx(0.5, rel=0.1)
    assert busy[1] < 0.2
