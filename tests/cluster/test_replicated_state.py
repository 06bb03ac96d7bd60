"""In any order of events, waiters are released for a reason, in order, and in time."""

import math
from collections.abc import Callable
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dovetail.cluster.replicated_state import NOTHING, ReplicatedState

names = st.sampled_from("abc")


class Waiters(RuleBasedStateMachine):
    """Peers come, go, reconnect and acknowledge, versions rise, time passes.

    The oracle keeps what each peer acknowledged, and all waiters that there ever were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = ReplicatedState()
        self.version = 0
        self.now = 0.0
        self.live: set[str] = set()
        self.up: set[str] = set()
        self.acknowledged: dict[str, int] = {}
        self.in_flight: dict[str, int] = {}
        self.waiters: list[tuple[int, float]] = []  # version and deadline, in their order
        self.released: list[int] = []

    # The oracle -----------------------------------------------------------------------------------

    def is_known(self, version: int) -> bool:
        return all(self.acknowledged.get(name, NOTHING) >= version for name in self.live)

    def is_late(self, number: int) -> bool:
        """It is past its deadline, or one that came after it is."""
        return any(deadline <= self.now for _, deadline in self.waiters[number:])

    def release(self, number: int, act: Callable[[], None]) -> None:
        assert self.is_known(self.waiters[number][0]) or self.is_late(number)
        self.released.append(number)
        act()

    @invariant()
    def everybody_is_released_in_order(self) -> None:
        assert self.released == list(range(len(self.released)))

    @invariant()
    def nobody_waits_without_a_reason(self) -> None:
        waiting = range(len(self.released), len(self.waiters))
        assert not waiting or not self.is_known(self.waiters[waiting[0]][0])
        assert not any(map(self.is_late, waiting))

    # What happens ---------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 2, 5, math.inf]))
    def wait(self, seconds: float, act: Callable[[], None] = lambda: None) -> None:
        deadline = self.now + seconds
        self.waiters.append((self.version, deadline))
        release = partial(self.release, len(self.waiters) - 1, act)
        self.state.wait(self.version, deadline, release)

    @rule(seconds=st.sampled_from([1, 2, 5]))
    def wait_and_then_wait_again(self, seconds: float) -> None:
        self.wait(seconds, lambda: self.wait(seconds))

    @rule()
    def change(self) -> None:
        self.version += 1

    @rule(name=names, is_live=st.booleans())
    def gossip(self, name: str, is_live: bool) -> None:
        (self.live.add if is_live else self.live.discard)(name)
        self.state.peer_is_live(name, is_live)
        assert self.state.is_live(name) == is_live

    @rule(name=names, is_up=st.booleans())
    def connect(self, name: str, is_up: bool) -> None:
        (self.up.add if is_up else self.up.discard)(name)
        self.acknowledged.pop(name, None)
        self.in_flight.pop(name, None)
        self.state.peer_is_up(name, is_up)

    @rule(name=names)
    def forget(self, name: str) -> None:
        self.live.discard(name)
        self.connect(name, False)
        self.state.forget(name)
        assert name not in self.state

    @rule(reachable=st.sets(names))
    def send(self, reachable: set[str]) -> None:
        behind = {
            name: self.acknowledged.get(name, NOTHING)
            for name in self.up - self.in_flight.keys()
            if self.acknowledged.get(name, NOTHING) < self.version
        }
        sent: dict[str, int] = {}

        def send(name: str, version: int) -> bool:
            sent[name] = version
            return name in reachable

        self.state.send(self.version, send)
        assert sent == behind
        self.in_flight.update(dict.fromkeys(sent.keys() & reachable, self.version))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), is_usable=st.booleans())
    def answer(self, data: st.DataObject, is_usable: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.in_flight)))
        version = self.in_flight.pop(name)
        self.acknowledged[name] = version if is_usable else NOTHING
        self.state.answered(name, self.acknowledged[name])

    @rule()
    def restart(self) -> None:
        """Messages in flight are of the earlier lineage, so their answers say nothing."""
        self.acknowledged.clear()
        self.in_flight = dict.fromkeys(self.in_flight, NOTHING)
        self.state.restart()

    @rule(seconds=st.integers(0, 3))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        waiting = self.waiters[len(self.released) :]
        late = sum(deadline <= self.now for _, deadline in waiting)
        assert self.state.tick(self.now) == late


Waiters.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestWaiters = Waiters.TestCase


def test_we_have_the_peers_states_as_of_when_they_first_acknowledged_ours() -> None:
    state = ReplicatedState()
    ours = {"a": (7, 1)}
    assert state.has_peers_states(ours.__getitem__)  # there is nobody
    state.peer_is_live("a", True)
    state.peer_is_up("a", True)
    assert not state.has_peers_states(ours.__getitem__)
    state.answered("a", 1, (7, 2))
    state.answered("a", 2, (7, 9))
    assert not state.has_peers_states(ours.__getitem__)
    ours["a"] = (7, 2)
    assert state.has_peers_states(ours.__getitem__)
    state.peer_is_up("a", True)  # it may have restarted
    assert not state.has_peers_states(ours.__getitem__)
    state.peer_is_live("a", False)
    assert state.has_peers_states(ours.__getitem__)


def test_a_peer_that_acknowledges_nonsense_delays_nobody() -> None:
    state = ReplicatedState()
    state.peer_is_live("a", True)
    done: list[str] = []
    state.wait(1, 5.0, lambda: done.append("late"))
    state.answered("a", -9)
    assert state.tick(5.0) == 1
    assert done == ["late"]
