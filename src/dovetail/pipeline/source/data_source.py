"""`spark.readStream.format("dovetail")` and `spark.read`: archived rows, as a stream or a table.

    from dovetail.pipeline import register
    register(spark)
    rows = spark.readStream.format("dovetail").option("url", "http://127.0.0.1:8080").load()

The columns are those of archive/columns.py. An offset is `{"broker": sequence}`, so the checkpoint
tells which rows a batch has read; `offsets_of_batch` in checkpoint.py reads it.

Spark creates a reader in a process of its own, which plans (offsets.py). In a task, `read` knows
nothing but its partition. It counts its rows: a task that does not get each row once fails instead
of skipping rows. data_sink.py has the writers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dovetail.archive.sequences import count_rows
from dovetail.errors import DovetailError
from dovetail.pipeline.source.archives import AvailableRows
from dovetail.pipeline.source.data_sink import StreamWriter, TableWriter, writer_options
from dovetail.pipeline.source.offsets import (
    Offsets,
    ReadTask,
    check_data_loss,
    data_loss,
    first_offsets,
    next_offsets,
    read_tasks,
)
from dovetail.pipeline.source.options import ReaderOptions, reader_options
from dovetail.topics.names import matches

FORMAT = "dovetail"

ROWS_DDL = (
    "time timestamp, broker string, sequence bigint, topic string, payload binary, qos tinyint, "
    "retain boolean, attributes map<string,double>, texts map<string,string>, "
    "properties array<struct<name:string,value:string>>, "
    "stream struct<client:string,expires:timestamp,properties:binary>"
)
"""The columns of archive/columns.py as Spark types."""


class DovetailSource(DataSource):
    """The entry point that Spark calls with the options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ROWS_DDL

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 (Spark's name)
        return StreamReader(reader_options(self.options), schema)

    def reader(self, schema: StructType) -> "TableReader":
        return TableReader(reader_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802
        return StreamWriter(writer_options(self.options), schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> "TableWriter":
        return TableWriter(writer_options(self.options), schema, overwrite)


class ReadPartition(InputPartition):
    """The rows of one task, as Spark hands them over."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(task)
        self.task = task


class _TaskReader:
    """Reads the rows of a task."""

    def __init__(self, options: ReaderOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ReadPartition):
            yield from read_task(partition.task, self._options, self._schema)

    def _partitions(
        self, start: Mapping[str, int], end: Mapping[str, int], found: Mapping[str, AvailableRows]
    ) -> list[InputPartition]:
        return [
            ReadPartition(task)
            for task in read_tasks(start, end, found, self._options.task_rows_max)
        ]


class StreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a stream, in a Python process beside the driver."""

    def __init__(self, options: ReaderOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: Offsets | None = None
        self._latest: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        start = self._options.start
        return first_offsets(
            self._options.row_source.available_rows({}) if start == "latest" else {}, start
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        found = self._options.row_source.available_rows({})
        self._target = {name: one.runs[-1][1] for name, one in found.items() if one.runs}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.batch_rows_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> Offsets:  # noqa: N802
        found = self._available_rows(start)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self._latest = next_offsets(start, found, None)
        return next_offsets(start, found, rows_max, self._target)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return self._latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._partitions(start, end, self._available_rows(start))

    def _available_rows(self, start: Mapping[str, int]) -> dict[str, AvailableRows]:
        found = self._options.row_source.available_rows(start)
        if self._options.fails_on_loss:
            check_data_loss(start, found)
        return found


class TableReader(_TaskReader, DataSourceReader):
    """Reads the rows that there are when Spark plans the table."""

    def partitions(self) -> Sequence[InputPartition]:
        found = self._options.row_source.available_rows({})
        start = first_offsets(found, self._options.start)
        return self._partitions(start, next_offsets(start, found, None), found)


def read_task(
    task: ReadTask, options: ReaderOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    wanted: Any = to_arrow_schema(schema, timezone="UTC")
    rows = 0
    for first, last in task.runs:
        for batch in options.row_source.rows(task.broker, first - 1, last, options.wait_seconds):
            rows += len(batch)
            kept = _on_topics(batch, options.topics)
            if len(kept):
                yield pa.RecordBatch.from_arrays(
                    [kept[field.name].cast(field.type) for field in wanted], schema=wanted
                )
    expected = count_rows(task.runs)
    if task.is_sure and rows < expected and options.fails_on_loss:
        raise data_loss(task.broker, task.runs[0][0] - 1, None)
    if rows > expected:
        raise DovetailError(
            f"{task.broker} gave {rows:,} rows, and {expected:,} were there to be read.",
            hint="Do two brokers have this name, and the same folder?",
        )


def _on_topics(batch: pa.RecordBatch, filters: Sequence[str]) -> pa.RecordBatch:
    if not filters or not len(batch):
        return batch
    coded = batch["topic"].dictionary_encode()
    wanted = pa.array(
        [any(matches(one, name) for one in filters) for name in coded.dictionary.to_pylist()],
        pa.bool_(),
    )
    return batch.filter(pc.take(wanted, coded.indices))
