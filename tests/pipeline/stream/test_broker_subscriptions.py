"""Subscriptions of brokers: fetched by version, kept while a broker is away, each once."""

from pathlib import Path

import pyarrow as pa

from dovetail.archive.subscription_files import SubscriptionRow, subscription_batch
from dovetail.pipeline.source.archives import ClusterArchive
from dovetail.pipeline.stream.broker_subscriptions import BrokerSubscriptions, each_once
from support.archives import SETTINGS
from support.brokers.wire_client import WireClient
from support.processes.broker_process import BrokerProcess


def test_subscriptions_stay_while_a_broker_is_away(tmp_path: Path) -> None:
    said: list[str] = []
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    cluster = ClusterArchive((f"http://127.0.0.1:{broker.port_of('http')}",))
    asked = BrokerSubscriptions(cluster, said.append)
    first = asked.refresh()
    assert asked.refresh() == first
    assert asked.table().num_rows == 0
    with WireClient(broker.port, "anna", persistent=True) as client:
        client.subscribe("a/#", 1)
        client.disconnect()
    second = asked.refresh()
    assert second != first
    broker.kill()
    for _ in range(2):
        assert asked.refresh() == second
    assert asked.table()["filter"].to_pylist() == ["a/#"]
    (once,) = said
    assert once.startswith("one does not list its subscriptions, and its last list is used")


def test_a_subscription_at_two_brokers_counts_once() -> None:
    rows = [SubscriptionRow("anna", "a/#", 1), SubscriptionRow("bert", "b", 0)]
    tables = [
        pa.Table.from_batches([subscription_batch(rows, "one")]),
        pa.Table.from_batches([subscription_batch(rows[1:], "two")]),
    ]
    assert sorted(each_once(tables)["filter"].to_pylist()) == ["a/#", "b"]
    assert each_once([]).num_rows == 0
    assert each_once(tables[:1]).num_rows == 2
