"""A real broker's subscriptions over HTTP, while they change."""

import urllib.request
from pathlib import Path

import pyarrow as pa

from dovetail.archive.subscription_files import SCHEMA
from dovetail.codec.packets import Subscribe, SubscriptionAck, SubscriptionRequest
from support.archives import SETTINGS
from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess


def told(broker: BrokerProcess, known: str = "") -> tuple[int, list[dict[str, object]], str]:
    """Return the status, the rows and the version."""
    url = f"http://127.0.0.1:{broker.port_of('http')}/archive/subscriptions?known={known}"
    with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as response:
        body = response.read()
        version = response.headers["dovetail-version"]
    if not body:
        return response.status, [], version
    table = pa.ipc.open_stream(body).read_all()
    assert table.schema == SCHEMA
    return response.status, table.to_pylist(), version


def test_a_known_version_is_not_sent_again(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    status, rows, version = told(broker)
    assert (status, rows) == (200, [])
    assert told(broker, version) == (204, [], version)
    with WireClient(broker.port, "client") as client:
        filters = [f"a/{number}" for number in range(3_000)]  # more than are gathered at once
        client.send(Subscribe(1, [SubscriptionRequest(one, 1) for one in filters]))
        answer = client.receive()
        assert isinstance(answer, SubscriptionAck)
        assert answer.reasons == [1] * len(filters)
        status, rows, later = told(broker, version)
        assert (status, sorted(filters)) == (200, sorted(str(row["filter"]) for row in rows))
        assert {(row["client"], row["qos"], row["broker"]) for row in rows} == {
            ("client", 1, "one")
        }
        assert later != version
        assert told(broker, later) == (204, [], later)
    broker.stop()
    broker.start()  # another life counts anew
    assert told(broker, version)[0] == 200
    assert broker.get("/archive/subscriptions?known=1&other=2")[0] == 400
    broker.stop()
