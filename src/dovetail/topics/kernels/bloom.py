"""Searches in a plain Bloom filter: naive (BF), with patterns (BFP), by prefixes (the paper's).

All three share one way to a bit: k positions from one 64-bit key. A query is one element looked up,
of up to k bit probes. A search that has asked `queries_max` (a node at a time) answers yes.

The positions are the high ends of the key times the powers of a constant, so that all of its 64
bits have a say. Steps of one length from a first position on (Kirsch and Mitzenmacher) were here
before: a length close to a simple fraction of the filter comes back to the same few bits, and two
numbers below b are soon met by accident. The rate then cannot fall far below 1/b: planned for 1e-9
a query, 6,000 filters had 2e-7.

The prefix search is the paper's Algorithm 1 without its faults (docs/wildcard-sketches.md): depth
first, `#` before `+` before the literal, and a branch that fails is left for the next one. It is
cut like the search in `lines`: a run follows the `+` children from a node and leaves the literal
ones on a stack. That is the same order of queries, and lets a column's topics overlap.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inlined, kernel, part
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
"""Of good spectrum (Steele and Vigna, Computationally easy, spectrally good multipliers)."""


@inlined
def point_after(point: np.uint64) -> np.uint64:
    """The way from one of a key's points to the next; the first is the key."""
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


@part
def _ask_all(
    words: Words,
    bits: np.uint64,
    hashes: int,
    levels: Words,
    depth: int,
    reserved: bool,
    queries_max: int,
) -> tuple[bool, int]:
    """Every pattern that could match, those that match most topics first."""
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


@part
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
    """The patterns that are known to occur, and the topic itself.

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


@inlined
def _push(
    words_at: np.uint64,
    bits: np.uint64,
    key: np.uint64,
    level: np.uint64,
    stack: Words,
    stack_level: Words,
    top: np.uint64,
) -> np.uint64:
    prefetch(words_at + ((scale(key, bits) >> U64(6)) << U64(3)))
    stack[top] = key
    stack_level[top] = level
    return top + _ONE


@inlined
def _run_prefix(
    words: Words,
    words_at: np.uint64,
    bits: np.uint64,
    hashes: int,
    levels: Words,
    at: np.uint64,
    depth: np.uint64,
    stack: Words,
    stack_level: Words,
    top: np.uint64,
    queries: np.uint64,
    queries_max: np.uint64,
    node: np.uint64,
    level: np.uint64,
) -> tuple[bool, np.uint64, np.uint64]:
    """From a node that is there along its '+' children; literal children go on the stack."""
    while True:
        if queries >= queries_max:
            return True, top, queries
        queries += _ONE
        if contains(words, bits, hashes, child(node, MULTI_LEVEL) ^ TERMINAL):
            return True, top, queries
        mark = TERMINAL if level + _ONE == depth else _ZERO
        literal = child(node, levels[at + level]) ^ mark
        node = child(node, SINGLE_LEVEL) ^ mark
        level += _ONE
        top = _push(words_at, bits, literal, level, stack, stack_level, top)
        queries += _ONE
        if not contains(words, bits, hashes, node):
            return False, top, queries
        if level == depth:
            return True, top, queries


@inlined
def _start_prefix(
    words: Words,
    words_at: np.uint64,
    bits: np.uint64,
    hashes: int,
    levels: Words,
    at: np.uint64,
    depth: np.uint64,
    reserved: bool,
    stack: Words,
    stack_level: Words,
    queries_max: np.uint64,
) -> tuple[bool, np.uint64, np.uint64]:
    if reserved:  # no wildcard matches a first level that begins with '$'
        key = child(ROOT, levels[at]) ^ (TERMINAL if depth == _ONE else _ZERO)
        return False, _push(words_at, bits, key, _ONE, stack, stack_level, at), _ZERO
    return _run_prefix(
        words,
        words_at,
        bits,
        hashes,
        levels,
        at,
        depth,
        stack,
        stack_level,
        at,
        _ZERO,
        queries_max,
        ROOT,
        _ZERO,
    )


@inlined
def _drain_prefix(
    words: Words,
    words_at: np.uint64,
    bits: np.uint64,
    hashes: int,
    levels: Words,
    at: np.uint64,
    depth: np.uint64,
    stack: Words,
    stack_level: Words,
    top: np.uint64,
    queries: np.uint64,
    queries_max: np.uint64,
) -> tuple[bool, np.uint64]:
    while top > at:
        if queries >= queries_max:
            return True, queries
        top -= _ONE
        node = stack[top]
        level = stack_level[top]
        queries += _ONE
        if contains(words, bits, hashes, node):
            if level == depth:
                return True, queries
            found, top, queries = _run_prefix(
                words,
                words_at,
                bits,
                hashes,
                levels,
                at,
                depth,
                stack,
                stack_level,
                top,
                queries,
                queries_max,
                node,
                level,
            )
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
    """A block of topics in step: all start, then all are brought to their ends."""
    words_at = address_of(words)
    rows = len(offsets) - 1
    room = levels_room(offsets)
    block = block_size(rows, room)
    levels = np.empty(block * room, np.uint64)
    stack = np.empty(block * room, np.uint64)
    stack_level = np.empty(block * room, np.uint64)
    depths = np.empty(block, np.uint64)
    tops = np.empty(block, np.uint64)
    for first in range(0, rows, block):
        count = min(block, rows - first)
        for i in range(count):
            start, stop = offsets[first + i], offsets[first + i + 1]
            at = U64(i * room)
            depths[i] = hash_levels(data, start, stop, seed, levels, at)
            found[first + i], tops[i], queries[first + i] = _start_prefix(
                words,
                words_at,
                bits,
                hashes,
                levels,
                at,
                depths[i],
                is_reserved(data, start, stop),
                stack,
                stack_level,
                U64(queries_max),
            )
        for i in range(count):
            if not found[first + i]:
                found[first + i], queries[first + i] = _drain_prefix(
                    words,
                    words_at,
                    bits,
                    hashes,
                    levels,
                    U64(i * room),
                    depths[i],
                    stack,
                    stack_level,
                    tops[i],
                    U64(queries[first + i]),
                    U64(queries_max),
                )
