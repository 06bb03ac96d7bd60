"""The owner's side of a sketch: counts of elements and bits, and the log of changes.

The kernels of the same name have the rules of the counts. The table grows by half when it is 70 %
full. Elements are added in portions, so that many repetitions of a few do not make the table larger
than the few need.
"""

import numpy as np
import numpy.typing as npt

from dovetail.topics.kernels import ledger as kernels
from dovetail.topics.kernels.ledger import BitCounts, Counts
from dovetail.topics.sketches.change_log import ChangeLog

Words = npt.NDArray[np.uint64]

_SLOTS_MIN = 64
_LOAD_MAX = 0.7
_PORTION = 1 << 14


class Ledger:
    """Counts of elements and of bits, and the latest changes."""

    def __init__(self, bits: int, hashes: int, *, version: int = 0) -> None:
        self._layout = (np.uint64(bits), hashes)
        self._keys = np.zeros(_SLOTS_MIN, np.uint64)
        self._counts = np.zeros(_SLOTS_MIN, np.uint32)
        self._bit_counts = np.zeros(bits, np.uint8)
        self.elements = 0
        self._changes = ChangeLog(version)

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._counts.nbytes + self._bit_counts.nbytes

    def add(self, elements: Words, words: Words, version: int) -> bool:
        """Count elements in, and log new ones under this version. Return whether there were any."""
        before = self.elements
        for start in range(0, len(elements), _PORTION):
            portion = elements[start : start + _PORTION]
            self._make_room(len(portion))
            moved = np.empty(len(portion), np.uint64)
            fresh = kernels.add_elements(portion, *self._arrays(words), *self._layout, moved)
            self.elements += fresh
            self._changes.append(moved[:fresh], version)
        return self.elements > before

    def discard(self, elements: Words, words: Words, version: int) -> bool:
        """Count elements out, all of which are in. Return whether any left."""
        moved = np.empty(len(elements), np.uint64)
        gone = kernels.discard_elements(elements, *self._arrays(words), *self._layout, moved)
        self.elements -= gone
        self._changes.append(moved[:gone], version)
        return gone > 0

    def changes(self, words: Words, since: int) -> tuple[Words, Words, Words] | None:
        """Return elements that came, those that went, and which bits the latter left empty.

        None if the log does not reach back to `since`.
        """
        moved = self._changes.since(since)
        if moved is None:
            return None
        present, gone, cleared = (np.empty(len(moved), np.uint64) for _ in range(3))
        here, away = kernels.classify_moved(
            moved, self._keys, self._counts, words, *self._layout, present, gone, cleared
        )
        return present[:here], gone[:away], cleared[:away]

    def count(self, element: np.uint64) -> int:
        return int(kernels.count_of(self._keys, self._counts, element))

    def rebuilt(self, bits: int, hashes: int, words: Words, version: int) -> "Ledger":
        """Return the same elements for other bits, which are empty, with an empty log."""
        other = Ledger(bits, hashes, version=version)
        other._keys = self._keys.copy()
        other._counts = self._counts.copy()
        other.elements = self.elements
        kernels.rebuild_bits(*other._arrays(words), *other._layout)
        return other

    def _arrays(self, words: Words) -> tuple[Words, Counts, Words, BitCounts]:
        return self._keys, self._counts, words, self._bit_counts

    def _make_room(self, elements: int) -> None:
        wanted = self.elements + elements
        if wanted <= _LOAD_MAX * len(self._keys):
            return
        slots = max(int(wanted / _LOAD_MAX) + 1, len(self._keys) * 3 // 2)
        keys = np.zeros(slots, np.uint64)
        counts = np.zeros(slots, np.uint32)
        kernels.move_table(self._keys, self._counts, keys, counts)
        self._keys, self._counts = keys, counts
