"""Kinds and dimensions of many boxes, compared with attributes/partition.py box by box."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.conjunctions import Range
from dovetail.attributes.partition import Bounds, SegmentTable, bits_of, even_tokens, kind_of
from dovetail.attributes.scheme import Scheme, SpaceSharing
from dovetail.attributes.space import Box, Dimension, Point, Space, matches
from dovetail.matcher.layout import Layout, layout_of, layouts_of
from dovetail.matcher.segment_tables import Placement

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
    table = SegmentTable(layout.bounds, tokens)
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


def shared(scheme: Scheme, along: str = "") -> Layout:
    return layout_of(replace(SPACE, sharing=SpaceSharing(scheme, along)))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scheme", Scheme)
def test_each_candidate_alone_finds_what_a_look_at_all_boxes_finds(
    scheme: Scheme, seed: int
) -> None:
    """Of the boxes that are narrow on its dimension, which are all that it is asked for."""
    random = Random(seed)
    layout = shared(scheme)
    boxes = [_box(random, layout) for _ in range(200)]
    lows, highs = (np.array([one.lows for one in boxes]), np.array([one.highs for one in boxes]))
    kinds = layout.kinds(lows, highs)
    assert scheme is not Scheme.FULL or kinds.all()
    tokens = {
        f"m{number}": tuple(random.uniform(*bound) for bound in layout.bounds)
        for number in range(random.randrange(1, 6))
    }
    placement = Placement(layout, tokens)
    points = np.array([[_value(random, bound) for bound in layout.dimensions] for _ in range(100)])
    usable = np.ones(len(tokens), np.bool_)
    candidates = placement.candidates(layout.values(points), usable, random)
    held = {
        name: layout.along(lows, highs, kinds, placement.cover(name)) for name in placement.names
    }
    found_any = 0
    for values, row in zip(points.tolist(), candidates.tolist(), strict=True):
        expected = {
            number for number, box in enumerate(boxes) if matches(box, Point(tuple(values), {}))
        }
        for dimension, place in enumerate(row):
            bit = 1 << dimension
            asked = {number for number in expected if kinds[number] & bit}
            if place < 0:
                assert not asked
                continue
            along = held[placement.names[place]]
            assert asked == {number for number in expected if along[number] & bit}
            found_any += len(asked)
    assert found_any


def _value(random: Random, bound: Bounds) -> float:
    """Sometimes missing, and sometimes outside the bounds."""
    width = bound.high - bound.low
    drawn = random.uniform(bound.low - width / 4, bound.high + width / 4)
    return math.nan if random.random() < 0.1 else drawn


def _box(random: Random, layout: Layout) -> Box:
    """Sometimes open."""
    lows, highs = [], []
    for bound in layout.dimensions:
        width = bound.high - bound.low
        low = random.uniform(bound.low - width / 4, bound.high)
        lows.append(-math.inf if random.random() < 0.3 else low)
        highs.append(math.inf if random.random() < 0.3 else low + random.uniform(0.1, 0.9) * width)
    return Box(tuple(lows), tuple(highs))


def test_dimensions_with_the_same_bounds_are_not_taken_for_each_other() -> None:
    x, y = Dimension("x", 0, 1), Dimension("y", 0, 1)
    one, other = (layout_of(Space("s", "a", both)) for both in ((x, y), (y, x)))
    assert one.id != other.id


def test_of_a_space() -> None:
    layout = layout_of(SPACE)
    assert layout.dimensions == (Bounds(-90, 90), Bounds(0, 9_000), Bounds(0, 200))
    assert layout.columns == (0, 2)
    assert layout.bounds == (Bounds(-90, 90), Bounds(0, 200))
    assert layouts_of([layout]) == {layout.id: layout}
    assert layout.names == ("lat", "height", "speed")
    assert shared(Scheme.P2P, "speed").columns == (2,)
    assert shared(Scheme.P2P).columns == (0,)
    points = np.array([[1.0, 2.0, 3.0]])
    assert layout.values(points).tolist() == [[1.0, 3.0]]
    assert shared(Scheme.FULL).values(points).tolist() == [[0.0]]


@pytest.mark.parametrize(
    "other",
    [
        Layout("other", BOUNDS, (0, 2)),
        Layout("s", (*BOUNDS[:2], Bounds(0, 2)), (0, 2)),
        Layout("s", BOUNDS, (0, 1)),
        Layout("s", BOUNDS, (0,), Scheme.P2P),
        Layout("s", BOUNDS, (0, 2), Scheme.FULL),
        Layout("s", BOUNDS, (0, 2), wide_share=0.4),
        Layout("s", BOUNDS, (0, 2), names=("y", "x", "z")),
    ],
)
def test_who_has_other_settings_has_another_name_for_it(other: Layout) -> None:
    assert other.id != Layout("s", BOUNDS, (0, 2)).id
    assert Layout("s", BOUNDS, (0, 2)).id == Layout("s", BOUNDS, (0, 2)).id


def test_in_the_baselines_width_decides_nothing() -> None:
    lows, highs = np.array([[0.0] * 3, [-math.inf] * 3]), np.array([[99.0] * 3, [math.inf] * 3])
    assert shared(Scheme.P2P).kinds(lows, highs).tolist() == [1, 0]
    full = shared(Scheme.FULL)
    kinds = full.kinds(lows, highs)
    assert kinds.tolist() == [1, 1]
    assert full.along(lows, highs, kinds, ((),)).tolist() == [0, 0]
    placement = Placement(full, {"a": (0.0,), "b": (0.0,)})
    assert full.along(lows, highs, kinds, placement.cover("a")).tolist() == [1, 1]
