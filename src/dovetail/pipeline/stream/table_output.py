"""Writes matches as a table: one folder for each batch, which appears whole and once.

    OUT/batch=000017/part-*.parquet
    OUT/_dovetail.json                 which stream writes here (checkpoint_record.py)

A batch is written to a hidden folder, synced, and renamed (pipeline/spark/output_folder.py). If
Spark is killed before it commits a batch, it repeats the batch under the same number: a folder that
exists is left as it is. So each row is in the table once, whatever is killed when, and a reader
needs nothing but Parquet. On other storage than this machine's disk, Spark overwrites the batch's
own folder. That is the same to a reader that waits for its `_SUCCESS`.
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
from dovetail.pipeline.stream.archived_messages import as_messages, batch_result, observed
from dovetail.pipeline.stream.checkpoint_record import (
    CheckpointRecord,
    QueryIdentity,
    TableRecord,
    check_ids,
    check_query,
    check_table,
    write_query,
    write_table,
)
from dovetail.pipeline.stream.current_boxes import CurrentBoxes
from dovetail.pipeline.stream.output import StreamSource
from dovetail.pipeline.stream.tally import BatchResult, StreamTally


class TableOutput:
    """The `Output` that writes a table. `out` is a folder, or an address such as hdfs://..."""

    name = "table"
    interval_seconds = STREAM_TABLE_SECONDS

    def __init__(self, out: str, *, as_pairs: bool) -> None:
        self._folder = None if "://" in out else Path(out).absolute()
        self._out = out.rstrip("/") if self._folder is None else str(self._folder)
        self._as_pairs = as_pairs
        self._checkpoint: Path | None = None
        self._record: CheckpointRecord | None = None
        self._found: TableRecord | None = None
        self._begun: int | None = None
        self._boxes: CurrentBoxes | None = None

    def check(self, checkpoint: Path, source: StreamSource) -> None:
        kind = "a row for each pair" if self._as_pairs else "a row for each message"
        query = QueryIdentity(source.location, source.topics, self._out, kind)
        record = check_query(checkpoint, self.name, query)
        if self._folder is not None:
            self._found = check_table(self._folder, checkpoint, self.name, record)
        self._checkpoint, self._record = checkpoint, record
        self._begun = last_batch(checkpoint / self.name)

    def begin(self, boxes: CurrentBoxes) -> None:
        assert self._checkpoint is not None
        assert self._record is not None
        self._boxes = boxes
        ids = boxes.id_type
        if self._folder is not None:
            check_ids(self._folder, self._found, ids)
        write_query(self._checkpoint, self.name, self._record)
        if self._folder is not None:
            write_table(self._folder, TableRecord(self._record.id, str(self._checkpoint), ids))

    def take(self, rows: DataFrame, number: int) -> BatchResult:
        if self._folder is None:
            found, seen = self._matched(rows)
            # Replace only what a kill has left of this very batch.
            mode = "overwrite" if number == self._begun else "errorifexists"
            found.write.mode(mode).parquet(f"{self._out}/{batch_name(number)}")
            return batch_result(*seen)
        location = self._folder / batch_name(number)
        if location.is_dir():
            return BatchResult(0, 0, 0)
        with result_folder(location, lambda _: False) as folder:
            found, seen = self._matched(rows)
            found.write.mode("append").parquet(local(folder))
            done = batch_result(*seen)
            check_all_there(folder, done.rows_out, self._out)
        with write_errors(location):
            _settle(self._folder)
        return done

    def _matched(self, rows: DataFrame) -> tuple[DataFrame, tuple[Observation, Observation]]:
        assert self._boxes is not None
        given, out = Observation("given"), Observation("out")
        # Subscriptions are read after the rows are fixed, so every subscription made before one of
        # the rows was published is known.
        found = self._boxes.match(observed(as_messages(rows), given), as_pairs=self._as_pairs)
        answer = "subscription" if self._as_pairs else "subscriptions"
        size = sql.lit(1) if self._as_pairs else sql.size(answer)
        flat = found.select("message.message", "message.time", "message.topic", answer)
        counted = flat.observe(
            out, sql.count(sql.lit(1)).alias("rows"), sql.sum(size).alias("pairs")
        )
        return counted, (given, out)

    def summary(self, tally: StreamTally) -> list[str]:
        return [
            f"out     {tally.rows_out:,} rows, {tally.pairs:,} pairs of message and subscription",
            f"output  {self._out}",
        ]


def batch_name(number: int) -> str:
    return f"batch={number:06}"


def _settle(folder: Path) -> None:
    """Sync the folder, so that the new name is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
