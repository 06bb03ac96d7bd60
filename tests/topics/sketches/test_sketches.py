"""Rules for all four sketches, whatever filters come and go: no false negative, ever."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail.errors import ConfigError, SketchError
from dovetail.topics.kernels import ledger
from dovetail.topics.names import matches
from dovetail.topics.sketches import (
    METHODS,
    LinesSketch,
    PrefixSketch,
    Sketch,
    bloom_size,
    build_sketch,
    change_log,
    lines_size,
    sketch_class,
)
from dovetail.topics.topic_column import TopicColumn
from support.strategies.topics import deep_filters, deep_names, filters, names

all_methods = pytest.mark.parametrize("method", METHODS)


def tiny(method: str, **options: Any) -> Sketch:  # noqa: ANN401
    """A sketch so small that elements share bits all the time, and counts overflow."""
    bits, hashes = (512, 0) if method == "lines" else (67, 3)
    return sketch_class(method)(bits, hashes, **options)


class SketchMachine(RuleBasedStateMachine):
    """Filters come and go, and a peer applies deltas. A dict of counts is the oracle."""

    @initialize(method=st.sampled_from(METHODS), roomy=st.booleans(), seed=st.integers(0, 9))
    def start(self, method: str, roomy: bool, seed: int) -> None:
        kind = sketch_class(method)
        self.sketch: Sketch = (
            kind.sized_for(500, 1e-6, seed=seed, lineage=1) if roomy else tiny(method, lineage=1)
        )
        self.roomy = roomy
        self.counts: dict[str, int] = {}
        self.peer = self.sketch.copy()

    @rule(topic_filter=filters(), times=st.integers(1, 3))
    def add(self, topic_filter: str, times: int) -> None:
        for _ in range(times):
            self.sketch.add(topic_filter)
        self.counts[topic_filter] = self.counts.get(topic_filter, 0) + times

    @rule(some=st.lists(filters(), max_size=20))
    def add_column(self, some: list[str]) -> None:
        self.sketch.add_column(TopicColumn.of(some))
        for topic_filter in some:
            self.counts[topic_filter] = self.counts.get(topic_filter, 0) + 1

    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        if self.counts:
            topic_filter = data.draw(st.sampled_from(sorted(self.counts)))
            self.sketch.discard(topic_filter)
            self.counts[topic_filter] -= 1
            if not self.counts[topic_filter]:
                del self.counts[topic_filter]

    @rule(topic_filter=filters())
    def discard_what_is_not_in(self, topic_filter: str) -> None:
        if topic_filter not in self.counts:
            before = self.sketch.words.copy()
            with pytest.raises(SketchError, match="not in this sketch"):
                self.sketch.discard(topic_filter)
            assert np.array_equal(self.sketch.words, before)

    @rule(topic=names)
    def search(self, topic: str) -> None:
        expected = any(matches(topic_filter, topic) for topic_filter in self.counts)
        answer = self.sketch.search(topic)
        assert answer.found or not expected
        if self.roomy:
            assert answer.found == expected
        assert self.peer_after_delta().search(topic) == answer

    @rule()
    def resize(self) -> None:
        geometry = self.sketch.geometry
        bits = geometry.bits * 2 if geometry.bits < 1 << 16 else geometry.bits
        self.sketch = self.sketch.resized(bits, geometry.hashes)
        with pytest.raises(SketchError, match="no longer known"):
            self.sketch.delta(self.peer.version)
        self.peer = self.sketch.copy()

    def peer_after_delta(self) -> Sketch:
        self.peer.apply(self.sketch.delta(self.peer.version))
        return self.peer

    @invariant()
    def nothing_left_of_nothing(self) -> None:
        if not self.counts:
            assert self.sketch.elements == 0
            assert self.sketch.fill == 0


SketchMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestSketches = SketchMachine.TestCase


@all_methods
@given(subscribed=st.lists(deep_filters, max_size=4), topic=deep_names)
@settings(max_examples=30)
def test_a_hundred_levels(method: str, subscribed: list[str], topic: str) -> None:
    levels = topic.split("/")
    close = [topic, f"{topic}/#", "/".join(levels[:-1]) + "/#", "/".join([*levels[:50], "#"])]
    close += ["/".join(["+" if i % 3 else level for i, level in enumerate(levels)])]
    for topic_filter in (*subscribed, *close):
        sketch = build_sketch(method, TopicColumn.of([topic_filter]))
        assert sketch.search(topic).found or not matches(topic_filter, topic)


@all_methods
def test_a_search_stops_at_its_bound_and_answers_yes(method: str) -> None:
    """All patterns over one topic but for the last level: exponential for every method."""
    levels = [f"level{i}" for i in range(12)]
    patterns = [
        "/".join("+" if mask >> i & 1 else levels[i] for i in range(11)) + "/no"
        for mask in range(1 << 11)
    ]
    sketch = build_sketch(
        method, TopicColumn.of(patterns), false_positive_rate=1e-9, queries_max=500
    )
    answer = sketch.search("/".join(levels))
    assert answer.found
    assert 500 <= answer.queries <= 502
    unbounded = build_sketch(
        method, TopicColumn.of(patterns), false_positive_rate=1e-9, queries_max=100_000
    )
    assert not unbounded.search("/".join(levels)).found


@all_methods
def test_a_bound_holds_along_a_run_of_wildcards_too(method: str) -> None:
    deep = "/".join(["+"] * 3_000 + ["x"])
    sketch = build_sketch(method, TopicColumn.of([deep]), queries_max=100)
    answer = sketch.search("/".join(["a"] * 3_001))
    assert answer.found or method == "bfp"  # which asks for one pattern and the topic itself
    assert answer.queries <= 102
    with pytest.raises(SketchError, match="at least 1 query"):
        build_sketch(method, TopicColumn.of(["a"]), queries_max=0)


@all_methods
def test_what_was_not_put_in_is_not_taken_out(method: str) -> None:
    """`p/#` marks `p` as an end; that mark is not `p`'s own."""
    sketch = sketch_class(method).sized_for(100, 1e-6)
    for with_wildcard in ("p/#", "q/+/#", "/#"):
        sketch.add(with_wildcard)
        parent = with_wildcard[:-2]
        if parent:
            with pytest.raises(SketchError, match="not in this sketch"):
                sketch.discard(parent)
            assert sketch.search(parent.replace("+", "x")).found
            sketch.add(parent)
            sketch.discard(with_wildcard)
            assert sketch.search(parent.replace("+", "x")).found
            sketch.discard(parent)
        else:
            sketch.discard(with_wildcard)
    assert sketch.elements == 0
    assert sketch.fill == 0


