"""What a sketch's owner keeps beside the bits: how often each element is in, and each bit's users.

An open-addressed table counts elements (a slot with count 0 is free), so the same filter twice, or
a prefix that a million filters share, is one element to the bits. Each bit has a count of the
elements that set it, so an element that leaves clears only the bits nobody else needs.

Both counts are sticky at their top: a count that was ever full never comes down, and its bits stay
set. That may leave a false positive behind, and cannot make a false negative.

A peer that has the bits alone follows by keys. Of elements that came or went since it was last
told, those that are in now have all their bits set; of those that are not, the bits that nobody
needs any more are cleared. Neither the order of changes nor their repetition matters for that.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import kernel, part
from dovetail.topics.kernels.bloom import point_after
from dovetail.topics.kernels.hashing import U64, Words, scale
from dovetail.topics.kernels.lines import LINE_BITS, LINE_WORDS, code_of, spot, spots_of
from dovetail.topics.kernels.probing import after, home_of, may_fill

COUNT_TOP = np.uint32(0xFFFFFFFF)
BIT_COUNT_TOP = np.uint8(0xFF)

IN_LINES = 0
"""As a number of hashes: bits are laid out in lines. Otherwise a plain Bloom filter has them."""

Counts = npt.NDArray[np.uint32]
BitCounts = npt.NDArray[np.uint8]

_ONE = U64(1)


@part
def positions(key: np.uint64, bits: np.uint64, hashes: int, out: Words) -> int:
    """The bits of an element; returns how many. A plain filter may name one twice."""
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


@part
def find(keys: Words, counts: Counts, key: np.uint64) -> np.uint64:
    """The slot of a key, or the free one where it belongs."""
    slots = U64(len(keys))
    slot = home_of(key, slots)
    while counts[slot] != 0 and keys[slot] != key:
        slot = after(slot, slots)
    return slot


@part
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
    """An element comes in."""
    for i in range(positions(key, bits, hashes, scratch)):
        position = scratch[i]
        if bit_counts[position] == 0:
            words[position >> U64(6)] |= _ONE << (position & U64(63))
        if bit_counts[position] != BIT_COUNT_TOP:
            bit_counts[position] += np.uint8(1)


@part
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
    """Returns how many elements are new; `moved` has them. The table has room."""
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
    """Returns how many elements left; `moved` has them. All were there."""
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
    """All elements of a table into empty bits of another size."""
    scratch = np.empty(max(hashes, LINE_WORDS), np.uint64)
    for i in range(len(keys)):
        if counts[i] != 0:
            set_bits(words, bit_counts, bits, hashes, keys[i], scratch)


@kernel
def sort_out(
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
    """Of elements that came or went: those that are in, and those that are not.

    Of the latter bit i of `cleared` says that their bit number i is 0; who has none is left out.
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
def follow(
    words: Words,
    bits: np.uint64,
    hashes: int,
    present: Words,
    gone: Words,
    cleared: Words,
) -> None:
    """The same into bits without counts. Clearing comes first: what is present wins."""
    scratch = np.empty(max(hashes, LINE_WORDS), np.uint64)
    for k in range(len(gone)):
        for i in range(positions(gone[k], bits, hashes, scratch)):
            if cleared[k] >> U64(i) & _ONE == _ONE:
                words[scratch[i] >> U64(6)] &= ~(_ONE << (scratch[i] & U64(63)))
    for k in range(len(present)):
        for i in range(positions(present[k], bits, hashes, scratch)):
            words[scratch[i] >> U64(6)] |= _ONE << (scratch[i] & U64(63))
