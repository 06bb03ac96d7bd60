"""Many sketches searched at once: bit-sliced, one bit position of all of them in a word.

Lane p of slice b is bit b of sketch p. The search is the one in `lines`, with a set of lanes in
place of a yes or no: a node's lanes are the sketches in which it exists, and a lane that has found
its match takes no further part.

Slices are 1 to 8 bytes wide, so that a few sketches do not take the memory of 64, and lie in
an array of bytes, so that one kernel reads all widths: eight bytes, of which `used` leaves the
lanes that are there. PADDING bytes follow the last slice.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inlined, kernel
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
    load_u64,
    prefetch,
    scale,
)
from dovetail.topics.kernels.lines import (
    ENDS,
    EXISTS,
    HAS_MULTI,
    HAS_SINGLE,
    LINE_BITS,
    LINE_WORDS,
    SECOND,
    code_of,
    seal_of,
    spot,
    spots_of,
)
from dovetail.topics.limits import BANK_BLOCK_TOPICS

Slices = npt.NDArray[np.uint8]

PADDING = 8

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
def _at(
    line_at: np.uint64, width: np.uint64, spots: np.uint64, code: np.uint64, word: np.uint64
) -> np.uint64:
    """The address of a question's slice in a word of the line."""
    return line_at + (U64(64) * word + spot(spots, code, word)) * width


@inlined
def _lanes(line_at: np.uint64, width: np.uint64, spots: np.uint64, code: np.uint64) -> np.uint64:
    """The sketches in which all eight bits are set. Four suffice to say none, mostly.

    Lanes beyond the width are those of other slices; the caller's set has none of them.
    """
    lanes = (
        load_u64(_at(line_at, width, spots, code, U64(0)))
        & load_u64(_at(line_at, width, spots, code, U64(1)))
        & load_u64(_at(line_at, width, spots, code, U64(2)))
        & load_u64(_at(line_at, width, spots, code, U64(3)))
    )
    if lanes == _ZERO:
        return lanes
    return (
        lanes
        & load_u64(_at(line_at, width, spots, code, U64(4)))
        & load_u64(_at(line_at, width, spots, code, U64(5)))
        & load_u64(_at(line_at, width, spots, code, U64(6)))
        & load_u64(_at(line_at, width, spots, code, U64(7)))
    )


@inlined
def _line_at(
    slices_at: np.uint64, width: np.uint64, node: np.uint64, lines: np.uint64
) -> np.uint64:
    return slices_at + scale(node, lines) * U64(LINE_BITS) * width


@inlined
def _sealed(
    slices_at: np.uint64,
    width: np.uint64,
    lines: np.uint64,
    node: np.uint64,
    lanes: np.uint64,
) -> np.uint64:
    """Of the lanes that say yes at a node, those that say so twice."""
    if lanes == _ZERO:
        return lanes
    seal = seal_of(node)
    return lanes & _lanes(_line_at(slices_at, width, seal, lines), width, spots_of(seal), _EXISTS)


