"""How many matchers there should be: never too few, never too many, and no coming and going."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from dovetail.matcher.autoscaler import Change, Place, Scaling, Standing


@dataclass(frozen=True)
class Bounds:
    count_min: int = 1
    count_most: int = 4
    add_above: float = 0.6
    remove_below: float = 0.3
    add_after_seconds: float = 5.0
    remove_after_seconds: float = 60.0


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    least = draw(st.integers(1, 4))
    low = draw(st.floats(0.01, 0.9))
    return Bounds(
        least,
        draw(st.integers(least, 6)),
        draw(st.floats(low + 0.01, 1.0, exclude_max=True)),
        low,
        draw(st.floats(0, 10)),
        draw(st.floats(0, 100)),
    )


@dataclass
class Machine:
    """Does what is decided, and takes a while for it."""

    bounds: Bounds
    spare: int = 0
    """Places beyond those that may be taken."""
    standings: dict[str, Standing] = field(default_factory=dict)
    now: float = 0.0
    changes: list[tuple[float, Change]] = field(default_factory=list)
    changed_at: float = 0.0

    def __post_init__(self) -> None:
        names = [f"m{number}" for number in range(self.bounds.count_most + self.spare)]
        self.standings = dict.fromkeys(names, Standing.AWAY)
        for name in names[: self.bounds.count_min]:
            self.standings[name] = Standing.SERVING
        self.scaling = Scaling(self.bounds)

    def named(self, *standings: Standing) -> list[str]:
        return [name for name, one in self.standings.items() if one in standings]

    @property
    def count(self) -> int:
        return len(self.named(Standing.SERVING, Standing.COMING))

    def put(self, name: str, standing: Standing) -> None:
        self.standings[name] = standing
        self.changed_at = self.now

    def tick(self, share: float, seconds: float = 1.0) -> Change | None:
        """All are as busy as that."""
        self.now += seconds
        places = [Place(name, one, share) for name, one in self.standings.items()]
        change = self.scaling.decide(places, self.now)
        if change is not None:
            self.changes.append((self.now, change))
            expected = Standing.AWAY if change.is_start else Standing.SERVING
            assert self.standings[change.name] is expected
            self.put(change.name, Standing.COMING if change.is_start else Standing.LEAVING)
        return change

    def settle(self) -> None:
        """Who comes is there, and who leaves is gone."""
        for name in self.named(Standing.COMING):
            self.put(name, Standing.SERVING)
        for name in self.named(Standing.LEAVING):
            self.put(name, Standing.AWAY)


# By example ---------------------------------------------------------------------------------------


def test_one_more_while_they_are_busy() -> None:
    machine = Machine(Bounds())
    while machine.count == 1:
        machine.tick(0.78)
    assert machine.changes == [
        (6.0, Change("m1", True, "they are 78% busy, for 5 s more than 60%")),
    ]
    for _ in range(100):
        assert machine.tick(1.0) is None  # it has not joined yet
    machine.settle()
    for _ in range(5):
        assert machine.tick(1.0) is None
    assert machine.tick(1.0) == Change("m2", True, "they are 100% busy, for 5 s more than 60%")


def test_one_fewer_while_they_are_idle() -> None:
    machine = Machine(Bounds(add_after_seconds=0))
    machine.tick(0.9)
    machine.settle()
    assert machine.count == 2
    for _ in range(60):
        assert machine.tick(0.04) is None
    change = machine.tick(0.04)
    reason = "they are 4% busy, and without it 16% at most, for 60 s less than 30%"
    assert change == Change("m1", False, reason)
    machine.settle()
    for _ in range(200):
        assert machine.tick(0.0) is None
    assert machine.count == 1


def test_a_moment_is_not_enough() -> None:
    machine = Machine(Bounds())
    for _ in range(50):
        for share in (1.0, 1.0, 1.0, 0.6):
            assert machine.tick(share) is None


def test_the_least_busy_one_goes() -> None:
    scaling = Scaling(Bounds(remove_after_seconds=0))
    shares = {"a": 0.1, "b": 0.01, "c": 0.01, "d": 0.1}
    places = [Place(name, Standing.SERVING, share) for name, share in shares.items()]
    change = scaling.decide(places, 0.0)
    assert change is not None
    assert (change.name, change.is_start) == ("c", False)


def test_who_is_drained_stays_away_and_another_may_come() -> None:
    machine = Machine(Bounds(count_min=2, count_most=3, add_after_seconds=0))
    machine.put("m0", Standing.DRAINED)
    assert machine.tick(0.0) == Change("m2", True, "no fewer than 2 are to be there")
    machine.settle()
    machine.put("m1", Standing.DRAINED)
    for _ in range(100):
        assert machine.tick(1.0) is None
        machine.settle()
    machine.put("m2", Standing.DRAINED)
    assert machine.tick(0.0) is None


# In general ---------------------------------------------------------------------------------------

Event = tuple[str, float, float]
"""What happens, how busy they are then, and how many seconds pass."""

deeds = st.sampled_from([*["settle"] * 8, "wait", "wait", "die", "drain"])
shares = st.sampled_from([0.0, 1.0, 1.0]) | st.floats(0, 1)
events = st.lists(st.tuples(deeds, shares, st.sampled_from([1.0, 11.0, 101.0])), max_size=60)


@given(bounds(), events, st.integers(0, 2))
def test_never_too_few_nor_too_many_and_no_hurry(
    bounds: Bounds, events: list[Event], spare: int
) -> None:
    """Whatever happens to them, and however busy they are."""
    machine = Machine(bounds, spare)
    for event, share, seconds in events:
        serving = machine.named(Standing.SERVING)
        if event == "settle":
            machine.settle()
        elif event == "die" and serving:
            machine.put(serving[-1], Standing.COMING)
        elif event == "drain" and serving:
            machine.put(serving[0], Standing.DRAINED)
        before, changed_at = machine.count, machine.changed_at
        there_may_be = len(machine.standings) - len(machine.named(Standing.DRAINED))
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
    bounds: Bounds, times: float, power: float, more: int
) -> None:
    """One alone would be so many times as busy as it takes to add one.

    With n it is that by n, if all of the cost is in publications; by n² if all of it is in boxes;
    or anything between.
    """
    machine = Machine(bounds)
    load = times * bounds.add_above
    for name in machine.named(Standing.AWAY)[:more]:
        machine.put(name, Standing.SERVING)
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
