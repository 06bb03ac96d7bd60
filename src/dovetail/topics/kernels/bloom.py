"""Search a plain Bloom filter: naive (BF), with patterns (BFP), by prefixes (the paper's).

All three derive k bit positions from one 64-bit key. A query looks up one element, with up to k bit
probes. A search that has asked `queries_max` queries (a node at a time) answers yes.

The positions are the high ends of the key times the powers of a constant, so all 64 bits of the key
count. Steps of one length from a first position (Kirsch and Mitzenmacher) are worse: a length close
to a simple fraction of the filter returns to the same few bits, and two numbers below b soon meet
by accident. The rate then cannot fall far below 1/b: planned for 1e-9 a query, 6,000 filters had
2e-7.

The prefix search is the paper's Algorithm 1 without its faults (docs/wildcard-sketches.md): depth
first, `#` before `+` before the literal; when a branch fails, the next one is tried. Like the
search in `lines`, a run follows the `+` children from a node and leaves the literal ones on a
stack. The order of queries is the same, and memory accesses of a column's topics overlap.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inlined, inner_kernel, kernel
from dovetail.topics.kernels.hashing import (
    MULTI_LEVEL,
    ROOT,
    SINGLE_LEVEL,
    TERMINAL,
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
    scale,
)

_ZERO = U64(0)
_ONE = U64(1)
_SPREAD = U64(0xD1342543DE82EF95)
"""A multiplier of Steele and Vigna, Computationally easy, spectrally good multipliers."""


@inlined
def point_after(point: np.uint64) -> np.uint64:
    """Return the point after this one. A key's first point is the key itself."""
    return point * _SPREAD


@inlined
def contains(words: Words, bits: np.uint64, hashes: int, key: np.uint64) -> bool:
    point = key
    for _ in range(hashes):
        position = scale(point, bits)
        if (words[position >> U64(6)] >> (position & U64(63))) & _ONE == _ZERO:
            return False
        point = point_after(point)
    return True


@inner_kernel
def _ask_all(
    words: Words,
    bits: np.uint64,
    hashes: int,
    levels: Words,
    depth: int,
    reserved: bool,
    queries_max: int,
) -> tuple[bool, int]:
    """Ask for every pattern that could match, those that match most topics first."""
    queries = 0
    # `ends` is where '#' stands; at last, with ends == depth, patterns without '#'.
    for ends in range(depth + 1):
        if ends >= 63:
            return True, queries_max
        mask = (_ONE << U64(ends)) - _ONE  # bit i set: '+' at level i
        while True:
            leading_wildcard = ends == 0 or mask & _ONE == _ONE
            if not (reserved and leading_wildcard):
                if queries == queries_max:
                    return True, queries
                queries += 1
                node = ROOT
                for i in range(ends):
                    plus = (mask >> U64(i)) & _ONE
                    node = child(node, SINGLE_LEVEL if plus == _ONE else levels[i])
                if ends < depth:
                    node = child(node, MULTI_LEVEL)
                if contains(words, bits, hashes, node ^ TERMINAL):
                    return True, queries
            if mask == _ZERO:
                break
            mask -= _ONE
    return False, queries


@inner_kernel
def _ask_patterns(
    words: Words,
    bits: np.uint64,
    hashes: int,
    pattern_starts: Offsets,
    pattern_levels: Offsets,
    pattern_ends: Offsets,
    levels: Words,
    depth: int,
    reserved: bool,
    queries_max: int,
) -> tuple[bool, int]:
    """Ask for the patterns that are known to occur, and for the topic itself.

    Pattern i has '+' at pattern_levels[pattern_starts[i]:pattern_starts[i + 1]], ascending, and '#'
    at pattern_ends[i] (-1: none).
    """
    queries = 0
    for i in range(len(pattern_ends)):
        ends = pattern_ends[i]
        stop = depth if ends < 0 else ends
        first, last = pattern_starts[i], pattern_starts[i + 1]
        if stop > depth or (last > first and pattern_levels[last - 1] >= stop):
            continue
        if reserved and (ends == 0 or (last > first and pattern_levels[first] == 0)):
            continue
        if queries == queries_max:
            return True, queries
        queries += 1
        node = ROOT
        following = first
        for level in range(stop):
            if following < last and pattern_levels[following] == level:
                node = child(node, SINGLE_LEVEL)
                following += 1
            else:
                node = child(node, levels[level])
        if ends >= 0:
            node = child(node, MULTI_LEVEL)
        if contains(words, bits, hashes, node ^ TERMINAL):
            return True, queries
    if queries == queries_max:
        return True, queries
    node = ROOT
    for level in range(depth):
        node = child(node, levels[level])
    return contains(words, bits, hashes, node ^ TERMINAL), queries + 1


class _PrefixSearch(NamedTuple):
    """A filter, the bound of a search in it, and room for the levels and stacks of some topics."""

    words: Words
    words_at: np.uint64
    bits: np.uint64
    hashes: int
    queries_max: np.uint64
    levels: Words
    stack: Words
    stack_level: Words


@inlined
def _has(search: _PrefixSearch, key: np.uint64) -> bool:
    return contains(search.words, search.bits, search.hashes, key)


