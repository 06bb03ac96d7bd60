"""Sorts the matches of many points by broker.

The box index finds the slots of the boxes that a point falls in. An answer has them point by point
and, for each point, broker by broker. The kernel passes over a point's slots twice: it counts them
for each broker and, if they are listed, writes each number to its place.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import kernel

UNSURE = 0xFFFF_FFFF
"""Instead of a count."""

Slots = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]
Columns = npt.NDArray[np.int32]


@kernel
def group(
    ends: Slots,
    slots: Slots,
    first: int,
    points: int,
    owner_of: Columns,
    number_of: Counts,
    kind_of: npt.NDArray[np.uint16],
    column_of: Columns,
    columns: int,
    is_wanted: npt.NDArray[np.bool_],
    is_sure: npt.NDArray[np.bool_],
    is_listing: bool,
    boxes_max: int,
    counts: Counts,
    numbers: Counts,
) -> int:
    """Fill `counts[point, column]`, and `numbers`, for the points from `first` on.

    `column_of` an owner is -1 if the question is not about it. `is_wanted` is by kind, and
    `is_sure` is flat like `counts`. When listing, a broker with more than `boxes_max` boxes, or
    more than `numbers` has room for, is unsure. Return how many numbers were written.
    """
    starts = np.empty(columns, np.int64)
    at = 0
    for i in range(points):
        row = i * columns
        for column in range(columns):
            counts[row + column] = 0
        begin, end = ends[first + i], ends[first + i + 1]
        for place in range(begin, end):
            slot = slots[place]
            column = column_of[owner_of[slot]]
            if column >= 0 and is_wanted[kind_of[slot]]:
                counts[row + column] += np.uint32(1)
        for column in range(columns):
            count = np.int64(counts[row + column])
            is_too_many = count > boxes_max or at + count > len(numbers)
            if not is_sure[row + column] or (is_listing and is_too_many):
                counts[row + column] = UNSURE
                starts[column] = -1
            else:
                starts[column] = at
                at += count
        if not is_listing:
            at = 0
            continue
        for place in range(begin, end):
            slot = slots[place]
            column = column_of[owner_of[slot]]
            if column >= 0 and starts[column] >= 0 and is_wanted[kind_of[slot]]:
                numbers[starts[column]] = number_of[slot]
                starts[column] += 1
    return at
