"""Turns archived rows into messages for `match`, and counts them on the way."""

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sql

from dovetail.pipeline.stream.tally import BatchResult


def as_messages(rows: DataFrame, *columns: str) -> DataFrame:
    """Return rows as messages. The id of a message has all that outputs need, so none has to join.

    The id is a struct of `message` (as in `b1-17`), `time`, `topic` and these columns.
    """
    message = sql.concat_ws("-", "broker", "sequence").alias("message")
    return rows.select(
        sql.struct(message, "time", "topic", *columns).alias("id"), "topic", "attributes", "texts"
    )


def observed(messages: DataFrame, seen: Observation) -> DataFrame:
    return messages.observe(
        seen, sql.count(sql.lit(1)).alias("rows"), sql.max("id.time").alias("newest")
    )


def batch_result(given: Observation, out: Observation) -> BatchResult:
    """Return the result of a batch, once both observations have their counts."""
    return BatchResult(
        given.get["rows"], out.get["rows"], out.get["pairs"] or 0, given.get.get("newest")
    )
