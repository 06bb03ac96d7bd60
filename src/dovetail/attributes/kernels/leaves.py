"""Store boxes in leaves of up to 64 neighbours, by their sort keys: a B-tree of one level.

    order, firsts   the leaves by key, and the lowest key that a leaf takes (of the first leaf: 0)
    used            which lanes of a leaf have a box
    codes           for each leaf and dimension, 64 lower codes and 64 upper ones; a free lane has
                    codes that no value is between
    edges           for each lane the true borders: lower ones, then upper ones
    slot_of, kinds  for each lane
    cover           for each leaf and dimension which cells its boxes cover; then one word for the
                    dimensions in which it has an open box
    rows            the same transposed, for searches: for each dimension and cell one bit a leaf,
                    and a row for values that are missing
    place_of        for each slot its place (leaf * 64 + lane)
    free_leaves     leaves without a box
    free_slots      slots without a box
    state           counts, below

A full leaf is split where the highest bit of its keys changes, among the cuts that leave enough
boxes in both parts. So leaves become cells of the curve, and cells are compact; halves are not.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.kernels.codes import (
    CELLS,
    OPEN_ABOVE,
    OPEN_BELOW,
    Floats,
    cells_of,
    high_code,
    key_of,
    low_code,
)
from dovetail.attributes.kernels.lanes import LANES, count_ones, trailing_zeros
from dovetail.attributes.limits import LEAF_BOXES_MIN
from dovetail.compilation import inlined, inner_kernel, kernel

Words = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.int16]
Kinds = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int32]
State = npt.NDArray[np.int64]

ROWS = CELLS + 1
"""Rows of a dimension: one a cell, and one for values that are missing."""

# Indexes of `state`: leaves in order; free leaves; free slots; boxes.
LEAVES, FREE_LEAVES, FREE_SLOTS, BOXES = 0, 1, 2, 3
STATES = 4

NO_NUMBER = -1
"""Returned by `insert` for a border that is NaN."""


class LeafArrays(NamedTuple):
    """The arrays above, as one argument of inner kernels and of calls that are rare."""

    origins: Floats
    scales: Floats
    codes: Codes
    edges: Floats
    slot_of: Numbers
    kinds: Kinds
    place_of: Numbers
    used: Words
    cover: Words
    rows: Words
    order: Numbers
    firsts: Words
    free_leaves: Numbers
    state: State


_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@inlined
def _flip(rows: Words, words: int, leaf: int, first_row: int, changed: np.uint64) -> None:
    bit = _ONE << np.uint64(leaf & 63)
    while changed != 0:
        row = first_row + np.int64(trailing_zeros(changed))
        rows[row * words + (leaf >> 6)] ^= bit
        changed &= changed - _ONE


@inlined
def _set_cover(
    cover: Words, rows: Words, words: int, leaf: int, dimensions: int, j: int, now: np.uint64
) -> None:
    at = leaf * (dimensions + 1) + j
    if now != cover[at]:
        _flip(rows, words, leaf, j * ROWS, cover[at] ^ now)
        cover[at] = now


@inlined
def _set_open(
    cover: Words, rows: Words, words: int, leaf: int, dimensions: int, now: np.uint64
) -> None:
    at = leaf * (dimensions + 1) + dimensions
    changed = cover[at] ^ now
    cover[at] = now
    while changed != 0:
        j = np.int64(trailing_zeros(changed))
        _flip(rows, words, leaf, j * ROWS + CELLS, _ONE)
        changed &= changed - _ONE


@inner_kernel
def _cover_again(leaves: LeafArrays, leaf: int) -> None:
    """Compute the cover of a leaf again, after boxes have left it."""
    codes, used, cover, rows = leaves.codes, leaves.used, leaves.cover, leaves.rows
    dimensions = len(leaves.origins)
    words = len(used) >> 6
    opens = np.uint64(0)
    for j in range(dimensions):
        now = np.uint64(0)
        at = (leaf * dimensions + j) * 2 * LANES
        rest = used[leaf]
        while rest != 0:
            lane = np.int64(trailing_zeros(rest))
            rest &= rest - _ONE
            low, high = np.int64(codes[at + lane]), np.int64(codes[at + LANES + lane])
            now |= cells_of(low, high)
            if low == OPEN_BELOW and high == OPEN_ABOVE:
                opens |= _ONE << np.uint64(j)
        _set_cover(cover, rows, words, leaf, dimensions, j, now)
    _set_open(cover, rows, words, leaf, dimensions, opens)


@inlined
def _find(firsts: Words, leaves: int, key: np.uint64) -> int:
    """Return the position in the order of the last leaf that begins at or before this key."""
    low, high = 0, leaves
    while high - low > 1:
        middle = (low + high) >> 1
        if firsts[middle] <= key:
            low = middle
        else:
            high = middle
    return low


@inlined
def _clear(codes: Codes, leaf: int, lane: int, dimensions: int) -> None:
    for j in range(dimensions):
        at = (leaf * dimensions + j) * 2 * LANES + lane
        codes[at] = OPEN_ABOVE
        codes[at + LANES] = OPEN_BELOW


@inlined
def _move(leaves: LeafArrays, source: int, target: int) -> None:
    """Move a box from lane to lane. The caller updates the covers."""
    codes, edges, slot_of, kinds = leaves.codes, leaves.edges, leaves.slot_of, leaves.kinds
    place_of, used = leaves.place_of, leaves.used
    dimensions = len(leaves.origins)
    for j in range(dimensions):
        here = ((source >> 6) * dimensions + j) * 2 * LANES + (source & 63)
        there = ((target >> 6) * dimensions + j) * 2 * LANES + (target & 63)
        codes[there] = codes[here]
        codes[there + LANES] = codes[here + LANES]
    for j in range(2 * dimensions):
        edges[target * 2 * dimensions + j] = edges[source * 2 * dimensions + j]
    slot_of[target] = slot_of[source]
    kinds[target] = kinds[source]
    place_of[slot_of[target]] = target
    used[target >> 6] |= _ONE << np.uint64(target & 63)
    used[source >> 6] &= ~(_ONE << np.uint64(source & 63))
    _clear(codes, source >> 6, source & 63, dimensions)


@inner_kernel
def cut_position(keys: Words, more: bool) -> int:
    """Return where to cut sorted keys in two: before the highest bit that changes.

    If `more` are coming in order, the left part stays fuller: the right one will fill.
    """
    first, last = LEAF_BOXES_MIN, len(keys) - LEAF_BOXES_MIN
    if more:
        first, last = len(keys) >> 1, len(keys) - 1
    best, highest = last, np.uint64(0)
    for i in range(first, last + 1):
        changed = keys[i] ^ keys[i - 1]
        if changed > highest:
            best, highest = i, changed
    return best


@inner_kernel
def _split(leaves: LeafArrays, at: int, more: bool) -> None:
    """Move the upper part of the full leaf at this place of the order to a new leaf behind it."""
    order, firsts, state = leaves.order, leaves.firsts, leaves.state
    dimensions = len(leaves.origins)
    leaf = np.int64(order[at])
    keys = np.empty(LANES, np.uint64)
    lanes = np.empty(LANES, np.int64)
    # An insertion sort: for so few keys NumPy's costs more to compile than it saves.
    for lane in range(LANES):
        edge = (leaf * LANES + lane) * 2 * dimensions
        key = key_of(leaves.edges, edge, leaves.origins, leaves.scales)
        i = lane
        while i > 0 and keys[i - 1] > key:
            keys[i], lanes[i] = keys[i - 1], lanes[i - 1]
            i -= 1
        keys[i], lanes[i] = key, lane
    cut = cut_position(keys, more)
    state[FREE_LEAVES] -= 1
    new = np.int64(leaves.free_leaves[state[FREE_LEAVES]])
    for i in range(cut, LANES):
        source, target = leaf * LANES + lanes[i], new * LANES + i - cut
        _move(leaves, source, target)
    _cover_again(leaves, leaf)
    _cover_again(leaves, new)
    for i in range(state[LEAVES], at + 1, -1):
        order[i] = order[i - 1]
        firsts[i] = firsts[i - 1]
    order[at + 1] = new
    firsts[at + 1] = keys[cut]
    state[LEAVES] += 1


@kernel
def insert(
    origins: Floats,
    scales: Floats,
    codes: Codes,
    edges: Floats,
    slot_of: Numbers,
    kinds: Kinds,
    place_of: Numbers,
    used: Words,
    cover: Words,
    rows: Words,
    order: Numbers,
    firsts: Words,
    free_leaves: Numbers,
    free_slots: Numbers,
    state: State,
    boxes: Floats,
    new_kinds: Kinds,
    sequence: npt.NDArray[np.int64],
    start: int,
    slots: npt.NDArray[np.int64],
) -> int:
    """Insert boxes in this sequence. Return the position at which leaves ran out.

    There must be as many free slots as boxes, and one leaf in the order. NO_NUMBER: a border is
    NaN, and nothing was inserted.
    """
    leaves = LeafArrays(
        origins, scales, codes, edges, slot_of, kinds, place_of, used, cover, rows,
        order, firsts, free_leaves, state,
    )  # fmt: skip
    dimensions = len(origins)
    words = len(used) >> 6
    for i in range(len(boxes)):
        if np.isnan(boxes[i]):
            return NO_NUMBER
    for i in range(start, len(sequence)):
        box = sequence[i]
        source = box * 2 * dimensions
        key = key_of(boxes, source, origins, scales)
        at = _find(firsts, state[LEAVES], key)
        if used[order[at]] == _ALL:
            if state[FREE_LEAVES] == 0:
                return i
            more = False
            if i + LANES // 2 < len(sequence):
                ahead = sequence[i + LANES // 2] * 2 * dimensions
                last = at + 1 == state[LEAVES]
                more = last or key_of(boxes, ahead, origins, scales) < firsts[at + 1]
            _split(leaves, at, more)
            at = _find(firsts, state[LEAVES], key)
        leaf = np.int64(order[at])
        lane = np.int64(trailing_zeros(~used[leaf]))
        place = leaf * LANES + lane
        used[leaf] |= _ONE << np.uint64(lane)
        opens = cover[leaf * (dimensions + 1) + dimensions]
        for j in range(dimensions):
            low = low_code(boxes[source + j], origins[j], scales[j])
            high = high_code(boxes[source + dimensions + j], origins[j], scales[j])
            here = (leaf * dimensions + j) * 2 * LANES + lane
            codes[here] = low
            codes[here + LANES] = high
            now = cover[leaf * (dimensions + 1) + j] | cells_of(low, high)
            _set_cover(cover, rows, words, leaf, dimensions, j, now)
            if low == OPEN_BELOW and high == OPEN_ABOVE:
                opens |= _ONE << np.uint64(j)
        _set_open(cover, rows, words, leaf, dimensions, opens)
        for j in range(2 * dimensions):
            edges[place * 2 * dimensions + j] = boxes[source + j]
        state[FREE_SLOTS] -= 1
        slot = free_slots[state[FREE_SLOTS]]
        slot_of[place] = slot
        place_of[slot] = place
        kinds[place] = new_kinds[box]
        slots[box] = slot
        state[BOXES] += 1
    return len(sequence)


@inlined
def _remove(order: Numbers, firsts: Words, state: State, at: int) -> None:
    """Remove a leaf from the order. The leaf before it takes over its range of keys."""
    state[LEAVES] -= 1
    for i in range(at, state[LEAVES]):
        order[i] = order[i + 1]
        firsts[i] = firsts[i + 1]
    firsts[0] = 0


@inner_kernel
def _join(leaves: LeafArrays, leaf: int, key: np.uint64) -> None:
    """Move the boxes of a nearly empty leaf to a neighbour with room, and free the leaf."""
    used, order, firsts, state = leaves.used, leaves.order, leaves.firsts, leaves.state
    at = _find(firsts, state[LEAVES], key)
    while order[at] != leaf:  # equal keys may have several leaves
        at -= 1
    for other in (at - 1, at + 1):
        if other < 0 or other >= state[LEAVES]:
            continue
        taker = np.int64(order[other])
        together = count_ones(used[leaf]) + count_ones(used[taker])
        if together > LANES - LEAF_BOXES_MIN and used[leaf] != 0:
            continue
        while used[leaf] != 0:
            source = leaf * LANES + np.int64(trailing_zeros(used[leaf]))
            target = taker * LANES + np.int64(trailing_zeros(~used[taker]))
            _move(leaves, source, target)
        _cover_again(leaves, leaf)
        _cover_again(leaves, taker)
        # The later leaf of the two leaves the order: the earlier one takes over its keys.
        if other > at:
            order[at] = taker
        _remove(order, firsts, state, max(at, other))
        leaves.free_leaves[state[FREE_LEAVES]] = leaf
        state[FREE_LEAVES] += 1
        return


@kernel
def discard(
    origins: Floats,
    scales: Floats,
    codes: Codes,
    edges: Floats,
    slot_of: Numbers,
    kinds: Kinds,
    place_of: Numbers,
    used: Words,
    cover: Words,
    rows: Words,
    order: Numbers,
    firsts: Words,
    free_leaves: Numbers,
    free_slots: Numbers,
    state: State,
    slots: npt.NDArray[np.int64],
) -> int:
    """Take boxes out. Return how many: fewer than asked for if a slot has none."""
    leaves = LeafArrays(
        origins, scales, codes, edges, slot_of, kinds, place_of, used, cover, rows,
        order, firsts, free_leaves, state,
    )  # fmt: skip
    dimensions = len(origins)
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0 or slot >= len(place_of) or place_of[slot] < 0:
            return i
        place = np.int64(place_of[slot])
        leaf = place >> 6
        place_of[slot] = -1
        free_slots[state[FREE_SLOTS]] = slot
        state[FREE_SLOTS] += 1
        state[BOXES] -= 1
        used[leaf] &= ~(_ONE << np.uint64(place & 63))
        _clear(codes, leaf, place & 63, dimensions)
        _cover_again(leaves, leaf)
        if count_ones(used[leaf]) < LEAF_BOXES_MIN:
            key = key_of(edges, place * 2 * dimensions, origins, scales)
            _join(leaves, leaf, key)
    return len(slots)


@kernel
def move_leaves(leaves: int, old: LeafArrays, new: LeafArrays) -> None:
    """Move all leaves to other arrays, in their order, so that neighbours lie side by side."""
    order, place_of, used = old.order, old.place_of, old.used
    dimensions = len(old.origins)
    words = len(new.used) >> 6
    size = 2 * dimensions * LANES  # of a leaf: codes, and edges
    for i in range(leaves):
        leaf = np.int64(order[i])
        for k in range(size):
            new.codes[i * size + k] = old.codes[leaf * size + k]
            new.edges[i * size + k] = old.edges[leaf * size + k]
        for lane in range(LANES):
            place, new_place = leaf * LANES + lane, i * LANES + lane
            new.slot_of[new_place] = old.slot_of[place]
            new.kinds[new_place] = old.kinds[place]
            if used[leaf] >> np.uint64(lane) & _ONE:
                place_of[old.slot_of[place]] = new_place
        new.used[i] = used[leaf]
        for j in range(dimensions):
            now = old.cover[leaf * (dimensions + 1) + j]
            _set_cover(new.cover, new.rows, words, i, dimensions, j, now)
        now = old.cover[leaf * (dimensions + 1) + dimensions]
        _set_open(new.cover, new.rows, words, i, dimensions, now)