@all_methods
def test_a_resized_sketch_counts_on(method: str) -> None:
    sketch = sketch_class(method).sized_for(100, 1e-6)
    for topic_filter in ("a/+", "b/+", "a/+", "c/#"):
        sketch.add(topic_filter)
    grown = sketch.resized(2 * sketch.bits, sketch.geometry.hashes)
    for topic_filter in ("a/+", "a/+", "c/#"):
        grown.discard(topic_filter)
    assert grown.search("b/x").found
    assert not grown.search("a/x").found


@all_methods
def test_a_resized_sketch_tells_nothing_of_the_time_before(method: str) -> None:
    sketch = sketch_class(method).sized_for(1_000, 1e-3, lineage=1)
    sketch.add("x/1")
    grown = sketch.resized(2 * sketch.bits, sketch.geometry.hashes)
    back = grown.resized(sketch.bits, sketch.geometry.hashes)
    with pytest.raises(SketchError, match="no longer known"):
        back.delta(sketch.version)
    peer = back.copy()
    back.discard("x/1")
    peer.apply(back.delta(peer.version))
    assert not peer.words.any()


@all_methods
def test_a_bit_that_passes_from_one_element_to_another_stays(method: str) -> None:
    """A new element may set no new bits. It keeps them when another element goes."""
    sketch = tiny(method, lineage=1)
    peer = sketch.copy()
    crowd = [f"crowd/{i}" for i in range(60)]
    for topic_filter in crowd:
        sketch.add(topic_filter)
    for topic_filter in crowd[:-1]:
        sketch.discard(topic_filter)
    peer.apply(sketch.delta(0))
    assert np.array_equal(peer.words, sketch.words)
    assert peer.search(crowd[-1]).found


