"""Scenarios with a small cluster: an added matcher helps, a crashed one loses nothing."""

from dovetail.settings.matchers import MatcherSettings
from dovetail.sim.matcher_node import MatchingCosts
from dovetail.sim.scenarios import RateSteps, measure_overhead, run_crashes, run_growth
from dovetail.sim.systems import MatcherTestbed

TESTBED = MatcherTestbed(matchers=2, boxes=100, costs=MatchingCosts(0.0, 0.0, 1e-3))
QUICK = MatcherTestbed(matchers=4, boxes=100, costs=MatchingCosts(0.0, 0.0, 1e-4))


def test_an_added_matcher_lowers_response_times() -> None:
    bounds = MatcherSettings(count_min=2, count_max=3, add_above=0.75, add_after_seconds=2)
    found = run_growth(
        TESTBED, 1, RateSteps(first_rate=30.0, rate_step=40.0, seconds=8, steps=2), bounds
    )
    assert len(found.seconds) == 16
    (join,) = found.joins
    assert join.started < join.serves < 16
    assert found.seconds[-1].matchers == 3
    assert found.seconds[0].matchers == 2


def test_crashes_lose_and_double_nothing() -> None:
    found = run_crashes(QUICK, 1, 60.0, 1, 6)
    assert found.at == [6.0]
    assert (found.lost, found.doubled) == (0, 0)
    assert found.due > 50
    # Without the last second before the crash, whose messages were on their way.
    before, after = found.seconds[3:5], found.seconds[6:]
    assert [one.late for one in before] == [0, 0]
    # Late messages were asked about again, and another matcher answered.
    assert after[0].late > 0
    assert after[-1].late == 0
    assert after[0].response_seconds > before[0].response_seconds
    assert [one.matchers for one in (before[0], after[0])] == [4, 3]


def test_overhead_is_small_but_not_zero() -> None:
    found = measure_overhead(QUICK, 1, 20.0, 5)
    assert 100 < found.gossip < 10_000
    assert 0 < found.load_per_broker < 1_000
