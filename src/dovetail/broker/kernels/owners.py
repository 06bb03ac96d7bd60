"""Finds the owners of boxes: each owner once, with the merged marks of its boxes."""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import kernel

NO_LOCAL = 0x80
"""The mark of a box that is not for publications of its own owner."""

MARKS = 8
"""Bits of marks in a result, below the number of the owner."""


@kernel
def collect(
    boxes: npt.NDArray[np.int64],
    owners: npt.NDArray[np.int32],
    marks: npt.NDArray[np.uint8],
    seen: npt.NDArray[np.uint16],
    sender: int,
    found: npt.NDArray[np.int64],
) -> int:
    """Write the owners and their marks to `found`, and return their number.

    `found` has room for as many as there are boxes. `seen` is all zeros before and after. `sender`
    is the owner that published, or -1.
    """
    there = np.uint16(1 << MARKS)
    count = 0
    for i in range(len(boxes)):
        box = boxes[i]
        owner = owners[box]
        mark = marks[box]
        if owner == sender and mark & NO_LOCAL:
            continue
        if seen[owner] == 0:
            found[count] = owner
            count += 1
        seen[owner] |= there | mark
    for i in range(count):
        owner = found[i]
        found[i] = owner << MARKS | np.int64(seen[owner] & ~there)
        seen[owner] = 0
    return count