@all_methods
def test_what_is_long_ago_is_not_told(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "SKETCH_CHANGES_MAX", 100)
    sketch = sketch_class(method).sized_for(5_000, 1e-3, lineage=1)
    peer = sketch.copy()
    peers = []
    for number in range(200):
        sketch.add(f"x/{number}")
        peers.append(sketch.copy())
    with pytest.raises(SketchError, match="no longer known"):
        peer.apply(sketch.delta(peer.version))
    told = 0
    for late in peers:
        try:
            late.apply(sketch.delta(late.version))
        except SketchError:
            assert told == 0
            continue
        told += 1
        assert np.array_equal(late.words, sketch.words)
    assert 10 <= told <= 101
    sketch.add_column(TopicColumn.of([f"y/{number}" for number in range(200)]))
    with pytest.raises(SketchError, match="no longer known"):
        sketch.delta(sketch.version - 1)
    assert not len(sketch.delta(sketch.version).present)


@all_methods
def test_a_sketch_without_a_lineage_has_no_deltas(method: str) -> None:
    one, other = (sketch_class(method).sized_for(100, 1e-6, lineage=7) for _ in range(2))
    one.add("a")
    other.add("b")
    union = one.merge(other)
    with pytest.raises(SketchError, match="of sketch 7"):
        union.apply(one.delta(0))
    assert union.search("b").found
    with pytest.raises(SketchError, match="without a lineage"):
        sketch_class(method).sized_for(100, 1e-6).delta(0)


@all_methods
def test_numbers_that_are_none(method: str) -> None:
    for options in ({"seed": -1}, {"seed": 2**64}, {"lineage": -1}):
        with pytest.raises(SketchError):
            sketch_class(method).sized_for(100, 1e-6, **options)
    top = sketch_class(method).sized_for(100, 1e-6, seed=2**64 - 1, lineage=2**64 - 1)
    top.add("a/+")
    assert top.search("a/b").found


def test_a_bloom_filter_without_hashes_is_refused() -> None:
    for method in ("bf", "bfp", "prefix"):
        with pytest.raises(SketchError, match="at least 1 hash"):
            sketch_class(method)(64, 0)


@all_methods
def test_filters_that_share_their_prefixes_share_their_memory(method: str) -> None:
    sketch = sketch_class(method).sized_for(100_000, 0.01)
    sketch.add_column(TopicColumn.of([f"a/b/c/d/e/f/g/{i}" for i in range(50_000)]))
    assert sketch._ledger is not None
    assert len(sketch._ledger._keys) < 3 * sketch.elements


@all_methods
def test_no_topic_is_too_deep(method: str) -> None:
    topic = "/" * 65_535
    sketch = build_sketch(method, TopicColumn.of([topic, "a/#"]))
    assert sketch.search(topic).found
    assert sketch.search("a" + "/" * 65_534).found


@all_methods
def test_counts_that_overflow_leave_no_false_negative(method: str) -> None:
    """So many filters in a tiny sketch that counts reach their maximum."""
    sketch = tiny(method)
    crowd = [f"crowd/{i}" for i in range(30_000)]
    sketch.add("kept/+/x")
    sketch.add_column(TopicColumn.of(crowd))
    assert sketch._ledger is not None
    assert int(sketch._ledger._bit_counts.max()) == ledger.BIT_COUNT_TOP
    for topic_filter in crowd:
        sketch.discard(topic_filter)
    assert sketch.search("kept/a/x").found
    sketch.add("late")
    assert sketch.search("late").found


