"""How many rows wait to be read, and which brokers are away: looked at beside the queries.

Spark's own reader looks in a process of its own, and says what it sees to Spark's log. So this
looks as well, in a thread, every few seconds, from where each query has come to; it reads no row.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dovetail.archive.sequences import rows_in
from dovetail.errors import DovetailError
from dovetail.pipeline.limits import STREAM_LOOK_SECONDS
from dovetail.pipeline.source.archives import Place, log
from dovetail.pipeline.source.checkpoint import last_batch, offsets_of_batch


class Waiting:
    """By query, the rows that it has not begun with; nothing before the first look."""

    def __init__(self, place: Place, checkpoints: Mapping[str, Path]) -> None:
        self.rows: dict[str, int] = {}
        self._place = place
        self._checkpoints = checkpoints

    def look(self) -> None:
        for name, checkpoint in self._checkpoints.items():
            batch = last_batch(checkpoint)
            if batch is None:
                continue  # where a new stream begins is for its reader to say
            found = self._place.look(offsets_of_batch(checkpoint, batch).end)
            self.rows[name] = sum(rows_in(one.runs) for one in found.values())


@contextlib.contextmanager
def looking(waiting: Waiting, say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs. What the place has to tell goes to `say`."""
    ended = threading.Event()
    teller = _Teller(say)

    def look() -> None:
        while not ended.wait(STREAM_LOOK_SECONDS):
            # What is wrong with the place ends the query, which says it.
            with contextlib.suppress(DovetailError, OSError):
                waiting.look()

    thread = threading.Thread(target=look, daemon=True)
    log.addHandler(teller)
    log.propagate, before = False, log.propagate
    thread.start()
    try:
        yield
    finally:
        ended.set()
        log.removeHandler(teller)
        log.propagate = before


class _Teller(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = say

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())
