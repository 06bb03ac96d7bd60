"""Batches of matches into a cluster: a publication for each pair that matches, at least once.

    PREFIX/<id of the subscription>

has the payload of the message, its user properties, its attributes, and two of ours: the topic
that it was published on, and its id, by which a receiver knows one that comes twice. What has
these is a publication of a stream, and is passed over here: so no stream goes round in circles,
not even two that read each other's.
"""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sql

from dovetail.errors import ClientError, ConfigError
from dovetail.pipeline.limits import STREAM_PUBLISH_SECONDS
from dovetail.pipeline.source.data_sink import writer_options
from dovetail.pipeline.stream.archived_messages import done_of, messages_of, observed
from dovetail.pipeline.stream.current_boxes import Wanted
from dovetail.pipeline.stream.identity import Mark, Query, check_query, write_query
from dovetail.pipeline.stream.output import Source
from dovetail.pipeline.stream.tally import Done, Tally
from dovetail.topics.names import check_name

TOPIC_PROPERTY = "dovetail-topic"
MESSAGE_PROPERTY = "dovetail-message"


class PublishOutput:
    """An `Output`. `options` are those of the sink (pipeline/source/data_sink.py)."""

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
        self._mark: Mark | None = None
        self._wanted: Wanted | None = None

    def check(self, checkpoint: Path, source: Source) -> None:
        where = self._options["url"]
        query = Query(source.place, source.topics, where, f"below {self._prefix}")
        self._checkpoint, self._mark = checkpoint, check_query(checkpoint, self.name, query)

    def begin(self, wanted: Wanted) -> None:
        assert self._checkpoint is not None
        assert self._mark is not None
        self._wanted = wanted
        write_query(self._checkpoint, self.name, self._mark)

    def take(self, rows: DataFrame, _number: int) -> Done:
        assert self._wanted is not None
        given, out = Observation("given"), Observation("out")
        messages = messages_of(
            rows.where(~is_of_a_stream()), "payload", "attributes", "texts", "properties"
        )
        found = self._wanted.match(observed(messages, given), as_pairs=True)
        count = sql.count(sql.lit(1))
        publications_of(found, self._prefix).observe(
            out, count.alias("rows"), count.alias("pairs")
        ).write.format("dovetail").options(**self._options).mode("append").save()
        return done_of(given, out)

    def summary(self, tally: Tally) -> list[str]:
        where = f"{self._options['url']}, topics below {self._prefix}/"
        return [f"out     {tally.rows_out:,} publications", f"output  {where}"]


def is_of_a_stream() -> Column:
    mark = sql.exists("properties", lambda one: one["name"] == TOPIC_PROPERTY)
    return sql.coalesce(mark, sql.lit(False))


def publications_of(found: DataFrame, prefix: str) -> DataFrame:
    """Pairs of message and subscription as rows of the sink (pipeline/source/data_sink.py)."""
    message = sql.col("message")
    properties = message["properties"]
    names = sql.transform(properties, lambda one: one["name"])
    # Those that came as user properties go as they came.
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
