"""The exact comparison of one box against NumPy's."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.kernels import matching
from support.oracles.boxes import is_inside
from support.oracles.kernel_parts import callable_kernel

holds = callable_kernel(matching.holds)

borders = st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 1.0, math.inf])
values = st.one_of(borders, st.just(math.nan))


@given(st.lists(st.tuples(borders, borders, values), min_size=1, max_size=4))
def test_one_box_and_one_point(dimensions: list[tuple[float, float, float]]) -> None:
    lows, highs, point = (np.array(column) for column in zip(*dimensions, strict=True))
    edges = np.concatenate(([7.0], lows, highs))  # not at the beginning
    expected = is_inside(lows[None], highs[None], point)[0]
    assert holds(edges, 1, np.concatenate(([7.0, 7.0], point)), 2, len(point)) == expected
