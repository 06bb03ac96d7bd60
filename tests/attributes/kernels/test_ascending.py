"""Sorted lists without duplicates, against sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from dovetail.attributes.kernels.ascending import make_ascending

NUMBERS = 10_000


@given(some.lists(some.lists(some.integers(0, NUMBERS - 1), max_size=50), max_size=8))
def test_each_number_once_in_order(lists: list[list[int]]) -> None:
    starts = np.cumsum([0, *map(len, lists)])
    numbers = np.array([one for own in lists for one in own], np.int64)
    words = np.zeros(-(-NUMBERS // 64), np.uint64)
    summary = np.zeros(-(-len(words) // 64), np.uint64)
    ends = np.zeros(len(lists) + 1, np.int64)
    last = make_ascending(starts, numbers, words, summary, ends)
    found = [numbers[ends[i] : ends[i + 1]].tolist() for i in range(len(lists))]
    assert found == [sorted({*own}) for own in lists]
    assert last == ends[-1]
    assert not words.any()
    assert not summary.any()