@inlined
def _push(
    search: _PrefixSearch,
    key: np.uint64,
    level: np.uint64,
    top: np.uint64,
) -> np.uint64:
    prefetch(search.words_at + ((scale(key, search.bits) >> U64(6)) << U64(3)))
    search.stack[top] = key
    search.stack_level[top] = level
    return top + _ONE


@inlined
def _run_prefix(
    search: _PrefixSearch,
    at: np.uint64,
    depth: np.uint64,
    top: np.uint64,
    queries: np.uint64,
    node: np.uint64,
    level: np.uint64,
) -> tuple[bool, np.uint64, np.uint64]:
    """Follow the '+' children of a node that exists; literal children go on the stack."""
    while True:
        if queries >= search.queries_max:
            return True, top, queries
        queries += _ONE
        if _has(search, child(node, MULTI_LEVEL) ^ TERMINAL):
            return True, top, queries
        mark = TERMINAL if level + _ONE == depth else _ZERO
        literal = child(node, search.levels[at + level]) ^ mark
        node = child(node, SINGLE_LEVEL) ^ mark
        level += _ONE
        top = _push(search, literal, level, top)
        queries += _ONE
        if not _has(search, node):
            return False, top, queries
        if level == depth:
            return True, top, queries


@inlined
def _start_prefix(
    search: _PrefixSearch,
    at: np.uint64,
    depth: np.uint64,
    reserved: bool,
) -> tuple[bool, np.uint64, np.uint64]:
    if reserved:  # no wildcard matches a first level that begins with '$'
        key = child(ROOT, search.levels[at]) ^ (TERMINAL if depth == _ONE else _ZERO)
        return False, _push(search, key, _ONE, at), _ZERO
    return _run_prefix(search, at, depth, at, _ZERO, ROOT, _ZERO)


@inlined
def _drain_prefix(
    search: _PrefixSearch,
    at: np.uint64,
    depth: np.uint64,
    top: np.uint64,
    queries: np.uint64,
) -> tuple[bool, np.uint64]:
    while top > at:
        if queries >= search.queries_max:
            return True, queries
        top -= _ONE
        node = search.stack[top]
        level = search.stack_level[top]
        queries += _ONE
        if _has(search, node):
            if level == depth:
                return True, queries
            found, top, queries = _run_prefix(search, at, depth, top, queries, node, level)
            if found:
                return True, queries
    return False, queries


@kernel
def search_bf(
    words: Words,
    bits: np.uint64,
    hashes: int,
    data: Bytes,
    offsets: Offsets,
    seed: np.uint64,
    queries_max: int,
    found: npt.NDArray[np.bool_],
    queries: Offsets,
) -> None:
    levels = np.empty(levels_room(offsets), np.uint64)
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        depth = np.int64(hash_levels(data, start, stop, seed, levels, _ZERO))
        reserved = is_reserved(data, start, stop)
        found[row], queries[row] = _ask_all(
            words, bits, hashes, levels, depth, reserved, queries_max
        )


@kernel
def search_bfp(
    words: Words,
    bits: np.uint64,
    hashes: int,
    pattern_starts: Offsets,
    pattern_levels: Offsets,
    pattern_ends: Offsets,
    data: Bytes,
    offsets: Offsets,
    seed: np.uint64,
    queries_max: int,
    found: npt.NDArray[np.bool_],
    queries: Offsets,
) -> None:
    levels = np.empty(levels_room(offsets), np.uint64)
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        depth = np.int64(hash_levels(data, start, stop, seed, levels, _ZERO))
        found[row], queries[row] = _ask_patterns(
            words,
            bits,
            hashes,
            pattern_starts,
            pattern_levels,
            pattern_ends,
            levels,
            depth,
            is_reserved(data, start, stop),
            queries_max,
        )


@kernel
def search_prefix(
    words: Words,
    bits: np.uint64,
    hashes: int,
    data: Bytes,
    offsets: Offsets,
    seed: np.uint64,
    queries_max: int,
    found: npt.NDArray[np.bool_],
    queries: Offsets,
) -> None:
    """Search a block of topics in step: first all start, then all are finished."""
    rows = len(offsets) - 1
    room = levels_room(offsets)
    block = block_size(rows, room)
    levels = np.empty(block * room, np.uint64)
    search = _PrefixSearch(
        words,
        address_of(words),
        bits,
        hashes,
        U64(queries_max),
        levels,
        np.empty(block * room, np.uint64),
        np.empty(block * room, np.uint64),
    )
    depths = np.empty(block, np.uint64)
    tops = np.empty(block, np.uint64)
    for first in range(0, rows, block):
        count = min(block, rows - first)
        for i in range(count):
            start, stop = offsets[first + i], offsets[first + i + 1]
            at = U64(i * room)
            depths[i] = hash_levels(data, start, stop, seed, levels, at)
            found[first + i], tops[i], queries[first + i] = _start_prefix(
                search, at, depths[i], is_reserved(data, start, stop)
            )
        for i in range(count):
            if not found[first + i]:
                found[first + i], queries[first + i] = _drain_prefix(
                    search, U64(i * room), depths[i], tops[i], U64(queries[first + i])
                )
