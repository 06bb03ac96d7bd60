"""A broker's own boxes in a space, by number, with a version. Pure.

Rules:

- A box keeps its number until it is discarded. Then another box may get the number. Numbers stay
  low, because arrays are as long as the highest one: `free_number` returns the next.
- Each change takes the next version. Numbers and versions are valid for one life of the broker.
"""

import heapq
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.attributes.limits import BOXES_MAX
from dovetail.matcher.coverage import Cover
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.limits import BOX_KINDS_MAX

_ROOM_MIN = 64
_ROOM_GROWTH = 1.5


class OwnBoxes:
    """The boxes of one space."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.version = 0
        self.exists = np.zeros(0, np.bool_)
        self.kinds = np.zeros(0, np.uint16)
        self.lows = np.zeros((0, len(layout.dimensions)))
        self.highs = np.zeros((0, len(layout.dimensions)))
        self._by_kind: Counter[int] = Counter()
        self._free: list[int] = []
        self._end = 0

    def __len__(self) -> int:
        return self._by_kind.total()

    def free_number(self) -> int:
        while self._free:
            if not self.exists[self._free[0]]:
                return self._free[0]
            heapq.heappop(self._free)  # its owner has put another box there
        return self._end

    def put(self, number: int, lows: Sequence[float], highs: Sequence[float]) -> None:
        """Add a box, or replace the box that has this number."""
        self.put_many(np.array([number]), np.array([lows], float), np.array([highs], float))

    def put_many(self, numbers: npt.NDArray[np.int64], lows: Floats, highs: Floats) -> None:
        """Add or replace boxes. No number may occur twice."""
        if not len(numbers):
            return
        if numbers.min() < 0 or numbers.max() >= BOXES_MAX:
            raise ValueError(f"a box has a number from 0 to {BOXES_MAX - 1:,}")
        self._end = max(self._end, int(numbers.max()) + 1)
        if self._end > len(self.exists):
            self._make_room(self._end)
        self._count(self.existing(numbers), -1)
        self.lows[numbers], self.highs[numbers] = lows, highs
        self.kinds[numbers] = self.layout.kinds(lows, highs)
        self.exists[numbers] = True
        self._count(numbers, 1)
        self.version += len(numbers)

    def add(self, lows: Sequence[float], highs: Sequence[float]) -> int:
        number = self.free_number()
        self.put(number, lows, highs)
        return number

    def discard(self, number: int) -> None:
        if not (0 <= number < len(self.exists) and self.exists[number]):
            raise KeyError(number)
        self._count(np.array([number]), -1)
        self.exists[number] = False
        heapq.heappush(self._free, number)
        self.version += 1

    def _count(self, numbers: npt.NDArray[np.int64], sign: int) -> None:
        for kind in self.kinds[numbers].tolist():
            self._by_kind[kind] += sign
            if not self._by_kind[kind]:
                del self._by_kind[kind]

    def _make_room(self, count: int) -> None:
        room = max(int(count * _ROOM_GROWTH), _ROOM_MIN)
        more = room - len(self.exists)
        self.exists = np.concatenate((self.exists, np.zeros(more, np.bool_)))
        self.kinds = np.concatenate((self.kinds, np.zeros(more, np.uint16)))
        empty = np.zeros((more, self.lows.shape[1]))
        self.lows = np.concatenate((self.lows, empty))
        self.highs = np.concatenate((self.highs, empty))

    def announced_kinds(self) -> list[int]:
        """Return the kinds of all boxes. With 0, matchers cannot answer for all of them."""
        kinds = sorted(self._by_kind)
        return kinds if len(kinds) <= BOX_KINDS_MAX else [0]

    def existing(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return those of the numbers that boxes have."""
        known = numbers[(numbers >= 0) & (numbers < len(self.exists))]
        return known[self.exists[known]]

    def is_covered(self, numbers: npt.NDArray[np.int64], cover: Cover) -> npt.NDArray[np.bool_]:
        """Which of these boxes belong to a matcher with this cover?"""
        lows, highs, kinds = self.lows[numbers], self.highs[numbers], self.kinds[numbers]
        return self.layout.along(lows, highs, kinds, cover).astype(np.bool_)
