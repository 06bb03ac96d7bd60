"""A broker's own boxes in a space, by number, and how far they have come. Pure.

Rules:

- A number is its box's until the box is discarded; then it may be another's. Numbers are kept low,
  because arrays are as long as the highest one: `free_number` says which is next.
- Each change takes the next version. A version is of one life of the broker, whose numbers and
  versions mean nothing in another.
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


class Ledger:
    """The boxes of one space."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.version = 0
        self.is_there = np.zeros(0, np.bool_)
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
            if not self.is_there[self._free[0]]:
                return self._free[0]
            heapq.heappop(self._free)  # its owner has put another box there
        return self._end

    def put(self, number: int, lows: Sequence[float], highs: Sequence[float]) -> None:
        """A new box, or another one in the place of one that there was."""
        self.put_many(np.array([number]), np.array([lows], float), np.array([highs], float))

    def put_many(self, numbers: npt.NDArray[np.int64], lows: Floats, highs: Floats) -> None:
        """Each number once."""
        if not len(numbers):
            return
        if numbers.min() < 0 or numbers.max() >= BOXES_MAX:
            raise ValueError(f"a box has a number from 0 to {BOXES_MAX - 1:,}")
        self._end = max(self._end, int(numbers.max()) + 1)
        if self._end > len(self.is_there):
            self._make_room(self._end)
        self._count(self.held(numbers), -1)
        self.lows[numbers], self.highs[numbers] = lows, highs
        self.kinds[numbers] = self.layout.kinds(lows, highs)
        self.is_there[numbers] = True
        self._count(numbers, 1)
        self.version += len(numbers)

    def add(self, lows: Sequence[float], highs: Sequence[float]) -> int:
        number = self.free_number()
        self.put(number, lows, highs)
        return number

    def discard(self, number: int) -> None:
        if not (0 <= number < len(self.is_there) and self.is_there[number]):
            raise KeyError(number)
        self._count(np.array([number]), -1)
        self.is_there[number] = False
        heapq.heappush(self._free, number)
        self.version += 1

    def _count(self, numbers: npt.NDArray[np.int64], sign: int) -> None:
        for kind in self.kinds[numbers].tolist():
            self._by_kind[kind] += sign
            if not self._by_kind[kind]:
                del self._by_kind[kind]

    def _make_room(self, count: int) -> None:
        room = max(int(count * _ROOM_GROWTH), _ROOM_MIN)
        more = room - len(self.is_there)
        self.is_there = np.concatenate((self.is_there, np.zeros(more, np.bool_)))
        self.kinds = np.concatenate((self.kinds, np.zeros(more, np.uint16)))
        empty = np.zeros((more, self.lows.shape[1]))
        self.lows = np.concatenate((self.lows, empty))
        self.highs = np.concatenate((self.highs, empty))

    def told_kinds(self) -> list[int]:
        """Which there are. 0 is among them if matchers cannot answer for all boxes."""
        kinds = sorted(self._by_kind)
        return kinds if len(kinds) <= BOX_KINDS_MAX else [0]

    def held(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Those of the numbers that there are boxes of."""
        known = numbers[(numbers >= 0) & (numbers < len(self.is_there))]
        return known[self.is_there[known]]

    def is_held(self, numbers: npt.NDArray[np.int64], cover: Cover) -> npt.NDArray[np.bool_]:
        """Which of these boxes does a matcher with this cover hold?"""
        lows, highs, kinds = self.lows[numbers], self.highs[numbers], self.kinds[numbers]
        return self.layout.along(lows, highs, kinds, cover).astype(np.bool_)
