"""The requests of a serving stream to a running broker, with a login."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from dovetail.api.engine import ClauseQuery, DeliveryBatch, DeliveryReceipt
from dovetail.api.http_client import NoAnswerError, RefusalError
from dovetail.broker.auth.passwords import set_password
from dovetail.pipeline.serve.broker_client import HttpBrokerClient
from support.processes.broker_process import BrokerProcess

CONFIGURATION = """
name = "one"
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[access]
password_file = "users"
administrators = ["anna"]
[archive]
folder = "archive"
[spaces.traffic]
topics = "traffic/#"
texts = ["road"]
engine = "spark"
[spaces.traffic.dimensions]
speed = [0, 200]
"""


def test_a_running_broker(tmp_path: Path) -> None:
    set_password(tmp_path / "users", "anna", b"secret")
    with BrokerProcess(tmp_path, CONFIGURATION) as process:
        url = f"http://127.0.0.1:{process.port_of('http')}"
        brokers = HttpBrokerClient(("http://127.0.0.1:9", url), ("anna", "secret"))
        assert brokers.members() == {"one"}
        (space,) = brokers.spaces("one")
        assert (space.name, space.is_streamed, space.texts) == (
            "traffic",
            True,
            frozenset({"road"}),
        )
        listed = brokers.clause_changes("one", ClauseQuery("traffic"))
        assert listed is not None
        assert listed.is_whole
        assert brokers.deliver("one", DeliveryBatch("engine", "traffic", [])) == DeliveryReceipt([])
        assert brokers.clause_changes("one", ClauseQuery("elsewhere")) is None
        assert brokers.deliver("one", DeliveryBatch("engine", "elsewhere", [])) is None
        with pytest.raises(RefusalError):
            HttpBrokerClient((url,), ("anna", "wrong")).clause_changes(
                "one", ClauseQuery("traffic")
            )
    with pytest.raises(NoAnswerError):
        brokers.clause_changes("one", ClauseQuery("traffic"))
    with pytest.raises(NoAnswerError):
        HttpBrokerClient((url,)).members()
