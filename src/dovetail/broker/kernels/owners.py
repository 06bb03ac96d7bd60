"""Finds the owners of boxes: each owner once, with the merged marks of its boxes.

`collect` does so for one publication. `collect_rows` does it for a run, and lists the publications
of each owner.
"""

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


@kernel
def collect_rows(
    offsets: npt.NDArray[np.int64],
    boxes: npt.NDArray[np.int64],
    owners: npt.NDArray[np.int32],
    marks: npt.NDArray[np.uint8],
    known: npt.NDArray[np.uint8],
    refused: int,
    qos_max: int,
    seen: npt.NDArray[np.uint16],
    counts: npt.NDArray[np.int32],
    pairs: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
) -> int:
    """Find the owners of a run's publications, and which of them each one gets.

    Boxes of publication i are boxes[offsets[i]:offsets[i + 1]]; only those that are `known` count.
    `found` gets three numbers for each owner: the owner, the QoS, and where its rows end in `rows`.
    Return how many owners there are, or -1 if one has to be looked at alone: it has a mark among
    `refused`, or gets publications at several QoS up to `qos_max`.

    `seen` and `counts` are all zeros before and after. `pairs`, `rows` and a third of `found` have
    room for as many as there are boxes.
    """
    there = np.uint16(1 << MARKS)
    count = 0
    owners_found = 0
    is_fine = True
    for row in range(len(offsets) - 1):
        if not known[row]:
            continue
        first = count
        for i in range(offsets[row], offsets[row + 1]):
            box = boxes[i]
            owner = owners[box]
            if seen[owner] == 0:
                pairs[count] = owner
                count += 1
            seen[owner] |= there | marks[box]
        for i in range(first, count):
            owner = pairs[i]
            mark = int(seen[owner] & ~there)
            seen[owner] = 0
            qos = min(2 if mark & 2 else mark & 1, qos_max)
            if mark & refused:
                is_fine = False
            pairs[i] = owner << 32 | qos << 24 | row
            if counts[owner] == 0:
                found[3 * owners_found] = owner
                found[3 * owners_found + 1] = qos
                owners_found += 1
            counts[owner] += 1
    at = 0
    for i in range(owners_found):
        owner = found[3 * i]
        at += counts[owner]
        found[3 * i + 2] = at
        counts[owner] = at - counts[owner]  # where its rows begin
    for i in range(count):
        owner = pairs[i] >> 32
        rows[counts[owner]] = pairs[i] & 0xFF_FFFF
        counts[owner] += 1
    for i in range(owners_found):
        counts[found[3 * i]] = 0
    if is_fine:
        # An owner's QoS is that of its first publication: are all others the same?
        for i in range(owners_found):
            seen[found[3 * i]] = found[3 * i + 1]
        for i in range(count):
            if pairs[i] >> 24 & 0xFF != seen[pairs[i] >> 32]:
                is_fine = False
        for i in range(owners_found):
            seen[found[3 * i]] = 0
    return owners_found if is_fine else -1
