"""Matching on a real Spark."""

import pytest
from pyspark.sql import SparkSession

from dovetail.errors import ConfigError
from dovetail.pipeline.match.boxes import SubscriptionRefusedError
from dovetail.pipeline.match.bulk import match
from support.brokers.road_and_river import COLUMNS, SPACES, drawn
from support.oracles.bulk_match import (
    SentMessage,
    match_by_router,
    match_by_scanning,
    subscriptions_table,
)


def test_same_as_a_live_broker(spark: SparkSession) -> None:
    sent, wanted = drawn(300, 120, seed=1)
    messages = spark.createDataFrame(
        [(number, *one, "more") for number, one in enumerate(sent)], f"{COLUMNS}, payload string"
    )
    subscriptions = spark.createDataFrame(subscriptions_table(wanted))
    expected = match_by_scanning(sent, wanted, SPACES)
    assert expected == match_by_router(sent, wanted, SPACES)
    found = match(messages, subscriptions, spaces=SPACES)
    assert found.schema.simpleString() == "struct<message:bigint,subscriptions:array<string>>"
    rows = {row["message"]: row["subscriptions"] for row in found.collect()}
    assert [rows[number] for number in range(len(sent))] == expected
    listed = match(messages, subscriptions, spaces=SPACES, as_pairs=True)
    assert listed.schema.simpleString() == "struct<message:bigint,subscription:string>"
    assert sorted((row["message"], row["subscription"]) for row in listed.collect()) == sorted(
        (number, one) for number, row in enumerate(expected) for one in row
    )


def test_cut_gives_the_same(spark: SparkSession) -> None:
    sent, wanted = drawn(250, 100, seed=2)
    sent += [SentMessage("road/a"), SentMessage("road/b", None, {"kind": "bus"}), SentMessage(None)]
    messages = spark.createDataFrame([(number, *one) for number, one in enumerate(sent)], COLUMNS)
    subscriptions = spark.createDataFrame(subscriptions_table(wanted))
    found = match(messages, subscriptions, spaces=SPACES, boxes_shipped_max=5, tasks=5)
    rows = {row["message"]: row["subscriptions"] for row in found.collect()}
    expected = match_by_scanning(sent, wanted, SPACES)
    assert [sorted(rows[number], key=lambda id_: int(id_[1:])) for number in range(len(sent))] == (
        expected
    )
    assert len(rows) == len(sent)


def test_plain_filters_need_no_more(spark: SparkSession) -> None:
    messages = spark.createDataFrame([("m1", "a/b"), ("m2", None)], "id string, topic string")
    subscriptions = spark.createDataFrame([(7, "a/#"), (8, "+")], "id int, filter string")
    found = match(messages, subscriptions).collect()
    assert {row["message"]: row["subscriptions"] for row in found} == {"m1": [7], "m2": []}


class TestRefusals:
    @pytest.mark.parametrize(
        ("messages", "subscriptions", "said"),
        [
            ("topic string", "id int, filter string", "the messages have no column 'id'"),
            ("id int, topic int", "id int, filter string", "'topic' of the messages is int"),
            ("id int, topic string", "id int, filter string", "have no column 'attributes'"),
            (
                "id int, topic string, attributes map<string,string>",
                "id int, filter string",
                "is map<string,string>, and should be map<string,double>",
            ),
            (
                "id int, topic string, attributes map<string,int>",
                "id int, topic string",
                "the subscriptions have no column 'filter'; their columns are id, topic",
            ),
        ],
    )
    def test_schema(
        self, spark: SparkSession, messages: str, subscriptions: str, said: str
    ) -> None:
        with pytest.raises(ConfigError, match=said):
            match(
                spark.createDataFrame([], messages),
                spark.createDataFrame([], subscriptions),
                spaces=SPACES,
            )

    def test_clause(self, spark: SparkSession) -> None:
        messages = spark.createDataFrame([], "id int, topic string, attributes map<string,double>")
        subscriptions = spark.createDataFrame(
            [(1, "road/#", "x < 1"), (2, "road/#", "x <")], "id int, filter string, where string"
        )
        with pytest.raises(
            SubscriptionRefusedError, match=r"subscription 2 cannot be used: .*ends where"
        ):
            match(messages, subscriptions, spaces=SPACES)
