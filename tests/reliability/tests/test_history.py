"""Histories as files."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability import history
from reliability.history import (
    Acknowledge,
    Completed,
    Connect,
    Delivered,
    Disconnect,
    Ended,
    Event,
    Exited,
    FaultBegan,
    FaultEnded,
    HistoryError,
    Invoked,
    Phase,
    Publish,
    Read,
    Recorder,
    Resent,
    Run,
    Subscribe,
    Unsubscribe,
    Whole,
)

ACTIONS = st.one_of(
    *(st.from_type(one) for one in (Connect, Disconnect, Unsubscribe, Read, Acknowledge)),
    st.builds(Subscribe, filter=st.text(), qos=st.integers(0, 2)),
    st.builds(
        Subscribe,
        filter=st.text(),
        where=st.just({"x": (1.0, 2.5)}),
        is_handle=st.booleans(),
    ),
    st.builds(Publish, message=st.text(), topic=st.text(), attributes=st.just({"x": 1.5})),
)
TIMES = st.floats(0, 1e6)
EVENTS = st.one_of(
    st.builds(Invoked, TIMES, st.integers(1, 1000), st.text(), st.text(), ACTIONS),
    *(
        st.builds(one, at=TIMES)
        for one in (
            Run,
            Resent,
            Completed,
            Delivered,
            Ended,
            FaultBegan,
            FaultEnded,
            Whole,
            Exited,
            Phase,
        )
    ),
)


@given(EVENTS)
@settings(max_examples=300, deadline=None)
def test_an_event_survives_its_line(event: Event) -> None:
    line = history.encode(event)
    assert b"\n" not in line
    assert history.decode(line) == event


def test_a_file_has_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    events: list[Event] = [
        Phase(0.0, "workload"),
        Invoked(1.0, 1, "writer", "one", Publish("writer:1", "t", 1)),
        Completed(1.5, 1, "ok"),
    ]
    with path.open("wb") as lines:
        recorder = Recorder(lines)
        for event in events:
            recorder.record(event)
    assert [*history.read(path)] == events == recorder.events


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history.write(path, [Whole(1.0), Whole(2.0)])
    path.write_bytes(path.read_bytes()[:-3])
    assert [*history.read(path)] == [Whole(1.0)]


def test_a_file_that_is_no_history_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"event":"whole","at":1.0}\nhello\n')
    with pytest.raises(HistoryError, match="line 2"):
        list(history.read(path))
