"""Minutes of a small cluster: one more matcher helps, one fewer loses nothing."""

from dovetail.settings.matchers import Matchers
from dovetail.sim.episodes import Steps, crashes, growth, overhead
from dovetail.sim.matcher_node import Costs
from dovetail.sim.systems import Setting

SETTING = Setting(matchers=2, boxes=100, costs=Costs(0.0, 0.0, 1e-3))
QUICK = Setting(matchers=4, boxes=100, costs=Costs(0.0, 0.0, 1e-4))


def test_a_matcher_that_is_added_is_felt() -> None:
    bounds = Matchers(count_min=2, count_max=3, add_above=0.75, add_after_seconds=2)
    found = growth(SETTING, 1, Steps(first_rate=30.0, more=40.0, seconds=8, steps=2), bounds)
    assert len(found.seconds) == 16
    (join,) = found.joins
    assert join.started < join.serves < 16
    assert found.seconds[-1].matchers == 3
    assert found.seconds[0].matchers == 2


def test_crashes_lose_and_double_nothing() -> None:
    found = crashes(QUICK, 1, 60.0, 1, 6)
    assert found.at == [6.0]
    assert (found.lost, found.doubled) == (0, 0)
    assert found.due > 50
    # Not the last second before it: that has some who were on their way.
    before, after = found.seconds[3:5], found.seconds[6:]
    assert [one.late for one in before] == [0, 0]
    # Asked about again, and answered by another.
    assert after[0].late > 0
    assert after[-1].late == 0
    assert after[0].response_seconds > before[0].response_seconds
    assert [one.matchers for one in (before[0], after[0])] == [4, 3]


def test_nothing_is_free_but_it_is_little() -> None:
    found = overhead(QUICK, 1, 20.0, 5)
    assert 100 < found.gossip < 10_000
    assert 0 < found.load_per_broker < 1_000
