"""Codes against the numbers they stand for, keys against bits put together one by one."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.kernels import codes as kernels
from dovetail.attributes.kernels.codes import (
    CELLS,
    CODE_MAX,
    CODE_MIN,
    CODES,
    OPEN_ABOVE,
    OPEN_BELOW,
    keys_of,
)
from support.oracles.kernel_parts import callable_kernel

code_of = callable_kernel(kernels.code_of)
low_code, high_code = callable_kernel(kernels.low_code), callable_kernel(kernels.high_code)
cell_of, cells_of = callable_kernel(kernels.cell_of), callable_kernel(kernels.cells_of)

numbers = st.floats(allow_nan=False)
codes = st.integers(OPEN_BELOW, OPEN_ABOVE)


@given(numbers, numbers, st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_codes_keep_the_order(one: float, other: float, origin: float, length: float) -> None:
    scale = CODES / length
    low, high = (code_of(value, origin, scale) for value in sorted((one, other)))
    assert CODE_MIN <= low <= high <= CODE_MAX


def test_the_whole_axis_has_codes() -> None:
    scale = CODES / 1_000
    assert code_of(0.0, 0.0, scale) == CODE_MIN
    assert code_of(999.999, 0.0, scale) == CODE_MAX
    assert -5 < code_of(500.0, 0.0, scale) < 5


def test_open_borders_have_codes_of_their_own() -> None:
    assert low_code(-math.inf, 0.0, 1.0) == OPEN_BELOW
    assert high_code(math.inf, 0.0, 1.0) == OPEN_ABOVE
    assert low_code(-1e300, 0.0, 1.0) == high_code(-math.inf, 0.0, 1.0) == CODE_MIN
    assert high_code(1e300, 0.0, 1.0) == low_code(math.inf, 0.0, 1.0) == CODE_MAX


@given(codes, codes)
def test_cells(low: int, high: int) -> None:
    covered = {cell for cell in range(CELLS) if cell_of(low) <= cell <= cell_of(high)}
    expected = sum(1 << cell for cell in covered) if low <= high else 0
    assert int(cells_of(low, high)) == expected


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=32))
def test_keys(ranges: list[tuple[float, float]]) -> None:
    dimensions = len(ranges)
    origins, scales = np.zeros(dimensions), np.full(dimensions, CODES / 1_000)
    edges = np.array([*(low for low, _ in ranges), *(high for _, high in ranges)])
    between = [
        (low_code(low, 0.0, scales[0]), high_code(high, 0.0, scales[0])) for low, high in ranges
    ]
    bits = [str(int(high - low > CODES // 2)) for low, high in between]
    centres = [f"{(low + high + 2 * 32_768) // 2:016b}" for low, high in between]
    for bit in range(min((64 - dimensions) // dimensions, 16)):
        bits += [centre[bit] for centre in centres]
    assert keys_of(edges, origins, scales).tolist() == [int("".join(bits), 2)]
