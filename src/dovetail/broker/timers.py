"""Timers: one action per key, at a time that may be moved any number of times. Pure.

Moving a time later, or cancelling it, changes only a dict; the heap follows when the old time
comes. A key has one heap entry, or few. When most entries are stale, the heap is rebuilt.
"""

import heapq
import math
from collections.abc import Callable, Hashable
from itertools import count

_STALE_MIN = 1_024


class Timers:
    """Actions by key. Times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._due: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._in_heap: dict[Hashable, float] = {}
        self._order = count()

    def set(self, key: Hashable, when: float, action: Callable[[], None]) -> None:
        self._due[key] = (when, action)
        if when < self._in_heap.get(key, float("inf")):
            self._push(key, when)
            if len(self._heap) > 2 * len(self._due) + _STALE_MIN:
                self._drop_stale()

    def cancel(self, key: Hashable) -> None:
        if (
            self._due.pop(key, None) is not None
            and len(self._heap) > 2 * len(self._due) + _STALE_MIN
        ):
            self._drop_stale()

    def _drop_stale(self) -> None:
        due, order = self._due, self._order
        self._heap = [(when, next(order), key) for key, (when, _) in due.items()]
        self._in_heap = {key: when for key, (when, _) in due.items()}
        heapq.heapify(self._heap)

    def run(self, now: float, count: float = math.inf) -> bool:
        """Run up to `count` due actions in order of time. Return True if more are due."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            if count <= 0:
                return True
            count -= 1
            when, _, key = heapq.heappop(heap)
            if self._in_heap.get(key) == when:
                del self._in_heap[key]
            due = self._due.get(key)
            if due is None:
                continue
            if due[0] > when:
                if key not in self._in_heap:
                    self._push(key, due[0])
                continue
            del self._due[key]
            due[1]()
            heap = self._heap
        return False

    @property
    def next_time(self) -> float | None:
        """A lower bound for the time of the next action, or None."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._due)

    def _push(self, key: Hashable, when: float) -> None:
        self._in_heap[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
