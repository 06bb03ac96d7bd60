"""Spaces: clauses become boxes, publications become points, and invalid ones are refused."""

import math
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.filter_query import parse_query
from dovetail.attributes.grammar import parse
from dovetail.attributes.space import Box, Dimension, Point, Space, matches
from dovetail.errors import ClientError, ConfigError, ReasonCode, WhereError
from dovetail.limits import ATTRIBUTE_NAME_CHARACTERS_MAX, SPACE_DIMENSIONS_MAX, SPACE_TEXTS_MAX

INFINITY = math.inf
TRAFFIC = Space(
    "traffic",
    "traffic/#",
    (Dimension("lat", -90, 90), Dimension("lon", -180, 180), Dimension("speed", 0, 200)),
    frozenset({"road", "kind"}),
    json_fields=True,
)


def after(number: float) -> float:
    return math.nextafter(number, INFINITY)


def matching(clause: str, attributes: dict[str, str | float]) -> bool:
    point = TRAFFIC.point(attributes)
    return any(matches(box, point) for box in TRAFFIC.boxes(parse(clause)))


# What a space is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 1), (2, 1), (math.nan, 1), (0, math.nan), (-INFINITY, 0), (0, INFINITY)],
)
def test_bounds_are_two_numbers_in_order(low: float, high: float) -> None:
    with pytest.raises(ConfigError, match=r"dimension 'lat': \[.*\] are no bounds"):
        Dimension("lat", low, high)


@pytest.mark.parametrize("name", ["", "a\n", "a\0", "x" * (ATTRIBUTE_NAME_CHARACTERS_MAX + 1)])
def test_names_can_be_printed_and_have_a_length(name: str) -> None:
    dimension = Dimension("lat", 0, 1)
    with pytest.raises(ConfigError, match="cannot be the name of a dimension"):
        Dimension(name, 0, 1)
    with pytest.raises(ConfigError, match="cannot be the name of a space"):
        Space(name, "#", (dimension,))
    with pytest.raises(ConfigError, match="cannot be the name of an attribute"):
        Space("s", "#", (dimension,), frozenset({name}))


def test_a_space_has_a_dimension_to_search_by() -> None:
    Space("s", "#", (Dimension("a", 0, 1), Dimension("b", 0, 1, is_searchable=False)))
    for dimensions in ((), (Dimension("b", 0, 1, is_searchable=False),)):
        with pytest.raises(ConfigError, match="space 's': it has no searchable dimension"):
            Space("s", "#", dimensions)


def test_attributes_are_there_once() -> None:
    lat = Dimension("lat", 0, 1)
    with pytest.raises(ConfigError, match="it has two attributes 'lat'"):
        Space("s", "#", (lat, Dimension("lat", 0, 2)))
    with pytest.raises(ConfigError, match="it has two attributes 'lat'"):
        Space("s", "#", (lat,), frozenset({"lat"}))


def test_attributes_are_so_many() -> None:
    def space(dimensions: int, texts: int) -> Space:
        numbers = tuple(Dimension(f"d{index}", 0, 1) for index in range(dimensions))
        return Space("s", "#", numbers, frozenset(f"t{index}" for index in range(texts)))

    space(SPACE_DIMENSIONS_MAX, SPACE_TEXTS_MAX)
    with pytest.raises(ConfigError, match="17 dimensions of at most 16"):
        space(SPACE_DIMENSIONS_MAX + 1, 0)
    with pytest.raises(ConfigError, match="17 texts of at most 16"):
        space(1, SPACE_TEXTS_MAX + 1)


def test_a_space_is_a_value() -> None:
    again = Space("traffic", "traffic/#", TRAFFIC.dimensions, TRAFFIC.texts, json_fields=True)
    assert again == TRAFFIC
    assert hash(again) == hash(TRAFFIC)


# Boxes ------------------------------------------------------------------------------------------


def test_a_clause_becomes_boxes_in_the_order_of_the_dimensions() -> None:
    where = parse("speed <= 25 and 40 <= lat < 41 or road in ('A2', 'A1') and kind == 'car'")
    texts = (("kind", frozenset({"car"})), ("road", frozenset({"A1", "A2"})))
    whole = (-INFINITY,) * 3, (INFINITY,) * 3
    assert TRAFFIC.boxes(where) == (
        Box((40, -INFINITY, -INFINITY), (41, INFINITY, after(25)), ()),
        Box(*whole, texts),
    )
    assert len(set(TRAFFIC.boxes(where))) == 2


@pytest.mark.parametrize(
    ("clause", "why", "position"),
    [
        ("lat < 1 and sped < 5", "space 'traffic' has no attribute 'sped'; is it 'speed'?", 12),
        ("Speed < 5", "is it 'speed'?", 0),
        ("x < 5", "has no attribute 'x'; it has lat, lon, speed, kind, road", 0),
        ("lat < 1 or (x < 1 and x > 2)", "has no attribute 'x'", 12),
        ("lat < 1 or (lat < 0 and x > 2)", "has no attribute 'x'", 24),
        ("road < 5", "in space 'traffic', 'road' is a text, and is compared with a number", 0),
        ("lat == '5'", "in space 'traffic', 'lat' is a number, and is compared with a text", 0),
    ],
)
def test_what_has_no_meaning_in_the_space_is_pointed_at(
    clause: str, why: str, position: int
) -> None:
    with pytest.raises(WhereError) as refused:
        TRAFFIC.boxes(parse(clause))
    assert why in refused.value.message
    assert (refused.value.text, refused.value.position) == (clause, position)


