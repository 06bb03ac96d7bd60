"""A kernel reads the attributes of runs exactly as `point_of` does, or leaves them to it."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import codec
from dovetail.attributes.space import Dimension, Space
from dovetail.broker.publication_point import point_of, points_of
from dovetail.codec import forwardable_properties
from dovetail.codec.kernels.scan import QOS_0
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5
from dovetail.codec.run import Run
from dovetail.messages import Message

SPACE = Space(
    "s",
    "#",
    (Dimension("lat", -90, 90), Dimension("speed", 0, 200)),
    frozenset({"note"}),
    json_fields=True,
)

values = st.sampled_from(
    [
        *("12", "-3.5", "0", "-0", "0.25", "123456789012345", "1234567890123456", "5e1", "1E400"),
        *("01", "+1", ".5", "5.", "-", "--1", "1.2.3", "NaN", "Infinity", "0x10", "1_0"),
        *('"7"', '" 8 "', '"+9.5"', '"fast"', '""', '"1e2"', '"\\u0031"', '"é"', '"a\x01b"'),
        *("true", "false", "null", "tru", "nullx", "[]", "[1]", "{}", '{"lat": 1}', ""),
    ]
)
names = st.sampled_from(
    ['"lat"', '"speed"', '"note"', '"other"', '"la"', '"latt"', '"l\\u0061t"', '"é"', "lat", '""']
)
spaces_between = st.sampled_from(["", "", "", " ", "\n\t", "\r", "\x0b", "\ufeff"])


@st.composite
def fields(draw: st.DrawFn) -> str:
    parts = [draw(names), ":", draw(values)]
    return "".join(part + draw(spaces_between) for part in parts)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """JSON objects, and what resembles them."""
    inner = draw(st.sampled_from([",", ",", ",", ",,", ""])).join(
        draw(st.lists(fields(), max_size=4))
    )
    begin = draw(spaces_between) + draw(st.sampled_from(["{", "{", "{", "{{", "[", ""]))
    end = draw(st.sampled_from(["}", "}", "}", "}}", ",}", "", "} x"])) + draw(spaces_between)
    return (begin + draw(spaces_between) + inner + end).encode()


payloads = st.one_of(
    objects(),
    st.binary(max_size=8),
    st.dictionaries(
        st.sampled_from(["lat", "speed", "note", "other"]),
        st.floats() | st.integers() | st.text(max_size=3) | st.booleans() | st.none(),
    ).map(lambda one: json.dumps(one).encode()),
)
properties = st.sampled_from(
    [
        b"",
        b"",
        forwardable_properties(user=(("speed", "1"),)),
        forwardable_properties(user=(("lat", "2.5"), ("note", "x"))),
        forwardable_properties(content_type="application/json", user=(("lat", "north"),)),
    ]
)


def run_of(version: int, qos: int, publications: list[tuple[bytes, bytes]]) -> Run:
    data = [
        codec.encode_publish(
            version, b"t", payload, qos, packet_id=number if qos else 0, properties=found
        )
        for number, (payload, found) in enumerate(publications, 1)
    ]
    return Run(b"".join(data), version, QOS_0 + qos, len(data), 1)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@settings(max_examples=400)
@given(publications=st.lists(st.tuples(payloads, properties), min_size=1, max_size=3))
def test_the_kernel_agrees_with_python(
    version: int, qos: int, publications: list[tuple[bytes, bytes]]
) -> None:
    if version == MQTT_3_1_1:
        publications = [(payload, b"") for payload, _ in publications]
    points = points_of(SPACE, run_of(version, qos, publications))
    if points is None:
        return
    for row, (payload, found) in enumerate(publications):
        point = point_of(SPACE, Message(b"t", payload, qos, False, found, None, ""))
        assert bool(points.known[row]) == (point is not None)
        expected = (math.nan, math.nan) if point is None else point.values
        assert [*map(repr, points.values[row].tolist())] == [*map(repr, expected)]


@pytest.mark.parametrize(
    ("payload", "lat", "speed"),
    [
        (b'{"lat":40.5,"speed":12}', 40.5, 12.0),
        (b'{"sensor": "a-7", "ok": true, "lat": -0.25, "at": 1763589600123456789}', -0.25, None),
        (b' {\n  "speed" : "88.5" ,\t"note": "fine" } \r\n', None, 88.5),
        (b'{"speed": null, "lat": 3}', 3.0, None),
        (b"{}", None, None),
        (b"", None, None),
    ],
)
@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_the_kernel_reads_flat_payloads(
    version: int, payload: bytes, lat: float | None, speed: float | None
) -> None:
    points = points_of(SPACE, run_of(version, 1, [(payload, b"")] * 2))
    assert points is not None
    for row in points.values.tolist():
        assert [None if math.isnan(value) else value for value in row] == [lat, speed]


@pytest.mark.parametrize(
    "payload",
    [b'{"meta": {"lat": 1}}', b'{"lat": 1, "lat": 2}', b'{"note": "caf\xc3\xa9"}', b"21.5", b"{"],
)
def test_the_kernel_leaves_the_rest_to_python(payload: bytes) -> None:
    assert points_of(SPACE, run_of(MQTT_5, 0, [(b"{}", b""), (payload, b"")])) is None
