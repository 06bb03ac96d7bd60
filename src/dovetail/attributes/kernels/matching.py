"""Find the boxes that points fall in.

One row a dimension, all rows ANDed, gives the leaves that may have such a box. In each of them 64
boxes are compared by code. A box with a code equal to the point's is compared by its true borders:
with 65,534 codes a dimension that is one in some thousands.
"""

import numpy as np
import numpy.typing as npt

from dovetail.attributes.kernels.codes import (
    CELLS,
    OPEN_ABOVE,
    OPEN_BELOW,
    Floats,
    cell_of,
    code_of,
)
from dovetail.attributes.kernels.lanes import (
    LANES,
    address_of,
    containing_lanes,
    count_ones,
    equal_lanes,
    trailing_zeros,
)
from dovetail.attributes.kernels.leaves import ROWS, Codes, Kinds, Numbers, Words
from dovetail.compilation import inlined, kernel

_ONE = np.uint64(1)
_LEAF_BYTES = np.uint64(2 * 2 * LANES)


@inlined
def holds(edges: Floats, at: int, points: Floats, point: int, dimensions: int) -> bool:
    """Is the point in the box? An infinite border is open: it includes every value."""
    for j in range(dimensions):
        low, high = edges[at + j], edges[at + dimensions + j]
        value = points[point + j]
        if np.isnan(value):
            if low != -np.inf or high != np.inf:
                return False
        elif not (low <= value and (value < high or high == np.inf)):
            return False
    return True


@kernel
def match(
    origins: Floats,
    scales: Floats,
    codes: Codes,
    edges: Floats,
    slot_of: Numbers,
    kinds: Kinds,
    rows: Words,
    words: int,
    points: Floats,
    start: int,
    mask: np.uint32,
    masked: bool,
    listing: bool,
    ends: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
) -> int:
    """Write the matches of points[start:] into found[ends[start]:]; ends[i + 1] ends point i's.

    Without `listing` they are only counted. Return the point at which room ran out.
    """
    dimensions = len(origins)
    leaf_bytes = _LEAF_BYTES * np.uint64(dimensions)
    base = address_of(codes)
    candidates = np.empty(words, np.uint64)
    row_of = np.empty(dimensions, np.int64)
    below = np.empty(dimensions, np.int64)
    above = np.empty(dimensions, np.int64)
    low_touch = np.empty(dimensions, np.int64)
    high_touch = np.empty(dimensions, np.int64)
    at = ends[start]
    for i in range(start, len(ends) - 1):
        point = i * dimensions
        for j in range(dimensions):
            value = points[point + j]
            if np.isnan(value):
                row_of[j] = (j * ROWS + CELLS) * words
                below[j], above[j] = OPEN_BELOW, OPEN_ABOVE
                # No box has these codes there: an open range needs no exact check.
                low_touch[j], high_touch[j] = OPEN_ABOVE, OPEN_BELOW
            else:
                code = code_of(value, origins[j], scales[j])
                row_of[j] = (j * ROWS + np.int64(cell_of(code))) * words
                below[j] = above[j] = low_touch[j] = high_touch[j] = code
        row = row_of[0]
        for word in range(words):
            candidates[word] = rows[row + word]
        for j in range(1, dimensions):
            row = row_of[j]
            for word in range(words):
                candidates[word] &= rows[row + word]
        for word in range(words):
            rest = candidates[word]
            while rest != 0:
                leaf = np.uint64(word * 64) + trailing_zeros(rest)
                rest &= rest - _ONE
                address = base + leaf * leaf_bytes
                inside = containing_lanes(address, below[0], above[0])
                for j in range(1, dimensions):
                    inside &= containing_lanes(
                        address + _LEAF_BYTES * np.uint64(j), below[j], above[j]
                    )
                if inside == 0:
                    continue
                unsure = np.uint64(0)
                for j in range(dimensions):
                    there = address + _LEAF_BYTES * np.uint64(j)
                    unsure |= equal_lanes(there, low_touch[j], high_touch[j])
                unsure &= inside
                first = np.int64(leaf) * LANES
                while unsure != 0:
                    lane = np.int64(trailing_zeros(unsure))
                    if not holds(edges, (first + lane) * 2 * dimensions, points, point, dimensions):
                        inside &= ~(unsure & (~unsure + _ONE))
                    unsure &= unsure - _ONE
                if masked:
                    some = inside
                    while some != 0:
                        if kinds[first + np.int64(trailing_zeros(some))] & mask == 0:
                            inside &= ~(some & (~some + _ONE))
                        some &= some - _ONE
                if not listing:
                    at += count_ones(inside)
                    continue
                if at + LANES > len(found):
                    return i
                while inside != 0:
                    found[at] = slot_of[first + np.int64(trailing_zeros(inside))]
                    at += 1
                    inside &= inside - _ONE
        ends[i + 1] = at
    return len(ends) - 1


@kernel
def match_few(
    edges: Floats,
    points: Floats,
    dimensions: int,
    ends: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
) -> None:
    """List all boxes of all points like `match`, without an index. `found` has room for all pairs.

    `edges` has the lower borders of each box, and behind them the upper ones.
    """
    at = 0
    for i in range(len(ends) - 1):
        for box in range(len(edges) // (2 * dimensions)):
            if holds(edges, box * 2 * dimensions, points, i * dimensions, dimensions):
                found[at] = box
                at += 1
        ends[i + 1] = at
