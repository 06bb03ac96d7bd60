"""A bank answers as its sketches would one by one, whichever peers come, change or leave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from dovetail.errors import SketchError
from dovetail.topics.bank import SketchBank
from dovetail.topics.kernels.bank import PADDING
from dovetail.topics.limits import BANK_FILL_BITS_MAX, BANK_PLAIN_MAX
from dovetail.topics.sketches import (
    METHODS,
    LinesSketch,
    build_sketch,
    delta_from_bytes,
    delta_to_bytes,
)
from dovetail.topics.topic_column import TopicColumn
from support.strategies.topics import filters, names

SIZES = (512, 1024, 1 << 15)


class BankMachine(RuleBasedStateMachine):
    """Up to 90 peers of three sizes: groups change their storage, come and go.

    Sketches are the oracle.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bank = SketchBank[int]()
        self.sketches: dict[int, LinesSketch] = {}

    @rule(peer=st.integers(0, 80), bits=st.sampled_from(SIZES), some=st.lists(filters()))
    def put(self, peer: int, bits: int, some: list[str]) -> None:
        sketch = LinesSketch(bits, lineage=peer + 1)
        sketch.add_column(TopicColumn.of(some))
        self.sketches[peer] = sketch
        self.bank.put(peer, sketch)

    @rule(first=st.integers(0, 20), count=st.integers(1, 70))
    def put_many(self, first: int, count: int) -> None:
        for peer in range(first, first + count):
            self.put(peer, 512, [f"{peer}/+", f"all/{peer % 3}"])

    @rule(data=st.data(), some=st.lists(filters(), min_size=1))
    def change(self, data: st.DataObject, some: list[str]) -> None:
        if self.sketches:
            peer = data.draw(st.sampled_from(sorted(self.sketches)))
            sketch = self.sketches[peer]
            sketch.add_column(TopicColumn.of(some))
            for topic_filter in some[1:]:
                sketch.discard(topic_filter)
            delta = delta_to_bytes(sketch.delta(self.bank.version_of(peer)))
            self.bank.apply(peer, delta_from_bytes(delta, self.bank.geometry_of(peer)))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.sketches:
            peer = data.draw(st.sampled_from(sorted(self.sketches)))
            self.bank.remove(peer)
            del self.sketches[peer]

    @rule(topic=names | st.sampled_from(["all/0", "all/1", "7/x"]))
    def search(self, topic: str) -> None:
        expected = {peer for peer, sketch in self.sketches.items() if sketch.search(topic).found}
        assert set(self.bank.search(topic)) == expected
        assert len(self.bank) == len(self.sketches)
        for peer, sketch in self.sketches.items():
            assert self.bank.fill_of(peer) == sketch.fill
        for peer in sorted(self.sketches)[:3]:
            answer = self.bank.search_peer(peer, TopicColumn.of([topic, "all/0"]))
            assert list(answer) == [peer in expected, self.sketches[peer].search("all/0").found]


BankMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30)
TestBank = BankMachine.TestCase


@given(st.lists(names, min_size=1, max_size=40))
@settings(max_examples=20)
def test_a_column_of_topics_against_a_column_of_sketches(topics: list[str]) -> None:
    bank = SketchBank[str]()
    sketches = {}
    for number in range(70):
        subscribed = TopicColumn.of([f"a/{number}", "+/b" if number % 2 else "b/#", "$x/+"])
        sketches[f"peer{number}"] = build_sketch("lines", subscribed)
        bank.put(f"peer{number}", sketches[f"peer{number}"])
    peers, found = bank.search_column(TopicColumn.of(topics))
    assert sorted(peers) == sorted(sketches)
    for column, peer in enumerate(peers):
        expected, _ = sketches[peer].search_column(TopicColumn.of(topics))
        assert np.array_equal(found[:, column], expected)


def test_an_empty_bank_knows_nobody() -> None:
    bank = SketchBank[int]()
    assert bank.search("a") == []
    peers, found = bank.search_column(TopicColumn.of(["a", "b"]))
    assert peers == []
    assert found.shape == (2, 0)


