"""Counts the rows that wait to be read, and reports brokers that are away, beside the queries.

Spark's reader runs in a process of its own and logs to Spark's log. So a thread here polls as well,
every few seconds, from each query's offset. It reads no rows.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dovetail.archive.sequences import count_rows
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import STREAM_LOOK_SECONDS
from dovetail.pipeline.source.archives import RowSource, log
from dovetail.pipeline.source.checkpoint import last_batch, offsets_of_batch


class LagMonitor:
    """Counts waiting rows by query: `rows`, which is empty before the first refresh."""

    def __init__(self, row_source: RowSource, checkpoints: Mapping[str, Path]) -> None:
        self.rows: dict[str, int] = {}
        self._row_source = row_source
        self._checkpoints = checkpoints

    def refresh(self) -> None:
        for name, checkpoint in self._checkpoints.items():
            batch = last_batch(checkpoint)
            if batch is None:
                continue  # the reader chooses where a new stream begins
            available = self._row_source.available_rows(offsets_of_batch(checkpoint, batch).end)
            self.rows[name] = sum(count_rows(one.runs) for one in available.values())


@contextlib.contextmanager
def monitor_lag(monitor: LagMonitor, say: Callable[[str], None]) -> Iterator[None]:
    """Refresh `monitor` while the block runs. Log lines of the row source go to `say`."""
    ended = threading.Event()
    teller = _CallbackHandler(say)

    def refresh() -> None:
        while not ended.wait(STREAM_LOOK_SECONDS):
            # An error of the row source ends the query, which reports it.
            with contextlib.suppress(DovetailError, OSError):
                monitor.refresh()

    thread = threading.Thread(target=refresh, daemon=True)
    log.addHandler(teller)
    log.propagate, before = False, log.propagate
    thread.start()
    try:
        yield
    finally:
        ended.set()
        log.removeHandler(teller)
        log.propagate = before


class _CallbackHandler(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = say

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())
