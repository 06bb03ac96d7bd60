"""What a stream reads next: each row once, whoever is away, whatever is gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.archive.sequences import between, rows_in
from dovetail.pipeline.source.archives import Waiting
from dovetail.pipeline.source.offsets import (
    LossError,
    Offsets,
    Task,
    check_losses,
    first_offsets,
    next_offsets,
    tasks_of,
)

ARCHIVE = {
    "a": Waiting(5, [(5, 9), (100, 120)]),
    "b": Waiting(1, [(1, 3)]),
    "c": Waiting(None, []),
}


def sequences(tasks: list[Task]) -> list[tuple[str, int]]:
    return [
        (task.broker, one)
        for task in tasks
        for first, last in task.runs
        for one in range(first, last + 1)
    ]


EVERYTHING = sequences([Task(name, tuple(one.runs)) for name, one in ARCHIVE.items()])


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sets(st.sampled_from("abc"))), max_size=20),
    st.integers(1, 5),
)
def test_batches_have_each_row_once_whoever_is_away(
    steps: list[tuple[int, set[str]]], task_rows_max: int
) -> None:
    offsets: Offsets = {}
    read: list[tuple[str, int]] = []
    for rows_max, away in [*steps, (1_000, set())]:
        found = {name: one for name, one in ARCHIVE.items() if name not in away}
        end = next_offsets(offsets, found, rows_max)
        tasks = tasks_of(offsets, end, found, task_rows_max)
        assert all(task.broker not in away for task in tasks)
        assert len(sequences(tasks)) <= rows_max
        assert sequences(tasks_of(offsets, end, ARCHIVE, 1_000)) == sequences(tasks)  # again
        read += sequences(tasks)
        offsets = end
    assert sorted(read) == EVERYTHING
    assert next_offsets(offsets, ARCHIVE, 10) == offsets


def test_a_target_is_not_passed() -> None:
    target = {"a": 101}
    assert next_offsets({}, ARCHIVE, None, target) == {"a": 101}
    assert next_offsets({"a": 101}, ARCHIVE, None, target) == {"a": 101}
    assert next_offsets({"a": 6}, ARCHIVE, 4, target) == {"a": 100}


def test_where_a_stream_begins() -> None:
    assert first_offsets(ARCHIVE, "earliest") == {}
    assert first_offsets(ARCHIVE, "latest") == {"a": 120, "b": 3, "c": 0}
    assert first_offsets(ARCHIVE, {"b": 2}) == {"b": 2}


def test_rows_that_are_gone() -> None:
    check_losses({}, ARCHIVE)
    check_losses({"a": 4, "b": 3, "c": 77}, ARCHIVE)
    with pytest.raises(LossError, match=r"rows of a above 3 were not read.*the first it has is 5"):
        check_losses({"a": 3}, ARCHIVE)


def test_a_batch_that_was_planned_waits_for_a_broker_that_is_away() -> None:
    (task,) = tasks_of({"a": 6}, {"a": 101, "b": 0}, {}, 10)
    assert task == Task("a", ((7, 101),), is_sure=False)
    assert rows_in(between(ARCHIVE["a"].runs, 6, 101)) < rows_in(task.runs)
