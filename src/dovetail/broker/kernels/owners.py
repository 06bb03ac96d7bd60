"""Whose are these boxes? Each owner once, with the marks of all its boxes together."""

import numpy as np
import numpy.typing as npt

from dovetail.compiling import kernel

NO_LOCAL = 0x80
"""A mark: the box is not for what its own owner sends."""

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
    """How many owners; `found` has room for as many as there are boxes. `seen` is 0, and stays so.

    `sender`: the owner who sends, or -1.
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
