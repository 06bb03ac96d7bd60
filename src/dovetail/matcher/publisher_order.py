"""A publisher's publications go on in their order, though matchers answer out of it. Pure.

    take ──> place ──> (matchers are asked) ──> done(place) ──> released, after all before it

Rules:

- Each publisher has a line of its own; one that waits holds nobody else up.
- A publication that no matcher is asked about has its place in the line as well, and goes on at
  once where nobody stands before it.
- A publisher that has gone leaves its line behind, which ends by itself.
- A line has an end: `is_full` says that nothing more is to be read from this publisher, or that
  what waits has to go on as it is (`those_of`, each of them done).
- A place is done once: what comes later, as an answer that nobody waits for, changes nothing.
"""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from dovetail.matcher.limits import ORDER_WAITING_MAX

Value = TypeVar("Value")


class Place(Generic[Value]):
    """In a line."""

    __slots__ = ("is_done", "origin", "value")

    def __init__(self, origin: Hashable, value: Value) -> None:
        self.origin = origin
        self.value = value
        self.is_done = False


class Lines(Generic[Value]):
    """All publishers of a broker."""

    def __init__(self, waiting_max: int = ORDER_WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._lines: dict[Hashable, deque[Place[Value]]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._lines.values()))

    def is_full(self, origin: Hashable) -> bool:
        return len(self._lines.get(origin, ())) >= self._waiting_max

    def is_empty(self, origin: Hashable) -> bool:
        """Nothing of it waits: what needs no matcher may go on without a place."""
        return origin not in self._lines

    def those_of(self, origin: Hashable) -> list[Place[Value]]:
        """The places in its line."""
        return list(self._lines.get(origin, ()))

    def origins(self) -> list[Hashable]:
        """Those of whom something waits."""
        return list(self._lines)

    def take(self, origin: Hashable, value: Value) -> Place[Value]:
        """The last place. Whoever takes one in a line that is full has not asked."""
        assert not self.is_full(origin)
        place = Place(origin, value)
        self._lines.setdefault(origin, deque()).append(place)
        return place

    def done(self, place: Place[Value]) -> list[Value]:
        """What goes on now, in order."""
        if place.is_done:
            return []
        place.is_done = True
        line = self._lines[place.origin]
        released: list[Value] = []
        while line and line[0].is_done:
            released.append(line.popleft().value)
        if not line:
            del self._lines[place.origin]
        return released
