"""Kinds and places of many boxes, as partition.py has them one by one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.conjunctions import Range
from dovetail.attributes.partition import Bounds, Table, bits_of, even_tokens, kind_of
from dovetail.attributes.space import Dimension, Space
from dovetail.matcher.layout import Layout, Scheme, layout_of, layouts_of
from dovetail.matcher.tables import Placement

BOUNDS = (Bounds(0, 100), Bounds(-50, 50), Bounds(0, 1))
SPACE = Space(
    "traffic",
    "traffic/#",
    (
        Dimension("lat", -90, 90),
        Dimension("height", 0, 9_000, is_searchable=False),
        Dimension("speed", 0, 200),
    ),
)

_ENDS = [-math.inf, -10.0, 0.0, 0.25, 0.5, 1.0, 50.0, 75.0, 100.0, math.inf]
_RANGE = st.sampled_from([Range(low, high) for low in _ENDS for high in _ENDS if low < high])
_BOXES = st.lists(st.tuples(_RANGE, _RANGE, _RANGE), min_size=1, max_size=8)


@given(_BOXES, st.integers(1, 5), st.sampled_from([0.5, 1.0]))
def test_as_one_by_one(boxes: list[tuple[Range, ...]], matchers: int, share: float) -> None:
    layout = Layout("s", BOUNDS, (0, 2), wide_share=share)
    lows = np.array([[one.low for one in box] for box in boxes])
    highs = np.array([[one.high for one in box] for box in boxes])
    kinds = layout.kinds(lows, highs)
    searched = [(box[0], box[2]) for box in boxes]
    assert kinds.tolist() == [kind_of(box, layout.bounds, share) for box in searched]
    tokens = even_tokens([f"m{number}" for number in range(matchers)], layout.bounds)
    table = Table(layout.bounds, tokens)
    placement = Placement(layout, tokens)
    for name in tokens:
        along = layout.along(lows, highs, kinds, placement.cover(name)).tolist()
        for box, kind, found in zip(searched, kinds.tolist(), along, strict=True):
            # The paper's copies at neighbours aside: nobody would ask there.
            expected = sum(
                1 << dimension
                for dimension in bits_of(kind)
                if name in table.dimensions[dimension].overlapping(box[dimension])
            )
            assert found == expected


def test_of_a_space() -> None:
    layout = layout_of(SPACE)
    assert layout.dimensions == (Bounds(-90, 90), Bounds(0, 9_000), Bounds(0, 200))
    assert layout.columns == (0, 2)
    assert layout.bounds == (Bounds(-90, 90), Bounds(0, 200))
    assert layouts_of([layout]) == {layout.id: layout}
    assert layout_of(SPACE, Scheme.P2P, "speed").columns == (2,)
    assert layout_of(SPACE, Scheme.P2P).columns == (0,)
    points = np.array([[1.0, 2.0, 3.0]])
    assert layout.values(points).tolist() == [[1.0, 3.0]]
    assert layout_of(SPACE, Scheme.FULL).values(points).tolist() == [[0.0]]


@pytest.mark.parametrize(
    "other",
    [
        Layout("other", BOUNDS, (0, 2)),
        Layout("s", (*BOUNDS[:2], Bounds(0, 2)), (0, 2)),
        Layout("s", BOUNDS, (0, 1)),
        Layout("s", BOUNDS, (0,), Scheme.P2P),
        Layout("s", BOUNDS, (0, 2), wide_share=0.4),
    ],
)
def test_who_has_other_settings_has_another_name_for_it(other: Layout) -> None:
    assert other.id != Layout("s", BOUNDS, (0, 2)).id
    assert Layout("s", BOUNDS, (0, 2)).id == Layout("s", BOUNDS, (0, 2)).id


def test_in_the_baselines_width_decides_nothing() -> None:
    lows, highs = np.array([[0.0] * 3, [-math.inf] * 3]), np.array([[99.0] * 3, [math.inf] * 3])
    assert layout_of(SPACE, Scheme.P2P).kinds(lows, highs).tolist() == [1, 0]
    full = layout_of(SPACE, Scheme.FULL)
    kinds = full.kinds(lows, highs)
    assert kinds.tolist() == [1, 1]
    assert full.along(lows, highs, kinds, ((),)).tolist() == [0, 0]
    placement = Placement(full, {"a": (0.0,), "b": (0.0,)})
    assert full.along(lows, highs, kinds, placement.cover("a")).tolist() == [1, 1]
