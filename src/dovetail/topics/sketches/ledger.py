"""The owner's side of a sketch: what is in it, how often, which bits that makes, what changed.

Around the kernels of the same name, which have the rules of the counts. The table grows by half
when it is 70 % full; elements are taken in portions, so that many repetitions of a few do not make
it larger than the few need.
"""

import numpy as np
import numpy.typing as npt

from dovetail.topics.kernels import ledger as kernels
from dovetail.topics.kernels.ledger import BitCounts, Counts
from dovetail.topics.sketches.change_log import Changes

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
        self._changes = Changes(version)

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._counts.nbytes + self._bit_counts.nbytes

    def add(self, elements: Words, words: Words, version: int) -> bool:
        """Whether there were new ones; they are noted under this version."""
        before = self.elements
        for start in range(0, len(elements), _PORTION):
            portion = elements[start : start + _PORTION]
            self._make_room(len(portion))
            moved = np.empty(len(portion), np.uint64)
            fresh = kernels.add_elements(portion, *self._arrays(words), *self._layout, moved)
            self.elements += fresh
            self._changes.note(moved[:fresh], version)
        return self.elements > before

    def discard(self, elements: Words, words: Words, version: int) -> bool:
        """Whether any left. The elements are in."""
        moved = np.empty(len(elements), np.uint64)
        gone = kernels.discard_elements(elements, *self._arrays(words), *self._layout, moved)
        self.elements -= gone
        self._changes.note(moved[:gone], version)
        return gone > 0

    def changes(self, words: Words, since: int) -> tuple[Words, Words, Words] | None:
        """Elements that came, those that went, and which bits the latter left empty.

        None if `since` is too long ago.
        """
        moved = self._changes.since(since)
        if moved is None:
            return None
        present, gone, cleared = (np.empty(len(moved), np.uint64) for _ in range(3))
        here, away = kernels.sort_out(
            moved, self._keys, self._counts, words, *self._layout, present, gone, cleared
        )
        return present[:here], gone[:away], cleared[:away]

    def count(self, element: np.uint64) -> int:
        return int(kernels.count_of(self._keys, self._counts, element))

    def rebuilt(self, bits: int, hashes: int, words: Words, version: int) -> "Ledger":
        """The same elements for other bits, which are empty. The past is not told of them."""
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
