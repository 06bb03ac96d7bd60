"""Matches published to a real cluster: what their subscribers get, and that none loops."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from dovetail.archive.subscription_files import SubscriptionRow, id_of
from dovetail.attributes.clauses import key_of
from dovetail.client.endpoint import ConnectionOptions
from dovetail.client.sender import MqttMessage, Sender
from dovetail.codec.packets import Publish
from dovetail.codec.properties import user_properties
from dovetail.pipeline.stream import job
from dovetail.pipeline.stream.job import StreamOptions, stream
from support.archives import SETTINGS
from support.brokers.wire_client import WireClient
from support.processes.broker_process import BrokerProcess

SPACES = """
[spaces.traffic]
topics = "traffic/#"
texts = ["road"]
json_fields = true
[spaces.traffic.dimensions]
speed = [0, 200]
"""


@pytest.fixture
def own_spark(lend: Callable[[ModuleType], None]) -> None:
    lend(job)


def publish(broker: BrokerProcess, *messages: MqttMessage) -> None:
    sender = Sender(ConnectionOptions(host="127.0.0.1", port=broker.port), wait_seconds=30)
    for message in messages:
        sender.send(message)
    sender.finish()
    sender.close()


def seen(message: Publish) -> tuple[str, bytes, set[tuple[str, str]]]:
    return message.topic.decode(), bytes(message.payload), {*user_properties(message.properties)}


@pytest.mark.usefixtures("own_spark")
def test_each_match_is_published_and_none_loops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = SETTINGS.replace('"a/#"', '"#"') + SPACES
    with BrokerProcess(tmp_path, settings) as broker, WireClient(broker.port, "reader") as reader:
        clause = key_of("traffic/#", 'road == "A1" and speed < 25')
        rows = [SubscriptionRow("drivers", "#", 1), SubscriptionRow("drivers", clause, 1)]
        with WireClient(broker.port, "drivers", persistent=True) as drivers:
            for one in ("#", "traffic/#?speed<25&road=A1"):
                assert drivers.subscribe(one, 1) == 1
            drivers.disconnect()
        reader.subscribe("matched/#", 1)
        publish(
            broker,
            MqttMessage("traffic/1", b"{}", user_properties=(("speed", "2e1"), ("road", "A1"))),
            MqttMessage("traffic/2", b'{"speed": 7.5, "road": "A1", "x": 1}'),
            MqttMessage("traffic/3", b'{"speed": 70}', user_properties=(("who", "me"),)),
        )
        options = StreamOptions(
            url=f"http://127.0.0.1:{broker.port_of('http')}",
            publish=f"mqtt://127.0.0.1:{broker.port}",
            prefix="matched",
            checkpoint=tmp_path / "checkpoint",
            is_available_now=True,
        )
        stream(options)
        got = [seen(reader.receive_message()) for _ in range(5)]
        # What it has published is archived, read, and passed over, whoever subscribes to "#".
        stream(options)
        publish(broker, MqttMessage("matched/end", b""))
        assert reader.receive_message().topic == b"matched/end"
    printed = capsys.readouterr()
    assert "Brokers archive what is below matched/, too" in printed.err
    assert "in      3 messages, in batches: 1\nout     5 publications\n" in printed.out
    assert "in      0 messages, in batches: 1\nout     0 publications\n" in printed.out
    everything, some = (f"matched/{id_of(row)}" for row in rows)
    wanted = {
        "traffic/1": (b"{}", {("speed", "2e1"), ("road", "A1")}, (everything, some)),
        "traffic/2": (
            b'{"speed": 7.5, "road": "A1", "x": 1}',
            {("speed", "7.5"), ("road", "A1")},
            (everything, some),
        ),
        "traffic/3": (b'{"speed": 70}', {("who", "me"), ("speed", "70.0")}, (everything,)),
    }
    found = [
        (topic, payload, frozenset(one for one in properties if one[0] != "dovetail-message"))
        for topic, payload, properties in got
    ]
    assert sorted(found) == sorted(
        (topic, payload, frozenset({*properties, ("dovetail-topic", original)}))
        for original, (payload, properties, topics) in wanted.items()
        for topic in topics
    )
    ids = {value for *_, pairs in got for name, value in pairs if name == "dovetail-message"}
    assert len(ids) == 3
    assert all(one.startswith("one-") for one in ids)
