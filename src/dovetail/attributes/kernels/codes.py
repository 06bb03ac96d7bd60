"""Encode borders and values as 16-bit codes, and boxes as sort keys that are close for neighbours.

Codes keep the order of numbers: if a's code is below b's, a is below b. Equal codes say nothing, so
the numbers themselves are compared then. Numbers outside a dimension's bounds have the code of its
edge. No number has the lowest and the highest code: they are the open lower and the open upper
border.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inlined, kernel

Floats = npt.NDArray[np.float64]

OPEN_BELOW, OPEN_ABOVE = -32_768, 32_767
CODE_MIN, CODE_MAX = -32_767, 32_766
CODES = CODE_MAX - CODE_MIN + 1

CELLS = 64
"""Cells of a dimension: one word says which of them a leaf covers."""
_CELL_SHIFT = 10

_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@inlined
def code_of(value: float, origin: float, scale: float) -> int:
    """Return the code of a number that is not NaN. Each step keeps the order of numbers."""
    place = (value - origin) * scale
    if place < 0.0:
        return CODE_MIN
    if place >= CODES - 1.0:
        return CODE_MAX
    return np.int64(place) + CODE_MIN


@inlined
def low_code(low: float, origin: float, scale: float) -> int:
    return OPEN_BELOW if low == -np.inf else code_of(low, origin, scale)


@inlined
def high_code(high: float, origin: float, scale: float) -> int:
    return OPEN_ABOVE if high == np.inf else code_of(high, origin, scale)


@inlined
def cell_of(code: int) -> np.uint64:
    return np.uint64((code - OPEN_BELOW) >> _CELL_SHIFT)


@inlined
def cells_of(low: int, high: int) -> np.uint64:
    """Return a bit for each cell from the cell of `low` to that of `high`."""
    if low > high:
        return np.uint64(0)
    return (_ALL << cell_of(low)) & (_ALL >> (np.uint64(CELLS - 1) - cell_of(high)))


@inlined
def key_of(edges: Floats, at: int, origins: Floats, scales: Floats) -> np.uint64:
    """Return the sort key of the box with its lower borders at edges[at:], the upper ones behind.

    The highest bits are one for each dimension in which the box covers more than half of the axis:
    one open range in a leaf makes the leaf as wide, so wide boxes share leaves. Below are the bits
    of the centres in turn (Morton's order).
    """
    dimensions = len(origins)
    bits = min((64 - dimensions) // dimensions, 16)
    wide, turns = np.uint64(0), np.uint64(0)
    for j in range(dimensions):
        low = low_code(edges[at + j], origins[j], scales[j])
        high = high_code(edges[at + dimensions + j], origins[j], scales[j])
        wide = (wide << _ONE) | np.uint64(high - low > CODES // 2)
        centre = np.uint64((low + high - 2 * OPEN_BELOW) >> 1) >> np.uint64(16 - bits)
        for bit in range(bits):  # its lowest bit first
            place = np.uint64(bit * dimensions + dimensions - 1 - j)
            turns |= ((centre >> np.uint64(bit)) & _ONE) << place
    return (wide << np.uint64(bits * dimensions)) | turns


@kernel
def keys_of(edges: Floats, origins: Floats, scales: Floats) -> npt.NDArray[np.uint64]:
    width = 2 * len(origins)
    keys = np.empty(len(edges) // width, np.uint64)
    for i in range(len(keys)):
        keys[i] = key_of(edges, i * width, origins, scales)
    return keys
