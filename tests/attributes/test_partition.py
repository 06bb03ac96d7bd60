"""Each candidate alone finds what it is asked for, whichever matchers have come and gone."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.conjunctions import Range
from dovetail.attributes.partition import (
    Bounds,
    ChosenCandidate,
    Segments,
    SegmentTable,
    bits_of,
    even_tokens,
    kind_of,
)

BOUNDS = (Bounds(0, 100), Bounds(-50, 50), Bounds(0, 1))
_NAMES = ("a", "b", "c", "d", "e")

Ranges = tuple[Range, ...]
Point = tuple[float, ...]


def _values(bound: Bounds) -> st.SearchStrategy[float]:
    """Mostly within the bounds, often on a border of something, sometimes far outside."""
    width = bound.high - bound.low
    steps = st.integers(-4, 20).map(lambda step: bound.low + width * step / 16)
    return st.one_of(steps, st.floats(bound.low - width, bound.high + width))


def _ranges(bound: Bounds) -> st.SearchStrategy[Range]:
    ends = st.tuples(_values(bound), _values(bound)).filter(lambda pair: pair[0] != pair[1])
    closed = ends.map(lambda pair: Range(min(pair), max(pair)))
    below = _values(bound).map(lambda value: Range(-math.inf, value))
    above = _values(bound).map(lambda value: Range(value, math.inf))
    return st.one_of(closed, closed, below, above, st.just(Range(-math.inf, math.inf)))


_BOXES = st.lists(st.tuples(*map(_ranges, BOUNDS)), max_size=12)
_POINTS = st.tuples(*(st.one_of(_values(bound), st.just(math.nan)) for bound in BOUNDS))
_TOKENS = st.dictionaries(
    st.sampled_from(_NAMES), st.tuples(*map(_values, BOUNDS)), min_size=1, max_size=5
)
_COSTS = st.tuples(*(st.floats(0, 100) for _ in BOUNDS))


def matches(ranges: Ranges, point: Point) -> bool:
    return all(
        one == Range(-math.inf, math.inf) if math.isnan(value) else one.low <= value < one.high
        for one, value in zip(ranges, point, strict=True)
    )


def found(
    table: SegmentTable, question: ChosenCandidate, boxes: Sequence[Ranges], point: Point
) -> list[int]:
    """Return what a matcher finds among its boxes of the dimension that it is asked about."""
    return [
        number
        for number, ranges in enumerate(boxes)
        if (kind := kind_of(ranges, BOUNDS)) in question.kinds
        and table.holders(ranges, kind).get(question.matcher, 0) >> question.dimension & 1
        and matches(ranges, point)
    ]


def check(
    table: SegmentTable, boxes: Sequence[Ranges], point: Point, costs: Sequence[float]
) -> None:
    kinds = {kind_of(ranges, BOUNDS) for ranges in boxes}
    questions = table.choose_candidates(table.candidates(point), kinds, costs)
    answers = [number for one in questions for number in found(table, one, boxes, point)]
    expected = [
        number
        for number, ranges in enumerate(boxes)
        if kind_of(ranges, BOUNDS) and matches(ranges, point)
    ]
    assert sorted(answers) == expected
    if all(kind == 0b111 for kind in kinds) and not any(map(math.isnan, point)):
        assert len(questions) <= 1  # as in the paper


@given(_TOKENS, _BOXES, _POINTS, _COSTS)
def test_the_candidates_that_are_asked_find_all_that_matches_once(
    tokens: dict[str, Point], boxes: list[Ranges], point: Point, costs: tuple[float, ...]
) -> None:
    check(SegmentTable(BOUNDS, tokens), boxes, point, costs)


@given(_TOKENS, _BOXES, _POINTS)
def test_any_candidate_is_enough_for_boxes_that_are_narrow_there(
    tokens: dict[str, Point], boxes: list[Ranges], point: Point
) -> None:
    """This holds for any costs, so a broker may pass over a matcher that does not answer."""
    table = SegmentTable(BOUNDS, tokens)
    for dimension, name in enumerate(table.candidates(point)):
        narrow = [
            ranges
            for ranges in boxes
            if kind_of(ranges, BOUNDS) >> dimension & 1 and matches(ranges, point)
        ]
        if name is None:
            assert narrow == []
        for ranges in narrow:
            holders = table.holders(ranges, kind_of(ranges, BOUNDS))
            assert holders[str(name)] >> dimension & 1


@given(st.data(), _BOXES, st.lists(_POINTS, max_size=4), _COSTS)
def test_so_it_is_while_matchers_come_and_go(
    data: st.DataObject, boxes: list[Ranges], points: list[Point], costs: tuple[float, ...]
) -> None:
    table = SegmentTable(BOUNDS, even_tokens(("a", "b"), BOUNDS))
    for step in range(data.draw(st.integers(1, 8))):
        tokens = dict(table.tokens)
        if len(tokens) > 1 and data.draw(st.booleans()):
            del tokens[data.draw(st.sampled_from(sorted(tokens)))]
        else:
            tokens[f"new-{step}"] = table.half_of(data.draw(st.sampled_from(sorted(tokens))))
        table = SegmentTable(BOUNDS, tokens)
        for point in points:
            check(table, boxes, point, costs)


@given(_TOKENS, _values(BOUNDS[0]))
def test_segments_lie_side_by_side(tokens: dict[str, Point], value: float) -> None:
    segments = Segments({name: own[0] for name, own in tokens.items()})
    having = [
        name for name in tokens if segments.segment(name).low <= value < segments.segment(name).high
    ]
    assert having == [segments.owner(value)]
    assert segments.overlapping(Range(value, math.nextafter(value, math.inf))) == tuple(having)
    all_of_them = segments.overlapping(Range(-math.inf, math.inf))
    assert set(all_of_them) | set(segments.owners) == set(tokens)
    assert segments.overlapping(Range(value, value)) == ()


def test_half_of_a_segment_goes_to_who_joins() -> None:
    table = SegmentTable(BOUNDS, even_tokens(("a", "b"), BOUNDS))
    assert table.half_of("b") == (75, 25, 0.75)
    grown = SegmentTable(BOUNDS, table.tokens | {"c": table.half_of("b")})
    assert grown.dimensions[0].segment("b") == Range(50, 75)
    assert grown.dimensions[0].segment("c") == Range(75, math.inf)
    assert grown.dimensions[0].segment("a") == Range(-math.inf, 50)
    assert grown.widest() == "a"
    shrunk = SegmentTable(BOUNDS, {name: own for name, own in grown.tokens.items() if name != "b"})
    assert shrunk.dimensions[0].segment("a") == Range(-math.inf, 75)


def test_who_is_left_with_its_token_in_the_middle_shares_all_the_same() -> None:
    """The matchers below it are gone, and it has everything: the middle is its own token."""
    tokens = even_tokens(("a", "b"), BOUNDS)
    left = SegmentTable(BOUNDS, {"b": tokens["b"]})
    assert left.half_of("b") == tokens["a"]
    grown = SegmentTable(BOUNDS, left.tokens | {"c": left.half_of("b")})
    for segments, token in zip(grown.dimensions, tokens["b"], strict=True):
        assert segments.segment("c") == Range(-math.inf, token)
        assert segments.segment("b") == Range(token, math.inf)


def test_two_that_join_at_the_same_place_do_not_both_answer() -> None:
    segments = Segments({"a": 0, "b": 50, "c": 50})
    assert segments.owner(50) == "c"
    low, high = segments.segment("b")
    assert low == high


def test_wide_ranges_make_no_copies() -> None:
    names = [f"m{number}" for number in range(20)]
    table = SegmentTable(BOUNDS, even_tokens(names, BOUNDS))
    whole = Range(-math.inf, math.inf)
    narrow = Range(0.3, 0.35)
    assert kind_of((whole, whole, narrow), BOUNDS) == 0b100
    assert table.holders((whole, whole, narrow), 0b100) == {"m6": 0b100}
    assert kind_of((whole, whole, whole), BOUNDS) == 0
    assert table.holders((whole, whole, whole), 0) == {}
    # All values beyond a bound are in one segment.
    assert kind_of((Range(-1e9, 20), whole, whole), BOUNDS) == 0b001


def test_copies_that_would_all_be_with_one_matcher_go_to_its_neighbours_too() -> None:
    names = [f"m{number}" for number in range(5)]
    table = SegmentTable(BOUNDS, even_tokens(names, BOUNDS))
    here = (Range(81, 82), Range(31, 32), Range(0.81, 0.82))
    assert table.holders(here, 0b111) == {"m4": 0b111, "m0": 0b110}
    alone = SegmentTable(BOUNDS, even_tokens(["m0"], BOUNDS))
    assert alone.holders(here, 0b111) == {"m0": 0b111}


@pytest.mark.parametrize(
    ("kinds", "costs", "asked"),
    [
        ({0b111}, (3, 2, 1), {2: {0b111}}),
        ({0b111, 0b011}, (3, 2, 1), {1: {0b111, 0b011}}),
        ({0b111, 0b001}, (9, 2, 1), {0: {0b111, 0b001}}),
        ({0b001, 0b010, 0b100}, (1, 1, 1), {0: {0b001}, 1: {0b010}, 2: {0b100}}),
        ({0b110, 0b011, 0b101}, (1, 9, 1), {0: {0b011, 0b101}, 2: {0b110}}),
        ({0}, (1, 1, 1), {}),
        (set(), (1, 1, 1), {}),
    ],
)
def test_as_few_are_asked_as_there_have_to_be(
    kinds: set[int], costs: tuple[float, ...], asked: dict[int, set[int]]
) -> None:
    table = SegmentTable(BOUNDS, even_tokens(_NAMES, BOUNDS))
    questions = table.choose_candidates(table.candidates((1, 1, 1)), kinds, costs)
    assert {one.dimension: set(one.kinds) for one in questions} == asked


def test_bits() -> None:
    assert list(bits_of(0)) == []
    assert list(bits_of(0b1011)) == [0, 1, 3]
