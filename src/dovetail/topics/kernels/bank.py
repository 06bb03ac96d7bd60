"""Search many sketches at once: bit-sliced, one bit position of all sketches in a word.

Lane p of slice b is bit b of sketch p. The search is the one in `lines`, with a set of lanes in
place of a yes or no: a node's lanes are the sketches in which the node exists. A lane that has
found its match leaves the search.

Slices are 1 to 8 bytes wide, so that a few sketches do not take the memory of 64. They lie in an
array of bytes, so that one kernel reads all widths: it loads eight bytes and masks them with
`used`, the lanes that are there. PADDING bytes follow the last slice.
"""

from typing import NamedTuple

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
    """Return the address of a question's slice in a word of the line."""
    return line_at + (U64(64) * word + spot(spots, code, word)) * width


@inlined
def _lanes(line_at: np.uint64, width: np.uint64, spots: np.uint64, code: np.uint64) -> np.uint64:
    """Return the sketches in which all eight bits are set. Four mostly suffice to say none.

    Lanes beyond the width belong to other slices; the caller's set has none of them.
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


class _BankSearch(NamedTuple):
    """A bank, the bound of a search in it, and room for the levels and stacks of some topics."""

    slices_at: np.uint64
    width: np.uint64
    lines: np.uint64
    used: np.uint64
    probes_max: np.uint64
    levels: Words
    stack: Words
    stack_level: Words
    stack_lanes: Words


@inlined
def _line_at(search: _BankSearch, node: np.uint64) -> np.uint64:
    return search.slices_at + scale(node, search.lines) * U64(LINE_BITS) * search.width


@inlined
def _sealed(search: _BankSearch, node: np.uint64, lanes: np.uint64) -> np.uint64:
    """Return the lanes, of those that say yes at a node, in which the node has a seal too."""
    if lanes == _ZERO:
        return lanes
    seal = seal_of(node)
    return lanes & _lanes(_line_at(search, seal), search.width, spots_of(seal), _EXISTS)


@inlined
def _push(
    search: _BankSearch,
    node: np.uint64,
    level: np.uint64,
    lanes: np.uint64,
    depth: np.uint64,
    top: np.uint64,
) -> np.uint64:
    line_at = _line_at(search, node)
    spots = spots_of(node)
    code = _ENDS if level == depth else _EXISTS
    for i in range(LINE_WORDS):
        prefetch(_at(line_at, search.width, spots, code, U64(i)))
    search.stack[top] = node
    search.stack_level[top] = level
    search.stack_lanes[top] = lanes
    return top + _ONE


@inlined
def _run(
    search: _BankSearch,
    at: np.uint64,
    depth: np.uint64,
    top: np.uint64,
    probes: np.uint64,
    node: np.uint64,
    level: np.uint64,
    lanes: np.uint64,
    found: np.uint64,
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Search as in `lines`. Past the bound, all lanes that are left count as found."""
    while probes <= search.probes_max:
        line_at = _line_at(search, node)
        spots = spots_of(node)
        ended = lanes & _lanes(line_at, search.width, spots, _HAS_MULTI)
        found |= _sealed(search, node, ended)
        lanes &= ~found
        if lanes == _ZERO:
            return found, top, probes
        literal = child(node, search.levels[at + level])
        node = child(node, SINGLE_LEVEL)
        level += _ONE
        top = _push(search, literal, level, lanes, depth, top)
        if level == depth:
            ended = lanes & _lanes(line_at, search.width, spots, _SECOND_ENDS)
            return found | _sealed(search, node, ended), top, probes
        lanes &= _lanes(line_at, search.width, spots, _HAS_SINGLE)
        if lanes == _ZERO:
            return found, top, probes

        ended = lanes & _lanes(line_at, search.width, spots, _SECOND_HAS_MULTI)
        found |= _sealed(search, node, ended)
        lanes &= ~found
        if lanes == _ZERO:
            return found, top, probes
        literal = child(node, search.levels[at + level])
        node = child(node, SINGLE_LEVEL)
        level += _ONE
        top = _push(search, literal, level, lanes, depth, top)
        if level < depth:
            lanes &= _lanes(line_at, search.width, spots, _SECOND_HAS_SINGLE)
            if lanes == _ZERO:
                return found, top, probes
        probes += _ONE
        if level == depth:
            lanes &= _lanes(_line_at(search, node), search.width, spots_of(node), _ENDS)
            return found | _sealed(search, node, lanes), top, probes
    return found | lanes, top, probes


@inlined
def _drain(
    search: _BankSearch,
    at: np.uint64,
    depth: np.uint64,
    top: np.uint64,
    probes: np.uint64,
    found: np.uint64,
) -> np.uint64:
    while top > at:
        top -= _ONE
        lanes = search.stack_lanes[top] & ~found
        if lanes == _ZERO:
            continue
        if probes >= search.probes_max:
            return search.used
        node = search.stack[top]
        level = search.stack_level[top]
        probes += _ONE
        line_at = _line_at(search, node)
        spots = spots_of(node)
        if level == depth:
            ended = lanes & _lanes(line_at, search.width, spots, _ENDS)
            found |= _sealed(search, node, ended)
        else:
            lanes &= _lanes(line_at, search.width, spots, _EXISTS)
            if lanes != _ZERO:
                found, top, probes = _run(search, at, depth, top, probes, node, level, lanes, found)
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
    """Find which of the `used` lanes may match each topic. Past `probes_max` lines: all of them."""
    rows = len(offsets) - 1
    room = levels_room(offsets)
    block = min(block_size(rows, room), BANK_BLOCK_TOPICS)
    levels = np.empty(block * room, np.uint64)
    search = _BankSearch(
        address_of(slices),
        width,
        lines,
        used,
        U64(probes_max),
        levels,
        np.empty(block * room, np.uint64),
        np.empty(block * room, np.uint64),
        np.empty(block * room, np.uint64),
    )
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
                tops[i] = _push(search, literal, _ONE, used, depths[i], at)
            else:
                found[first + i], tops[i], probes[i] = _run(
                    search, at, depths[i], at, _ONE, ROOT, _ZERO, used, _ZERO
                )
        for i in range(count):
            found[first + i] = _drain(
                search, U64(i * room), depths[i], tops[i], probes[i], found[first + i]
            )


@kernel
def put_words(slices: Slices, width: int, lane: int, words: Words) -> None:
    """Write a sketch into its lane; no other lane changes."""
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
    """Read the sketch of a lane, or its first words, into `words`."""
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
def apply_lane_delta(
    slices: Slices,
    width: int,
    lane: int,
    lines: np.uint64,
    present: Words,
    gone: Words,
    cleared: Words,
) -> None:
    """Apply a delta to one lane, as `ledger.apply_delta` does to a sketch."""
    bit = np.uint8(1 << (lane % 8))
    place = U64(lane // 8)
    for k in range(len(gone)):
        for i in range(LINE_WORDS):
            if cleared[k] >> U64(i) & _ONE == _ONE:
                slices[_slice_of(gone[k], lines, U64(i)) * U64(width) + place] &= ~bit
    for k in range(len(present)):
        for i in range(LINE_WORDS):
            slices[_slice_of(present[k], lines, U64(i)) * U64(width) + place] |= bit
