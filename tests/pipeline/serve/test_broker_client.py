"""A running broker as a serving stream asks it, over HTTP, for who has to prove a name."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from dovetail.api.engine import Handover, Question, Taken
from dovetail.api.http_client import NoAnswerError, RefusalError
from dovetail.broker.auth.passwords import set_password
from dovetail.pipeline.serve.broker_client import HttpBrokers
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
        brokers = HttpBrokers(("http://127.0.0.1:9", url), ("anna", "secret"))
        assert brokers.members() == {"one"}
        (space,) = brokers.spaces("one")
        assert (space.name, space.is_streamed, space.texts) == (
            "traffic",
            True,
            frozenset({"road"}),
        )
        listed = brokers.tell("one", Question("traffic"))
        assert listed is not None
        assert listed.is_whole
        assert brokers.take("one", Handover("engine", "traffic", [])) == Taken([])
        assert brokers.tell("one", Question("elsewhere")) is None
        assert brokers.take("one", Handover("engine", "elsewhere", [])) is None
        with pytest.raises(RefusalError):
            HttpBrokers((url,), ("anna", "wrong")).tell("one", Question("traffic"))
    with pytest.raises(NoAnswerError):
        brokers.tell("one", Question("traffic"))
    with pytest.raises(NoAnswerError):
        HttpBrokers((url,)).members()