@all_methods
def test_element_counts_that_overflow_leave_no_false_negative(method: str) -> None:
    sketch = sketch_class(method).sized_for(10, 0.001)
    sketch.add("a/b")
    assert sketch._ledger is not None
    counts = sketch._ledger._counts
    counts[counts > 0] = ledger.COUNT_TOP - 1
    for _ in range(3):
        sketch.add("a/b")  # the count would wrap to 1 here
    for _ in range(5):
        sketch.discard("a/b")
    assert sketch.search("a/b").found


@all_methods
def test_a_column_is_searched_like_its_topics(method: str) -> None:
    rng = np.random.default_rng(3)
    words = ["a", "b", "", "$x"]
    topics = ["/".join(rng.choice(words, rng.integers(1, 6))) or "/" for _ in range(101)]
    sketch = build_sketch(method, TopicColumn.of(["a/+/b", "b/#", "+/a", "$x/+", "//"]))
    found, queries = sketch.search_column(TopicColumn.of(topics))
    assert [(bool(f), int(q)) for f, q in zip(found, queries, strict=True)] == [
        tuple(sketch.search(topic)) for topic in topics
    ]
    assert found.any()
    assert not found.all()


@all_methods
def test_a_long_topic_among_short_ones(method: str) -> None:
    sketch = build_sketch(method, TopicColumn.of(["a/b", "x" * 5_000]))
    found, _ = sketch.search_column(TopicColumn.of(["a/b", "x" * 5_000, "a/c"]))
    assert list(found) == [True, True, False]


@all_methods
def test_false_positives_are_as_rare_as_planned(method: str) -> None:
    """The rate of 1 in 100 for whole topics, which all methods query alike."""
    rng = np.random.default_rng(5)
    drawn = [bytes(rng.integers(97, 123, 12, np.uint8)).decode() for _ in range(24_000)]
    sketch = build_sketch(method, TopicColumn.of(drawn[:4_000]), false_positive_rate=0.01)
    per_search = {"bf": 3, "bfp": 1, "prefix": 3, "lines": 0.1}[method]  # ours looks twice
    found, _ = sketch.search_column(TopicColumn.of(drawn[4_000:]))
    assert found.mean() < 1.3 * 0.01 * per_search
    assert sketch.false_positive_rate == pytest.approx(0.01, rel=0.5)
    assert 0.2 < sketch.fill < 0.6


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_false_positives_are_as_rare_as_planned_when_they_are_very_rare(seed: int) -> None:
    """Rates below 1 in the number of bits need independent positions of a key."""
    rng = np.random.default_rng(seed)
    drawn = [bytes(rng.integers(97, 123, 12, np.uint8)).decode() for _ in range(41_000)]
    filters, topics = (
        TopicColumn.of(drawn[:1_000]),
        TopicColumn.of(f"{one}/b/c/d/e/f/g/h/i" for one in drawn),
    )
    sketch = build_sketch("bf", filters, false_positive_rate=1e-6, seed=seed)
    found, queries = sketch.search_column(topics)
    # Half of a search's patterns have the first level, and 2^9 - 1 are the same for all topics.
    planned = 512 * len(topics) * sketch.false_positive_rate
    assert 17 < planned < 25
    assert np.count_nonzero(found) < 2 * planned  # steps of one length had 4 times that
    assert (queries[~found] == 2**10 - 1).all()


@all_methods
def test_merging_finds_what_either_finds(method: str) -> None:
    one, other = (sketch_class(method).sized_for(100, 1e-9) for _ in range(2))
    one.add("a/+")
    other.add("b/#")
    both = one.merge(other)
    assert [both.search(topic).found for topic in ("a/x", "b", "b/c/d", "c")] == [
        True,
        True,
        True,
        False,
    ]
    assert not one.search("b").found
    with pytest.raises(SketchError, match="no counts"):
        both.add("c")


@all_methods
def test_sketches_of_another_geometry_do_not_mix(method: str) -> None:
    kind = sketch_class(method)
    one = kind.sized_for(1_000, 0.001, lineage=1)
    for other in (
        kind.sized_for(2_000, 0.001, lineage=1),
        kind.sized_for(1_000, 0.001, seed=1, lineage=1),
    ):
        with pytest.raises(SketchError, match="sketches differ"):
            one.merge(other)
        with pytest.raises(SketchError, match="sketches differ"):
            one.copy().apply(other.delta(0))


