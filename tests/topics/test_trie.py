"""The exact index against `matches`, through any order of adds and removes."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dovetail.topics import trie as trie_module
from dovetail.topics.kernels import trie as kernels
from dovetail.topics.names import matches
from dovetail.topics.topic_column import TopicColumn
from dovetail.topics.trie import FilterTrie
from support.strategies.topics import deep_filters, deep_names, filters, names

COLLIDING = """
import random
from numba import njit
from dovetail import compilation
from dovetail.topics.kernels import hashing
compilation.kernel = lambda function: njit(function)
whole = hashing.child
hashing.child = njit(lambda node, level: whole(node, level) & hashing.U64(31))
from dovetail.topics.names import matches
from dovetail.topics.trie import FilterTrie

random.seed(1)
levels = ["", "a", "b", "$x"]
def draw(more):
    drawn = [random.choice(levels + more) for _ in range(random.randint(1, 5))]
    if more and random.random() < 0.3:
        drawn[-1] = "#"
    return "/".join(drawn) or "/"

trie, oracle = FilterTrie(), {}
for step in range(4000):
    topic_filter = draw(["+", "+"])
    if random.random() < 0.55:
        trie[topic_filter] = oracle[topic_filter] = step
    else:
        assert trie.pop(topic_filter, None) == oracle.pop(topic_filter, None)
    topic = draw([])
    expected = sorted(value for key, value in oracle.items() if matches(key, topic))
    assert sorted(trie.match(topic)) == expected, (step, topic)
assert {key.decode() for key in trie} == set(oracle)
"""


class TrieMachine(RuleBasedStateMachine):
    """A dict and `matches` are the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.trie = FilterTrie[int]()
        self.oracle: dict[str, int] = {}

    @rule(topic_filter=filters(), value=st.integers())
    def put(self, topic_filter: str, value: int) -> None:
        self.trie[topic_filter] = value
        self.oracle[topic_filter] = value

    @rule(wanted=st.lists(st.tuples(filters(), st.integers()), max_size=12))
    def put_many(self, wanted: list[tuple[str, int]]) -> None:
        found = self.trie.setdefault_many(
            [topic_filter.encode() for topic_filter, _ in wanted], [value for _, value in wanted]
        )
        assert found == [self.oracle.setdefault(*one) for one in wanted]

    @rule(topic_filter=filters())
    def remove(self, topic_filter: str) -> None:
        assert self.trie.pop(topic_filter, None) == self.oracle.pop(topic_filter, None)

    @rule(data=st.data())
    def remove_one_that_is_in(self, data: st.DataObject) -> None:
        if self.oracle:
            topic_filter = data.draw(st.sampled_from(sorted(self.oracle)))
            del self.trie[topic_filter]
            del self.oracle[topic_filter]

    @rule(topic=names, steps=st.integers(1, 5))
    def match(self, topic: str, steps: int) -> None:
        expected = [value for key, value in self.oracle.items() if matches(key, topic)]
        assert sorted(self.trie.match(topic)) == sorted(expected)
        (numbers,) = self.trie.match_some((topic.encode(),), steps)
        in_pieces = [number for some in self.trie.search(topic.encode(), steps) for number in some]
        assert numbers is None or sorted(numbers) == sorted(in_pieces)
        assert sorted(map(self.trie.value, set(in_pieces))) == sorted(expected)

    @invariant()
    def same_filters(self) -> None:
        assert len(self.trie) == len(self.oracle)
        assert {key.decode() for key in self.trie} == set(self.oracle)


TrieMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestTrie = TrieMachine.TestCase


@given(st.lists(st.sampled_from(["", "a", "a/b", "+", "b/#"]), max_size=8))
def test_many_at_once_as_one_by_one(wanted: list[str]) -> None:
    many, one_by_one = FilterTrie[int](), FilterTrie[int]()
    for trie in (many, one_by_one):
        for number in range(20):  # leave free numbers behind
            trie[f"x/{number}"] = number
        for number in range(0, 20, 2):
            del trie[f"x/{number}"]
    encoded = [one.encode() for one in wanted]
    expected = [one_by_one.setdefault(one, place) for place, one in enumerate(wanted)]
    assert many.setdefault_many(encoded, range(len(wanted))) == expected
    assert dict(many) == dict(one_by_one)
    assert many.match("a/b") == one_by_one.match("a/b")


