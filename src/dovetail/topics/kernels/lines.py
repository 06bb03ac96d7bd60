"""Search our sketch: all questions to a node of the prefix tree lie in one 64-byte cache line.

A search comes to a node (a prefix that exists) and asks: is there a `#` below it, is there a `+`
below it, does a subscription end here? The paper asks a Bloom filter each of them, k scattered bits
a time. Here the node's hash chooses a line of 512 bits, and each question is eight bits of that
line, one in each of its eight words. A literal child has its own line (question EXISTS), because a
node may have a million of them. If the child exists, that line is the one needed next.

A node n and its child n/+ share a line; the code of a question tells them apart. n/+/+ starts a
line of its own, which it shares with n/+/+/+. So a topic of ten levels that nobody subscribed to,
with wildcards in the sketch at every level, costs six lines for the run of `+` from the root and
ten for the literal children that are not there.

A yes that would end a search is checked twice. Where a filter ends, be it `n` or `n/#`, there is a
seal: one more element, in a line that n's hash, hashed once more, chooses. So a match costs one
line more, and a false positive needs two accidents. Without seals, a false `#` at a node that many
topics pass would forward all of them needlessly.

An element's key is the hash of the line's first node with its lowest three bits replaced by the
code. The high half chooses the line, the lowest 24 bits the eight bits. A question is never a false
no: it reads exactly the bits that `ledger` set.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils

from dovetail.compilation import inlined, instruction, kernel
from dovetail.topics.kernels.hashing import (
    ROOT,
    SEAL_LEVEL,
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
    scale,
)

LINE_BITS = 512
LINE_WORDS = 8

# Codes of the questions to a line's first node. For the second, its '+' child, add SECOND.
EXISTS, HAS_MULTI, HAS_SINGLE, ENDS = 0, 1, 2, 3
SECOND = 4

_ZERO = U64(0)
_ONE = U64(1)
_CODE_MASK = U64(7)
_TAG_MASK = U64(0xFFFFF8)
_SPREAD = U64(0x9216D5D98979FB1B)

_VECTOR = ir.VectorType(ir.IntType(64), LINE_WORDS)


def _vector(values: list[int]) -> Any:  # noqa: ANN401
    return ir.Constant(_VECTOR, [ir.Constant(ir.IntType(64), value) for value in values])


def _question(code: int) -> Any:  # noqa: ANN401
    """Return a compiled `ask(line_at, spots)`: are the eight bits of this question set?

    Bit number i of a node, `(spots >> 6 i) & 63`, lies in word `i ^ code` of the line. So the eight
    bits are computed once a node, and a question is those bits with their words exchanged. It is
    vector code because Numba does not vectorise eight scalar shifts: a question is two loads, two
    exchanges and one test on AVX2, and all questions to a line share the rest.
    """
    i32, i64 = ir.IntType(32), ir.IntType(64)
    undefined = ir.Constant(_VECTOR, ir.Undefined)

    def lanes(numbers: list[int]) -> Any:  # noqa: ANN401
        kind = ir.VectorType(i32, LINE_WORDS)
        return ir.Constant(kind, [ir.Constant(i32, number) for number in numbers])

    @instruction
    def ask(_context: Any, _line_at: Any, _spots: Any) -> Any:  # noqa: ANN401
        def codegen(_ctx: Any, builder: Any, _sig: Any, arguments: Any) -> Any:  # noqa: ANN401
            spots = builder.insert_element(undefined, arguments[1], ir.Constant(i32, 0))
            spots = builder.shuffle_vector(spots, undefined, lanes([0] * LINE_WORDS))
            spots = builder.lshr(spots, _vector([6 * i for i in range(LINE_WORDS)]))
            spots = builder.and_(spots, _vector([63] * LINE_WORDS))
            wanted = builder.shl(_vector([1] * LINE_WORDS), spots)
            exchanged = lanes([i ^ code for i in range(LINE_WORDS)])
            wanted = builder.shuffle_vector(wanted, undefined, exchanged)
            line = builder.load(builder.inttoptr(arguments[0], _VECTOR.as_pointer()))
            line.align = 8
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(i64, [_VECTOR]), "llvm.vector.reduce.or.v8i64"
            )
            missing = builder.call(function, [builder.and_(builder.not_(line), wanted)])
            return builder.icmp_unsigned("==", missing, ir.Constant(i64, 0))

        return types.boolean(types.uint64, types.uint64), codegen

    return ask


_exists = _question(EXISTS)
_has_multi = _question(HAS_MULTI)
_has_single = _question(HAS_SINGLE)
_ends = _question(ENDS)
_second_has_multi = _question(SECOND + HAS_MULTI)
_second_has_single = _question(SECOND + HAS_SINGLE)
_second_ends = _question(SECOND + ENDS)


@inlined
def element(first: np.uint64, code: int) -> np.uint64:
    """Return the key of a question to the line with this first node."""
    return (first & ~_CODE_MASK) | U64(code)


@inlined
def seal_of(node: np.uint64) -> np.uint64:
    """Return the hash that chooses the line of a node's seal."""
    return child(node, SEAL_LEVEL)


@inlined
def spots_of(node: np.uint64) -> np.uint64:
    """Return eight 6-bit bit numbers: the same for a node and for the keys of its line."""
    return ((node & _TAG_MASK) * _SPREAD) >> U64(16)


