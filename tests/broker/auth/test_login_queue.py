"""The order of password checks, and its fairness under a flood."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dovetail.broker.auth.login_queue import MINUTE_SECONDS, FailedLogins, Lane, LoginQueue
from dovetail.errors import ReasonCode

LANES = st.builds(Lane, st.sampled_from("abcd"), st.sampled_from([None, None, "ann", "bob"]))
BUSY, THROTTLED = ReasonCode.SERVER_BUSY, ReasonCode.CONNECTION_RATE_EXCEEDED


class QueueMachine(RuleBasedStateMachine):
    """Every login ends once: it is taken or refused; and nobody is passed over for long."""

    @initialize(waiting_max=st.integers(1, 12), per_minute_max=st.integers(0, 6))
    def begin(self, waiting_max: int, per_minute_max: int) -> None:
        self.waiting_max = waiting_max
        self.failures = FailedLogins(per_minute_max, 100)
        self.queue: LoginQueue[int] = LoginQueue(waiting_max, self.failures)
        self.waiting: dict[int, Lane] = {}
        """In the order of their coming."""
        self.turns: dict[Lane, int] = {}
        """Checks since this lane, in which somebody waits, had its turn."""
        self.numbers = count()
        self.now = 0.0

    def count_of(self, lane: Lane) -> int:
        return sum(one == lane for one in self.waiting.values())

    def is_begun(self) -> bool:
        return hasattr(self, "queue")

    @precondition(is_begun)
    @rule(lane=LANES)
    def offer(self, lane: Lane) -> None:
        login = next(self.numbers)
        is_throttled = self.failures.is_throttled(lane, self.now)
        refused = self.queue.offer(login, lane, self.now)
        if is_throttled:
            assert refused == (login, THROTTLED)
            return
        if len(self.waiting) < self.waiting_max:
            assert refused is None
        else:
            assert refused is not None
            gone, reason = refused
            assert reason is BUSY
            lane_of_gone = self.waiting.pop(gone, lane)
            length = self.count_of(lane_of_gone) + 1
            assert all(length >= self.count_of(one) for one in self.waiting.values())
            if gone == login:
                return
            newest = [one for one, of in self.waiting.items() if of == lane_of_gone]
            assert all(one < gone for one in newest)
        self.waiting[login] = lane
        self.turns.setdefault(lane, 0)

    @precondition(is_begun)
    @rule()
    def take(self) -> None:
        found = self.queue.take()
        assert (found is None) == (not self.waiting)
        if found is None:
            return
        login, lane = found
        assert self.waiting.pop(login) == lane
        assert all(one > login for one, of in self.waiting.items() if of == lane)
        self.turns = {
            other: turns + 1 for other, turns in self.turns.items() if self.count_of(other)
        }
        if lane in self.turns:
            self.turns[lane] = 0

    @precondition(is_begun)
    @rule(lane=LANES, is_correct=st.booleans())
    def settle(self, lane: Lane, is_correct: bool) -> None:
        lost = self.queue.settle(lane, self.now, is_correct=is_correct)
        if lost:
            assert not is_correct
            assert self.failures.is_throttled(lane, self.now)
            assert lost == [one for one, of in self.waiting.items() if of == lane]
        for login in lost:
            del self.waiting[login]

    @precondition(is_begun)
    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nobody_is_passed_over_for_long(self) -> None:
        if not self.is_begun():
            return
        assert len(self.queue) == len(self.waiting) <= self.waiting_max
        lanes = {*self.waiting.values()}
        self.turns = {lane: turns for lane, turns in self.turns.items() if lane in lanes}
        # Its own kind takes turns, and the other kind has every second one. Lanes that were there
        # and are empty had theirs.
        assert all(turns <= 2 * self.waiting_max for turns in self.turns.values())


TestQueue = QueueMachine.TestCase


@given(st.integers(0, 300), st.booleans())
def test_a_flood_from_one_address_delays_another_by_two_checks(flood: int, is_known: bool) -> None:
    queue: LoginQueue[str] = LoginQueue(100, FailedLogins(0, 100))
    for number in range(flood):
        queue.offer(f"flood {number}", Lane("a"), 0.0)
    honest = Lane("b", "ann" if is_known else None)
    refused = queue.offer("honest", honest, 0.0)
    assert refused is None or refused[0] != "honest"
    taken = [queue.take() for _ in range(2)]
    assert ("honest", honest) in taken


@given(st.integers(1, 200))
def test_a_known_user_gets_in_past_any_number_of_addresses(count: int) -> None:
    queue: LoginQueue[str] = LoginQueue(100, FailedLogins(0, 100))
    for number in range(count):
        queue.offer(f"flood {number}", Lane(str(number)), 0.0)
    known = Lane("0", "ann")
    refused = queue.offer("known", known, 0.0)
    assert refused is None or refused[0] != "known"
    assert ("known", known) in [queue.take() for _ in range(2)]


@given(
    st.integers(1, 120),
    st.lists(st.floats(0, 30), min_size=1, max_size=200),
)
def test_wrong_passwords_are_as_many_as_may_be(per_minute_max: int, pauses: list[float]) -> None:
    """In any stretch of time: a minute's worth at once, and then as they are forgiven."""
    failures = FailedLogins(per_minute_max, 10)
    lane, now, checked = Lane("a"), 0.0, []
    for pause in pauses:
        now += pause
        if not failures.is_throttled(lane, now):
            failures.add(lane, now)
            checked.append(now)
        assert not failures.is_throttled(Lane("b"), now)
        assert not failures.is_throttled(Lane("a", "ann"), now)
    for first, begin in enumerate(checked):
        for last, end in enumerate(checked[first:], first):
            forgiven = (end - begin) * per_minute_max / MINUTE_SECONDS
            assert last - first + 1 <= per_minute_max + forgiven + 1e-3
    assert not failures.is_throttled(lane, now + MINUTE_SECONDS)


def test_only_the_latest_failures_are_remembered() -> None:
    failures = FailedLogins(1, 3)
    for number in range(10):
        failures.add(Lane(str(number)), 0.0)
    assert len(failures) == 3
    assert failures.is_throttled(Lane("9"), 0.0)
    assert not failures.is_throttled(Lane("0"), 0.0)
    assert not failures.is_throttled(Lane("9"), MINUTE_SECONDS)
    assert len(failures) == 2


def test_without_a_limit_nobody_is_throttled() -> None:
    failures = FailedLogins(0, 3)
    for _ in range(1_000):
        failures.add(Lane("a"), 0.0)
    assert not failures.is_throttled(Lane("a"), 0.0)
