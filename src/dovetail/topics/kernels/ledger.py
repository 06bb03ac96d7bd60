"""Count the elements of a sketch and the users of each bit, on the side of its owner.

An open-addressed table counts elements (a slot with count 0 is free). So the same filter twice, or
a prefix that a million filters share, is one element to the bits. Each bit has a count of the
elements that set it, so an element that leaves clears only the bits that no other element needs.

Both counts are sticky at their top: a count that was ever full never comes down, and its bits stay
set. That may leave a false positive behind, and cannot make a false negative.

A peer that has only the bits applies deltas of keys. Each element that came or went since the last
delta is either in now, and all its bits are set, or it is not, and the bits that no other element
needs are cleared. Neither the order of changes nor their repetition matters.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inner_kernel, kernel
from dovetail.topics.kernels.bloom import point_after
from dovetail.topics.kernels.hashing import U64, Words, scale
from dovetail.topics.kernels.lines import LINE_BITS, LINE_WORDS, code_of, spot, spots_of
from dovetail.topics.kernels.probing import after, home_of, may_fill

COUNT_TOP = np.uint32(0xFFFFFFFF)
BIT_COUNT_TOP = np.uint8(0xFF)

IN_LINES = 0
"""The number of hashes that stands for a layout in lines. Others are plain Bloom filters."""

Counts = npt.NDArray[np.uint32]
BitCounts = npt.NDArray[np.uint8]

_ONE = U64(1)


@inner_kernel
def positions(key: np.uint64, bits: np.uint64, hashes: int, out: Words) -> int:
    """Write the bits of an element into `out`. Return how many; a plain filter may repeat one."""
    if hashes == IN_LINES:
        start = scale(key, bits // U64(LINE_BITS)) * U64(LINE_BITS)
        spots = spots_of(key)
        for i in range(LINE_WORDS):
            out[i] = start + U64(64 * i) + spot(spots, code_of(key), U64(i))
        return LINE_WORDS
    point = key
    for i in range(hashes):
        out[i] = scale(point, bits)
        point = point_after(point)
    return hashes


@inner_kernel
def find(keys: Words, counts: Counts, key: np.uint64) -> np.uint64:
    """Return the slot of a key, or the free slot where it belongs."""
    slots = U64(len(keys))
    slot = home_of(key, slots)
    while counts[slot] != 0 and keys[slot] != key:
        slot = after(slot, slots)
    return slot


@inner_kernel
def _remove(keys: Words, counts: Counts, hole: np.uint64) -> None:
    slots = U64(len(keys))
    slot = after(hole, slots)
    while counts[slot] != 0:
        if may_fill(hole, slot, home_of(keys[slot], slots)):
            keys[hole] = keys[slot]
            counts[hole] = counts[slot]
            hole = slot
        slot = after(slot, slots)
    counts[hole] = 0


@kernel
def move_table(keys: Words, counts: Counts, new_keys: Words, new_counts: Counts) -> None:
    for i in range(len(keys)):
        if counts[i] != 0:
            slot = find(new_keys, new_counts, keys[i])
            new_keys[slot] = keys[i]
            new_counts[slot] = counts[i]


@kernel
def set_bits(
    words: Words,
    bit_counts: BitCounts,
    bits: np.uint64,
    hashes: int,
    key: np.uint64,
    scratch: Words,
) -> None:
    """Set the bits of an element that is new."""
    for i in range(positions(key, bits, hashes, scratch)):
        position = scratch[i]
        if bit_counts[position] == 0:
            words[position >> U64(6)] |= _ONE << (position & U64(63))
        if bit_counts[position] != BIT_COUNT_TOP:
            bit_counts[position] += np.uint8(1)


@inner_kernel
def _clear_bits(
    words: Words,
    bit_counts: BitCounts,
    bits: np.uint64,
    hashes: int,
    key: np.uint64,
    scratch: Words,
) -> None:
    for i in range(positions(key, bits, hashes, scratch)):
        position = scratch[i]
        if bit_counts[position] == BIT_COUNT_TOP:
            continue
        bit_counts[position] -= np.uint8(1)
        if bit_counts[position] == 0:
            words[position >> U64(6)] &= ~(_ONE << (position & U64(63)))


@kernel
def add_elements(
    elements: Words,
    keys: Words,
    counts: Counts,
    words: Words,
    bit_counts: BitCounts,
    bits: np.uint64,
    hashes: int,
    moved: Words,
) -> int:
    """Count elements in, and write the new ones into `moved`. Return how many. There is room."""
    scratch = np.empty(max(hashes, LINE_WORDS), np.uint64)
    fresh = 0
    for i in range(len(elements)):
        slot = find(keys, counts, elements[i])
        if counts[slot] == 0:
            keys[slot] = elements[i]
            moved[fresh] = elements[i]
            fresh += 1
            set_bits(words, bit_counts, bits, hashes, elements[i], scratch)
        if counts[slot] != COUNT_TOP:
            counts[slot] += np.uint32(1)
    return fresh


@kernel
def count_of(keys: Words, counts: Counts, key: np.uint64) -> int:
    return counts[find(keys, counts, key)]


@kernel
def discard_elements(
    elements: Words,
    keys: Words,
    counts: Counts,
    words: Words,
    bit_counts: BitCounts,
    bits: np.uint64,
    hashes: int,
    moved: Words,
) -> int:
    """Count elements out, and write those that left into `moved`. Return how many. All were in."""
    scratch = np.empty(max(hashes, LINE_WORDS), np.uint64)
    gone = 0
    for i in range(len(elements)):
        slot = find(keys, counts, elements[i])
        if counts[slot] == 0 or counts[slot] == COUNT_TOP:
            continue
        if counts[slot] > 1:
            counts[slot] -= np.uint32(1)
        else:
            _remove(keys, counts, slot)
            moved[gone] = elements[i]
            gone += 1
            _clear_bits(words, bit_counts, bits, hashes, elements[i], scratch)
    return gone


@kernel
def rebuild_bits(
    keys: Words,
    counts: Counts,
    words: Words,
    bit_counts: BitCounts,
    bits: np.uint64,
    hashes: int,
) -> None:
    """Set the bits of all elements of a table in empty bits of another size."""
    scratch = np.empty(max(hashes, LINE_WORDS), np.uint64)
    for i in range(len(keys)):
        if counts[i] != 0:
            set_bits(words, bit_counts, bits, hashes, keys[i], scratch)


@kernel
def classify_moved(
    moved: Words,
    keys: Words,
    counts: Counts,
    words: Words,
    bits: np.uint64,
    hashes: int,
    present: Words,
    gone: Words,
    cleared: Words,
) -> tuple[int, int]:
    """Sort elements that came or went into those that are in now and those that are not.

    For an element that is gone, bit i of `cleared` says that its bit number i is 0. An element
    without such a bit is left out.
    """
    scratch = np.empty(max(hashes, LINE_WORDS), np.uint64)
    here = 0
    away = 0
    for k in range(len(moved)):
        key = moved[k]
        if counts[find(keys, counts, key)] != 0:
            present[here] = key
            here += 1
            continue
        mask = U64(0)
        for i in range(positions(key, bits, hashes, scratch)):
            position = scratch[i]
            if words[position >> U64(6)] >> (position & U64(63)) & _ONE == U64(0):
                mask |= _ONE << U64(i)
        if mask != U64(0):
            gone[away] = key
            cleared[away] = mask
            away += 1
    return here, away


@kernel
def apply_delta(
    words: Words,
    bits: np.uint64,
    hashes: int,
    present: Words,
    gone: Words,
    cleared: Words,
) -> None:
    """Apply a delta to bits without counts. Clearing comes first: what is present wins."""
    scratch = np.empty(max(hashes, LINE_WORDS), np.uint64)
    for k in range(len(gone)):
        for i in range(positions(gone[k], bits, hashes, scratch)):
            if cleared[k] >> U64(i) & _ONE == _ONE:
                words[scratch[i] >> U64(6)] &= ~(_ONE << (scratch[i] & U64(63)))
    for k in range(len(present)):
        for i in range(positions(present[k], bits, hashes, scratch)):
            words[scratch[i] >> U64(6)] |= _ONE << (scratch[i] & U64(63))
