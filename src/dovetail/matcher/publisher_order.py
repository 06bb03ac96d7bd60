"""Keeps the order of each publisher's publications, though matchers answer out of order. Pure.

    append ──> entry ──> (matchers are asked) ──> complete(entry) ──> released, in order

Rules:

- Each publisher has its own queue, so publishers do not delay each other.
- A publication that no matcher is asked about is queued, too. It goes on at once if the queue is
  empty.
- The queue of a publisher that has gone empties by itself.
- A queue is bounded. If `is_full`, the broker stops reading from this publisher, or completes all
  waiting entries without answers (`entries_of`).
- An entry completes once. A later answer for it changes nothing.
"""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from dovetail.matcher.limits import ORDER_WAITING_MAX

Value = TypeVar("Value")


class QueuedPublication(Generic[Value]):
    """One publication, or a run of `count`, in its publisher's queue."""

    __slots__ = ("count", "is_done", "origin", "value")

    def __init__(self, origin: Hashable, value: Value, count: int) -> None:
        self.origin = origin
        self.value = value
        self.count = count
        self.is_done = False


class PublisherOrder(Generic[Value]):
    """The queues of all publishers of a broker."""

    def __init__(self, waiting_max: int = ORDER_WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._queues: dict[Hashable, deque[QueuedPublication[Value]]] = {}
        self._waiting: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Return how many publications wait."""
        return sum(self._waiting.values())

    def is_full(self, origin: Hashable) -> bool:
        return self._waiting.get(origin, 0) >= self._waiting_max

    def is_empty(self, origin: Hashable) -> bool:
        """True: nothing of it waits, so a publication that needs no matcher may skip the queue."""
        return origin not in self._queues

    def entries_of(self, origin: Hashable) -> list[QueuedPublication[Value]]:
        """Return the publications in its queue."""
        return list(self._queues.get(origin, ()))

    def origins(self) -> list[Hashable]:
        """Return the publishers that have waiting publications."""
        return list(self._queues)

    def append(self, origin: Hashable, value: Value, count: int = 1) -> QueuedPublication[Value]:
        """Queue a publication, or a run of `count`. Check `is_full` first."""
        assert not self.is_full(origin)
        entry = QueuedPublication(origin, value, count)
        self._waiting[origin] = self._waiting.get(origin, 0) + count
        self._queues.setdefault(origin, deque()).append(entry)
        return entry

    def complete(self, entry: QueuedPublication[Value]) -> list[Value]:
        """Mark an entry as done. Return the publications that are released now, in order."""
        if entry.is_done:
            return []
        entry.is_done = True
        queue = self._queues[entry.origin]
        released: list[Value] = []
        while queue and queue[0].is_done:
            first = queue.popleft()
            self._waiting[entry.origin] -= first.count
            released.append(first.value)
        if not queue:
            del self._queues[entry.origin]
            del self._waiting[entry.origin]
        return released
