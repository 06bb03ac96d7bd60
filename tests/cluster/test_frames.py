"""Frames come out as they went in, however the stream is cut; a hostile length costs nothing."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cluster.frames import HEADER_BYTES, FrameReader, encode, header
from dovetail.errors import PeerError

LIMIT = 1_000

kinds = st.integers(0, 255)
bodies = st.binary(max_size=LIMIT - HEADER_BYTES)
frame_lists = st.lists(st.tuples(kinds, bodies), max_size=8)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(borders)]


@given(frame_lists, st.lists(st.integers(0, 10_000), max_size=20))
def test_however_it_is_cut(sent: list[tuple[int, bytes]], places: list[int]) -> None:
    reader = FrameReader(LIMIT)
    stream = b"".join(encode(kind, body) for kind, body in sent)
    received = [frame for piece in cut(stream, places) for frame in reader.feed(piece)]
    assert received == sent
    assert reader.kept_bytes == 0


@given(frame_lists, kinds, bodies, st.data())
def test_every_truncation_is_waited_for(
    sent: list[tuple[int, bytes]], kind: int, body: bytes, data: st.DataObject
) -> None:
    reader = FrameReader(LIMIT)
    last = encode(kind, body)
    end = data.draw(st.integers(0, len(last) - 1))
    stream = b"".join(encode(kind, body) for kind, body in sent)
    assert reader.feed(stream + last[:end]) == sent
    assert reader.kept_bytes == end
    assert reader.feed(last[end:]) == [(kind, body)]


def test_byte_by_byte() -> None:
    reader = FrameReader(LIMIT)
    stream = encode(1, b"") + encode(2, b"body") + encode(3, b"x" * (LIMIT - HEADER_BYTES))
    received = [frame for byte in stream for frame in reader.feed(bytes([byte]))]
    assert received == [(1, b""), (2, b"body"), (3, b"x" * (LIMIT - HEADER_BYTES))]


@given(st.integers(LIMIT - HEADER_BYTES + 1, (1 << 32) - 1), frame_lists, st.data())
def test_a_hostile_length_is_refused_with_its_header(
    length: int, before: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    reader = FrameReader(LIMIT)
    stream = b"".join(encode(kind, body) for kind, body in before) + header(9, length)
    *pieces, last = cut(stream, [data.draw(st.integers(0, len(stream) - 1))])
    for piece in pieces:
        reader.feed(piece)
    with pytest.raises(PeerError, match=f"{length + HEADER_BYTES:,} bytes"):
        reader.feed(last)


def test_what_is_kept_is_what_has_come() -> None:
    size = 1 << 30
    reader = FrameReader(size)
    tracemalloc.start()
    try:
        assert reader.feed(header(1, size - HEADER_BYTES)) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_large_frame_in_many_reads_takes_a_few_times_its_size() -> None:
    body = bytes(4_000_000)
    reader = FrameReader(len(body) + HEADER_BYTES)
    stream = encode(7, body)
    tracemalloc.start()
    try:
        received = []
        for at in range(0, len(stream), 1_000):
            received += reader.feed(stream[at : at + 1_000])
        assert tracemalloc.get_traced_memory()[1] < 4 * len(body)
    finally:
        tracemalloc.stop()
    assert received == [(7, body)]


def test_the_limit_may_rise_between_frames() -> None:
    reader = FrameReader(HEADER_BYTES + 1)
    assert reader.feed(encode(1, b"a")) == [(1, b"a")]
    reader.frame_bytes_max = LIMIT
    assert reader.feed(encode(2, b"abc")) == [(2, b"abc")]


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_any_bytes_are_frames_or_a_fault(pieces: list[bytes]) -> None:
    reader = FrameReader(60)
    for piece in pieces:
        try:
            reader.feed(piece)
        except PeerError:
            return
        assert reader.kept_bytes < 60