def test_sketches_of_another_method_do_not_mix() -> None:
    one, other = PrefixSketch(512, 3), LinesSketch(512)
    with pytest.raises(SketchError, match=r"prefix, 512 bits 3 hashes.*lines, 512 bits in lines"):
        one.merge(other)  # type: ignore[arg-type]


@all_methods
def test_deltas_apply_in_order_twice_and_never_to_strangers(method: str) -> None:
    sketch = sketch_class(method).sized_for(1_000, 0.001, lineage=7)
    sketch.add("a")
    peer = sketch.copy()
    start = sketch.version
    sketch.add("b/+/c")
    middle = sketch.version
    first = sketch.delta(start)
    sketch.discard("a")
    second = sketch.delta(middle)
    with pytest.raises(SketchError, match="begins at version"):
        peer.apply(second)
    for delta in (first, first, second, first):
        peer.apply(delta)
    assert np.array_equal(peer.words, sketch.words)
    assert peer.version == sketch.version
    assert not peer.search("a").found
    assert peer.search("b/x/c").found
    stranger = sketch_class(method).sized_for(1_000, 0.001, lineage=8).copy()
    with pytest.raises(SketchError, match="of sketch 7"):
        stranger.apply(sketch.delta(0))
    with pytest.raises(SketchError, match="counts its own filters"):
        sketch.apply(first)
    with pytest.raises(SketchError, match="no delta from version"):
        sketch.delta(sketch.version + 1)


@all_methods
def test_a_delta_is_small(method: str) -> None:
    sketch = sketch_class(method).sized_for(100_000, 0.001, lineage=1)
    sketch.add_column(TopicColumn.of([f"x/{i}" for i in range(10_000)]))
    version = sketch.version
    sketch.add("a/b/c")
    assert len(sketch.delta(version).present) <= 4
    assert len(sketch.delta(sketch.version).present) == 0
    sketch.discard("a/b/c")
    gone = sketch.delta(version)
    assert len(gone.present) == 0
    assert 1 <= len(gone.gone) <= 4


def test_the_papers_sizing_example() -> None:
    assert bloom_size(100_000, 0.001) == (1_437_759, 10)
    assert PrefixSketch.sized_for(100_000, 0.001).geometry[1:3] == (1_437_759, 10)


def test_ours_takes_at_most_a_quarter_more_bits() -> None:
    for rate, most in ((0.01, 1.25), (0.001, 1.25)):
        assert lines_size(100_000, rate) <= most * bloom_size(100_000, rate)[0]
    assert lines_size(100_000, 0.001) % 512 == 0


@pytest.mark.parametrize(
    ("elements", "rate"), [(0, 0.1), (-1, 0.1), (10, 0.0), (10, 1.0), (10**12, 0.1)]
)
@all_methods
def test_plans_that_make_no_sense_are_refused(method: str, elements: int, rate: float) -> None:
    with pytest.raises(SketchError):
        sketch_class(method).sized_for(elements, rate)


def test_bits_that_are_no_lines_are_refused() -> None:
    with pytest.raises(SketchError, match="lines of 512 bits"):
        LinesSketch(500)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="bf, bfp, prefix, lines"):
        sketch_class("bloom")


