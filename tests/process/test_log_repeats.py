"""Repeated lines: written once a second, and all counted."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dovetail.process.log_repeats import CountedLine, RepeatFilter

SECONDS = 1.0

steps = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 3.0]),  # time that passes before it
        st.one_of(st.none(), st.sampled_from("abcde")),  # None: nobody logs, and `due` is called
    ),
    max_size=60,
)


@given(steps, st.integers(1, 6))
def test_every_line_is_counted_and_few_are_written(
    steps: list[tuple[float, str | None]], kinds_max: int
) -> None:
    repeats: RepeatFilter[str] = RepeatFilter(seconds=SECONDS, kinds_max=kinds_max)
    now = 0.0
    came: Counter[str] = Counter()
    written: list[tuple[float, CountedLine[str]]] = []
    for passed, kind in steps:
        now += passed
        if kind is None:
            written += [(now, one) for one in repeats.due(now)]
            due = repeats.next_due
            assert due is None or due > now
            continue
        is_first = not came[kind]
        came[kind] += 1
        found = repeats.take(kind, kind, now)
        if is_first and len(came) <= kinds_max:
            assert found == (kind, 1), "the first is written at once"
        if found is not None:
            written.append((now, found))
        assert (found is None) <= (repeats.next_due is not None)
    written += [(now, one) for one in repeats.flush()]
    assert repeats.next_due is None
    assert sum(count for _, (_, count) in written) == came.total()
    if kinds_max >= len(came):
        assert Counter(dict.fromkeys(came, 0)) + counted(written) == came
        for kind in came:
            times = [at for at, (line, _) in written[: -len(came)] if line == kind]
            gaps = [later - before for before, later in itertools.pairwise(times)]
            assert all(gap >= SECONDS for gap in gaps)
    # However many kinds there are, no more is written than of so many and one more.
    assert len(written) <= (kinds_max + 1) * (now / SECONDS + 2)


def counted(written: list[tuple[float, CountedLine[str]]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for _, (line, count) in written:
        counts[line] += count
    return counts


def test_a_flood_of_a_kind() -> None:
    repeats: RepeatFilter[int] = RepeatFilter(seconds=1.0, kinds_max=10)
    assert repeats.take("k", 0, 5.0) == (0, 1)
    assert [repeats.take("k", number, 5.5) for number in (1, 2, 3)] == [None] * 3
    assert repeats.next_due == 6.0
    assert [*repeats.due(5.9)] == []
    assert [*repeats.due(6.0)] == [(3, 3)]
    assert [repeats.take("k", 4, 6.5)] == [None]
    assert repeats.take("k", 5, 7.0) == (5, 2)  # nobody had looked in between
    assert [repeats.next_due] == [None]
    assert repeats.take("k", 6, 8.0) == (6, 1)


def test_kinds_are_separate_and_forgotten() -> None:
    repeats: RepeatFilter[str] = RepeatFilter(seconds=1.0, kinds_max=2)
    assert [repeats.take(kind, kind, 0.0) for kind in "ab"] == [("a", 1), ("b", 1)]
    # There is no room: all others are one kind.
    assert [repeats.take(kind, kind, 0.1) for kind in "cde"] == [("c", 1), None, None]
    assert [*repeats.due(1.1)] == [("e", 2)]
    assert repeats.take("f", "f", 1.2) == ("f", 1)
    assert [*repeats.flush()] == []
