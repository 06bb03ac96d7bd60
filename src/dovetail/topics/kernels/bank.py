"""Many sketches searched at once: bit-sliced, one bit position of all of them in a word.

Lane p of `slices[b]` is bit b of sketch p. The search is the one in `lines`, with a set of lanes
instead of a yes or no: a node's lanes are the sketches in which it exists, and a lane that has
found its match takes no further part. 8, 16, 32 or 64 lanes a word, so that a few sketches do not
take the memory of 64.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.config import BANK_BLOCK_TOPICS
from dovetail.topics.kernels.compiling import inlined, kernel
from dovetail.topics.kernels.hashing import (
    ROOT,
    SINGLE_LEVEL,
    U64,
    Bytes,
    Offsets,
    Words,
    address_of,
    block_size,
    child,
    hash_levels,
    is_reserved,
    levels_room,
    prefetch,
)
from dovetail.topics.kernels.lines import (
    ENDS,
    EXISTS,
    HAS_MULTI,
    HAS_SINGLE,
    LINE_BITS,
    LINE_WORDS,
    SECOND,
    line_of,
    spot,
    spots_of,
)

Slices = npt.NDArray[Any]

_ZERO = U64(0)
_ONE = U64(1)
# As constants of the loops below, so that the shifts of each question are known when compiling.
_EXISTS = U64(EXISTS)
_HAS_MULTI = U64(HAS_MULTI)
_HAS_SINGLE = U64(HAS_SINGLE)
_ENDS = U64(ENDS)
_SECOND_HAS_MULTI = U64(SECOND + HAS_MULTI)
_SECOND_HAS_SINGLE = U64(SECOND + HAS_SINGLE)
_SECOND_ENDS = U64(SECOND + ENDS)


@inlined
def _at(line: np.uint64, spots: np.uint64, code: np.uint64, word: int) -> np.uint64:
    return line + U64(64 * word) + spot(spots, code, word)


@inlined
def _lanes(slices: Slices, line: np.uint64, spots: np.uint64, code: np.uint64) -> np.uint64:
    """The sketches in which all eight bits are set. Four suffice to say none, mostly."""
    lanes = U64(
        slices[_at(line, spots, code, 0)]
        & slices[_at(line, spots, code, 1)]
        & slices[_at(line, spots, code, 2)]
        & slices[_at(line, spots, code, 3)]
    )
    if lanes == _ZERO:
        return lanes
    return lanes & U64(
        slices[_at(line, spots, code, 4)]
        & slices[_at(line, spots, code, 5)]
        & slices[_at(line, spots, code, 6)]
        & slices[_at(line, spots, code, 7)]
    )


@inlined
def _line(node: np.uint64, lines: np.uint64) -> np.uint64:
    return line_of(node, lines) * U64(LINE_BITS)


@inlined
def _push(
    slices: Slices,
    lines: np.uint64,
    node: np.uint64,
    level: np.uint64,
    lanes: np.uint64,
    depth: np.uint64,
    stack: Words,
    stack_level: Words,
    stack_lanes: Words,
    top: np.uint64,
) -> np.uint64:
    line = _line(node, lines)
    spots = spots_of(node)
    code = _ENDS if level == depth else _EXISTS
    slices_at = address_of(slices)
    width = U64(slices.itemsize)
    for i in range(LINE_WORDS):
        prefetch(slices_at + _at(line, spots, code, i) * width)
    stack[top] = node
    stack_level[top] = level
    stack_lanes[top] = lanes
    return top + _ONE


@inlined
def _run(
    slices: Slices,
    lines: np.uint64,
    levels: Words,
    at: np.uint64,
    depth: np.uint64,
    stack: Words,
    stack_level: Words,
    stack_lanes: Words,
    top: np.uint64,
    probes: np.uint64,
    node: np.uint64,
    level: np.uint64,
    lanes: np.uint64,
    found: np.uint64,
) -> tuple[np.uint64, np.uint64, np.uint64]:
    while True:
        line = _line(node, lines)
        spots = spots_of(node)
        found |= lanes & _lanes(slices, line, spots, _HAS_MULTI)
        lanes &= ~found
        if lanes == _ZERO:
            return found, top, probes
        literal = child(node, levels[at + level])
        node = child(node, SINGLE_LEVEL)
        level += _ONE
        top = _push(
            slices, lines, literal, level, lanes, depth, stack, stack_level, stack_lanes, top
        )
        if level == depth:
            return found | (lanes & _lanes(slices, line, spots, _SECOND_ENDS)), top, probes
        lanes &= _lanes(slices, line, spots, _HAS_SINGLE)
        if lanes == _ZERO:
            return found, top, probes

        found |= lanes & _lanes(slices, line, spots, _SECOND_HAS_MULTI)
        lanes &= ~found
        if lanes == _ZERO:
            return found, top, probes
        literal = child(node, levels[at + level])
        node = child(node, SINGLE_LEVEL)
        level += _ONE
        top = _push(
            slices, lines, literal, level, lanes, depth, stack, stack_level, stack_lanes, top
        )
        if level < depth:
            lanes &= _lanes(slices, line, spots, _SECOND_HAS_SINGLE)
            if lanes == _ZERO:
                return found, top, probes
        probes += _ONE
        if level == depth:
            lanes &= _lanes(slices, _line(node, lines), spots_of(node), _ENDS)
            return found | lanes, top, probes


@inlined
def _drain(
    slices: Slices,
    lines: np.uint64,
    levels: Words,
    at: np.uint64,
    depth: np.uint64,
    stack: Words,
    stack_level: Words,
    stack_lanes: Words,
    top: np.uint64,
    probes: np.uint64,
    probes_max: np.uint64,
    used: np.uint64,
    found: np.uint64,
) -> np.uint64:
    while top > at:
        top -= _ONE
        lanes = stack_lanes[top] & ~found
        if lanes == _ZERO:
            continue
        if probes >= probes_max:
            return used
        node = stack[top]
        level = stack_level[top]
        probes += _ONE
        line = _line(node, lines)
        spots = spots_of(node)
        if level == depth:
            found |= lanes & _lanes(slices, line, spots, _ENDS)
        else:
            lanes &= _lanes(slices, line, spots, _EXISTS)
            if lanes != _ZERO:
                found, top, probes = _run(
                    slices,
                    lines,
                    levels,
                    at,
                    depth,
                    stack,
                    stack_level,
                    stack_lanes,
                    top,
                    probes,
                    node,
                    level,
                    lanes,
                    found,
                )
    return found


@kernel
def search_bank(
    slices: Slices,
    lines: np.uint64,
    used: np.uint64,
    data: Bytes,
    offsets: Offsets,
    seed: np.uint64,
    probes_max: int,
    found: Words,
) -> None:
    """Which of the `used` lanes each topic may concern. Past `probes_max` lines: all of them."""
    rows = len(offsets) - 1
    room = levels_room(offsets)
    block = min(block_size(rows, room), BANK_BLOCK_TOPICS)
    levels = np.empty(block * room, np.uint64)
    stack = np.empty(block * room, np.uint64)
    stack_level = np.empty(block * room, np.uint64)
    stack_lanes = np.empty(block * room, np.uint64)
    depths = np.empty(block, np.uint64)
    tops = np.empty(block, np.uint64)
    probes = np.empty(block, np.uint64)
    for first in range(0, rows, block):
        count = min(block, rows - first)
        for i in range(count):
            start, stop = offsets[first + i], offsets[first + i + 1]
            at = U64(i * room)
            depths[i] = hash_levels(data, start, stop, seed, levels, at)
            if is_reserved(data, start, stop):
                literal = child(ROOT, levels[at])
                found[first + i] = _ZERO
                probes[i] = _ZERO
                tops[i] = _push(
                    slices,
                    lines,
                    literal,
                    _ONE,
                    used,
                    depths[i],
                    stack,
                    stack_level,
                    stack_lanes,
                    at,
                )
            else:
                found[first + i], tops[i], probes[i] = _run(
                    slices,
                    lines,
                    levels,
                    at,
                    depths[i],
                    stack,
                    stack_level,
                    stack_lanes,
                    at,
                    _ONE,
                    ROOT,
                    _ZERO,
                    used,
                    _ZERO,
                )
        for i in range(count):
            found[first + i] = _drain(
                slices,
                lines,
                levels,
                U64(i * room),
                depths[i],
                stack,
                stack_level,
                stack_lanes,
                tops[i],
                probes[i],
                U64(probes_max),
                used,
                found[first + i],
            )


@kernel
def put_words(slices: Slices, lane: int, first_word: int, words: Words) -> None:
    """Words of one sketch, from `first_word` on, into its lane; no other lane is touched."""
    bit = U64(1) << U64(lane)
    for w in range(len(words)):
        start = (first_word + w) * 64
        word = words[w]
        for b in range(64):
            if (word >> U64(b)) & _ONE == _ONE:
                slices[start + b] |= slices.dtype.type(bit)
            else:
                slices[start + b] &= slices.dtype.type(~bit)
