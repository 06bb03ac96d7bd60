"""The queue model: compared with results by hand, and with simulated queues."""

import math
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import pytest

from dovetail.attributes.scheme import Scheme
from dovetail.pipeline.plan.load import PointCosts, SpaceSample, estimate_load
from dovetail.pipeline.plan.placement import even_places, plan_places
from dovetail.pipeline.plan.queue_model import GROWTH_MAX, PRECISION, QueueModel
from dovetail.sim.matcher_node import MatchingCosts as SimulatedCosts
from dovetail.sim.saturation import RateSearch, points_of, saturation
from dovetail.sim.systems import MatcherTestbed

POINT_SECONDS = 0.01


def model_of(candidates: list[list[int]], kinds: set[int], matchers: int) -> QueueModel:
    places = np.array(candidates)
    held = np.zeros((matchers, places.shape[1]))
    return QueueModel(places, frozenset(kinds), np.full(len(places), POINT_SECONDS), held)


def test_without_a_choice_the_busiest_decides() -> None:
    """Three of four points are the first matcher's."""
    rate, run, is_exact = model_of([[0], [0], [0], [1]] * 100, {1}, 2).best_rate()
    assert is_exact
    assert rate == pytest.approx(4 / 3 / POINT_SECONDS)
    assert run.along.sum(axis=1) == pytest.approx([3.0, 1.0])
    assert run.asked.all()


def test_each_kind_is_asked_for() -> None:
    """Boxes that are narrow on one dimension each: both candidates are asked."""
    rate, run, _ = model_of([[0, 1]] * 200, {0b01, 0b10}, 2).best_rate()
    assert rate == pytest.approx(1 / POINT_SECONDS)
    assert run.asked.all()


def test_with_a_choice_two_matchers_take_twice_as_much() -> None:
    own = model_of([[0, 1]] * 2_000, {0b11}, 2)
    rate, run, is_exact = own.best_rate()
    assert not is_exact
    assert rate == pytest.approx(2 / POINT_SECONDS, rel=GROWTH_MAX + 2 * PRECISION)
    assert run.along.sum(axis=1) == pytest.approx([10.0, 10.0], rel=0.1)
    assert own.at(rate).growth <= GROWTH_MAX
    assert own.at(1.2 * rate).growth > GROWTH_MAX


def test_without_points_any_rate_is_possible() -> None:
    rate, run, _ = model_of([[0, 1]], {0b11}, 2).best_rate()
    assert math.isfinite(rate)
    nothing = QueueModel(np.zeros((0, 2), np.int64), frozenset({3}), np.zeros(0), np.zeros((2, 2)))
    assert nothing.best_rate().rate == math.inf
    assert not run.growth


TESTBED = MatcherTestbed(matchers=6, boxes=1_000, costs=SimulatedCosts(0.0, 0.0, 2.4e-4))
COSTS = PointCosts(0.0, TESTBED.costs.box_seconds, 0.0, is_by_dimension=True)
SEARCH = RateSearch(first_rate=150.0, precision=0.06, seconds_min=5.0, publications_min=800)


def sample_of(testbed: MatcherTestbed) -> SpaceSample:
    points = np.array([*islice(chain.from_iterable(points_of(testbed, 9)), 1_500)])
    return SpaceSample(testbed.layout(Scheme.MPARTITION), points, *testbed.drawn_boxes(1))


@pytest.mark.parametrize(
    ("testbed", "gain_min"),
    [
        (TESTBED, 1.0),
        (replace(TESTBED, ranged=1), 1.1),
        (replace(TESTBED, filled=0.01), 10.0),
    ],
)
def test_a_plan_holds_in_simulated_queues(testbed: MatcherTestbed, gain_min: float) -> None:
    """Where points have a choice, even borders stay unless others are much better."""
    sample = sample_of(testbed)
    even = estimate_load(sample, even_places(sample, testbed.matchers), COSTS)
    planned = plan_places(sample, testbed.matchers, COSTS)
    rates = [
        saturation("adaptive", one, 1, SEARCH).rate
        for one in (testbed, replace(testbed, places=tuple(planned.places)))
    ]
    assert rates[1] >= gain_min * rates[0]
    assert planned.load.capacity / even.capacity == pytest.approx(rates[1] / rates[0], rel=0.3)


def test_even_borders_stay_where_others_gain_nothing() -> None:
    sample, costs = sample_of(TESTBED), PointCosts(POINT_SECONDS, 0.0, 0.0)
    even = even_places(sample, TESTBED.matchers)
    planned = plan_places(sample, TESTBED.matchers, costs)
    assert planned.places == even
    assert planned.load.capacity == estimate_load(sample, even, costs).capacity
