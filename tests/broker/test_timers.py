"""Timers compared with a plain dict of times."""

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail.broker.timers import Timers

keys = st.integers(0, 5)
spans = st.integers(0, 20)


class TimersMachine(RuleBasedStateMachine):
    """Set, move, cancel and run: what has run, and when, is what the dict says."""

    @initialize()
    def begin(self) -> None:
        self.timers = Timers()
        self.now = 0
        self.due: dict[int, int] = {}
        self.ran: list[int] = []

    @rule(key=keys, span=spans)
    def set(self, key: int, span: int) -> None:
        self.timers.set(key, self.now + span, lambda: self.ran.append(key))
        self.due[key] = self.now + span

    @rule(key=keys)
    def cancel(self, key: int) -> None:
        self.timers.cancel(key)
        self.due.pop(key, None)

    @rule(span=spans, count=st.sampled_from([1, 2, math.inf]))
    def run(self, span: int, count: float) -> None:
        self.now += span
        while self.timers.run(self.now, count):
            assert len(self.ran) <= len(self.due)
        expected = [key for key, when in self.due.items() if when <= self.now]
        assert sorted(self.ran) == sorted(expected)
        times = [self.due.pop(key) for key in self.ran]
        assert times == sorted(times)
        self.ran = []

    @invariant()
    def nothing_is_due_before_the_next_time(self) -> None:
        if hasattr(self, "timers"):
            assert len(self.timers) == len(self.due)
            next_time = self.timers.next_time
            assert (next_time is None) <= (not self.due)
            if self.due:
                assert next_time is not None
                assert next_time <= min(self.due.values())


TestClock = TimersMachine.TestCase
TestClock.settings = settings(max_examples=100, stateful_step_count=30)


def test_an_action_may_set_and_cancel() -> None:
    timers = Timers()
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        timers.cancel("second")
        timers.set("third", 2, lambda: ran.append("third"))

    timers.set("first", 1, first)
    timers.set("second", 2, lambda: ran.append("second"))
    timers.run(2)
    assert ran == ["first", "third"]


def test_an_action_may_set_itself_again() -> None:
    timers = Timers()
    ran: list[float] = []

    def again(when: float) -> None:
        ran.append(when)
        timers.set("key", when + 10, lambda: again(when + 10))

    timers.set("key", 10, lambda: again(10))
    for now in range(0, 40, 5):
        timers.run(now)
    assert ran == [10, 20, 30]


def test_moving_a_time_again_and_again_does_not_fill_the_heap() -> None:
    timers = Timers()
    for now in range(10_000):
        timers.set("alive", now + 100, lambda: None)
    assert len(timers._heap) == 1


def test_what_comes_and_goes_leaves_no_more_than_a_bound() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.set(number, 1_000_000, lambda: None)
        timers.cancel(number)
    assert len(timers) == 0
    assert len(timers._heap) < 2_000


def test_compacting_keeps_what_is_due() -> None:
    timers = Timers()
    ran: list[int] = []
    for number in range(5_000):
        timers.set(number, number, lambda number=number: ran.append(number))  # type: ignore[misc]
        if number % 10:
            timers.cancel(number)
    timers.run(5_000)
    assert ran == list(range(0, 5_000, 10))
