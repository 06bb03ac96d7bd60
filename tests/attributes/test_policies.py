"""Policies as the paper has them, and loads that are reported when they change."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.limits import LOAD_CHANGE, LOAD_WINDOW_SECONDS
from dovetail.attributes.policies import (
    PASSED_OVER,
    POLICIES,
    DimensionLoad,
    LoadMeter,
    LoadTracker,
)


def loads(policy: str) -> LoadTracker:
    return LoadTracker(POLICIES[policy], Random(1))


@pytest.mark.parametrize(
    ("policy", "now", "cost"),
    [
        ("adaptive", 10.0, 101 / 50),
        ("adaptive", 12.0, (100 + (80 - 50) * 2 + 1) / 50),
        ("response-time", 12.0, 101 / 50),
        ("subscription-amount", 12.0, 7),
    ],
)
def test_the_papers_formulas(policy: str, now: float, cost: float) -> None:
    one = loads(policy)
    one.record_report("m", 0, DimensionLoad(10.0, 100, 80.0, 50.0, 7))
    assert one.cost("m", 0, now) == cost


def test_a_queue_that_is_worked_off_is_not_less_than_empty() -> None:
    one = loads("adaptive")
    one.record_report("m", 0, DimensionLoad(0.0, 10, 0.0, 50.0, 7))
    assert one.cost("m", 0, 100.0) == 1 / 50


def test_faster_ones_get_more_between_two_reports() -> None:
    """Figure 4: A matches faster, until the points sent to it make its queue longer."""
    one = loads("adaptive")
    one.record_report("a", 0, DimensionLoad(0.0, 0, 300.0, 100.0, 1))
    one.record_report("b", 0, DimensionLoad(0.0, 10, 0.0, 20.0, 1))
    assert one.cost("a", 0, 0.0) < one.cost("b", 0, 0.0)
    assert one.cost("a", 0, 1.0) > one.cost("b", 0, 1.0)


def test_what_one_sends_itself_is_counted_and_not_guessed() -> None:
    one = loads("adaptive")
    one.record_report("m", 0, DimensionLoad(0.0, 0, 0.0, 100.0, 1))
    one.record_sent("m", 0, 50)
    assert one.cost("m", 0, 0.0) == 51 / 100
    assert one.cost("m", 0, 0.25) == 26 / 100
    # Of 80 a second 50 were ours: the other 30 are likely to continue.
    one.record_report("m", 0, DimensionLoad(1.0, 10, 80.0, 100.0, 1))
    assert one.cost("m", 0, 1.0) == 11 / 100
    assert one.cost("m", 0, 1.1) == pytest.approx((10 + 3 - 10 + 1) / 100)
    one.record_sent("m", 0, 20)
    assert one.cost("m", 0, 1.1) == pytest.approx((10 + 3 + 20 - 10 + 1) / 100)
    one.record_sent("nobody", 0, 20)
    assert one.cost("nobody", 0, 1.1) == 0


def test_who_has_matched_nothing_and_has_nothing_to_do_is_tried() -> None:
    one = loads("adaptive")
    one.record_report("m", 0, DimensionLoad(1.0, 0, 0.0, 0.0, 5))
    assert one.cost("m", 0, 5.0) == 0


def test_the_random_policy_does_not_look() -> None:
    one = loads("random")
    one.record_report("m", 0, DimensionLoad(0.0, 1_000, 1.0, 1.0, 1_000))
    costs = [one.cost("m", 0, 0.0) for _ in range(100)]
    assert len(set(costs)) == 100
    assert all(0 <= cost < 1 for cost in costs)


def test_who_is_not_known_is_tried_and_who_matches_nothing_is_not() -> None:
    one = loads("adaptive")
    assert one.cost("m", 0, 5.0) == 0
    one.record_report("m", 0, DimensionLoad(1.0, 3, 1.0, 0.0, 5))
    assert one.cost("m", 0, 5.0) == PASSED_OVER
    one.record_report("m", 0, DimensionLoad(0.0, 3, 1.0, 9.0, 5))  # late
    assert one.cost("m", 0, 5.0) == PASSED_OVER
    one.forget("m")
    assert one.cost("m", 0, 5.0) == 0
    assert one.load_of("m", 0) is None


def test_a_load_is_told_when_it_changes() -> None:
    meter = LoadMeter(0.0)
    meter.record_arrived(100)
    meter.record_matched(50, 0.1)
    assert meter.report(LOAD_WINDOW_SECONDS / 2, 50, 7) is None
    assert meter.report(2.0, 50, 7) == DimensionLoad(2.0, 50, 50.0, 500.0, 7)
    meter.record_arrived(50)
    meter.record_matched(100, 0.2)
    assert meter.report(3.0, 50, 7) is None  # as before
    meter.record_arrived(50)
    assert meter.report(4.0, 56, 7) == DimensionLoad(
        4.0, 56, 50.0, 500.0, 7
    )  # who rests is as fast
    assert meter.report(5.0, 56, 7) == DimensionLoad(5.0, 56, 0.0, 500.0, 7)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), max_size=50))
def test_what_was_told_last_is_never_far_from_what_is(steps: list[tuple[int, int]]) -> None:
    meter = LoadMeter(0.0)
    told = DimensionLoad(0.0, 0, 0.0, 0.0, 0)
    for step, (queue, boxes) in enumerate(steps, 1):
        told = meter.report(step * LOAD_WINDOW_SECONDS, queue, boxes) or told
        assert abs(told.queue - queue) <= LOAD_CHANGE * max(told.queue, 1)
        assert abs(told.boxes - boxes) <= LOAD_CHANGE * max(told.boxes, 1)
