"""Batches of matches as a table, each once, for any reader: a folder that appears whole.

    OUT/batch=000017/part-*.parquet
    OUT/_dovetail.json                 which stream writes here (identity.py)

A batch is written beside its place, flushed, and renamed into it (pipeline/spark/output_folder.py).
Spark does a batch again, under its number, if it was killed before it noted that the batch was
done: one that is there is left as it is. So a row is in the table once, whatever was killed when,
and a reader needs to know nothing but Parquet. Elsewhere than on this machine's disk Spark
overwrites the batch's own folder, which comes to the same where a reader waits for its `_SUCCESS`.
"""

import os
from pathlib import Path

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sql

from dovetail.pipeline.limits import STREAM_TABLE_SECONDS
from dovetail.pipeline.match.job import check_all_there
from dovetail.pipeline.source.checkpoint import last_batch
from dovetail.pipeline.spark.output_folder import result_folder, write_errors
from dovetail.pipeline.spark.table_files import local
from dovetail.pipeline.stream.archived_messages import done_of, messages_of, observed
from dovetail.pipeline.stream.current_boxes import Wanted
from dovetail.pipeline.stream.identity import (
    Mark,
    Query,
    TableMark,
    check_ids,
    check_query,
    check_table,
    write_query,
    write_table,
)
from dovetail.pipeline.stream.output import Source
from dovetail.pipeline.stream.tally import Done, Tally


class TableOutput:
    """An `Output`. `out` is a folder, or an address such as hdfs://..."""

    name = "table"
    interval_seconds = STREAM_TABLE_SECONDS

    def __init__(self, out: str, *, as_pairs: bool) -> None:
        self._folder = None if "://" in out else Path(out).absolute()
        self._out = out.rstrip("/") if self._folder is None else str(self._folder)
        self._as_pairs = as_pairs
        self._checkpoint: Path | None = None
        self._mark: Mark | None = None
        self._found: TableMark | None = None
        self._begun: int | None = None
        self._wanted: Wanted | None = None

    def check(self, checkpoint: Path, source: Source) -> None:
        kind = "a row for each pair" if self._as_pairs else "a row for each message"
        query = Query(source.place, source.topics, self._out, kind)
        mark = check_query(checkpoint, self.name, query)
        if self._folder is not None:
            self._found = check_table(self._folder, checkpoint, self.name, mark)
        self._checkpoint, self._mark = checkpoint, mark
        self._begun = last_batch(checkpoint / self.name)

    def begin(self, wanted: Wanted) -> None:
        assert self._checkpoint is not None
        assert self._mark is not None
        self._wanted = wanted
        ids = wanted.id_type
        if self._folder is not None:
            check_ids(self._folder, self._found, ids)
        write_query(self._checkpoint, self.name, self._mark)
        if self._folder is not None:
            write_table(self._folder, TableMark(self._mark.id, str(self._checkpoint), ids))

    def take(self, rows: DataFrame, number: int) -> Done:
        if self._folder is None:
            found, seen = self._matched(rows)
            # Only what a kill has left of this very batch is replaced.
            mode = "overwrite" if number == self._begun else "errorifexists"
            found.write.mode(mode).parquet(f"{self._out}/{batch_name(number)}")
            return done_of(*seen)
        place = self._folder / batch_name(number)
        if place.is_dir():
            return Done(0, 0, 0)
        with result_folder(place, lambda _: False) as folder:
            found, seen = self._matched(rows)
            found.write.mode("append").parquet(local(folder))
            done = done_of(*seen)
            check_all_there(folder, done.rows_out, self._out)
        with write_errors(place):
            _settle(self._folder)
        return done

    def _matched(self, rows: DataFrame) -> tuple[DataFrame, tuple[Observation, Observation]]:
        assert self._wanted is not None
        given, out = Observation("given"), Observation("out")
        # Who wants them is asked when it is settled which rows there are: whoever subscribed before
        # one of them was published is known.
        found = self._wanted.match(observed(messages_of(rows), given), as_pairs=self._as_pairs)
        answer = "subscription" if self._as_pairs else "subscriptions"
        size = sql.lit(1) if self._as_pairs else sql.size(answer)
        flat = found.select("message.message", "message.time", "message.topic", answer)
        counted = flat.observe(
            out, sql.count(sql.lit(1)).alias("rows"), sql.sum(size).alias("pairs")
        )
        return counted, (given, out)

    def summary(self, tally: Tally) -> list[str]:
        return [
            f"out     {tally.rows_out:,} rows, {tally.pairs:,} pairs of message and subscription",
            f"output  {self._out}",
        ]


def batch_name(number: int) -> str:
    return f"batch={number:06}"


def _settle(folder: Path) -> None:
    """The new name is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
