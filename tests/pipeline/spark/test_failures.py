"""Spark's errors come out as a sentence that names the cause."""

import gzip
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dovetail.errors import DovetailError
from dovetail.pipeline.spark.failures import explain, spark_errors
from dovetail.pipeline.spark.table_files import local, read_messages, read_subscriptions
from support.processes.mounts import small_disk


def said_of(spark: SparkSession, path: Path) -> str:
    with pytest.raises(DovetailError) as failure, spark_errors():
        read_messages(spark, str(path)).toArrow()
    return failure.value.message


def test_damaged_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    topics = [f"a/{number}" for number in range(2_000)]
    pq.write_table(pa.table({"id": range(2_000), "topic": topics}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(200) + whole[204:])
    assert said_of(spark, path).startswith(f"{path} cannot be read: ")
    path.write_bytes(whole[:-100])
    assert said_of(spark, path).startswith(f"{path} cannot be read: Could not read footer.")
    path.write_bytes(b"")
    assert said_of(spark, path) == (
        f"{path} cannot be read: it is empty, or of another kind than its name says."
    )
    packed = tmp_path / "m.jsonl.gz"
    packed.write_bytes(b"not packed at all")
    assert said_of(spark, packed) == f"{packed} cannot be read: not a gzip file"
    packed.write_bytes(gzip.compress(b'{"id": 1, "topic": "a"}\n{"id":\n'))
    assert said_of(spark, packed) == f"{packed} cannot be read: a line in it is not a JSON object."


def test_column_of_another_type_in_one_file(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "topic": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1], "topic": [7]}), tmp_path / "b.parquet")
    assert said_of(spark, tmp_path) == (
        f"{tmp_path}/b.parquet cannot be read: Data type mismatches when reading Parquet column "
        "[topic]. Expected Spark type string, actual Parquet type INT64."
    )


def test_paths_of_all_kinds(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "ü b=c %41 #1 [x] {y},z *?"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1], "filter": ["a"]}), folder / "s %20.parquet")
    (folder / "m ü.jsonl").write_text('{"id": 1, "topic": "a"}\n')
    assert read_subscriptions(spark, str(folder / "s %20.parquet")).count() == 1
    assert read_messages(spark, str(folder / "m ü.jsonl")).count() == 1
    spark.range(3).write.parquet(local(folder / "out ü=%"))
    assert pq.read_table(folder / "out ü=%").num_rows == 3


def test_full_disk(spark: SparkSession, tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", 65_536) as disk,
        pytest.raises(DovetailError, match="there is no space left on the disk"),
        spark_errors(),
    ):
        spark.range(100_000).repartition(1).write.parquet(local(disk / "out"))


def test_worker_that_is_killed(spark: SparkSession) -> None:
    # In here, because workers cannot import what this module does.
    def ending(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    with (
        pytest.raises(DovetailError, match="a Python worker of Spark ended in the middle"),
        spark_errors(),
    ):
        spark.range(2).mapInArrow(ending, "id long").collect()
    assert spark.range(2).count() == 2


STOPPED = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
LOST = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed "
    "1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 3) (here executor driver): "
    "org.apache.spark.SparkException: [SOME.KIND] It did not work. SQLSTATE: XX000"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STOPPED, "Spark has stopped in the middle of the work: its master ended it, or never ans"),
        (LOST, "Spark failed: It did not work."),
        ("", "Spark failed: Py4JError"),
    ],
)
def test_errors_in_plain_words(text: str, said: str) -> None:
    assert explain(Py4JError(text)).message.startswith(said)


def test_a_wrong_query_is_reported_once(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DovetailError, match="`nothing` cannot be resolved"), spark_errors():
        spark.range(1).select("nothing")
    assert "QueryContextLogger" not in capfd.readouterr().err
