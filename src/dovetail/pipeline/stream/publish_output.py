"""Publishes matches to a cluster: one publication for each matching pair, at least once.

    PREFIX/<id of the subscription>

A publication has the payload, user properties and attributes of the message. Two properties are
added: the original topic, and the message's id, by which a receiver detects duplicates. Messages
with these properties come from a stream and are skipped here. So streams never loop, not even two
that read each other's publications.
"""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sql

from dovetail.errors import ClientError, ConfigError
from dovetail.pipeline.limits import STREAM_PUBLISH_SECONDS
from dovetail.pipeline.source.data_sink import writer_options
from dovetail.pipeline.stream.archived_messages import as_messages, batch_result, observed
from dovetail.pipeline.stream.checkpoint_record import (
    CheckpointRecord,
    QueryIdentity,
    check_query,
    write_query,
)
from dovetail.pipeline.stream.current_boxes import CurrentBoxes
from dovetail.pipeline.stream.output import StreamSource
from dovetail.pipeline.stream.tally import BatchResult, StreamTally
from dovetail.topics.names import check_name

TOPIC_PROPERTY = "dovetail-topic"
MESSAGE_PROPERTY = "dovetail-message"


class PublishOutput:
    """The `Output` that publishes. `options` are those of the sink (source/data_sink.py)."""

    name = "publish"
    interval_seconds = STREAM_PUBLISH_SECONDS

    def __init__(self, options: Mapping[str, str], prefix: str) -> None:
        writer_options(options)
        try:
            check_name(prefix)
        except ClientError as error:
            raise ConfigError(f"--topic cannot be {prefix!r}: {error.message}.") from None
        self._options = dict(options)
        self._prefix = prefix
        self._checkpoint: Path | None = None
        self._record: CheckpointRecord | None = None
        self._boxes: CurrentBoxes | None = None

    def check(self, checkpoint: Path, source: StreamSource) -> None:
        where = self._options["url"]
        query = QueryIdentity(source.location, source.topics, where, f"below {self._prefix}")
        self._checkpoint, self._record = checkpoint, check_query(checkpoint, self.name, query)

    def begin(self, boxes: CurrentBoxes) -> None:
        assert self._checkpoint is not None
        assert self._record is not None
        self._boxes = boxes
        write_query(self._checkpoint, self.name, self._record)

    def take(self, rows: DataFrame, _number: int) -> BatchResult:
        assert self._boxes is not None
        given, out = Observation("given"), Observation("out")
        messages = as_messages(
            rows.where(~is_of_a_stream()), "payload", "attributes", "texts", "properties"
        )
        found = self._boxes.match(observed(messages, given), as_pairs=True)
        count = sql.count(sql.lit(1))
        publications_of(found, self._prefix).observe(
            out, count.alias("rows"), count.alias("pairs")
        ).write.format("dovetail").options(**self._options).mode("append").save()
        return batch_result(given, out)

    def summary(self, tally: StreamTally) -> list[str]:
        where = f"{self._options['url']}, topics below {self._prefix}/"
        return [f"out     {tally.rows_out:,} publications", f"output  {where}"]


def is_of_a_stream() -> Column:
    record = sql.exists("properties", lambda one: one["name"] == TOPIC_PROPERTY)
    return sql.coalesce(record, sql.lit(False))


def publications_of(found: DataFrame, prefix: str) -> DataFrame:
    """Return matching pairs as rows for the sink (pipeline/source/data_sink.py)."""
    message = sql.col("message")
    properties = message["properties"]
    names = sql.transform(properties, lambda one: one["name"])
    # Attributes that came as user properties are in `properties` already.
    numbers, texts = (
        sql.map_filter(message[column], lambda name, _: ~sql.array_contains(names, name))
        for column in ("attributes", "texts")
    )
    entries = sql.transform(sql.map_entries(texts), lambda one: _property(one["key"], one["value"]))
    own = sql.array(
        _property(sql.lit(TOPIC_PROPERTY), message["topic"]),
        _property(sql.lit(MESSAGE_PROPERTY), message["message"]),
    )
    return found.select(
        sql.concat_ws("/", sql.lit(prefix), sql.col("subscription").cast("string")).alias("topic"),
        message["payload"].alias("payload"),
        numbers.alias("attributes"),
        sql.concat(properties, entries, own).alias("properties"),
    )


def _property(name: Column, value: Column) -> Column:
    return sql.struct(name.alias("name"), value.alias("value"))
