"""Level hashes against a plain-Python oracle, at every length and place in a buffer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.topics.kernels import hashing
from dovetail.topics.topic_column import TopicColumn
from support.oracles.kernel_parts import callable_kernel
from support.oracles.topics import child, level_hash

extended = callable_kernel(hashing.child)

SEEDS = st.integers(0, 2**64 - 1)


def hashes_of(column: TopicColumn, row: int, seed: int) -> list[int]:
    out = np.zeros(70_000, np.uint64)
    start, stop = column.offsets[row], column.offsets[row + 1]
    count = hashing.hash_levels(column.data, start, stop, np.uint64(seed), out, np.uint64(0))
    return [int(value) for value in out[:count]]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), SEEDS)
def test_levels_are_hashed_as_the_oracle_hashes_them(texts: list[bytes], seed: int) -> None:
    column = TopicColumn.of(texts)
    for row, text in enumerate(texts):
        assert hashes_of(column, row, seed) == [
            level_hash(level, seed) for level in text.split(b"/")
        ]


def test_every_length_at_every_place_in_a_buffer() -> None:
    for before in range(10):
        for length in range(35):
            texts = [b"x" * before, bytes(range(48, 48 + length)), b"y"]
            column = TopicColumn.of(texts[:2]) if length % 2 else TopicColumn.of(texts)
            assert hashes_of(column, 1, 7) == [
                level_hash(level, 7) for level in texts[1].split(b"/")
            ]


def test_the_longest_topic_of_nothing_but_slashes() -> None:
    column = TopicColumn.of(["/" * 65_535])
    assert hashes_of(column, 0, 0) == [level_hash(b"", 0)] * 65_536


@given(SEEDS, SEEDS)
def test_a_prefix_is_extended_as_the_oracle_extends_it(node: int, level: int) -> None:
    assert int(extended(np.uint64(node), np.uint64(level))) == child(node, level)


def test_hashes_tell_levels_apart() -> None:
    """Length, zero bytes, order and seed all count: no two of these collide."""
    levels = [b"", b"\0", b"\0\0", b"a", b"a\0", b"\0a", b"a" * 8, b"a" * 8 + b"\0", b"a" * 16]
    hashes = {level_hash(level, seed) for level in levels for seed in range(50)}
    assert len(hashes) == len(levels) * 50
    assert child(child(1, 2), 3) != child(child(1, 3), 2)


def test_kinds_of_levels() -> None:
    column = TopicColumn.of(["+/a+/#x/+x//+/#"])
    kinds = np.zeros(8, np.uint8)
    hashing.level_kinds(column.data, 0, len(column.data), kinds)
    plus, literal, multi = hashing.PLUS, hashing.LITERAL, hashing.HASH
    assert list(kinds[:7]) == [plus, literal, literal, literal, literal, plus, multi]
