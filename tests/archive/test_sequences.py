"""Offsets: whatever the steps, each row is passed exactly once."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dovetail.archive.sequences import (
    Run,
    advance,
    clip_runs,
    count_rows,
    merge_runs,
    share_rows,
    split_runs,
)


@st.composite
def runs(draw: st.DrawFn) -> list[Run]:
    found: list[Run] = []
    at = 0
    for gap, length in draw(st.lists(st.tuples(st.integers(2, 10**12), st.integers(1, 9)))):
        found.append((at + gap, at + gap + length - 1))
        at = found[-1][1]
    return found


def sequences(of: list[Run]) -> list[int]:
    return [one for first, last in of for one in range(first, last + 1)]


@given(runs(), st.lists(st.integers(1, 7), min_size=1))
def test_steps_of_any_size_pass_each_row_once(there: list[Run], steps: list[int]) -> None:
    offset, read = 0, []
    for step in [*steps, count_rows(there)]:
        end = advance(there, offset, step)
        piece = clip_runs(there, offset, end)
        assert count_rows(piece) == min(step, count_rows(clip_runs(there, offset)))
        read += sequences(piece)
        offset = end
    assert read == sequences(there)


@given(runs(), st.integers(1, 12))
def test_pieces_are_even_and_have_each_row_once(there: list[Run], rows_max: int) -> None:
    pieces = split_runs(there, rows_max)
    assert [one for piece in pieces for one in sequences(piece)] == sequences(there)
    sizes = {count_rows(piece) for piece in pieces}
    assert not sizes or (max(sizes) <= rows_max and max(sizes) - min(sizes) <= 1)


@given(runs(), st.data())
def test_files_side_by_side_are_one_run(there: list[Run], data: st.DataObject) -> None:
    ranges: list[Run] = []
    for first, last in there:
        ends = data.draw(st.sets(st.integers(first, last))) | {last}
        for begin, end in pairwise([first - 1, *sorted(ends)]):
            ranges.append((begin + 1, end))
    assert merge_runs(ranges) == there


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50)), st.integers(0, 200))
def test_brokers_share_what_may_be_read(waiting: dict[str, int], rows_max: int) -> None:
    shares = share_rows(waiting, rows_max)
    assert shares.keys() == waiting.keys()
    assert sum(shares.values()) == min(rows_max, sum(waiting.values()))
    cut_short = [name for name in waiting if shares[name] < waiting[name]]
    assert all(shares[name] <= shares[short] + 1 for name in waiting for short in cut_short)
