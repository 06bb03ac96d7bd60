"""`spark.readStream.format("dovetail")`: what brokers archive, as a stream or as a table.

    from dovetail.pipeline import register
    register(spark)
    rows = spark.readStream.format("dovetail").option("url", "http://127.0.0.1:8080").load()

Columns are those of archive/columns.py. An offset is `{"broker": sequence}`, so what a
batch has read is known from its checkpoint; `offsets_of_batch` in checkpoint.py reads it.

Spark makes a reader of the options in a process of its own, which plans (offsets.py), and calls
`read` in tasks with nothing but what a partition carries. Rows are counted there: a task that does
not get each of its rows once fails, and is not passed over. What writes is in data_sink.py.
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

from dovetail.archive.sequences import rows_in
from dovetail.errors import DovetailError
from dovetail.pipeline.source.archives import Waiting
from dovetail.pipeline.source.data_sink import StreamWriter, TableWriter, writer_options
from dovetail.pipeline.source.offsets import (
    Offsets,
    Task,
    check_losses,
    first_offsets,
    lost,
    next_offsets,
    tasks_of,
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
"""Those of archive/columns.py, in Spark's words."""


class DovetailSource(DataSource):
    """Made by Spark, of the options."""

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


class Partition(InputPartition):
    """What a task needs to know."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class _Rows:
    """What both readers do in a task."""

    def __init__(self, options: ReaderOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Partition):
            yield from read_task(partition.task, self._options, self._schema)

    def _partitions(
        self, start: Mapping[str, int], end: Mapping[str, int], found: Mapping[str, Waiting]
    ) -> list[InputPartition]:
        return [
            Partition(task) for task in tasks_of(start, end, found, self._options.task_rows_max)
        ]


class StreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in the driver's process for Python, as long as its query."""

    def __init__(self, options: ReaderOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: Offsets | None = None
        self._latest: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        start = self._options.start
        return first_offsets(self._options.place.look({}) if start == "latest" else {}, start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        found = self._options.place.look({})
        self._target = {name: one.runs[-1][1] for name, one in found.items() if one.runs}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.batch_rows_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> Offsets:  # noqa: N802
        found = self._looked(start)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self._latest = next_offsets(start, found, None)
        return next_offsets(start, found, rows_max, self._target)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return self._latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._partitions(start, end, self._looked(start))

    def _looked(self, start: Mapping[str, int]) -> dict[str, Waiting]:
        found = self._options.place.look(start)
        if self._options.fails_on_loss:
            check_losses(start, found)
        return found


class TableReader(_Rows, DataSourceReader):
    """What is there when it is asked for."""

    def partitions(self) -> Sequence[InputPartition]:
        found = self._options.place.look({})
        start = first_offsets(found, self._options.start)
        return self._partitions(start, next_offsets(start, found, None), found)


def read_task(task: Task, options: ReaderOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    wanted: Any = to_arrow_schema(schema, timezone="UTC")
    rows = 0
    for first, last in task.runs:
        for batch in options.place.rows(task.broker, first - 1, last, options.wait_seconds):
            rows += len(batch)
            kept = _on_topics(batch, options.topics)
            if len(kept):
                yield pa.RecordBatch.from_arrays(
                    [kept[field.name].cast(field.type) for field in wanted], schema=wanted
                )
    expected = rows_in(task.runs)
    if task.is_sure and rows < expected and options.fails_on_loss:
        raise lost(task.broker, task.runs[0][0] - 1, None)
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
