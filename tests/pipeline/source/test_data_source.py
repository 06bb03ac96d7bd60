"""`format("dovetail")`: a running broker and a folder, as streams and as tables."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from dovetail.archive.compaction import compact
from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.pipeline import register
from dovetail.pipeline.source.checkpoint import last_batch, offsets_of_batch
from support.archives import BEGIN, SETTINGS, Publisher, read, rows_of
from support.processes.broker_process import BrokerProcess, wait_until


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive with three files."""
    write(tmp_path / "archive", range(1, 11), range(11, 21), range(500, 511))
    return tmp_path / "archive"


def write(folder: Path, *ranges: range) -> None:
    writer = ArchiveWriter(folder, 1 << 20, SpaceRegistry())
    for some in ranges:
        assert writer.write(rows_of(some)).error is None


def sequences(frame: DataFrame) -> list[int]:
    return sorted(row.sequence for row in frame.select("sequence").collect())


def run_once(spark: SparkSession, out: Path, **options: str | int) -> list[int]:
    """Read all available rows from the checkpoint on, and return them as a table.

    Spark gives a Python worker ten seconds to start, which may be too few on a busy machine. Then
    the stream begins again, as after any failure.
    """
    while True:
        source = spark.readStream.format("dovetail").options(**options).load()
        query = (
            source.select("broker", "sequence", "payload")
            .writeStream.option("checkpointLocation", str(out / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out / "table"), format="parquet")
        )
        try:
            query.awaitTermination()
            return sequences(spark.read.parquet(str(out / "table")))
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise


def test_a_stream_of_files_continues_during_compaction(
    reading: SparkSession, folder: Path, tmp_path: Path
) -> None:
    there = [*range(1, 21), *range(500, 511)]
    out = tmp_path / "out"
    assert run_once(reading, out, path=str(folder), maxRowsPerBatch=14) == there
    batches = [offsets_of_batch(out / "checkpoint", number) for number in range(3)]
    assert [one.end["one"] for one in batches] == [14, 507, 510]
    assert [one.start for one in batches[:2]] == [{}, {"one": 14}]
    compact(folder, BEGIN / 1e6 + 3_600, file_bytes_max=1 << 20)
    write(folder, range(511, 515))
    assert run_once(reading, out, path=str(folder)) == [*there, *range(511, 515)]
    assert last_batch(out / "checkpoint") == 3


def test_a_table_of_files(reading: SparkSession, folder: Path) -> None:
    table = reading.read.format("dovetail").option("maxRowsPerTask", 4).load(str(folder))
    assert table.rdd.getNumPartitions() == 8
    assert [row.asDict(recursive=True) for row in table.orderBy("sequence").collect()] == [
        {**row, "time": row["time"].replace(tzinfo=None), "attributes": {}, "texts": {}}
        for row in read(folder)
    ]
    some = reading.read.format("dovetail").options(topics="b/#,a/+", startingOffsets='{"one": 505}')
    assert sequences(some.load(str(folder))) == [*range(506, 511)]
    assert sequences(some.option("topics", "b/#").load(str(folder))) == []


def test_an_error_keeps_its_words(reading: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"no node answers at http://127\.0\.0\.1:9"):
        reading.read.format("dovetail").option("url", "http://127.0.0.1:9").load().count()


def test_a_running_broker_is_read_before_and_after_a_kill(
    reading: SparkSession, tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    url = f"http://127.0.0.1:{broker.port_of('http')}"
    source = reading.readStream.format("dovetail").options(url=url, maxRowsPerBatch=400).load()
    out = tmp_path / "table"
    query = (
        source.select("sequence", "payload")
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(out), format="parquet")
    )
    publisher = Publisher(broker.port, 1, messages_max=600)
    wait_until(lambda: len(publisher.acknowledged) == 600, "publications")
    publisher.end()
    # A batch that is under way would wait for the broker: read everything first.
    wait_until(lambda: query.lastProgress and count(reading, out) >= 600, "rows")
    broker.kill()
    wait_until(lambda: query.status["message"].startswith("Waiting"), "nothing more to read")
    assert query.isActive
    same = f"[http]\nport = {broker.port_of('http')}"
    broker.file.write_text(SETTINGS.replace("[http]\nport = 0", same))
    broker.start()
    again = Publisher(broker.port, 1, publisher, messages_max=600)
    wait_until(lambda: len(again.acknowledged) == 1_200, "publications")
    again.end()
    wait_until(lambda: count(reading, out) >= 1_200, "rows")
    broker.stop()
    query.stop()
    there = [row["sequence"] for row in read(tmp_path / "archive")]
    assert sequences(reading.read.parquet(str(out))) == there


def count(spark: SparkSession, out: Path) -> int:
    return spark.read.parquet(str(out)).count()
