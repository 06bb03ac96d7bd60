"""A broker with flipped bits on its disk reports them and does not start, or loses nothing."""

import shutil
from pathlib import Path
from random import Random

import pytest

from dovetail.broker.store.database import DATABASE_FILE
from dovetail.codec.packets import Publish
from support.brokers.wire_client import WireClient
from support.oracles.store import parts
from support.processes.broker_process import BrokerProcess, wait_until
from support.processes.client_commands import run

MESSAGES = [b"%d " % number + bytes(number % 7 * 300) for number in range(600)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a queue of 600 messages, after kill -9."""
    folder = tmp_path_factory.mktemp("killed")
    broker = BrokerProcess(folder)
    with broker, WireClient(broker.port, "away", persistent=True) as client:
        assert client.subscribe("queue", 1) == 1
        client.disconnect()
        with WireClient(broker.port) as publisher:
            for payload in MESSAGES[:400]:  # these are in the database, later ones in its log
                assert publisher.publish("queue", payload, 1) == 0
    broker.start()
    with WireClient(broker.port) as publisher:
        for payload in MESSAGES[400:]:
            assert publisher.publish("queue", payload, 1) == 0
        broker.kill()
    return broker.data


def received(broker: BrokerProcess, count: int) -> list[bytes]:
    with WireClient(broker.port, "away", persistent=True) as client:
        messages: list[bytes] = []
        while len(messages) < count and isinstance(packet := client.receive(), Publish):
            messages.append(packet.payload)
        return messages


def copied(killed: Path, folder: Path) -> BrokerProcess:
    shutil.copytree(killed, folder / "data")
    return BrokerProcess(folder)


def test_all_is_there_after_a_kill(killed: Path, tmp_path: Path) -> None:
    with copied(killed, tmp_path) as broker:
        assert received(broker, len(MESSAGES)) == MESSAGES


@pytest.mark.parametrize(("part", "seed"), [("", 1), ("", 2), ("-wal", 3), ("-wal", 4)], ids=str)
def test_flipped_bits(killed: Path, tmp_path: Path, part: str, seed: int) -> None:
    random = Random(seed)
    broker = copied(killed, tmp_path)
    file = broker.data / f"{DATABASE_FILE}{part}"
    content = bytearray(file.read_bytes())
    for _ in range(5):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)
    before = parts(broker.data)

    broker.launch("--quiet")
    wait_until(lambda: not broker.is_running or broker.accepts(), "its start, or its end")
    if broker.is_running:  # the bits were unused
        assert received(broker, len(MESSAGES)) == MESSAGES
        broker.stop()
        return
    assert broker.wait() == 2
    assert parts(broker.data) == before
    broker.wait_for_log(f"{broker.data / DATABASE_FILE} is damaged")
    broker.wait_for_log(f"dovetail repair --data {broker.data}")

    said = run("repair", "--data", broker.data).text
    assert "kept" in said
    (aside,) = broker.data.glob("damaged-*")
    assert (aside / f"{DATABASE_FILE}{part}").is_file()
    assert run("repair", "--data", broker.data).text == f"{broker.data}: nothing is damaged\n"
    broker.start()
    left = broker.metric("queued_messages")
    with WireClient(broker.port) as publisher:
        assert publisher.publish("queue", b"new", 1) == 0
    messages = received(broker, int(left) + 1)
    broker.stop()
    assert messages[-1] == b"new"
    assert messages[:-1] == [one for one in MESSAGES if one in set(messages)]
    assert len(messages) > 300