@given(st.lists(deep_filters, max_size=5), deep_names)
def test_a_hundred_levels(subscribed: list[str], topic: str) -> None:
    trie = FilterTrie[str]()
    parent = topic.rsplit("/", 1)[0]
    for topic_filter in (*subscribed, topic, f"{parent}/#", f"{topic}/#", f"{parent}/+"):
        trie[topic_filter] = topic_filter
    expected = [key.decode() for key in trie if matches(key.decode(), topic)]
    assert sorted(trie.match(topic)) == sorted(expected)


@given(filters(), names)
def test_the_byte_matcher_is_the_oracle(topic_filter: str, topic: str) -> None:
    text = TopicColumn.of([topic_filter]).data.copy()
    name = TopicColumn.of([topic]).data
    assert kernels.matches(text, 0, len(text), name, 0, len(name)) == matches(topic_filter, topic)


def test_it_grows_and_shrinks_and_stays_right() -> None:
    trie = FilterTrie[int]()
    kept = [f"site/{i % 97}/{i}/+" for i in range(20_000)]
    for number, topic_filter in enumerate(kept):
        trie[topic_filter] = number
    for topic_filter in kept[1::2]:
        del trie[topic_filter]
    for number in range(0, 20_000, 2):
        assert trie.match(f"site/{number % 97}/{number}/x") == [number]
        assert trie.match(f"site/{(number + 1) % 97}/{number + 1}/x") == []
    full = trie.nbytes
    for topic_filter in kept[400::2]:
        del trie[topic_filter]
    assert trie.nbytes < full / 3
    assert trie.match("site/2/2/x") == [2]
    for topic_filter in kept[:400:2]:
        del trie[topic_filter]
    assert len(trie) == 0
    assert not np.any(trie._table.nodes["through"])
    assert trie.nbytes == FilterTrie[int]().nbytes