def test_a_few_peers_take_their_own_bits_and_many_a_lane_each() -> None:
    bank = SketchBank[int]()
    size = 1 << 15
    for peer in range(BANK_PLAIN_MAX):
        bank.put(peer, LinesSketch(size))
        assert bank.nbytes == (peer + 1) * size // 8
    for peer in range(65):
        bank.put(peer, LinesSketch(size))
        if BANK_PLAIN_MAX <= peer < 64:
            assert bank.nbytes == (peer // 8 + 1) * size + PADDING
    assert bank.nbytes == 8 * size + PADDING + size // 8
    for peer in range(64):
        bank.remove(peer)
        assert bank.nbytes <= 2 * (64 - peer) * size // 8 + size + PADDING
    assert bank.nbytes == size // 8


@pytest.mark.parametrize("others", [0, BANK_PLAIN_MAX])
def test_how_full_a_large_sketch_is_comes_from_a_part_of_it(others: int) -> None:
    """In a sketch stored as a row, and in slices."""
    sketch = LinesSketch(4 * BANK_FILL_BITS_MAX)
    sketch.add_column(TopicColumn.of(f"{number}/+/{number % 7}" for number in range(20_000)))
    bank = SketchBank[int]()
    bank.put(0, sketch)
    for peer in range(others):
        bank.put(peer + 1, LinesSketch(sketch.bits))
        assert bank.fill_of(peer + 1) == 0
    part = sketch.words[: BANK_FILL_BITS_MAX // 64]
    assert bank.fill_of(0) == int(np.bitwise_count(part).sum()) / BANK_FILL_BITS_MAX
    assert bank.fill_of(0) == pytest.approx(sketch.fill, rel=0.02)
    with pytest.raises(SketchError, match="no sketch of 99 is known"):
        bank.fill_of(99)


def test_a_peer_that_grows_is_never_missed() -> None:
    bank = SketchBank[str]()
    sketch = LinesSketch(512, lineage=1)
    sketch.add("a")
    bank.put("peer", sketch)
    grown = sketch.resized(4096, 0)
    with pytest.raises(SketchError, match="does not continue"):
        bank.apply("peer", grown.delta(grown.version))
    assert bank.search("a") == ["peer"]
    bank.put("peer", grown)
    assert bank.search("a") == ["peer"]
    assert bank.nbytes == 4096 // 8


def test_strangers_and_gaps_are_refused() -> None:
    bank = SketchBank[str]()
    sketch = LinesSketch(512, lineage=3)
    with pytest.raises(SketchError, match="no sketch of peer"):
        bank.apply("peer", sketch.delta(0))
    with pytest.raises(SketchError, match="no sketch of peer"):
        bank.remove("peer")
    bank.put("peer", sketch)
    sketch.add("a")
    sketch.add("b")
    with pytest.raises(SketchError, match="does not continue"):
        bank.apply("peer", sketch.delta(1))
    with pytest.raises(SketchError, match="does not continue"):
        bank.apply("peer", LinesSketch(512, lineage=4).delta(0))


def test_past_its_bound_a_search_answers_everybody() -> None:
    bank = SketchBank[int](probes_max=50)
    levels = [f"level{i}" for i in range(10)]
    patterns = [
        "/".join("+" if mask >> i & 1 else levels[i] for i in range(9)) + "/no"
        for mask in range(512)
    ]
    for peer in range(3):
        bank.put(peer, build_sketch("lines", TopicColumn.of(patterns), false_positive_rate=1e-9))
    assert sorted(bank.search("/".join(levels))) == [0, 1, 2]


def test_only_sketches_in_lines_are_taken() -> None:
    bank = SketchBank[str]()
    for method in METHODS:
        sketch = build_sketch(method, TopicColumn.of(["a/b"]))
        if method == "lines":
            bank.put(method, sketch)
        else:
            with pytest.raises(SketchError, match="in lines"):
                bank.put(method, sketch)
    assert bank.search("a/b") == ["lines"]
