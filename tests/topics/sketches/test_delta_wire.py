"""Deltas as bytes: after each a peer has the owner's bits, and invalid ones are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import SketchError, SketchFormatError
from dovetail.topics.bank import SketchBank
from dovetail.topics.sketches import (
    METHODS,
    LinesSketch,
    SketchDelta,
    delta_from_bytes,
    delta_to_bytes,
    sketch_class,
    sketch_from_bytes,
    sketch_to_bytes,
)
from dovetail.topics.sketches.delta_wire import _DeltaReader, _number_to_bytes
from dovetail.topics.topic_column import TopicColumn
from support.strategies.topics import filters

all_methods = pytest.mark.parametrize("method", METHODS)


def a_delta() -> SketchDelta:
    sketch = LinesSketch(1 << 20, lineage=1)
    sketch.add_column(TopicColumn.of([f"a/{number}" for number in range(50)]))
    before = sketch.version
    sketch.add("b/+")
    for number in range(5):
        sketch.discard(f"a/{number}")
    return sketch.delta(before)


@all_methods
@given(
    turns=st.lists(st.tuples(st.lists(filters(), max_size=5), st.integers(0, 5)), max_size=6),
    skipped=st.sets(st.integers(0, 5)),
)
@settings(max_examples=30)
def test_a_peer_follows(method: str, turns: list[tuple[list[str], int]], skipped: set[int]) -> None:
    """Some deltas are lost, and the next starts at the known version; each comes twice."""
    sketch = sketch_class(method).sized_for(300, 0.01, lineage=2**64 - 1)
    peer = sketch_from_bytes(sketch_to_bytes(sketch))
    held: list[str] = []
    for turn, (added, discarded) in enumerate(turns):
        sketch.add_column(TopicColumn.of(added))
        held += added
        for _ in range(min(discarded, len(held))):
            sketch.discard(held.pop(0))
        if turn not in skipped:
            delta = delta_to_bytes(sketch.delta(peer.version))
            for _ in range(2):
                peer.apply(delta_from_bytes(delta, peer.geometry))
            assert np.array_equal(peer.words, sketch.words)
            assert (peer.version, peer.elements) == (sketch.version, sketch.elements)


@pytest.mark.parametrize("bits", [512, 1024, 512 * 77, 512 * 300_007])
def test_a_place_is_the_same_after_the_journey(bits: int) -> None:
    """A delta has the line of a key and the bits in it, and nothing more."""
    rng = np.random.default_rng(bits)
    keys = np.unique(rng.integers(0, 2**64, 1_000, np.uint64, endpoint=False))
    keys[0], keys[-1] = 0, 2**64 - 1
    geometry = LinesSketch(bits, counting=False).geometry
    nothing = np.zeros(0, np.uint64)
    delta = SketchDelta(geometry, 1, 0, 1, 5, keys, nothing, nothing, b"")
    arrived = delta_from_bytes(delta_to_bytes(delta), geometry)
    one, other = (LinesSketch(bits, lineage=1, counting=False) for _ in range(2))
    one.apply(delta)
    other.apply(arrived)
    assert np.array_equal(one.words, other.words)
    assert one.words.any()


def test_an_element_takes_six_bytes_at_most_and_fewer_among_many() -> None:
    sketch = LinesSketch(512 * 200_000, lineage=1)
    sketch.add("a/b/c/d/e/f")
    assert len(sketch.delta(0).present) == 7
    assert len(delta_to_bytes(sketch.delta(0))) <= 7 * 6 + 20
    sketch.add_column(TopicColumn.of([f"a/b/c/d/e/{number}" for number in range(2_000)]))
    delta = sketch.delta(0)
    assert len(delta_to_bytes(delta)) <= len(delta.present) * 5 + 20


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**32, 2**64 - 1])
def test_numbers(number: int) -> None:
    assert _DeltaReader(_number_to_bytes(number)).number() == number


@pytest.mark.parametrize("data", [b"\x80", b"\xff" * 10 + b"\1", b"\xff" * 9 + b"\x7f", b""])
def test_numbers_that_are_none(data: bytes) -> None:
    with pytest.raises(SketchFormatError):
        _DeltaReader(data).number()


def test_every_cut_is_refused() -> None:
    delta = a_delta()
    assert len(delta.present)
    assert len(delta.gone)
    data = delta_to_bytes(delta)
    for length in range(len(data)):
        with pytest.raises(SketchFormatError):
            delta_from_bytes(data[:length], delta.geometry)


def test_places_that_are_not_there_are_refused() -> None:
    """A delta to a larger sketch that claims to be one to a smaller."""
    delta = a_delta()
    small = LinesSketch(1024).geometry
    data = bytearray(delta_to_bytes(delta))
    size = _number_to_bytes(delta.geometry.bits // 512)
    assert data[1:].startswith(size)
    data[1 : 1 + len(size)] = _number_to_bytes(2)
    with pytest.raises(SketchFormatError, match=r"line \d+ of 2"):
        delta_from_bytes(bytes(data), small)


@pytest.mark.parametrize(
    ("numbers", "rest"),
    [
        ((2, 1, 1, 2, 0, 0, 0), b""),  # further back than there are versions
        ((2, 1, 1, 1, 0, 2**63, 0), b""),
        ((2, 1, 1, 1, 0, 2**63, 0), b"\1"),
        ((2, 1, 1, 1, 0, 1, 0), b"\0\0\0\0"),  # steps of no bytes
        ((2, 1, 1, 1, 0, 1, 0), b"\x09" + b"\0" * 12),
        ((2, 1, 1, 1, 0, 2, 0), b"\4" + b"\xff" * 14),  # a place far outside
        ((2, 1, 1, 1, 0, 0, 1), b"\1\0\0\0\0"),  # no mask
    ],
)
def test_deltas_that_lie_are_refused(numbers: tuple[int, ...], rest: bytes) -> None:
    data = b"\4" + b"".join(_number_to_bytes(number) for number in numbers) + rest
    with pytest.raises(SketchFormatError):
        delta_from_bytes(data, LinesSketch(1024).geometry)


@given(st.binary(max_size=60), st.sampled_from(METHODS), st.booleans())
@settings(max_examples=300)
def test_random_bytes_are_refused_or_harmless(data: bytes, method: str, is_close: bool) -> None:
    """A delta that is accepted has valid lines; any other raises a SketchError."""
    kind = sketch_class(method)
    peer = kind.sized_for(10, 0.01, lineage=1).copy()
    bank = SketchBank[int]()
    if isinstance(peer, LinesSketch):
        bank.put(1, peer)
    if is_close:
        genuine = kind.sized_for(10, 0.01, lineage=1)
        genuine.add("a")
        data = delta_to_bytes(genuine.delta(0))[: 30 - len(data) % 30] + data
    try:
        delta = delta_from_bytes(data, peer.geometry)
        peer.apply(delta)
        if bank:
            bank.apply(1, delta)
    except SketchError:
        return
    assert len(delta.gone) == len(delta.cleared)


def test_a_delta_to_another_sketch_is_told_from_nonsense() -> None:
    delta = a_delta()
    with pytest.raises(SketchError, match="another sketch") as caught:
        delta_from_bytes(delta_to_bytes(delta), LinesSketch(1024).geometry)
    assert not isinstance(caught.value, SketchFormatError)
    with pytest.raises(SketchFormatError, match="method"):
        delta_from_bytes(b"\x63" + delta_to_bytes(delta)[1:], delta.geometry)


def test_a_refused_delta_leaves_everything_as_it_was() -> None:
    sketch = sketch_class("bfp").sized_for(100, 1e-6, lineage=1)
    peer = sketch.copy()
    sketch.add("a/+")
    delta = sketch.delta(0)
    with pytest.raises(SketchFormatError):
        peer.apply(delta._replace(extra=b"\1"))
    peer.apply(delta)
    assert peer.search("a/x").found