def test_a_query_is_read_with_the_texts_of_the_space() -> None:
    where = parse_query("road=12&speed>25", TRAFFIC.texts)
    (box,) = TRAFFIC.boxes(where)
    assert box.texts == (("road", frozenset({"12"})),)
    assert box.lows == (-INFINITY, -INFINITY, after(25))


# Points -----------------------------------------------------------------------------------------


def test_attributes_become_a_point() -> None:
    point = TRAFFIC.point(
        {"lat": " 40.5\t", "speed": 7, "road": "12", "other": "nan", "where": "?"}
    )
    assert point.values[::2] == (40.5, 7.0)
    assert math.isnan(point.values[1])
    assert point.texts == {"road": "12"}


def test_a_number_given_for_a_text_is_written_as_in_clauses() -> None:
    assert TRAFFIC.point({"road": 12.0, "kind": 0.5}).texts == {"road": "12", "kind": "0.5"}


@pytest.mark.parametrize(
    "value",
    ["", "x", "nan", "inf", "-Infinity", "1e999", "1_0", "0x1", "1,5", "٣", math.nan, INFINITY],
)
def test_a_dimension_has_numbers_only(value: str | float) -> None:
    with pytest.raises(ClientError) as refused:
        TRAFFIC.point({"lat": "1", "speed": value})
    assert refused.value.reason is ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert refused.value.message == (
        f"attribute 'speed': {str(value)!r} is not a number that can be compared"
    )


@pytest.mark.parametrize(
    ("clause", "attributes", "expected"),
    [
        ("lat < 41", {"lat": "40"}, True),
        ("lat < 41", {"lat": "41"}, False),
        ("lat <= 41", {"lat": "41.0"}, True),
        ("lat < 41", {}, False),
        ("lat < 41", {"lon": "1"}, False),
        ("lat > 1000", {"lat": "1e6"}, True),
        ("lat >= 1e308", {"lat": "1.7e308"}, True),
        ("lat in (1, 2)", {"lat": "2"}, True),
        ("road == 'A1'", {"road": "A1"}, True),
        ("road == 'A1'", {"road": "a1"}, False),
        ("road == 'A1'", {}, False),
        ("road == 'A1' and lat < 1", {"road": "A1"}, False),
        ("road == 'A1' or lat < 1", {"road": "A1"}, True),
    ],
)
def test_points_in_boxes(clause: str, attributes: dict[str, str | float], expected: bool) -> None:
    assert matching(clause, attributes) is expected


def test_a_box_that_is_open_takes_points_without_values() -> None:
    nothing = Point((math.nan,), {})
    assert matches(Box((-INFINITY,), (INFINITY,)), nothing)
    assert not matches(Box((-INFINITY,), (1e308,)), nothing)
    assert not matches(Box((-1e308,), (INFINITY,)), nothing)


# JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"lat": 40.5, "speed": "7", "road": "A1", "x": 1}', ["40.5", "7", "A1"]),
        (b'{"lat": -1e2, "road": 12}', ["-1e2", "12"]),
        (b'{"lat": 12345678901234567890}', ["12345678901234567890"]),
        (b'{"road": 12345678901234567890123}', ["12345678901234567890123"]),
        (b'{"lat": true, "lon": null, "speed": [1], "road": {"kind": "x"}}', []),
        (b'{"lat": 1, "lat": 2}', ["2"]),
        ('{"road": "日本\\n"}'.encode(), ["日本\n"]),
        (b" {} ", []),
        (b"", []),
    ],
)
def test_fields_of_a_payload_are_attributes(payload: bytes, expected: list[str]) -> None:
    attributes = TRAFFIC.json_attributes(payload)
    assert list(attributes.values()) == expected
    TRAFFIC.point(attributes)


def test_fields_are_none_of_our_business_unless_the_space_says_so() -> None:
    assert Space("s", "#", TRAFFIC.dimensions).json_attributes(b'{"lat": 1') == {}


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[]",
        b"25",
        b'{"lat": 1.2.3}',
        b'{"lat": NaN}',
        b'{"lat": 1} x',
        b'{"road": "\xff"}',
        b"\xff",
        b'{"x": ' + b"[" * 100_000,
    ],
)
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(
        ClientError, match="space 'traffic': the payload is no JSON object"
    ) as refused:
        TRAFFIC.json_attributes(payload)
    assert refused.value.reason is ReasonCode.PAYLOAD_FORMAT_INVALID


def test_a_number_beyond_floats_is_refused_by_its_name() -> None:
    with pytest.raises(ClientError, match="attribute 'lat': '1e999' is not a number"):
        TRAFFIC.point(TRAFFIC.json_attributes(b'{"lat": 1e999}'))


fields = st.sampled_from(["lat", "speed", "road", "x"])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(fields, inner, max_size=2),
    max_leaves=5,
)


@given(st.dictionaries(fields, json_values))
def test_numbers_and_strings_arrive_as_they_left(payload: dict[str, object]) -> None:
    attributes = TRAFFIC.json_attributes(msgspec.json.encode(payload))
    expected = {
        name: value
        for name, value in payload.items()
        if name != "x" and isinstance(value, str | int | float) and not isinstance(value, bool)
        if isinstance(value, str) or math.isfinite(value)  # others are null in JSON
    }
    assert attributes.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, str):
            assert attributes[name] == value
        else:
            assert float(attributes[name]) == float(value)


@given(st.binary(max_size=30) | st.text('{}[]":,lat 1e-.\\u', max_size=30).map(str.encode))
def test_any_payload_is_taken_or_refused_and_nothing_else(payload: bytes) -> None:
    with suppress(ClientError):
        TRAFFIC.point(TRAFFIC.json_attributes(payload))
