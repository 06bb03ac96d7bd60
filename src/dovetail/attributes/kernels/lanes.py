"""Compare the 64 boxes of a leaf at once, with LLVM instructions that Numba lacks.

On AVX2 sixteen 16-bit codes are one register. Elsewhere LLVM uses what the machine has.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types

from dovetail.compilation import inlined, instruction

LANES = 64
"""Boxes in a leaf: one bit each in a word."""

_CODE_BYTES = 2
_I1, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 16, 32, 64))
_VECTOR = ir.VectorType(_I16, LANES)


def _load(builder: Any, address: Any, offset: int) -> Any:  # noqa: ANN401
    there = builder.add(address, ir.Constant(_I64, offset))
    loaded = builder.load(builder.inttoptr(there, _VECTOR.as_pointer()))
    loaded.align = 2
    return loaded


def _spread(builder: Any, value: Any) -> Any:  # noqa: ANN401
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, builder.trunc(value, _I16), ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, LANES), [ir.Constant(_I32, 0)] * LANES)
    return builder.shuffle_vector(first, undefined, zeros)


def _compare(low_operator: str, high_operator: str, join: str) -> Any:  # noqa: ANN401
    @instruction
    def compare(_context: Any, _address: Any, _low: Any, _high: Any) -> Any:  # noqa: ANN401
        def codegen(_ctx: Any, builder: Any, _sig: Any, arguments: Any) -> Any:  # noqa: ANN401
            address, low, high = arguments
            lows = _load(builder, address, 0)
            highs = _load(builder, address, LANES * _CODE_BYTES)
            left = builder.icmp_signed(low_operator, lows, _spread(builder, low))
            right = builder.icmp_signed(high_operator, highs, _spread(builder, high))
            return builder.bitcast(getattr(builder, join)(left, right), _I64)

        return types.uint64(types.uint64, types.int64, types.int64), codegen

    return compare


containing_lanes = _compare("<=", ">=", "and_")
"""containing_lanes(address, low, high): which of 64 boxes have a lower code at or below `low`, and
an upper one at or above `high`. At the address are 64 lower codes, then 64 upper ones."""

equal_lanes = _compare("==", "==", "or_")
"""equal_lanes(address, low, high): which have exactly this lower code, or this upper one."""


@instruction
def trailing_zeros(_context: Any, _value: Any) -> Any:  # noqa: ANN401
    """Count the low bits that are 0; the value must not be 0."""

    def codegen(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.cttz(arguments[0], ir.Constant(_I1, 1))

    return types.uint64(types.uint64), codegen


@instruction
def count_ones(_context: Any, _value: Any) -> Any:  # noqa: ANN401
    """Count the bits that are 1."""

    def codegen(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), codegen


@inlined
def address_of(array: npt.NDArray[Any]) -> np.uint64:
    return np.uint64(array.ctypes.data)
