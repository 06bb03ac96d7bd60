"""Jobs read and match both tables of an archive as brokers write them."""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from dovetail.archive.compaction import compact
from dovetail.archive.files import files_of
from dovetail.archive.subscription_files import SubscriptionFile, SubscriptionRow, id_of
from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.clauses import key_of
from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.pipeline.match.bulk import match
from dovetail.pipeline.spark.table_files import read_subscriptions
from support.archives import BEGIN, HOUR, row
from support.brokers.harness import attributes

TRAFFIC = Space("traffic", "traffic/#", (Dimension("speed", 0, 200),), texts=frozenset({"road"}))


def test_an_archive_is_matched_with_its_subscriptions(spark: SparkSession, tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, 1 << 20, SpaceRegistry([TRAFFIC]))
    slow, fast = attributes(speed="10", road="A1"), attributes(speed="90", road="A1")
    for rows in (
        [(1, row(topic=b"traffic/1", properties=slow)), (2, row(topic=b"plain"))],
        [(3, row(topic=b"traffic/2", properties=fast))],
        [(4, row(BEGIN + HOUR, topic=b"traffic/3", properties=slow))],
    ):
        assert writer.write(rows).error is None
    compact(tmp_path, BEGIN / 1e6 + 3_600, file_bytes_max=1 << 20, keep_seconds=1e9)
    old = SubscriptionFile(tmp_path, "one", 0.5)
    old.add([SubscriptionRow("gone", "#", 0)])
    old.finish()
    wanted = [
        SubscriptionRow("all", "#", 0),
        SubscriptionRow("slow", key_of("traffic/#", 'speed < 25 and road == "A1"'), 1),
    ]
    table = SubscriptionFile(tmp_path, "one", 1)
    table.add(wanted)
    table.finish()
    other = SubscriptionFile(tmp_path, "two", 1)
    other.add(wanted[1:])
    other.finish()

    files = [str(file) for file in files_of(tmp_path)]
    messages = spark.read.option("basePath", str(tmp_path)).parquet(*files)
    assert messages.schema["day"].dataType.typeName() == "date"
    assert messages.schema["hour"].dataType.typeName() == "integer"
    subscriptions = read_subscriptions(spark, str(tmp_path))
    found = match(
        messages.withColumn("id", sql.struct("broker", "sequence")),
        subscriptions,
        spaces=[TRAFFIC],
    )
    everything, only_slow = map(id_of, wanted)
    assert {one.message.sequence: sorted(one.subscriptions) for one in found.collect()} == {
        1: sorted((everything, only_slow)),
        2: [everything],
        3: [everything],
        4: sorted((everything, only_slow)),
    }
