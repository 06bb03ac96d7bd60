"""Subscriptions of brokers: asked for by version, kept while a broker is away, each once."""

from pathlib import Path

import pyarrow as pa

from dovetail.archive.subscription_files import SubscriptionRow, batch_of
from dovetail.pipeline.source.archives import Cluster
from dovetail.pipeline.stream.broker_subscriptions import BrokerTables, each_once
from support.archives import SETTINGS
from support.brokers.wire_client import WireClient
from support.processes.broker_process import BrokerProcess


def test_a_broker_is_asked_again_and_again(tmp_path: Path) -> None:
    said: list[str] = []
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    cluster = Cluster((f"http://127.0.0.1:{broker.port_of('http')}",))
    asked = BrokerTables(cluster, said.append)
    first = asked.look()
    assert asked.look() == first
    assert asked.table().num_rows == 0
    with WireClient(broker.port, "anna", kept=True) as client:
        client.subscribe("a/#", 1)
        client.disconnect()
    second = asked.look()
    assert second != first
    broker.kill()
    for _ in range(2):
        assert asked.look() == second
    assert asked.table()["filter"].to_pylist() == ["a/#"]
    (once,) = said
    assert once.startswith("one does not say who subscribes there, and those that it said last")


def test_one_that_is_at_two_brokers_counts_once() -> None:
    rows = [SubscriptionRow("anna", "a/#", 1), SubscriptionRow("bert", "b", 0)]
    tables = [
        pa.Table.from_batches([batch_of(rows, "one")]),
        pa.Table.from_batches([batch_of(rows[1:], "two")]),
    ]
    assert sorted(each_once(tables)["filter"].to_pylist()) == ["a/#", "b"]
    assert each_once([]).num_rows == 0
    assert each_once(tables[:1]).num_rows == 2