@inlined
def spot(spots: np.uint64, code: np.uint64, word: np.uint64) -> np.uint64:
    """Return the bit number of a question in a word of the line."""
    return (spots >> (U64(6) * (word ^ code))) & U64(63)


@inlined
def code_of(key: np.uint64) -> np.uint64:
    return key & _CODE_MASK


class _LinesSearch(NamedTuple):
    """A sketch, the bound of a search in it, and room for the levels and stacks of some topics."""

    words_at: np.uint64
    lines: np.uint64
    probes_max: np.uint64
    levels: Words
    stack: Words
    stack_level: Words


@inlined
def _line_at(search: _LinesSearch, node: np.uint64) -> np.uint64:
    return search.words_at + (scale(node, search.lines) << U64(6))


@inlined
def _is_sealed(search: _LinesSearch, node: np.uint64) -> bool:
    seal = seal_of(node)
    return _exists(_line_at(search, seal), spots_of(seal))


@inlined
def _push(
    search: _LinesSearch,
    node: np.uint64,
    level: np.uint64,
    top: np.uint64,
) -> np.uint64:
    prefetch(_line_at(search, node))
    search.stack[top] = node
    search.stack_level[top] = level
    return top + _ONE


@inlined
def _run(
    search: _LinesSearch,
    at: np.uint64,
    depth: np.uint64,
    top: np.uint64,
    probes: np.uint64,
    node: np.uint64,
    level: np.uint64,
) -> tuple[bool, np.uint64, np.uint64]:
    """Follow the '+' children of a node that exists; literal children go on the stack."""
    while probes <= search.probes_max:
        line_at = _line_at(search, node)
        spots = spots_of(node)
        if _has_multi(line_at, spots):
            probes += _ONE
            if _is_sealed(search, node):
                return True, top, probes
        literal = child(node, search.levels[at + level])
        node = child(node, SINGLE_LEVEL)
        level += _ONE
        top = _push(search, literal, level, top)
        if level == depth:
            if _second_ends(line_at, spots):
                return _is_sealed(search, node), top, probes + _ONE
            return False, top, probes
        if not _has_single(line_at, spots):
            return False, top, probes

        if _second_has_multi(line_at, spots):
            probes += _ONE
            if _is_sealed(search, node):
                return True, top, probes
        literal = child(node, search.levels[at + level])
        node = child(node, SINGLE_LEVEL)
        level += _ONE
        top = _push(search, literal, level, top)
        if level < depth and not _second_has_single(line_at, spots):
            return False, top, probes
        probes += _ONE
        if level == depth:
            if _ends(_line_at(search, node), spots_of(node)):
                return _is_sealed(search, node), top, probes + _ONE
            return False, top, probes
    return True, top, probes


@inlined
def _start(
    search: _LinesSearch,
    at: np.uint64,
    depth: np.uint64,
    reserved: bool,
) -> tuple[bool, np.uint64, np.uint64]:
    if reserved:  # no wildcard matches a first level that begins with '$'
        literal = child(ROOT, search.levels[at])
        return False, _push(search, literal, _ONE, at), _ZERO
    return _run(search, at, depth, at, _ONE, ROOT, _ZERO)


@inlined
def _drain(
    search: _LinesSearch,
    at: np.uint64,
    depth: np.uint64,
    top: np.uint64,
    probes: np.uint64,
) -> tuple[bool, np.uint64]:
    while top > at:
        if probes >= search.probes_max:
            return True, probes
        top -= _ONE
        node = search.stack[top]
        level = search.stack_level[top]
        probes += _ONE
        line_at = _line_at(search, node)
        spots = spots_of(node)
        if level == depth:
            if _ends(line_at, spots):
                probes += _ONE
                if _is_sealed(search, node):
                    return True, probes
        elif _exists(line_at, spots):
            found, top, probes = _run(search, at, depth, top, probes, node, level)
            if found:
                return True, probes
    return False, probes


@kernel
def search_lines(
    words: Words,
    lines: np.uint64,
    data: Bytes,
    offsets: Offsets,
    seed: np.uint64,
    probes_max: int,
    found: npt.NDArray[np.bool_],
    probes: Offsets,
) -> None:
    """Search a block of topics in step: first all start, then all are finished.

    A start prefetches the lines of the literal children that it leaves on the stack. They are on
    their way from memory while the other topics start.
    """
    rows = len(offsets) - 1
    room = levels_room(offsets)
    block = block_size(rows, room)
    levels = np.empty(block * room, np.uint64)
    search = _LinesSearch(
        address_of(words),
        lines,
        U64(probes_max),
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
            found[first + i], tops[i], probes[first + i] = _start(
                search, at, depths[i], is_reserved(data, start, stop)
            )
        for i in range(count):
            if not found[first + i]:
                found[first + i], probes[first + i] = _drain(
                    search, U64(i * room), depths[i], tops[i], U64(probes[first + i])
                )


@kernel
def search_rows(
    rows: Words,
    lines: np.uint64,
    data: Bytes,
    offsets: Offsets,
    seed: np.uint64,
    probes_max: int,
    found: npt.NDArray[np.bool_],
    probes: Offsets,
) -> None:
    """Search several sketches of one size, a row each."""
    for row in range(len(rows)):
        search_lines(rows[row], lines, data, offsets, seed, probes_max, found[row], probes)
