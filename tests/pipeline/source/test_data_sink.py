"""Rows to publications: which rows are valid, and that a real broker gets them in order."""

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dovetail.archive.writer import ArchiveWriter
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.client.sender import MqttMessage
from dovetail.codec.properties import user_properties
from dovetail.errors import ConfigError
from dovetail.pipeline import register
from dovetail.pipeline.source.data_sink import check_columns, publication_of, writer_options
from support.archives import rows_of
from support.brokers.wire_client import WireClient
from support.processes.broker_process import BrokerProcess

SERVER = {"url": "mqtt://127.0.0.1:1883"}
RULES = """
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[[access.rules]]
publish = ["a/#"]
subscribe = ["#"]
"""


def test_a_row_is_a_publication() -> None:
    options = writer_options({**SERVER, "topic": "t", "qos": "2", "retain": "true"})
    assert publication_of({"payload": "x"}, options) == MqttMessage("t", b"x", 2, True)
    row = {
        "topic": "a/1",
        "payload": b"\x00",
        "qos": 0,
        "retain": False,
        "attributes": [("lat", 40.5), ("road", "A1")],
        "properties": [{"name": "n", "value": "v"}],
    }
    properties = (("lat", "40.5"), ("road", "A1"), ("n", "v"))
    assert publication_of(row, options) == MqttMessage("a/1", b"\x00", 0, False, properties)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"topic": "a/+", "payload": ""}, "cannot publish to 'a/+'"),
        ({"topic": None, "payload": ""}, "a row has no topic"),
        ({"topic": "a", "payload": None}, "a row to a has no payload"),
        ({"topic": "a", "payload": "", "qos": 3}, "a row to a has the QoS 3"),
    ],
)
def test_an_invalid_row_is_refused(row: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        publication_of(row, writer_options(SERVER))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("topic string", "no column 'payload'; their columns are topic"),
        ("payload string", "no column 'topic'"),
        ("topic int, payload string", "'topic' is int, and should be string"),
        ("topic string, payload double", "'payload' is double, and should be string or binary"),
        ("topic string, payload string, attributes string", "'attributes' is string"),
        ("topic string, payload string, properties map<string,int>", "'properties' is map"),
    ],
)
def test_wrong_columns_are_refused(spark: SparkSession, columns: str, said: str) -> None:
    schema = spark.createDataFrame([], columns).schema
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_columns(schema, writer_options(SERVER))


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:1883", "http://127.0.0.1", "mqtt://", "mqtt://host:none"]
)
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="the address of an MQTT server cannot be"):
        writer_options({"url": url})


def test_a_stream_is_published_and_a_refusal_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    register(spark)
    archive = tmp_path / "archive"
    assert (
        ArchiveWriter(archive, 1 << 20, SpaceRegistry()).write(rows_of(range(1, 301))).error is None
    )
    rows = spark.readStream.format("dovetail").load(str(archive))
    with BrokerProcess(tmp_path, RULES) as broker, WireClient(broker.port, "reader") as reader:
        reader.subscribe("a/#", 1)
        options = {"url": f"mqtt://127.0.0.1:{broker.port}", "checkpointLocation": str(tmp_path)}
        (
            rows.selectExpr("topic", "payload", "map('sequence', double(sequence)) attributes")
            .writeStream.format("dovetail")
            .options(**options)
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
        got = [reader.receive_message() for _ in range(300)]
        assert [one.payload for one in got] == [b"%d" % number for number in range(1, 301)]
        assert {one.qos for one in got} == {1}
        assert [*user_properties(got[1].properties)] == [("sequence", "2.0")]
        refused = spark.createDataFrame([("b/1", "x")], "topic string, payload string")
        writer = refused.write.format("dovetail").mode("append").option("url", options["url"])
        with pytest.raises(
            PySparkException, match="refused the publication to b/1: not authorised"
        ):
            writer.save()
