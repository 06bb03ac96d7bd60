"""Compute the elements of a filter, which a sketch stores: each is a 64-bit key.

An element's bits are a function of its key alone (see `ledger`), so a sketch can be counted, grown
and rebuilt from keys without the filters. Two filters whose keys collide share bits, which costs a
false positive at worst.

BF     the whole filter
BFP    the whole filter (its pattern is kept beside the bits)
prefix every prefix; the last one, where the subscription ends, is marked TERMINAL
lines  the same prefixes as questions that a search asks of a node, and a seal; see `lines`

The filter `p/#` matches the topic `p` too. BF, prefix and lines therefore also mark `p` as an end.
That is one element more, and no query more for any search. BFP has the pattern `#` at p's depth.

A filter's last key is where the filter ends. No other filter has this key, except through the mark
above.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inner_kernel, kernel
from dovetail.topics.kernels.hashing import (
    HASH,
    MULTI_LEVEL,
    PLUS,
    ROOT,
    SINGLE_LEVEL,
    TERMINAL,
    U64,
    Bytes,
    Offsets,
    Words,
    child,
    count_levels,
    hash_levels,
    level_kinds,
)
from dovetail.topics.kernels.lines import (
    ENDS,
    EXISTS,
    HAS_MULTI,
    HAS_SINGLE,
    SECOND,
    element,
    seal_of,
)

BF, BFP, PREFIX, LINES = 0, 1, 2, 3


@inner_kernel
def _whole(kinds: npt.NDArray[np.uint8], levels: Words, depth: int) -> np.uint64:
    node = ROOT
    for i in range(depth):
        if kinds[i] == HASH:
            node = child(node, MULTI_LEVEL)
        elif kinds[i] == PLUS:
            node = child(node, SINGLE_LEVEL)
        else:
            node = child(node, levels[i])
    return node ^ TERMINAL


@inner_kernel
def _prefixes(kinds: npt.NDArray[np.uint8], levels: Words, depth: int, out: Words) -> int:
    node = ROOT
    count = 0
    for i in range(depth):
        if kinds[i] == HASH:
            if i > 0:
                out[count] = node ^ TERMINAL
                count += 1
            node = child(node, MULTI_LEVEL)
        elif kinds[i] == PLUS:
            node = child(node, SINGLE_LEVEL)
        else:
            node = child(node, levels[i])
        out[count] = node ^ TERMINAL if i == depth - 1 else node
        count += 1
    return count


@inner_kernel
def _questions(kinds: npt.NDArray[np.uint8], levels: Words, depth: int, out: Words) -> int:
    node = ROOT
    first = ROOT  # of the line that the node lies in
    place = 0  # 0, or SECOND for its '+' child
    count = 0
    for i in range(depth):
        last = i == depth - 1
        if kinds[i] == HASH:
            if i > 0:
                out[count] = element(first, place + ENDS)
                count += 1
            out[count] = element(seal_of(node), EXISTS)
            out[count + 1] = element(first, place + HAS_MULTI)
            count += 2
            continue
        if kinds[i] == PLUS:
            if not last:
                out[count] = element(first, place + HAS_SINGLE)
                count += 1
            node = child(node, SINGLE_LEVEL)
            place = SECOND - place
            if place == 0:
                first = node
        else:
            node = child(node, levels[i])
            first = node
            place = 0
            if not last:
                out[count] = element(first, EXISTS)
                count += 1
        if last:
            out[count] = element(seal_of(node), EXISTS)
            out[count + 1] = element(first, place + ENDS)
            count += 2
    return count


@kernel
def filter_elements(
    method: int,
    data: Bytes,
    start: int,
    stop: int,
    seed: np.uint64,
    levels: Words,
    kinds: npt.NDArray[np.uint8],
    out: Words,
) -> int:
    """Write the keys of one filter into `out` (room: levels + 2). Return how many."""
    depth = np.int64(hash_levels(data, start, stop, seed, levels, U64(0)))
    level_kinds(data, start, stop, kinds)
    if method == LINES:
        return _questions(kinds, levels, depth, out)
    if method == PREFIX:
        return _prefixes(kinds, levels, depth, out)
    count = 0
    if method == BF and depth > 1 and kinds[depth - 1] == HASH:
        out[count] = _whole(kinds, levels, depth - 1)
        count += 1
    out[count] = _whole(kinds, levels, depth)
    return count + 1


@kernel
def column_elements(method: int, data: Bytes, offsets: Offsets, seed: np.uint64) -> Words:
    """Return the keys of all filters of a column, in order, repeated as often as they occur."""
    room = 0
    deepest = 1
    for row in range(len(offsets) - 1):
        depth = count_levels(data, offsets[row], offsets[row + 1])
        room += depth + 2
        deepest = max(deepest, depth)
    levels = np.empty(deepest, np.uint64)
    kinds = np.empty(deepest, np.uint8)
    out = np.empty(room, np.uint64)
    count = 0
    for row in range(len(offsets) - 1):
        count += filter_elements(
            method, data, offsets[row], offsets[row + 1], seed, levels, kinds, out[count:]
        )
    return out[:count].copy()
