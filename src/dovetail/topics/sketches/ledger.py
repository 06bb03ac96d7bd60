"""The owner's side of a sketch: what is in it, how often, and which bits that makes.

Around the kernels of the same name, which have the rules of the counts. The table grows by half
when it is 70 % full; elements are taken in portions, so that many repetitions of a few do not make
it larger than the few need.
"""

import numpy as np
import numpy.typing as npt

from dovetail.topics.kernels import ledger as kernels
from dovetail.topics.kernels.ledger import BitCounts, Counts

Words = npt.NDArray[np.uint64]

_SLOTS_MIN = 64
_LOAD_MAX = 0.7
_PORTION = 1 << 14


class Ledger:
    """Counts of elements and of bits; `changed_at` is the version each page last changed in."""

    def __init__(self, bits: int, hashes: int, words: int) -> None:
        self._layout = (np.uint64(bits), hashes)
        self._keys = np.zeros(_SLOTS_MIN, np.uint64)
        self._counts = np.zeros(_SLOTS_MIN, np.uint32)
        self._bit_counts = np.zeros(bits, np.uint8)
        self.elements = 0
        self.changed_at = np.zeros(-(-words // kernels.PAGE_WORDS), np.uint64)

    def add(self, elements: Words, words: Words, version: int) -> bool:
        """Whether any bit changed."""
        changed = 0
        for start in range(0, len(elements), _PORTION):
            portion = elements[start : start + _PORTION]
            self._make_room(len(portion))
            fresh, bits = kernels.add_elements(
                portion, *self._arrays(words, version), *self._layout
            )
            self.elements += fresh
            changed += bits
        return changed > 0

    def discard(self, elements: Words, words: Words, version: int) -> bool:
        """Whether any bit changed. The elements are in."""
        gone, changed = kernels.discard_elements(
            elements, *self._arrays(words, version), *self._layout
        )
        self.elements -= gone
        return changed > 0

    def count(self, element: np.uint64) -> int:
        return int(kernels.count_of(self._keys, self._counts, element))

    def rebuilt(self, bits: int, hashes: int, words: Words, version: int) -> "Ledger":
        """The same elements for other bits, which are empty."""
        other = Ledger(bits, hashes, len(words))
        other._keys = self._keys.copy()
        other._counts = self._counts.copy()
        other.elements = self.elements
        kernels.rebuild_bits(*other._arrays(words, version), *other._layout)
        # Also what is empty now may have held something in a peer that knew these bits before.
        other.changed_at.fill(version)
        return other

    def _arrays(
        self, words: Words, version: int
    ) -> tuple[Words, Counts, Words, BitCounts, Words, np.uint64]:
        return (
            self._keys,
            self._counts,
            words,
            self._bit_counts,
            self.changed_at,
            np.uint64(version),
        )

    def _make_room(self, elements: int) -> None:
        wanted = self.elements + elements
        if wanted <= _LOAD_MAX * len(self._keys):
            return
        slots = max(int(wanted / _LOAD_MAX) + 1, len(self._keys) * 3 // 2)
        keys = np.zeros(slots, np.uint64)
        counts = np.zeros(slots, np.uint32)
        kernels.move_table(self._keys, self._counts, keys, counts)
        self._keys, self._counts = keys, counts
