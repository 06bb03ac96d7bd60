"""Sort lists of small numbers, and remove duplicates.

The numbers of a list become bits of a set, which are then read in order. A second set has a bit for
each word of the first set that is not empty. So a number costs a few steps, however many numbers
are possible; a sort costs more for each doubling of the list.
"""

import numpy as np
import numpy.typing as npt

from dovetail.attributes.kernels.lanes import trailing_zeros
from dovetail.compilation import kernel

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_ONE = np.uint64(1)
_NONE = np.uint64(0)


@kernel
def make_ascending(starts: Ints, numbers: Ints, words: Words, summary: Words, ends: Ints) -> int:
    """Sort in place: numbers[starts[i]:starts[i + 1]] becomes numbers[ends[i]:ends[i + 1]].

    `words` has a bit for each possible number, `summary` one for each of its words. All are 0
    before and after. Return where the last list ends.
    """
    at = 0
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            number = numbers[k]
            word = number >> 6
            words[word] |= _ONE << np.uint64(number & 63)
            summary[word >> 6] |= _ONE << np.uint64(word & 63)
        for group in range(len(summary)):
            used = summary[group]
            summary[group] = _NONE
            while used != _NONE:
                word = (group << 6) + np.int64(trailing_zeros(used))
                used &= used - _ONE
                bits = words[word]
                words[word] = _NONE
                while bits != _NONE:
                    numbers[at] = (word << 6) + np.int64(trailing_zeros(bits))
                    bits &= bits - _ONE
                    at += 1
        ends[i + 1] = at
    return at
