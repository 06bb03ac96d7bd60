"""Points dealt out at a rate: against what follows by hand, and against simulated queues."""

import math
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import pytest

from dovetail.attributes.scheme import Scheme
from dovetail.pipeline.plan.load import Costs, Sample, load_of
from dovetail.pipeline.plan.placement import even_places, plan
from dovetail.pipeline.plan.queue_model import GROWTH_MAX, PRECISION, Dealing
from dovetail.sim.matcher_node import Costs as SimulatedCosts
from dovetail.sim.saturation import Search, points_of, saturation
from dovetail.sim.systems import Setting

POINT_SECONDS = 0.01


def dealing(candidates: list[list[int]], kinds: set[int], matchers: int) -> Dealing:
    places = np.array(candidates)
    held = np.zeros((matchers, places.shape[1]))
    return Dealing(places, frozenset(kinds), np.full(len(places), POINT_SECONDS), held)


def test_without_a_choice_the_busiest_decides() -> None:
    """Three of four points are the first matcher's."""
    rate, dealt, is_exact = dealing([[0], [0], [0], [1]] * 100, {1}, 2).best_rate()
    assert is_exact
    assert rate == pytest.approx(4 / 3 / POINT_SECONDS)
    assert dealt.along.sum(axis=1) == pytest.approx([3.0, 1.0])
    assert dealt.asked.all()


def test_each_kind_is_asked_for() -> None:
    """Boxes that are narrow on one dimension each: both candidates are asked."""
    rate, dealt, _ = dealing([[0, 1]] * 200, {0b01, 0b10}, 2).best_rate()
    assert rate == pytest.approx(1 / POINT_SECONDS)
    assert dealt.asked.all()


def test_with_a_choice_two_matchers_take_twice_as_much() -> None:
    own = dealing([[0, 1]] * 2_000, {0b11}, 2)
    rate, dealt, is_exact = own.best_rate()
    assert not is_exact
    assert rate == pytest.approx(2 / POINT_SECONDS, rel=GROWTH_MAX + 2 * PRECISION)
    assert dealt.along.sum(axis=1) == pytest.approx([10.0, 10.0], rel=0.1)
    assert own.at(rate).growth <= GROWTH_MAX
    assert own.at(1.2 * rate).growth > GROWTH_MAX


def test_nothing_to_do() -> None:
    rate, dealt, _ = dealing([[0, 1]], {0b11}, 2).best_rate()
    assert math.isfinite(rate)
    nothing = Dealing(np.zeros((0, 2), np.int64), frozenset({3}), np.zeros(0), np.zeros((2, 2)))
    assert nothing.best_rate().rate == math.inf
    assert not dealt.growth


SETTING = Setting(matchers=6, boxes=1_000, costs=SimulatedCosts(0.0, 0.0, 2.4e-4))
COSTS = Costs(0.0, SETTING.costs.box_seconds, 0.0, is_by_dimension=True)
SEARCH = Search(first_rate=150.0, precision=0.06, seconds_min=5.0, publications_min=800)


def sample_of(setting: Setting) -> Sample:
    points = np.array([*islice(chain.from_iterable(points_of(setting, 9)), 1_500)])
    return Sample(setting.layout(Scheme.MPARTITION), points, *setting.drawn_boxes(1))


@pytest.mark.parametrize(
    ("setting", "gain_min"),
    [
        (SETTING, 1.0),
        (replace(SETTING, ranged=1), 1.1),
        (replace(SETTING, filled=0.01), 10.0),
    ],
)
def test_a_plan_holds_in_simulated_queues(setting: Setting, gain_min: float) -> None:
    """Where points have a choice, even borders stay unless others are much better."""
    sample = sample_of(setting)
    even = load_of(sample, even_places(sample, setting.matchers), COSTS)
    planned = plan(sample, setting.matchers, COSTS)
    rates = [
        saturation("adaptive", one, 1, SEARCH).rate
        for one in (setting, replace(setting, places=tuple(planned.places)))
    ]
    assert rates[1] >= gain_min * rates[0]
    assert planned.load.capacity / even.capacity == pytest.approx(rates[1] / rates[0], rel=0.3)


def test_even_borders_stay_where_others_gain_nothing() -> None:
    sample, costs = sample_of(SETTING), Costs(POINT_SECONDS, 0.0, 0.0)
    even = even_places(sample, SETTING.matchers)
    planned = plan(sample, SETTING.matchers, costs)
    assert planned.places == even
    assert planned.load.capacity == load_of(sample, even, costs).capacity
