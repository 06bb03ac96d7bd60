"""Sketches as bytes: a reader returns a sketch or raises a SketchFormatError, nothing else."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import SketchFormatError
from dovetail.topics.sketches import (
    METHODS,
    build_sketch,
    sketch_class,
    sketch_from_bytes,
    sketch_to_bytes,
    wire,
)
from dovetail.topics.topic_column import TopicColumn
from support.strategies.topics import filters, names

all_methods = pytest.mark.parametrize("method", METHODS)


def whole(method: str = "lines") -> bytes:
    sketch = build_sketch(method, TopicColumn.of(["a/+/b", "c/#", "d"]), seed=5, lineage=9)
    return sketch_to_bytes(sketch)


def reseal(data: bytes, fields: dict[str, Any]) -> bytes:
    """Change header fields and fit the checksum, as an attacker would."""
    header = wire._Header(*wire._HEADER.unpack_from(data))._replace(**fields)
    content = wire._HEADER.pack(*header) + data[wire._HEADER.size : -4]
    return content + struct.pack("<I", zlib.crc32(content))


@all_methods
@given(subscribed=st.lists(filters(), max_size=20), topic=names)
def test_a_sketch_survives_the_journey(method: str, subscribed: list[str], topic: str) -> None:
    sketch = build_sketch(method, TopicColumn.of(subscribed), seed=3, lineage=4)
    arrived = sketch_from_bytes(sketch_to_bytes(sketch))
    assert arrived.geometry == sketch.geometry
    assert (arrived.version, arrived.lineage, arrived.elements) == (
        sketch.version,
        4,
        sketch.elements,
    )
    assert np.array_equal(arrived.words, sketch.words)
    assert arrived.search(topic) == sketch.search(topic)
    assert not arrived.counting


def test_a_sparse_sketch_travels_small() -> None:
    sketch = sketch_class("lines").sized_for(1_000_000, 0.001)
    sketch.add("a/b")
    assert len(sketch_to_bytes(sketch)) < sketch.words.nbytes / 50


@all_methods
def test_every_cut_is_refused(method: str) -> None:
    data = whole(method)
    for length in range(len(data)):
        with pytest.raises(SketchFormatError, match="cut short"):
            sketch_from_bytes(data[:length])
    with pytest.raises(SketchFormatError, match="too long"):
        sketch_from_bytes(data + b"\0")


@all_methods
def test_every_altered_byte_is_refused(method: str) -> None:
    data = whole(method)
    for position in range(len(data)):
        altered = bytearray(data)
        altered[position] ^= 0x41
        with pytest.raises(SketchFormatError):
            sketch_from_bytes(bytes(altered))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SketchFormatError):
        sketch_from_bytes(data)
    with pytest.raises(SketchFormatError):
        sketch_from_bytes(wire._MAGIC + struct.pack("<H", wire.FORMAT_VERSION) + data)


def test_another_format_is_named() -> None:
    data = whole()
    with pytest.raises(SketchFormatError, match="format 1; this program reads format 3"):
        sketch_from_bytes(data[:4] + struct.pack("<H", 1) + data[6:])
    with pytest.raises(SketchFormatError, match="no sketch"):
        sketch_from_bytes(b"PNG" + data[3:])


@pytest.mark.parametrize(
    "lie",
    [
        {"method": 0},
        {"method": 99},
        {"bits": 0},
        {"bits": 1 << 62},
        {"bits": 512 * 1000},
        {"bits": 513},
        {"hashes": 3},
        {"hashes": 255, "method": 1},
        {"hashes": 0, "method": 1},
        {"hashes": 0, "method": 3},
        {"plain_bytes": 1 << 60},
        {"plain_bytes": 0},
        {"encoding": 7},
        {"body_bytes": 3},
        {"extra_bytes": 1 << 50},
    ],
    ids=str,
)
def test_headers_that_lie_are_refused_before_they_cost_anything(lie: dict[str, int]) -> None:
    with pytest.raises(SketchFormatError):
        sketch_from_bytes(reseal(whole(), lie))


def test_a_sketch_with_room_left_travels_smaller_than_its_bits() -> None:
    sketch = sketch_class("lines").sized_for(20_000, 0.003)
    sketch.add_column(TopicColumn.of([f"x/{number}" for number in range(5_000)]))
    assert len(sketch_to_bytes(sketch)) < 0.9 * sketch.words.nbytes


def test_bits_that_are_packed_otherwise_than_said_are_refused() -> None:
    data = whole()
    header = wire._Header(*wire._HEADER.unpack_from(data))
    with pytest.raises(SketchFormatError):
        sketch_from_bytes(reseal(data, {"encoding": 1 - header.encoding}))


def test_bits_that_swell_are_refused() -> None:
    bomb = zlib.compress(b"\0" * (1 << 24))
    data = whole()
    header = wire._Header(*wire._HEADER.unpack_from(data))
    content = (
        wire._HEADER.pack(*header._replace(body_bytes=len(bomb), encoding=1, extra_bytes=0)) + bomb
    )
    with pytest.raises(SketchFormatError, match="not as long as"):
        sketch_from_bytes(content + struct.pack("<I", zlib.crc32(content)))


@pytest.mark.parametrize(
    "extra",
    [
        b"",
        b"\1",
        struct.pack("<I", 1 << 31),
        struct.pack("<IiI", 1, 2, 1 << 30),
        struct.pack("<IiII", 1, 2, 2, 0),
        struct.pack("<I", 0) + b"x",
    ],
)
def test_patterns_that_lie_are_refused(extra: bytes) -> None:
    data = whole("bfp")
    header = wire._Header(*wire._HEADER.unpack_from(data))
    body = data[wire._HEADER.size : wire._HEADER.size + header.body_bytes]
    content = wire._HEADER.pack(*header._replace(extra_bytes=len(extra))) + body + extra
    sealed = content + struct.pack("<I", zlib.crc32(content))
    if extra:
        with pytest.raises(SketchFormatError):
            sketch_from_bytes(sealed)
    else:
        assert not sketch_from_bytes(sealed).search("x/y").found
