"""The autoscaler keeps the bounds and never adds and removes in turns."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from dovetail.matcher.autoscaler import Autoscaler, MatcherProcess, ProcessState, ScalingDecision


@dataclass(frozen=True)
class Limits:
    count_min: int = 1
    count_most: int = 4
    add_above: float = 0.6
    remove_below: float = 0.3
    add_after_seconds: float = 5.0
    remove_after_seconds: float = 60.0


@st.composite
def bounds(draw: st.DrawFn) -> Limits:
    least = draw(st.integers(1, 4))
    low = draw(st.floats(0.01, 0.9))
    return Limits(
        least,
        draw(st.integers(least, 6)),
        draw(st.floats(low + 0.01, 1.0, exclude_max=True)),
        low,
        draw(st.floats(0, 10)),
        draw(st.floats(0, 100)),
    )


@dataclass
class Machine:
    """Carries out the decisions, after a while."""

    bounds: Limits
    spare: int = 0
    """Places beyond those that may be taken."""
    states: dict[str, ProcessState] = field(default_factory=dict)
    now: float = 0.0
    changes: list[tuple[float, ScalingDecision]] = field(default_factory=list)
    changed_at: float = 0.0

    def __post_init__(self) -> None:
        names = [f"m{number}" for number in range(self.bounds.count_most + self.spare)]
        self.states = dict.fromkeys(names, ProcessState.AWAY)
        for name in names[: self.bounds.count_min]:
            self.states[name] = ProcessState.SERVING
        self.scaling = Autoscaler(self.bounds)

    def named(self, *states: ProcessState) -> list[str]:
        return [name for name, one in self.states.items() if one in states]

    @property
    def count(self) -> int:
        return len(self.named(ProcessState.SERVING, ProcessState.COMING))

    def put(self, name: str, state: ProcessState) -> None:
        self.states[name] = state
        self.changed_at = self.now

    def tick(self, share: float, seconds: float = 1.0) -> ScalingDecision | None:
        """All are as busy as that."""
        self.now += seconds
        processes = [MatcherProcess(name, one, share) for name, one in self.states.items()]
        change = self.scaling.decide(processes, self.now)
        if change is not None:
            self.changes.append((self.now, change))
            expected = ProcessState.AWAY if change.is_start else ProcessState.SERVING
            assert self.states[change.name] is expected
            self.put(change.name, ProcessState.COMING if change.is_start else ProcessState.LEAVING)
        return change

    def settle(self) -> None:
        """Who comes is there, and who leaves is gone."""
        for name in self.named(ProcessState.COMING):
            self.put(name, ProcessState.SERVING)
        for name in self.named(ProcessState.LEAVING):
            self.put(name, ProcessState.AWAY)


# By example ---------------------------------------------------------------------------------------


def test_one_more_while_they_are_busy() -> None:
    machine = Machine(Limits())
    while machine.count == 1:
        machine.tick(0.78)
    assert machine.changes == [
        (6.0, ScalingDecision("m1", True, "they are 78% busy, for 5 s more than 60%")),
    ]
    for _ in range(100):
        assert machine.tick(1.0) is None  # it has not joined yet
    machine.settle()
    for _ in range(5):
        assert machine.tick(1.0) is None
    assert machine.tick(1.0) == ScalingDecision(
        "m2", True, "they are 100% busy, for 5 s more than 60%"
    )


def test_one_fewer_while_they_are_idle() -> None:
    machine = Machine(Limits(add_after_seconds=0))
    machine.tick(0.9)
    machine.settle()
    assert machine.count == 2
    for _ in range(60):
        assert machine.tick(0.04) is None
    change = machine.tick(0.04)
    reason = "they are 4% busy, and without it 16% at most, for 60 s less than 30%"
    assert change == ScalingDecision("m1", False, reason)
    machine.settle()
    for _ in range(200):
        assert machine.tick(0.0) is None
    assert machine.count == 1


def test_a_moment_is_not_enough() -> None:
    machine = Machine(Limits())
    for _ in range(50):
        for share in (1.0, 1.0, 1.0, 0.6):
            assert machine.tick(share) is None


def test_the_least_busy_one_goes() -> None:
    scaling = Autoscaler(Limits(remove_after_seconds=0))
    shares = {"a": 0.1, "b": 0.01, "c": 0.01, "d": 0.1}
    processes = [
        MatcherProcess(name, ProcessState.SERVING, share) for name, share in shares.items()
    ]
    change = scaling.decide(processes, 0.0)
    assert change is not None
    assert (change.name, change.is_start) == ("c", False)


def test_who_is_drained_stays_away_and_another_may_come() -> None:
    machine = Machine(Limits(count_min=2, count_most=3, add_after_seconds=0))
    machine.put("m0", ProcessState.DRAINED)
    assert machine.tick(0.0) == ScalingDecision("m2", True, "no fewer than 2 are to be there")
    machine.settle()
    machine.put("m1", ProcessState.DRAINED)
    for _ in range(100):
        assert machine.tick(1.0) is None
        machine.settle()
    machine.put("m2", ProcessState.DRAINED)
    assert machine.tick(0.0) is None


# In general ---------------------------------------------------------------------------------------

Event = tuple[str, float, float]
"""What happens, how busy they are then, and how many seconds pass."""

deeds = st.sampled_from([*["settle"] * 8, "wait", "wait", "die", "drain"])
shares = st.sampled_from([0.0, 1.0, 1.0]) | st.floats(0, 1)
events = st.lists(st.tuples(deeds, shares, st.sampled_from([1.0, 11.0, 101.0])), max_size=60)


@given(bounds(), events, st.integers(0, 2))
def test_never_too_few_nor_too_many_and_no_hurry(
    bounds: Limits, events: list[Event], spare: int
) -> None:
    """Whatever happens to them, and however busy they are."""
    machine = Machine(bounds, spare)
    for event, share, seconds in events:
        serving = machine.named(ProcessState.SERVING)
        if event == "settle":
            machine.settle()
        elif event == "die" and serving:
            machine.put(serving[-1], ProcessState.COMING)
        elif event == "drain" and serving:
            machine.put(serving[0], ProcessState.DRAINED)
        before, changed_at = machine.count, machine.changed_at
        there_may_be = len(machine.states) - len(machine.named(ProcessState.DRAINED))
        change = machine.tick(share, seconds)
        assert machine.count <= bounds.count_most
        assert machine.count >= min(before, bounds.count_min)
        if change is None:
            continue
        if not change.is_start:
            assert machine.count >= bounds.count_min
            assert machine.now - changed_at >= bounds.remove_after_seconds
        elif before >= bounds.count_min:
            assert machine.now - changed_at >= bounds.add_after_seconds
        assert machine.count <= there_may_be


@given(
    bounds(), st.floats(0.1, 9), st.sampled_from([1.0, 2.0]) | st.floats(1, 2), st.integers(0, 5)
)
def test_a_steady_load_leads_to_a_steady_count(
    bounds: Limits, times: float, power: float, more: int
) -> None:
    """One alone would be so many times as busy as it takes to add one.

    With n it is that by n, if all of the cost is in publications; by n² if all of it is in boxes;
    or anything between.
    """
    machine = Machine(bounds)
    load = times * bounds.add_above
    for name in machine.named(ProcessState.AWAY)[:more]:
        machine.put(name, ProcessState.SERVING)
    seconds = 1 + max(bounds.add_after_seconds, bounds.remove_after_seconds)
    directions = set()
    for _ in range(3 * bounds.count_most):
        change = machine.tick(min(load / machine.count**power, 1.0), seconds)
        machine.settle()
        if change is not None:
            directions.add(change.is_start)
    assert len(directions) <= 1, "they come, or they go, and never both"
    settled = machine.count
    for _ in range(10):
        assert machine.tick(min(load / settled**power, 1.0), seconds) is None
