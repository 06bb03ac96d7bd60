"""Archived rows as messages that `match` takes, counted on their way."""

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sql

from dovetail.pipeline.stream.tally import Done


def messages_of(rows: DataFrame, *columns: str) -> DataFrame:
    """The id of each has all that is to be known of it afterwards: no join has to find it again.

    Besides these columns that is `message`, as in `b1-17`, `time` and `topic`.
    """
    message = sql.concat_ws("-", "broker", "sequence").alias("message")
    return rows.select(
        sql.struct(message, "time", "topic", *columns).alias("id"), "topic", "attributes", "texts"
    )


def observed(messages: DataFrame, seen: Observation) -> DataFrame:
    return messages.observe(
        seen, sql.count(sql.lit(1)).alias("rows"), sql.max("id.time").alias("newest")
    )


def done_of(given: Observation, out: Observation) -> Done:
    """When both have gone by."""
    return Done(given.get["rows"], out.get["rows"], out.get["pairs"] or 0, given.get.get("newest"))
