"""The progress of a stream, as numbers and as a line."""

from datetime import UTC, datetime

from dovetail.pipeline.stream.tally import BatchResult, StreamTally, line

NEWEST = datetime(2026, 11, 16, 17, tzinfo=UTC)
AT = NEWEST.timestamp()


def test_batches_add_up() -> None:
    tally = StreamTally().plus(BatchResult(1_000, 990, 1_200, NEWEST), AT, AT + 2)
    assert tally == StreamTally(1, 1_000, 990, 1_200, NEWEST, AT + 2, 500.0)
    # One that was there already, and has no rows to look at.
    tally = tally.plus(BatchResult(0, 0, 0), AT + 3, AT + 3)
    assert (tally.batches, tally.rows_in, tally.newest) == (2, 1_000, NEWEST)


def test_a_line_for_each() -> None:
    assert line("table", StreamTally()) == "table: waiting for rows"
    assert line("table", StreamTally(), 1_234) == "table: 1,234 rows wait"
    tally = StreamTally().plus(BatchResult(1_000, 990, 1_200, NEWEST), AT, AT + 2)
    said = "table: 1,000 rows in, 990 out, 500 rows/s, newest 2.0 s old"
    assert line("table", tally) == said
    assert line("table", tally, 0) == said
    assert line("table", tally, 7) == f"{said}, 7 rows wait"


def test_age_in_words() -> None:
    def said(seconds: float) -> str:
        naive = NEWEST.replace(tzinfo=None)  # Spark's times have no zone
        tally = StreamTally().plus(BatchResult(1, 1, 1, naive), AT + seconds, AT + seconds)
        return line("table", tally).rpartition(", ")[2]

    assert said(119) == "newest 119.0 s old"
    assert said(121) == "newest 2 min old"
    assert said(7_300) == "newest 2 hours old"
    assert said(200_000) == "newest 2 days old"
    assert said(-5) == "newest 0.0 s old"  # clocks differ
    assert StreamTally().behind_seconds is None
