"""Run streaming queries in one session, until they end, one fails, or somebody stops them.

A `BatchStream` passes its batches in order to a function, which returns what it did. Anything else
that starts a query and reports its progress can run beside it (`Stream`).

To stop, a stream begins no further batch, and waits until Spark has committed the running one. So
the next run begins after it. A batch that is not committed in time is repeated in the next run:
outputs have to tolerate that (table_output.py, publish_output.py).
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from dovetail.errors import DovetailError
from dovetail.pipeline.limits import STREAM_END_SECONDS
from dovetail.pipeline.spark.failures import explain
from dovetail.pipeline.spark.table_files import local
from dovetail.pipeline.stream.tally import BatchResult, StreamTally

WATCH_SECONDS = 0.25


class Stream(Protocol):
    """A streaming query, from before it starts to after it has ended."""

    name: str
    tally: StreamTally
    error: Exception | None
    """The error of its batch function."""

    def start(self) -> StreamingQuery: ...

    def finish(self, seconds: float) -> None:
        """Begin no more batches. Return when none runs, or after this many seconds."""


class _StoppingError(Exception):
    """The stream is stopping: no batch begins any more."""


class BatchStream:
    """Passes the batches of a streaming DataFrame to a function."""

    def __init__(
        self,
        name: str,
        rows: DataFrame,
        take: Callable[[DataFrame, int], BatchResult],
        *,
        checkpoint: Path,
        interval_seconds: float | None,
    ) -> None:
        """`interval_seconds`: None means to read the available rows, and end."""
        self.name = name
        self.tally = StreamTally()
        self.error: Exception | None = None
        self._rows = rows
        self._do = take
        self._checkpoint = checkpoint
        self._interval_seconds = interval_seconds
        self._is_ending = False
        self._batch: int | None = None

    def start(self) -> StreamingQuery:
        writer = (
            self._rows.writeStream.queryName(self.name)
            .option("checkpointLocation", local(self._checkpoint))
            .foreachBatch(self._take)
        )
        if self._interval_seconds is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(
            processingTime=f"{int(self._interval_seconds * 1_000)} milliseconds"
        ).start()

    def finish(self, seconds: float) -> None:
        self._is_ending = True
        batch = self._batch
        if batch is None:
            return
        committed = self._checkpoint / "commits" / str(batch)
        deadline = time.monotonic() + seconds
        while self.error is None and not committed.exists() and time.monotonic() < deadline:
            time.sleep(WATCH_SECONDS / 5)

    def _take(self, rows: DataFrame, number: int) -> None:
        if self._is_ending:
            raise _StoppingError
        self._batch = number
        began = time.time()
        try:
            done = self._do(rows, number)
        except Exception as error:
            self.error = error
            raise
        self.tally = self.tally.plus(done, began, time.time())


def run(
    streams: Sequence[Stream],
    show: Callable[[Sequence[Stream]], None],
    on_start: Callable[[], None] | None = None,
) -> None:
    """Run streams until all have ended. If one fails, stop the others and raise its error."""
    queries: list[StreamingQuery] = []
    with _stop_signals() as asked:
        try:
            queries += [one.start() for one in streams]
            if on_start is not None:
                on_start()
            while any(query.isActive for query in queries) and not asked.wait(WATCH_SECONDS):
                show(streams)
                if any(query.exception() is not None for query in queries):
                    break
        finally:
            failures = [
                _failure(one, query)
                for one, query in zip(streams, queries, strict=False)
                if not query.isActive
            ]
            _end(streams, queries)
    for failure in failures:
        if failure is not None:
            raise failure


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets. A second signal acts at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def ask(*_: object) -> None:
        asked.set()
        for number in numbers:
            signal.signal(number, before[number])

    for number in numbers:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _end(streams: Sequence[Stream], queries: Sequence[StreamingQuery]) -> None:
    threads = [
        threading.Thread(target=one.finish, args=(STREAM_END_SECONDS,), daemon=True)
        for one, query in zip(streams, queries, strict=False)
        if query.isActive
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for query in queries:
        # Errors do not matter now: the query ends with its Java process.
        with contextlib.suppress(PySparkException, Py4JError):
            query.stop()


def _failure(stream: Stream, query: StreamingQuery) -> DovetailError | None:
    error = query.exception()
    if error is None:
        return None
    own = stream.error
    if isinstance(own, DovetailError):
        return own
    cause = own if isinstance(own, PySparkException | Py4JError) else error
    failure = explain(cause, f"the stream {stream.name} failed")
    failure.__cause__ = cause
    return failure
