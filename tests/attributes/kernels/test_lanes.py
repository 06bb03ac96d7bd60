"""Comparisons of 64 lanes against NumPy's."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.kernels.lanes import (
    LANES,
    address_of,
    containing_lanes,
    count_ones,
    equal_lanes,
    trailing_zeros,
)

# The instructions can only be called by compiled code.
compiled: Callable[..., Any] = numba.njit

Codes = npt.NDArray[np.int16]
codes = st.integers(-32_768, 32_767)


@compiled
def compare(both: Codes, low: int, high: int) -> tuple[int, int]:
    return containing_lanes(address_of(both), low, high), equal_lanes(address_of(both), low, high)


@compiled
def count_bits(word: np.uint64) -> tuple[int, int]:
    return count_ones(word), trailing_zeros(word)


def as_word(flags: npt.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


@given(st.integers(0, 2**32 - 1), codes, codes)
def test_lanes_are_compared(seed: int, low: int, high: int) -> None:
    both = np.random.default_rng(seed).integers(-32_768, 32_768, 2 * LANES, dtype=np.int16)
    both[:3], both[LANES - 2 : LANES + 2] = low, high
    lows, highs = both[:LANES], both[LANES:]
    expected = as_word((lows <= low) & (highs >= high)), as_word((lows == low) | (highs == high))
    assert compare(both, low, high) == expected


@pytest.mark.parametrize("word", [1, 2, 0xF0, 1 << 63, 2**64 - 1])
def test_bits_are_counted(word: int) -> None:
    lowest = (word & -word).bit_length() - 1
    assert count_bits(np.uint64(word)) == (word.bit_count(), lowest)
