"""Spark Connect: a real server in the tests' Spark gives the same answers as classic Spark."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.match.boxes import SubscriptionRefusedError
from dovetail.pipeline.match.bulk import match
from dovetail.pipeline.match.job import match_files
from dovetail.pipeline.spark import connect
from dovetail.pipeline.spark.spark_session import check_master, open_session
from support.brokers.road_and_river import COLUMNS, SPACES, drawn
from support.oracles.bulk_match import match_by_scanning, subscriptions_table


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[str]:
    java = spark.sparkContext._jvm
    assert java is not None
    context = spark.sparkContext._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.port", "0")
    service = getattr(java, "org.apache.spark.sql.connect.service.SparkConnectService$")
    service = getattr(service, "MODULE$")
    service.start(context)
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(*(getattr(service, f"stop$default${number}")() for number in (1, 2)))


def test_same_as_classic(server: str) -> None:
    sent, wanted = drawn(120, 60, seed=3)
    rows = [(number, *one) for number, one in enumerate(sent)]
    expected = match_by_scanning(sent, wanted, SPACES)

    def found(session: SparkSession, boxes_shipped_max: int = 1_000) -> list[list[str]]:
        messages = session.createDataFrame(rows, COLUMNS)
        subscriptions = session.createDataFrame(subscriptions_table(wanted))
        table = match(
            messages, subscriptions, spaces=SPACES, boxes_shipped_max=boxes_shipped_max, tasks=4
        ).toArrow()
        by_message = {row["message"]: row["subscriptions"] for row in table.to_pylist()}
        return [sorted(by_message[number]) for number in range(len(sent))]

    with open_session(server) as session:
        assert is_remote()
        shipped = found(session)
        cut = found(session, boxes_shipped_max=5)
        columns = "id string, filter string, where string"
        wrong = session.createDataFrame([("a", "road/#", "nowhere < 1")], columns)
        with pytest.raises(SubscriptionRefusedError, match="has no attribute"):
            match(session.createDataFrame(rows, COLUMNS), wrong, spaces=SPACES)
    assert not is_remote()
    assert shipped == cut == [sorted(one) for one in expected]


def test_job_on_a_server(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages, subscriptions = tmp_path / "m.parquet", tmp_path / "s.csv"
    pq.write_table(pa.table({"id": [1, 2], "topic": ["a/b", "c"]}), messages)
    subscriptions.write_text("id,filter\nanna,a/#\nbert,#\n")
    out = tmp_path / "out"
    match_files(
        messages=str(messages), subscriptions=str(subscriptions), out=str(out), master=server
    )
    printed = capsys.readouterr()
    assert "in      2 messages, 2 subscriptions\nout     2 rows, 3 pairs" in printed.out
    assert "the one of the Connect server" in printed.err
    assert pq.read_table(out).num_rows == 2


def test_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "READY_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # and says nothing
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DovetailError, match=f"server {address} cannot be reached"):
            check_master(f"sc://{address}")


@pytest.mark.parametrize("address", ["sc://", "sc://host:x", "sc://host/path"])
def test_addresses_of_no_server(address: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a Spark Connect server"):
        check_master(address)