class TestFaultsOfThePapersAlgorithm:
    """Each of them caused a false negative; docs/wildcard-sketches.md explains how."""

    @all_methods
    def test_a_branch_that_fails_is_left_for_the_next(self, method: str) -> None:
        sketch = build_sketch(method, TopicColumn.of(["+/x", "a/b"]))
        assert sketch.search("a/b").found

    @all_methods
    def test_every_order_of_branches(self, method: str) -> None:
        """Ten levels deep, the only match behind any mix of '+' and literal branches."""
        decoys = ["+/+/+/x", "+/+/c/x", "a/+/+/x", "+/b/+/x", "a/b/+/x"]
        for bits in itertools.product("+l", repeat=4):
            match = "/".join(
                "+" if bit == "+" else level for bit, level in zip(bits, "abcd", strict=True)
            )
            sketch = build_sketch(
                method, TopicColumn.of([*decoys, match]), false_positive_rate=1e-9
            )
            assert sketch.search("a/b/c/d").found
            assert not sketch.search("a/b/c/e").found or match.endswith("+")

    @all_methods
    def test_a_multi_level_wildcard_stands_for_its_parent(self, method: str) -> None:
        sketch = build_sketch(method, TopicColumn.of(["a/#", "x/+/#"]), false_positive_rate=1e-9)
        assert sketch.search("a").found
        assert sketch.search("x/y").found
        assert not sketch.search("x").found
        assert not sketch.search("b").found

    @all_methods
    def test_a_dollar_is_a_letter_and_no_mark_of_an_end(self, method: str) -> None:
        """With '$' as the mark, a/b$ would be the end of a/b."""
        sketch = build_sketch(method, TopicColumn.of(["a/b$/c", "q/$"]), false_positive_rate=1e-9)
        assert not sketch.search("a/b").found
        assert not sketch.search("q").found
        assert not sketch.search("a/b$").found
        assert sketch.search("a/b$/c").found
        assert sketch.search("q/$").found

    @all_methods
    def test_leading_wildcards_pass_reserved_topics_by(self, method: str) -> None:
        sketch = build_sketch(
            method, TopicColumn.of(["#", "+/x", "$SYS/+"]), false_positive_rate=1e-9
        )
        assert not sketch.search("$SYS").found
        assert not sketch.search("$other/x").found
        assert sketch.search("$SYS/x").found
        assert sketch.search("SYS").found


class TestQueriesOfThePaper:
    """Numbers of queries that can be counted by hand."""

    def test_bf_asks_every_pattern(self) -> None:
        sketch = build_sketch("bf", TopicColumn.of(["x/y/z"]), false_positive_rate=1e-9)
        for levels in range(1, 8):
            assert sketch.search("/".join("a" * levels)).queries == 2 ** (levels + 1) - 1

    def test_bfp_asks_the_patterns_that_occur(self) -> None:
        """The paper's own example (section III): four queries for x/y/z."""
        filters = TopicColumn.of(["a/+/c", "x/+/z", "a/+/#", "+/#"])
        sketch = build_sketch("bfp", filters, false_positive_rate=1e-9)
        assert sketch.search("q/y/r") == (True, 1)  # +/# comes first
        without = build_sketch("bfp", TopicColumn.of(["a/+/c", "x/+/w", "a/+/#", "+/b/#"]))
        assert without.search("x/y/z") == (False, 4)

    def test_bfp_without_wildcards_asks_once(self) -> None:
        assert build_sketch("bfp", TopicColumn.of(["a/b", "c"])).search("x/y/z") == (False, 1)

    def test_prefix_asks_three_a_node(self) -> None:
        sketch = build_sketch("prefix", TopicColumn.of(["a/+/c/d"]), false_positive_rate=1e-9)
        # Figure 3: '#', '+', 'a' at the root, then '#', '+' at a, at a/+ and so on.
        assert sketch.search("a/b/c/d") == (True, 3 + 2 + 3 + 3)
        assert sketch.search("b") == (False, 3)

    def test_a_hash_ends_every_search_at_once(self) -> None:
        for method in METHODS:
            sketch = build_sketch(method, TopicColumn.of(["#", "a/b"]))
            assert sketch.search("x/y/z") == (True, 2 if method == "lines" else 1)

    def test_lines_visits_a_line_for_each_two_pluses_and_each_literal(self) -> None:
        filters = ["/".join(["+"] * i + ["x"] * (10 - i)) for i in range(10)]
        sketch = build_sketch("lines", TopicColumn.of(filters), false_positive_rate=1e-9)
        assert sketch.search("/".join("abcdefghij")) == (False, 6 + 10)
