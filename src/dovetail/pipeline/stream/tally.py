"""The progress of a stream, as numbers and as a line of text. Pure.

Only rows of this run count, not those of earlier runs.
"""

from datetime import UTC, datetime
from typing import NamedTuple


class BatchResult(NamedTuple):
    """The result of one batch."""

    rows_in: int
    rows_out: int
    pairs: int
    """Matching pairs of message and subscription."""
    newest: datetime | None = None
    """When the last message of the batch was published, in UTC."""


class StreamTally(NamedTuple):
    """Totals over all batches."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    pairs: int = 0
    newest: datetime | None = None
    done_at: float = 0.0
    """When the last batch was done, in Unix seconds."""
    rows_per_second: float = 0.0
    """In the last batch."""

    def plus(self, done: BatchResult, began: float, now: float) -> "StreamTally":
        return StreamTally(
            self.batches + 1,
            self.rows_in + done.rows_in,
            self.rows_out + done.rows_out,
            self.pairs + done.pairs,
            done.newest or self.newest,
            now,
            done.rows_in / max(now - began, 1e-3),
        )

    @property
    def behind_seconds(self) -> float | None:
        """How old the newest row was when its batch was done."""
        if self.newest is None:
            return None
        newest = self.newest
        if newest.tzinfo is None:
            newest = newest.replace(tzinfo=UTC)
        return max(self.done_at - newest.timestamp(), 0.0)


def line(name: str, tally: StreamTally, waiting: int | None = None) -> str:
    """Return a line of progress. `waiting`: the number of rows that wait to be read."""
    if not tally.batches:
        return f"{name}: {waiting:,} rows wait" if waiting else f"{name}: waiting for rows"
    behind = tally.behind_seconds
    parts = [
        f"{name}: {tally.rows_in:,} rows in, {tally.rows_out:,} out",
        f"{tally.rows_per_second:,.0f} rows/s",
    ]
    if behind is not None:
        parts.append(f"newest {_span(behind)} old")
    if waiting:
        parts.append(f"{waiting:,} rows wait")
    return ", ".join(parts)


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
