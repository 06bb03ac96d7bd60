"""Each kind of box is asked for once, from a usable candidate."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.partition import Bounds, SegmentTable, even_tokens
from dovetail.matcher.candidate_choice import choose

_DIMENSIONS = 3
_COSTS = st.lists(
    st.tuples(*(st.one_of(st.just(math.inf), st.floats(0, 10)) for _ in range(_DIMENSIONS))),
    min_size=1,
    max_size=6,
)
_MISSING = st.lists(st.integers(0, 7), min_size=6, max_size=6)
_KINDS = st.frozensets(st.integers(0, 7))


@given(_COSTS, _MISSING, _KINDS)
def test_each_kind_once(
    costs: list[tuple[float, ...]], missing: list[int], kinds: frozenset[int]
) -> None:
    candidates = np.array(
        [[-1 if mask >> place & 1 else place for place in range(3)] for mask in missing]
    )[: len(costs)]
    choices = choose(candidates, kinds, np.array(costs))
    for row in range(len(costs)):
        wanted = [kind for kind in kinds if kind and not kind & missing[row]]
        usable = sum(1 << place for place in range(3) if math.isfinite(costs[row][place]))
        asked = [
            (one.dimension, kind)
            for one in choices.asked
            for kind in one.kinds
            if row in one.rows.tolist()
        ]
        stuck = [kind for rows, some in choices.stuck for kind in some if row in rows.tolist()]
        assert sorted([kind for _, kind in asked] + stuck) == sorted(wanted)
        for dimension, kind in asked:
            assert kind >> dimension & 1
            assert usable >> dimension & 1
        for kind in stuck:
            assert not kind & usable
        if 0 not in kinds and wanted and all(kind == 7 for kind in kinds) and not stuck:
            ((dimension, _),) = asked  # as in the paper: one candidate, the cheapest
            assert costs[row][dimension] == min(costs[row])


@pytest.mark.parametrize(
    ("kinds", "costs"),
    [
        ({0b111}, (3, 2, 1)),
        ({0b111, 0b011}, (3, 2, 1)),
        ({0b111, 0b001}, (9, 2, 1)),
        ({0b001, 0b010, 0b100}, (1, 1, 1)),
        ({0b110, 0b011, 0b101}, (1, 9, 1)),
        ({0}, (1, 1, 1)),
        (set(), (1, 1, 1)),
    ],
)
def test_of_one_point_as_the_table_has_it(kinds: set[int], costs: tuple[float, ...]) -> None:
    bounds = (Bounds(0, 1),) * 3
    table = SegmentTable(bounds, even_tokens(("a",), bounds))
    expected = table.choose_candidates(table.candidates((0.5,) * 3), kinds, costs)
    choices = choose(np.zeros((1, 3), np.int64), kinds, np.array([costs], float))
    assert not choices.stuck
    assert {one.dimension for one in choices.asked} == {one.dimension for one in expected}
