"""Streaming queries, run together in one session until they end, one fails, or somebody ends them.

A query hands its batches, one after the other, to a function of ours, and that says what it did
with one. Others can stand beside it: whatever starts a query and says how far it is (`Stream`).

To end, no further batch is begun, and the one under way is waited for until Spark has noted that it
is done; so the next run begins behind it. One that is not done by then is done again there: what it
does has to bear that (table_output.py, publish_output.py).
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
from dovetail.pipeline.spark.failures import explained
from dovetail.pipeline.spark.table_files import local
from dovetail.pipeline.stream.tally import Done, Tally

WATCH_SECONDS = 0.25


class Stream(Protocol):
    """A streaming query, from before it starts to after it has ended."""

    name: str
    tally: Tally
    error: Exception | None
    """What its own function ended with."""

    def start(self) -> StreamingQuery: ...

    def finish(self, seconds: float) -> None:
        """Begin no batch any more; return when none is under way, or after so long."""


class _EndedError(Exception):
    """No batch is begun any more."""


class BatchStream:
    """Batches of a streaming DataFrame to a function."""

    def __init__(
        self,
        name: str,
        rows: DataFrame,
        take: Callable[[DataFrame, int], Done],
        *,
        checkpoint: Path,
        interval_seconds: float | None,
    ) -> None:
        """`interval_seconds`: None reads what there is now, and ends."""
        self.name = name
        self.tally = Tally()
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
            raise _EndedError
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
    begun: Callable[[], None] | None = None,
) -> None:
    """Until all have ended. A DovetailError if one failed; the others are ended before."""
    queries: list[StreamingQuery] = []
    with _ending() as asked:
        try:
            queries += [one.start() for one in streams]
            if begun is not None:
                begun()
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
def _ending() -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM. A second time it is not waited for."""
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
        # Whatever it says now, it is ended with its Java.
        with contextlib.suppress(PySparkException, Py4JError):
            query.stop()


def _failure(stream: Stream, query: StreamingQuery) -> DovetailError | None:
    error = query.exception()
    if error is None:
        return None
    own = stream.error
    if isinstance(own, DovetailError):
        return own
    told = own if isinstance(own, PySparkException | Py4JError) else error
    failure = explained(told, f"the stream {stream.name} failed")
    failure.__cause__ = told
    return failure