@pytest.mark.parametrize("seed", range(4))
def test_it_is_right_while_everything_moves(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change moves as little as possible, so that tables fill before others are empty."""
    monkeypatch.setattr(trie_module, "_MOVED_MIN", 1)
    monkeypatch.setattr(trie_module, "_SLOTS_PER_NODE", seed)
    monkeypatch.setattr(trie_module, "_BYTES_PER_TEXT", 4 + 100 * seed)
    random = Random(seed)
    trie, oracle = FilterTrie[int](), dict[str, int]()
    for wave in range(6):
        for step in range(800):
            levels = [random.choice("abcdefgh+") for _ in range(random.randint(1, 6))]
            topic_filter = "/".join(levels) + "x" * random.choice([0, 0, 300])
            if random.random() < (0.1 if wave % 2 else 0.9):
                trie[topic_filter] = oracle[topic_filter] = step
            elif oracle:
                topic_filter = random.choice([topic_filter, *random.choices([*oracle], k=3)])
                assert trie.pop(topic_filter, None) == oracle.pop(topic_filter, None)
            if not step % 20:
                topic = "/".join(random.choice("abcdefgh") for _ in range(random.randint(1, 6)))
                expected = [value for key, value in oracle.items() if matches(key, topic)]
                assert sorted(trie.match(topic)) == sorted(expected)
        assert {key.decode(): trie[key] for key in trie} == oracle


@given(st.data())
def test_a_search_finds_what_stays_though_the_trie_changes(data: st.DataObject) -> None:
    levels = st.lists(st.sampled_from("ab+"), min_size=1, max_size=4).map("/".join)
    trie = FilterTrie[str]()
    for topic_filter in data.draw(st.lists(levels, max_size=20)):
        trie[topic_filter] = topic_filter
    stays, known = {*trie.values()}, {*trie.values()}
    topic = data.draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join))
    found: set[str] = set()
    for numbers in trie.search(topic.encode(), 1):
        found |= {trie.value(number) for number in numbers}
        topic_filter = data.draw(levels)
        if data.draw(st.booleans()):
            trie[topic_filter] = topic_filter
        else:
            trie.pop(topic_filter, None)
        stays &= {*trie.values()}
        known |= {*trie.values()}
    assert {one for one in stays if matches(one, topic)} <= found <= known
    assert all(matches(one, topic) for one in found)


def test_what_reaches_much_of_the_tree_is_left_to_a_search() -> None:
    trie = FilterTrie[int]()
    patterns = ["/".join("+" if mask >> i & 1 else "x" for i in range(9)) for mask in range(512)]
    for number, pattern in enumerate((*patterns, "y")):
        trie[pattern] = number
    topic = "/".join("x" * 9).encode()
    (y,) = trie.match_many((b"y",))
    assert trie.match_some((b"y", topic, b"y"), 100) == [y, None, None]
    found = list(trie.search(topic, 100))
    assert len(found) > 5
    assert {trie.value(number) for numbers in found for number in numbers} == set(range(512))


def test_more_matches_than_were_expected() -> None:
    trie = FilterTrie[int]()
    patterns = ["/".join("+" if mask >> i & 1 else "x" for i in range(9)) for mask in range(512)]
    for number, pattern in enumerate(patterns):
        trie[pattern] = number
    assert sorted(trie.match("/".join("x" * 9))) == list(range(512))


def test_filters_whose_hashes_collide_are_told_apart_by_their_text() -> None:
    """We know no two texts with the same hash, so the test adds a foreign filter to a list."""
    trie = FilterTrie[str]()
    for topic_filter in ("a", "b"):
        trie[topic_filter] = topic_filter
    number_a, number_b = 0, 1
    trie._following[number_a] = number_b
    assert trie.match("a") == ["a"]
    assert trie["a"] == "a"


def test_a_filter_that_is_not_in_is_a_key_error() -> None:
    trie = FilterTrie[int]()
    trie["a/b"] = 1
    for missing in ("a", "a/b/c", "a/+", "a/b/#", "#"):
        with pytest.raises(KeyError):
            del trie[missing]
        assert missing not in trie
    assert trie["a/b"] == 1


def test_clearing_and_popping_until_empty() -> None:
    trie = FilterTrie[int](seed=3)
    expected: dict[str | bytes, int] = {f"a/{i}/+".encode(): i for i in range(5_000)}
    trie.update(expected)
    popped = dict(trie.popitem() for _ in range(len(trie)))
    assert popped == expected
    with pytest.raises(KeyError):
        trie.popitem()
    trie.update(expected)
    trie.clear()
    assert len(trie) == 0
    assert trie.match("a/1/x") == []
    trie["a/1/x"] = 7
    assert trie.match("a/1/x") == [7]


def test_a_trie_that_changes_while_it_is_iterated_over_says_so() -> None:
    trie = FilterTrie[int]()
    trie.update({"a": 1, "b": 2})
    walk = iter(trie)
    trie[next(walk) + b"x"] = 3
    with pytest.raises(RuntimeError, match="changed"):
        next(walk)


def test_threads_that_match_at_once_get_their_own_answers() -> None:
    trie = FilterTrie[int]()
    for number in range(50):
        trie[f"{number}/#"] = number

    def match_often(number: int) -> bool:
        return all(trie.match(f"{number}/x") == [number] for _ in range(2_000))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(match_often, range(8)))


def test_prefixes_whose_hashes_collide() -> None:
    """With prefix hashes of 5 bits nearly all prefixes share nodes: only the text decides.

    In a process of its own, whose `child` is cut down before the trie's kernels are compiled.
    """
    done = subprocess.run(
        [sys.executable, "-c", COLLIDING],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_column_has_the_same_matches() -> None:
    trie: FilterTrie[int] = FilterTrie()
    for number, topic_filter in enumerate(("#", "a/#", "+/b", "$x/+", "a")):
        trie[topic_filter] = number
    topics = (b"a", b"a/b", b"", b"$x/b", b"c", b"a/b")
    column = TopicColumn.of(topics)
    window = TopicColumn(column.data, column.offsets[2:])
    for part, shown in ((column, topics), (window, topics[2:])):
        counts, numbers = trie.match_column(part)
        found = np.split(numbers, np.cumsum(counts)[:-1])
        assert [tuple(one.tolist()) for one in found] == trie.match_many(shown)
    assert [len(part) for part in trie.match_column(TopicColumn.of(()))] == [0, 0]
