"""The phases of a matcher: fed before it is asked, released before it leaves."""

from collections.abc import Mapping

from dovetail.attributes.partition import Bounds
from dovetail.matcher.coverage import Cover
from dovetail.matcher.layout import Layout
from dovetail.matcher.lifecycle import MatcherLifecycle
from dovetail.matcher.limits import (
    MATCHER_JOIN_SECONDS_MAX,
    MATCHER_LEAVE_SECONDS_MAX,
    MATCHER_LINGER_SECONDS,
)
from dovetail.matcher.segment_tables import MatcherDirectory, MatcherRecord, Phase

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
SPACE = LAYOUT.id


def serving(*tokens: float, load: float = 0.0) -> MatcherRecord:
    return MatcherRecord(Phase.SERVING, {SPACE: tokens}, load)


class Brokers:
    """The brokers that have fed a matcher, and those that have released it."""

    def __init__(self) -> None:
        self.have_fed: set[str] = set()
        self.have_released: set[str] = set()

    def fed(self, broker: str, covers: Mapping[str, Cover]) -> bool:
        assert set(covers) == {SPACE}
        return broker in self.have_fed

    def tick(self, lifecycle: MatcherLifecycle, now: float) -> Phase:
        lifecycle.tick(now, ["b1", "b2"], self.fed, lambda broker: broker in self.have_released)
        return lifecycle.phase


def test_a_life() -> None:
    directory, brokers = MatcherDirectory({SPACE: LAYOUT}), Brokers()
    directory.put("a", serving(0.0, 0.0))
    one = MatcherLifecycle("m", directory, 0.0)
    assert one.record == MatcherRecord(Phase.JOINING, {SPACE: (50.0, 5.0)})
    assert directory.next(SPACE).names == ("a", "m")
    brokers.have_fed.add("b1")
    assert brokers.tick(one, 1.0) is Phase.JOINING
    brokers.have_fed.add("b2")
    assert brokers.tick(one, 2.0) is Phase.SERVING
    assert directory.now(SPACE).names == ("a", "m")
    one.leave(3.0)
    assert brokers.tick(one, 3.0) is Phase.LEAVING
    brokers.have_released |= {"b1", "b2"}
    assert brokers.tick(one, 4.0) is Phase.AWAY
    assert not one.is_gone(4.0)
    assert one.is_gone(4.0 + MATCHER_LINGER_SECONDS)
    one.leave(5.0)
    assert one.phase is Phase.AWAY


def test_nobody_waits_for_ever() -> None:
    one, brokers = MatcherLifecycle("m", MatcherDirectory({SPACE: LAYOUT}), 0.0), Brokers()
    assert one.record.tokens == {SPACE: (0.0, 0.0)}
    assert brokers.tick(one, MATCHER_JOIN_SECONDS_MAX - 1) is Phase.JOINING
    assert brokers.tick(one, MATCHER_JOIN_SECONDS_MAX) is Phase.SERVING
    one.leave(20.0)
    assert brokers.tick(one, 20.0 + MATCHER_LEAVE_SECONDS_MAX - 1) is Phase.LEAVING
    assert brokers.tick(one, 20.0 + MATCHER_LEAVE_SECONDS_MAX) is Phase.AWAY


def test_who_has_not_served_goes_at_once() -> None:
    one = MatcherLifecycle("m", MatcherDirectory({SPACE: LAYOUT}), 0.0)
    one.leave(1.0)
    assert one.phase is Phase.AWAY


def test_half_of_the_most_loaded_ones_segments() -> None:
    directory = MatcherDirectory({SPACE: LAYOUT})
    directory.put("a", serving(0.0, 0.0, load=0.1))
    directory.put("b", serving(80.0, 9.0, load=0.9))
    assert MatcherLifecycle("m", directory, 0.0).record.tokens == {SPACE: (90.0, 9.5)}
    directory.put("b", serving(80.0, 9.0, load=0.02))
    directory.put("a", serving(0.0, 0.0, load=0.01))
    directory.gone("m")
    # Where nobody is busy, of the one with most of the space.
    assert MatcherLifecycle("m", directory, 0.0).record.tokens == {SPACE: (40.0, 4.5)}


def test_of_many_at_one_place_all_but_one_give_way() -> None:
    names = [f"m{number}" for number in range(8)]
    views = {name: MatcherDirectory({SPACE: LAYOUT}) for name in names}
    for directory in views.values():
        directory.put("a", serving(0.0, 0.0))
    all_of_them = {
        name: MatcherLifecycle(name, directory, 0.0) for name, directory in views.items()
    }
    brokers = Brokers()
    brokers.have_fed |= {"b1", "b2"}
    for now in (1.0, 2.0):
        for directory in views.values():
            for one in all_of_them.values():
                directory.put(one.name, one.record)
        for one in all_of_them.values():
            brokers.tick(one, now)
    places = {one.record.tokens[SPACE] for one in all_of_them.values()}
    assert len(places) == len(names)
    assert {one.phase for one in all_of_them.values()} == {Phase.SERVING}


def test_beside_one_that_is_left_in_the_middle() -> None:
    directory, brokers = MatcherDirectory({SPACE: LAYOUT}), Brokers()
    directory.put("a", serving(50.0, 5.0))
    one = MatcherLifecycle("m", directory, 0.0)
    assert one.record.tokens == {SPACE: (0.0, 0.0)}
    brokers.have_fed |= {"b1", "b2"}
    assert brokers.tick(one, 1.0) is Phase.SERVING


def test_who_serves_keeps_its_place() -> None:
    directory, brokers = MatcherDirectory({SPACE: LAYOUT}), Brokers()
    directory.put("a", serving(0.0, 0.0))
    one = MatcherLifecycle("z", directory, 0.0)
    directory.put("m", serving(50.0, 5.0))
    assert brokers.tick(one, 1.0) is Phase.JOINING
    assert one.record.tokens == {SPACE: (75.0, 7.5)}


def test_of_two_that_serve_at_one_place_one_joins_anew() -> None:
    directory, brokers = MatcherDirectory({SPACE: LAYOUT}), Brokers()
    one = MatcherLifecycle("m", directory, 0.0)
    brokers.have_fed |= {"b1", "b2"}
    assert brokers.tick(one, 1.0) is Phase.SERVING
    directory.put("n", serving(0.0, 0.0))  # neither had heard of the other
    assert brokers.tick(one, 2.0) is Phase.JOINING
    assert one.record.tokens == {SPACE: (50.0, 5.0)}
    assert brokers.tick(one, 3.0) is Phase.SERVING


def test_the_load_is_told_when_it_changes() -> None:
    one = MatcherLifecycle("m", MatcherDirectory({SPACE: LAYOUT}), 0.0)
    one.report_load(0.5)
    assert one.record.load == 0.5
    one.report_load(0.52)
    assert one.record.load == 0.5
    one.report_load(0.6)
    assert one.record.load == 0.6


def test_a_place_that_was_planned_is_taken() -> None:
    directory = MatcherDirectory({SPACE: LAYOUT})
    directory.put("a", serving(0.0, 0.0))
    assert MatcherLifecycle("m", directory, 0.0, {SPACE: (30.0, 3.0)}).record.tokens == {
        SPACE: (30.0, 3.0)
    }
    # Of a space that is not in the plan it chooses.
    assert MatcherLifecycle("n", directory, 0.0, {"other": (1.0,)}).record.tokens == {
        SPACE: (65.0, 6.5)
    }
