"""A real broker process and real clients: the measurement detects wrong results."""

import signal
import socket
import time
from collections.abc import Iterator

import pytest

from dovetail.errors import DovetailError
from dovetail.papers.figure7.clients import WINDOW_MESSAGES, Traffic
from dovetail.papers.figure7.measurement import (
    PACED_MESSAGES_PER_SECOND,
    Bench,
    measure_point,
    start_bench,
)
from dovetail.papers.figure7.query_cost import SWEEP, SearchPoint
from dovetail.papers.figure7.search_broker import SearchCount, start_search_broker
from support.oracles.figures import queries_of


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with start_bench(4) as made:
        yield made


def test_every_message_is_searched(bench: Bench) -> None:
    before = bench.traffic.received
    bench.broker.set_search(SearchPoint(SWEEP, 5))
    load = bench.traffic.saturate(0.05)
    latencies = bench.traffic.pace(1_000, 0.05)
    messages = bench.traffic.received - before
    assert messages == load.messages + len(latencies) == bench.traffic.sent - before
    assert bench.broker.set_search(SearchPoint(SWEEP, 0)) == SearchCount(messages, 5 * messages)
    assert 0 < load.latency_seconds < load.seconds
    assert (latencies > 0).all()


def test_a_row(bench: Bench) -> None:
    first = bench.traffic.received
    row = measure_point(bench, SearchPoint("bf"), 0.1)
    messages = bench.traffic.received - first
    assert (row["kind"], row["messages"]) == ("bf", messages)
    assert row["queries"] == queries_of("bf", 4, first, messages)


def test_a_cached_route_is_detected(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message without its own topic is not searched, so its time must not count."""
    monkeypatch.setattr(bench.traffic, "_laps", bench.traffic._laps.copy())
    with pytest.raises(DovetailError, match="so the times are not of searches"):
        measure_point(
            bench, SearchPoint(SWEEP, 1), 2 * WINDOW_MESSAGES / PACED_MESSAGES_PER_SECOND + 0.1
        )


def test_altered_messages_are_detected() -> None:
    with start_bench(5) as bench:
        bench.traffic._send(1, time.perf_counter())
        bench.traffic._stream[-1] ^= 1  # of a message that was not sent yet
        bench.traffic._stream[40] ^= 1
        with pytest.raises(DovetailError, match="not what was sent"):
            bench.traffic.saturate(0.1)


def test_a_stall_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_bench(5) as bench:
        monkeypatch.setattr("dovetail.papers.figure7.clients.STALL_SECONDS", 0.2)
        process = bench.broker._process
        process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(DovetailError, match="messages are missing"):
                bench.traffic.saturate(0.1)
            with pytest.raises(DovetailError, match="messages are missing"):
                bench.traffic.pace(1_000, 0.001)
        finally:
            process.send_signal(signal.SIGCONT)


def test_a_broker_that_ends_is_an_error_with_its_last_log_line() -> None:
    with start_search_broker(5) as broker, pytest.raises(DovetailError, match="no sketch method"):
        broker.set_search(SearchPoint("nonsense"))


def test_a_missing_broker_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DovetailError, match="cannot be reached: connection refused"):
        Traffic(port, b"a", b"payload")


def test_the_process_ends_with_the_block() -> None:
    with start_search_broker(5) as broker:
        process = broker._process
        assert process.poll() is None
    assert process.returncode == 0
    assert PACED_MESSAGES_PER_SECOND == 1_000  # as the report says
