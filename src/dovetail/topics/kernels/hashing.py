"""Hash topics: each level is hashed once, and a prefix's hash is extended level by level.

Separators are found 32 bytes at a time. The hash of a level is a chain of folded multiplications
(the product of two 64-bit numbers, its halves xored), sixteen bytes at a time. It is fast and not
cryptographic. An attacker who knows the seed can make levels that collide: that costs time, never a
match.

No prefix string is ever built: `child(node, level)` is the hash of the prefix `node/level`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils

from dovetail.compilation import inlined, inner_kernel, instruction, kernel
from dovetail.topics.limits import SEARCH_BLOCK_BYTES_MAX, SEARCH_BLOCK_TOPICS

U64 = np.uint64
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

# Odd numbers without a pattern: digits of pi and e.
_BLOCK = U64(0x243F6A8885A308D3)
_LENGTH = U64(0x13198A2E03707345)
_STEP = U64(0xA4093822299F31D1)
_TURN = U64(0x082EFA98EC4E6C89)
_START = U64(0x452821E638D01377)

# The root of the tree of prefixes, the two wildcard levels, and two marks for the end of a
# subscription: the paper's, and our seal (lines.py). The paper appends '$' to a string; these marks
# are xored into hashes, so no topic can contain them.
ROOT = U64(0xB7E151628AED2A6B)
SINGLE_LEVEL = U64(0xBF7158809CF4F3C7)
MULTI_LEVEL = U64(0x62E7160F38B4DA57)
TERMINAL = U64(0xA784D9045190CFEF)
SEAL_LEVEL = U64(0x324E7738926CFBE5)

STRIDE = 32
"""Bytes that are searched for separators at once."""

# Kinds of a filter's level.
LITERAL, PLUS, HASH = 0, 1, 2

_ZERO = U64(0)
_ONE = U64(1)
_SLASH, _PLUS, _HASH, _DOLLAR = 0x2F, 0x2B, 0x23, 0x24

_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_I128 = ir.IntType(128)


@instruction
def fold_multiply(_context: Any, _left: Any, _right: Any) -> Any:  # noqa: ANN401
    """Return the 128-bit product's high half xor its low half. Numba has no 128-bit integers."""

    def codegen(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        left, right = (builder.zext(argument, _I128) for argument in arguments)
        product = builder.mul(left, right)
        high = builder.lshr(product, ir.Constant(_I128, 64))
        return builder.xor(builder.trunc(high, _I64), builder.trunc(product, _I64))

    return types.uint64(types.uint64, types.uint64), codegen


@instruction
def load_u64(_context: Any, _address: Any) -> Any:  # noqa: ANN401
    """Load eight bytes, the first lowest. The caller knows that they are readable."""

    def codegen(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        value = builder.load(builder.inttoptr(arguments[0], _I64.as_pointer()))
        value.align = 1
        return value

    return types.uint64(types.uint64), codegen


@instruction
def slash_mask(_context: Any, _address: Any) -> Any:  # noqa: ANN401
    """Find slashes in 32 bytes: bit i is for the byte at address + i. One compare on AVX2."""

    def codegen(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        vector = ir.VectorType(_I8, STRIDE)
        data = builder.load(builder.inttoptr(arguments[0], vector.as_pointer()))
        data.align = 1
        slashes = ir.Constant(vector, [ir.Constant(_I8, _SLASH)] * STRIDE)
        found = builder.icmp_unsigned("==", data, slashes)
        return builder.zext(builder.bitcast(found, _I32), _I64)

    return types.uint64(types.uint64), codegen


@instruction
def trailing_zeros(_context: Any, _value: Any) -> Any:  # noqa: ANN401
    """Count the low bits that are 0; the value must not be 0."""

    def codegen(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@instruction
def prefetch(_context: Any, _address: Any) -> Any:  # noqa: ANN401
    """Request the cache line at an address without waiting for it."""

    def codegen(ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        pointer = _I8.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(_I32, value) for value in (0, 3, 1))
        builder.call(function, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return ctx.get_dummy_value()

    return types.void(types.uint64), codegen


@inlined
def address_of(array: npt.NDArray[Any]) -> np.uint64:
    return U64(array.ctypes.data)


@inlined
def scale(value: np.uint64, count: np.uint64) -> np.uint64:
    """Map a hash to 0..count - 1, by multiplying its high half instead of dividing."""
    return ((value >> U64(32)) * count) >> U64(32)


@inlined
def child(node: np.uint64, level: np.uint64) -> np.uint64:
    """Return the hash of a prefix that is one level longer."""
    return fold_multiply(node ^ level ^ _TURN, _STEP)


@inner_kernel
def split_levels(data: Bytes, start: int, stop: int, out: Words, at: np.uint64) -> np.uint64:
    """Write where each level of data[start:stop] ends into out[at:]. Return how many there are."""
    base = address_of(data)
    count = U64(0)
    position = start
    while position < stop:
        if position + STRIDE <= len(data):
            mask = slash_mask(base + U64(position))
            if stop - position < STRIDE:
                mask &= (_ONE << U64(stop - position)) - _ONE
        else:  # never a byte beyond the buffer
            mask = _ZERO
            for i in range(stop - position):
                mask |= U64(data[position + i] == _SLASH) << U64(i)
        while mask != _ZERO:
            out[at + count] = U64(position) + trailing_zeros(mask)
            count += _ONE
            mask &= mask - _ONE
        position += STRIDE
    out[at + count] = U64(stop)
    return count + _ONE


@inlined
def _short(data: Bytes, base: np.uint64, start: np.uint64, length: np.uint64) -> np.uint64:
    """Return fewer than eight bytes as a number, the first lowest."""
    if start + U64(8) <= U64(len(data)):
        return load_u64(base + start) & ((_ONE << (length << U64(3))) - _ONE)
    word = _ZERO
    for i in range(length):
        word |= U64(data[start + U64(i)]) << (U64(i) << U64(3))
    return word


@kernel
def hash_levels(
    data: Bytes, start: int, stop: int, seed: np.uint64, out: Words, at: np.uint64
) -> np.uint64:
    """Write the hash of each level of data[start:stop] into out[at:]. Return how many there are.

    `out` has room for as many levels as the topic can have. It first holds where levels end, then
    their hashes: with all ends known, the hash of a level does not wait for the one before it.
    """
    base = address_of(data)
    first = seed ^ _START
    second = seed * _STEP ^ _LENGTH
    count = split_levels(data, start, stop, out, at)
    position = U64(start)
    for level in range(at, at + count):
        end = out[level]
        length = end - position
        if length < U64(8):
            word = _short(data, base, position, length)
            out[level] = fold_multiply(word ^ first, second ^ length)
        else:
            # Sixteen bytes a step. The last sixteen (or eight and eight) may overlap bytes that
            # are done: every byte counts, and none beyond the level is read.
            state = first
            front = base + position
            back = base + end
            while front + U64(16) < back:
                state = fold_multiply(load_u64(front) ^ state, load_u64(front + U64(8)) ^ _BLOCK)
                front += U64(16)
            if length > U64(16):
                front = back - U64(16)
            out[level] = fold_multiply(
                load_u64(front) ^ state, load_u64(back - U64(8)) ^ second ^ length
            )
        position = end + _ONE
    return count


@kernel
def count_levels(data: Bytes, start: int, stop: int) -> int:
    levels = 1
    for position in range(start, stop):
        levels += data[position] == _SLASH
    return levels


@inner_kernel
def levels_room(offsets: Offsets) -> int:
    """Return room for the levels of any topic of a column: bytes + 1, without reading them."""
    room = 1
    for row in range(len(offsets) - 1):
        room = max(room, offsets[row + 1] - offsets[row] + 1)
    return room


@inner_kernel
def block_size(rows: int, room: int) -> int:
    """Return how many topics are searched in step."""
    return 1 if rows == 1 or room > SEARCH_BLOCK_BYTES_MAX else SEARCH_BLOCK_TOPICS


@kernel
def level_kinds(data: Bytes, start: int, stop: int, out: npt.NDArray[np.uint8]) -> None:
    """Write LITERAL, PLUS or HASH for each level of a filter."""
    level = 0
    begin = start
    for position in range(start, stop + 1):
        if position == stop or data[position] == _SLASH:
            out[level] = LITERAL
            if position - begin == 1:
                if data[begin] == _PLUS:
                    out[level] = PLUS
                elif data[begin] == _HASH:
                    out[level] = HASH
            level += 1
            begin = position + 1


@inlined
def is_reserved(data: Bytes, start: int, stop: int) -> bool:
    """Does the topic begin with '$', so that a leading wildcard does not match it?"""
    return stop > start and data[start] == _DOLLAR
