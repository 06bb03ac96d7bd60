"""Leaves of up to 64 boxes that lie together, by their keys: a B-tree of one level.

    order, firsts   the leaves by key, and the key from which on a leaf takes boxes (its first is 0)
    used            which lanes of a leaf have a box
    codes           of a leaf, for each dimension, 64 lower codes and 64 upper ones; a free lane has
                    codes that nothing is between
    edges           of a lane, the true borders: lower ones, then upper ones
    slot_of, kinds  of a lane
    cover           of a leaf, for each dimension, which cells its boxes cover; then one word: in
                    which dimensions it has an open box
    rows            the same turned round, which is what a search reads: for each dimension and cell
                    one bit a leaf, and a row for values that are missing
    place_of        of a slot, its lane (leaf * 64 + lane)
    state           counts, below

A full leaf is split where the highest bit of its keys changes, among the places that leave both
halves enough: so leaves become cells of the curve, and cells are compact, where halves are not.
"""

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
from dovetail.attributes.kernels.lanes import LANES, ones, trailing_zeros
from dovetail.attributes.limits import LEAF_BOXES_MIN
from dovetail.compilation import inlined, kernel, part

Words = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.int16]
Kinds = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int32]
State = npt.NDArray[np.int64]

ROWS = CELLS + 1
"""Of a dimension: one a cell, and one for values that are missing."""

# What `state` counts: leaves in order; leaves and slots that are free; boxes.
LEAVES, FREE_LEAVES, FREE_SLOTS, BOXES = 0, 1, 2, 3
STATES = 4

NO_NUMBER = -1
"""What `insert` returns for a border that is NaN."""

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


@part
def _cover_again(
    codes: Codes, used: Words, cover: Words, rows: Words, leaf: int, dimensions: int
) -> None:
    """After boxes have left: what do those cover that are still there?"""
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
    """Where in the order is the last leaf that begins at or before this key?"""
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
def _move(
    codes: Codes,
    edges: Floats,
    slot_of: Numbers,
    kinds: Kinds,
    place_of: Numbers,
    used: Words,
    dimensions: int,
    source: int,
    target: int,
) -> None:
    """A box from lane to lane; covers are the caller's."""
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


@part
def cut_of(keys: Words, more: bool) -> int:
    """Where to cut sorted keys in two: before the highest bit that changes.

    If many more are coming in their order, the left part is left fuller: the right one will fill.
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


@part
def _split(
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
    state: State,
    at: int,
    more: bool,
) -> None:
    """The full leaf at this place of the order gives its upper part to a new one behind it."""
    dimensions = len(origins)
    leaf = np.int64(order[at])
    keys = np.empty(LANES, np.uint64)
    lanes = np.empty(LANES, np.int64)
    for lane in range(
        LANES
    ):  # in order: for so few NumPy's way costs more to compile than it saves
        key = key_of(edges, (leaf * LANES + lane) * 2 * dimensions, origins, scales)
        i = lane
        while i > 0 and keys[i - 1] > key:
            keys[i], lanes[i] = keys[i - 1], lanes[i - 1]
            i -= 1
        keys[i], lanes[i] = key, lane
    cut = cut_of(keys, more)
    state[FREE_LEAVES] -= 1
    new = np.int64(free_leaves[state[FREE_LEAVES]])
    for i in range(cut, LANES):
        source, target = leaf * LANES + lanes[i], new * LANES + i - cut
        _move(codes, edges, slot_of, kinds, place_of, used, dimensions, source, target)
    _cover_again(codes, used, cover, rows, leaf, dimensions)
    _cover_again(codes, used, cover, rows, new, dimensions)
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
    """Puts boxes in, in this sequence; returns where it stopped for want of a leaf.

    There have to be as many free slots as boxes, and one leaf in the order. NO_NUMBER: nothing is
    put in, as a border is none.
    """
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
            _split(
                origins, scales, codes, edges, slot_of, kinds, place_of, used, cover, rows,
                order, firsts, free_leaves, state, at, more,
            )  # fmt: skip
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
    """A leaf from the order; the one before it takes what it would have taken."""
    state[LEAVES] -= 1
    for i in range(at, state[LEAVES]):
        order[i] = order[i + 1]
        firsts[i] = firsts[i + 1]
    firsts[0] = 0


@part
def _join(
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
    state: State,
    leaf: int,
    key: np.uint64,
    dimensions: int,
) -> None:
    """A leaf that has few boxes left gives them to a neighbour with room, and is free."""
    at = _find(firsts, state[LEAVES], key)
    while order[at] != leaf:  # equal keys may have several leaves
        at -= 1
    for other in (at - 1, at + 1):
        if other < 0 or other >= state[LEAVES]:
            continue
        taker = np.int64(order[other])
        together = ones(used[leaf]) + ones(used[taker])
        if together > LANES - LEAF_BOXES_MIN and used[leaf] != 0:
            continue
        while used[leaf] != 0:
            source = leaf * LANES + np.int64(trailing_zeros(used[leaf]))
            target = taker * LANES + np.int64(trailing_zeros(~used[taker]))
            _move(codes, edges, slot_of, kinds, place_of, used, dimensions, source, target)
        _cover_again(codes, used, cover, rows, leaf, dimensions)
        _cover_again(codes, used, cover, rows, taker, dimensions)
        # The leaf behind goes: what it would have taken goes to the one before it.
        if other > at:
            order[at] = taker
        _remove(order, firsts, state, max(at, other))
        free_leaves[state[FREE_LEAVES]] = leaf
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
    """Takes boxes out; returns how many, which is less than asked for if a slot has none."""
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
        _cover_again(codes, used, cover, rows, leaf, dimensions)
        if ones(used[leaf]) < LEAF_BOXES_MIN:
            key = key_of(edges, place * 2 * dimensions, origins, scales)
            _join(
                codes, edges, slot_of, kinds, place_of, used, cover, rows,
                order, firsts, free_leaves, state, leaf, key, dimensions,
            )  # fmt: skip
    return len(slots)


@kernel
def move_leaves(
    dimensions: int,
    leaves: int,
    order: Numbers,
    codes: Codes,
    edges: Floats,
    slot_of: Numbers,
    kinds: Kinds,
    used: Words,
    cover: Words,
    place_of: Numbers,
    new_codes: Codes,
    new_edges: Floats,
    new_slot_of: Numbers,
    new_kinds: Kinds,
    new_used: Words,
    new_cover: Words,
    new_rows: Words,
) -> None:
    """All leaves to other arrays, in their order, so that neighbours lie side by side there."""
    words = len(new_used) >> 6
    code_count, edge_count = 2 * dimensions * LANES, 2 * dimensions * LANES
    for new in range(leaves):
        leaf = np.int64(order[new])
        for i in range(code_count):
            new_codes[new * code_count + i] = codes[leaf * code_count + i]
        for i in range(edge_count):
            new_edges[new * edge_count + i] = edges[leaf * edge_count + i]
        for lane in range(LANES):
            place, new_place = leaf * LANES + lane, new * LANES + lane
            new_slot_of[new_place] = slot_of[place]
            new_kinds[new_place] = kinds[place]
            if used[leaf] >> np.uint64(lane) & _ONE:
                place_of[slot_of[place]] = new_place
        new_used[new] = used[leaf]
        for j in range(dimensions):
            now = cover[leaf * (dimensions + 1) + j]
            _set_cover(new_cover, new_rows, words, new, dimensions, j, now)
        now = cover[leaf * (dimensions + 1) + dimensions]
        _set_open(new_cover, new_rows, words, new, dimensions, now)
