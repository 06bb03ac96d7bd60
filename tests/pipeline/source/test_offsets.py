"""Offsets of a stream: each row is read once, whichever broker is away or has lost rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.archive.sequences import clip_runs, count_rows
from dovetail.pipeline.source.archives import AvailableRows
from dovetail.pipeline.source.offsets import (
    DataLossError,
    Offsets,
    ReadTask,
    check_data_loss,
    first_offsets,
    next_offsets,
    read_tasks,
)

ARCHIVE = {
    "a": AvailableRows(5, [(5, 9), (100, 120)]),
    "b": AvailableRows(1, [(1, 3)]),
    "c": AvailableRows(None, []),
}


def sequences(tasks: list[ReadTask]) -> list[tuple[str, int]]:
    return [
        (task.broker, one)
        for task in tasks
        for first, last in task.runs
        for one in range(first, last + 1)
    ]


EVERYTHING = sequences([ReadTask(name, tuple(one.runs)) for name, one in ARCHIVE.items()])


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sets(st.sampled_from("abc"))), max_size=20),
    st.integers(1, 5),
)
def test_batches_have_each_row_once_while_brokers_are_away(
    steps: list[tuple[int, set[str]]], task_rows_max: int
) -> None:
    offsets: Offsets = {}
    read: list[tuple[str, int]] = []
    for rows_max, away in [*steps, (1_000, set())]:
        found = {name: one for name, one in ARCHIVE.items() if name not in away}
        end = next_offsets(offsets, found, rows_max)
        tasks = read_tasks(offsets, end, found, task_rows_max)
        assert all(task.broker not in away for task in tasks)
        assert len(sequences(tasks)) <= rows_max
        assert sequences(read_tasks(offsets, end, ARCHIVE, 1_000)) == sequences(tasks)  # again
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


def test_lost_rows_are_an_error_unless_allowed() -> None:
    check_data_loss({}, ARCHIVE)
    check_data_loss({"a": 4, "b": 3, "c": 77}, ARCHIVE)
    with pytest.raises(
        DataLossError, match=r"rows of a above 3 were not read.*the first it has is 5"
    ):
        check_data_loss({"a": 3}, ARCHIVE)


def test_a_planned_batch_waits_for_a_broker_that_is_away() -> None:
    (task,) = read_tasks({"a": 6}, {"a": 101, "b": 0}, {}, 10)
    assert task == ReadTask("a", ((7, 101),), is_sure=False)
    assert count_rows(clip_runs(ARCHIVE["a"].runs, 6, 101)) < count_rows(task.runs)
