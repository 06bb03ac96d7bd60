"""Which connection is evicted, compared with a plain list; and guarantees during a flood."""

from dataclasses import dataclass
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail.process.connection_slots import ConnectionSlots

ADDRESSES = st.sampled_from(["a", "b", "c", "d"])


@dataclass
class Kept:
    """A connection as the oracle remembers it, in a list by age."""

    guest: int
    address: str
    is_silent: bool = True
    is_held: bool = False


def oldest(kept: list[Kept]) -> Kept | None:
    """The rule for one address, said once more."""
    free = [one for one in kept if not one.is_held]
    silent = [one for one in free if one.is_silent]
    return next(iter(silent if len(silent) > len(free) - len(silent) else free), None)


class SlotsMachine(RuleBasedStateMachine):
    """Everything that may happen to slots."""

    @initialize(count_max=st.integers(1, 8), per_address_max=st.integers(1, 8))
    def begin(self, count_max: int, per_address_max: int) -> None:
        self.count_max, self.per_address_max = count_max, per_address_max
        self.slots: ConnectionSlots[int] = ConnectionSlots(count_max, per_address_max)
        self.kept: list[Kept] = []
        self.guests = count()

    def of(self, address: str) -> list[Kept]:
        return [one for one in self.kept if one.address == address]

    def expected(self, address: str) -> tuple[bool, Kept | None]:
        """Is somebody to go, and who?"""
        if len(self.of(address)) >= self.per_address_max:
            return True, oldest(self.of(address))
        if len(self.kept) < self.count_max:
            return False, None
        found = []
        for other in {one.address for one in self.kept}:
            victim = oldest(self.of(other))
            if victim is not None:
                size = sum(not one.is_held for one in self.of(other)) + (other == address)
                found.append((size, -self.kept.index(victim), victim))
        return True, max(found, key=lambda one: one[:2])[2] if found else None

    @rule(address=ADDRESSES)
    def enter(self, address: str) -> None:
        guest = next(self.guests)
        is_full, victim = self.expected(address)
        gone = self.slots.enter(guest, address)
        if not is_full:
            assert gone is None
        elif victim is None:
            assert gone == guest
            return
        else:
            assert gone == victim.guest
            self.kept.remove(victim)
        self.kept.append(Kept(guest, address))

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        guest = data.draw(st.integers(0, 40))
        one = next((one for one in self.kept if one.guest == guest), None)
        what = data.draw(st.sampled_from(["speak", "hold", "release", "leave"]))
        getattr(self.slots, what)(guest)
        if one is None:
            return
        if what == "speak":
            one.is_silent = False
        elif what == "hold":
            one.is_held, one.is_silent = True, False
        elif what == "leave":
            self.kept.remove(one)
        elif one.is_held:
            one.is_held = False
            self.kept.remove(one)
            self.kept.append(one)

    @invariant()
    def is_bounded(self) -> None:
        if not hasattr(self, "slots"):
            return
        assert len(self.slots) == len(self.kept) <= self.count_max
        assert all(one.guest in self.slots for one in self.kept)
        for address in "abcd":
            assert len(self.of(address)) <= self.per_address_max


TestSlots = SlotsMachine.TestCase


@given(st.integers(2, 20), st.lists(st.booleans(), min_size=40, max_size=40))
def test_a_new_connection_outlasts_half_as_many_of_its_address(
    room: int, speaks: list[bool]
) -> None:
    """Whatever the others say, before and after it."""
    slots: ConnectionSlots[str] = ConnectionSlots(room, room)
    does_speak = iter(speaks)

    def flood(name: str) -> None:
        slots.enter(name, "a")
        if next(does_speak):
            slots.speak(name)

    for number in range(room):
        flood(f"before {number}")
    slots.enter("newcomer", "a")
    for number in range(room // 2 - 1):
        flood(f"after {number}")
        assert "newcomer" in slots


@given(st.integers(3, 20), st.integers(1, 200))
def test_silent_connections_do_not_evict_one_that_has_spoken(room: int, flood: int) -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(room, room)
    slots.enter("member", "a")
    slots.speak("member")
    for number in range(flood):
        slots.enter(f"silent {number}", "a")
    assert "member" in slots


@given(st.integers(1, 8), st.lists(st.booleans(), max_size=100))
def test_a_flood_from_one_address_costs_that_address(others: int, speaks: list[bool]) -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(16, 16)
    for number in range(others):
        slots.enter(f"other {number}", f"address {number}")
    for number, does in enumerate(speaks):
        slots.enter(f"flood {number}", "a")
        if does:
            slots.speak(f"flood {number}")
    assert all(f"other {number}" in slots for number in range(others))
    assert slots.enter("late", "another address") != "late"
    assert all(f"other {number}" in slots for number in range(others))