@inlined
def _push(
    slices_at: np.uint64,
    width: np.uint64,
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
    line_at = _line_at(slices_at, width, node, lines)
    spots = spots_of(node)
    code = _ENDS if level == depth else _EXISTS
    for i in range(LINE_WORDS):
        prefetch(_at(line_at, width, spots, code, U64(i)))
    stack[top] = node
    stack_level[top] = level
    stack_lanes[top] = lanes
    return top + _ONE


@inlined
def _run(
    slices_at: np.uint64,
    width: np.uint64,
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
    probes_max: np.uint64,
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """As in `lines`. Past its bound, all lanes that still take part are found."""
    while probes <= probes_max:
        line_at = _line_at(slices_at, width, node, lines)
        spots = spots_of(node)
        ended = lanes & _lanes(line_at, width, spots, _HAS_MULTI)
        found |= _sealed(slices_at, width, lines, node, ended)
        lanes &= ~found
        if lanes == _ZERO:
            return found, top, probes
        literal = child(node, levels[at + level])
        node = child(node, SINGLE_LEVEL)
        level += _ONE
        top = _push(
            slices_at,
            width,
            lines,
            literal,
            level,
            lanes,
            depth,
            stack,
            stack_level,
            stack_lanes,
            top,
        )
        if level == depth:
            ended = lanes & _lanes(line_at, width, spots, _SECOND_ENDS)
            return found | _sealed(slices_at, width, lines, node, ended), top, probes
        lanes &= _lanes(line_at, width, spots, _HAS_SINGLE)
        if lanes == _ZERO:
            return found, top, probes

        ended = lanes & _lanes(line_at, width, spots, _SECOND_HAS_MULTI)
        found |= _sealed(slices_at, width, lines, node, ended)
        lanes &= ~found
        if lanes == _ZERO:
            return found, top, probes
        literal = child(node, levels[at + level])
        node = child(node, SINGLE_LEVEL)
        level += _ONE
        top = _push(
            slices_at,
            width,
            lines,
            literal,
            level,
            lanes,
            depth,
            stack,
            stack_level,
            stack_lanes,
            top,
        )
        if level < depth:
            lanes &= _lanes(line_at, width, spots, _SECOND_HAS_SINGLE)
            if lanes == _ZERO:
                return found, top, probes
        probes += _ONE
        if level == depth:
            lanes &= _lanes(_line_at(slices_at, width, node, lines), width, spots_of(node), _ENDS)
            return found | _sealed(slices_at, width, lines, node, lanes), top, probes
    return found | lanes, top, probes


@inlined
def _drain(
    slices_at: np.uint64,
    width: np.uint64,
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
        line_at = _line_at(slices_at, width, node, lines)
        spots = spots_of(node)
        if level == depth:
            ended = lanes & _lanes(line_at, width, spots, _ENDS)
            found |= _sealed(slices_at, width, lines, node, ended)
        else:
            lanes &= _lanes(line_at, width, spots, _EXISTS)
            if lanes != _ZERO:
                found, top, probes = _run(
                    slices_at,
                    width,
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
                    probes_max,
                )
    return found


@kernel
def search_bank(
    slices: Slices,
    width: np.uint64,
    lines: np.uint64,
    used: np.uint64,
    data: Bytes,
    offsets: Offsets,
    seed: np.uint64,
    probes_max: int,
    found: Words,
) -> None:
    """Which of the `used` lanes each topic may concern. Past `probes_max` lines: all of them."""
    slices_at = address_of(slices)
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
                    slices_at,
                    width,
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
                    slices_at,
                    width,
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
                    U64(probes_max),
                )
        for i in range(count):
            found[first + i] = _drain(
                slices_at,
                width,
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
def put_words(slices: Slices, width: int, lane: int, words: Words) -> None:
    """A sketch into its lane; no other lane is touched."""
    bit = np.uint8(1 << (lane % 8))
    at = lane // 8
    for w in range(len(words)):
        word = words[w]
        for _ in range(64):
            if word & _ONE == _ONE:
                slices[at] |= bit
            else:
                slices[at] &= ~bit
            word >>= _ONE
            at += width


@kernel
def take_words(slices: Slices, width: int, lane: int, words: Words) -> None:
    """The sketch of a lane as words, or the first of them."""
    shift = np.uint8(lane % 8)
    at = lane // 8
    for w in range(len(words)):
        word = _ZERO
        for i in range(64):
            word |= U64(slices[at] >> shift & np.uint8(1)) << U64(i)
            at += width
        words[w] = word


@inlined
def _slice_of(key: np.uint64, lines: np.uint64, word: np.uint64) -> np.uint64:
    bit = U64(64) * word + spot(spots_of(key), code_of(key), word)
    return scale(key, lines) * U64(LINE_BITS) + bit


@kernel
def follow_lane(
    slices: Slices,
    width: int,
    lane: int,
    lines: np.uint64,
    present: Words,
    gone: Words,
    cleared: Words,
) -> None:
    """As `follow` in `ledger`, for one lane."""
    bit = np.uint8(1 << (lane % 8))
    place = U64(lane // 8)
    for k in range(len(gone)):
        for i in range(LINE_WORDS):
            if cleared[k] >> U64(i) & _ONE == _ONE:
                slices[_slice_of(gone[k], lines, U64(i)) * U64(width) + place] &= ~bit
    for k in range(len(present)):
        for i in range(LINE_WORDS):
            slices[_slice_of(present[k], lines, U64(i)) * U64(width) + place] |= bit
