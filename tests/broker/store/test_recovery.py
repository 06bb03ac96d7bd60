"""A broker that has left its cluster: rows that only a cluster can use stay."""

import logging
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from dovetail.broker.peering.roaming.redirect import Redirect
from dovetail.broker.store.journal import (
    DeliveryRow,
    MessageRow,
    OwedRow,
    SessionRow,
    SubscriptionRow,
)
from dovetail.codec.packets import Ack, PacketType, Publish
from support.brokers.harness import PERSISTENT, START, Client, Disk, World
from support.brokers.wire_client import WireClient
from support.clusters.brokers import BrokerProcesses
from support.processes.broker_process import BrokerProcess, wait_until

SAID = (
    "sessions that have moved on to other brokers, and are left alone while this broker is in no "
)


def redirect_row(**values: object) -> bytes:
    redirect = Redirect(cast("Any", None), START)
    for name, value in values.items():
        setattr(redirect, name, value)
    return redirect.row()


def session_row(redirect: bytes = b"") -> SessionRow:
    return SessionRow("roamer", 1_000, START, None, None, 1, redirect)


def message_row(payload: bytes) -> MessageRow:
    return MessageRow(b"here", payload, 1, False, b"", None, "")


@pytest.fixture
def disk() -> Disk:
    """A session that has come back, between two ghosts of its client; all need message 1."""
    disk = Disk()
    ghost = session_row(redirect_row(owner="peer", moved_stamp=5, open={"other"}))
    disk.tables["sessions"] = {1: ghost, 2: session_row(), 3: ghost}
    disk.tables["messages"] = {1: message_row(b"for all"), 2: message_row(b"for a peer")}
    delivery = DeliveryRow(1, 1, False, 0, False, ())
    for number in (1, 2, 3):
        disk.tables["subscriptions"][number, f"here/{number}"] = SubscriptionRow(1, 0)
        disk.tables["deliveries"][number, 1] = delivery
        disk.tables["incoming"][number, 7] = True
    disk.tables["owed"]["peer", 1] = OwedRow(2, b"")
    return disk


def of_ghosts(disk: Disk) -> dict[str, dict[Any, Any]]:
    of_sessions = ("subscriptions", "deliveries", "incoming")
    rows = {
        name: {key: row for key, row in disk.tables[name].items() if key[0] in {1, 3}}
        for name in of_sessions
    }
    sessions = {key: row for key, row in disk.tables["sessions"].items() if key in {1, 3}}
    return {**rows, "sessions": sessions, **{n: {**disk.tables[n]} for n in ("messages", "owed")}}


def test_the_clients_session_is_the_one_that_is_here(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    before = of_ghosts(disk)
    with caplog.at_level(logging.WARNING):
        world = World(disk)
    assert [record.getMessage() for record in caplog.records] == [f"{SAID}cluster: 2"]
    assert [session.number for session in world.broker.sessions.values()] == [2]
    assert world.broker.router.count == 1
    assert world.shared.gauges.queued_messages == 1
    client = Client(world, "roamer", **PERSISTENT)
    assert client.connect().session_present
    (packet,) = client.early
    assert isinstance(packet, Publish)
    assert packet.payload == b"for all"
    publisher = world.client()
    for number in (1, 2, 3):
        publisher.publish(f"here/{number}", b"new")
    assert client.payloads() == [b"new"]
    # Nothing that only a cluster can go on with has gone, though nobody here needs its messages.
    client.send(Ack(PacketType.PUBACK, packet.packet_id))
    assert ((2, 1) in disk.tables["deliveries"], of_ghosts(disk)) == (False, before)
    # Nor when the session ends.
    Client(world, "roamer").connect()
    assert 2 not in disk.tables["sessions"]
    assert of_ghosts(disk) == before


def test_one_that_arrives_is_a_session(disk: Disk) -> None:
    """It is here that its client was let in last, or will be."""
    disk.tables["sessions"][2] = session_row(redirect_row(guard={"peer"}, holders={"peer"}))
    world = World(disk)
    assert [session.number for session in world.broker.sessions.values()] == [2]


def test_nothing_is_said_where_nothing_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.client("stays", **PERSISTENT).disconnect()
    with caplog.at_level(logging.INFO):
        again = world.crash()
    assert [*again.broker.sessions] == ["stays"]
    assert not [record for record in caplog.records if SAID in record.getMessage()]


def sessions_in(data: Path) -> list[tuple[str, bool]]:
    connection = sqlite3.connect(data / "dovetail.db")
    try:
        rows = connection.execute("SELECT client_id, detour != x'' FROM sessions ORDER BY session")
        return [(client_id, bool(is_special)) for client_id, is_special in rows]
    finally:
        connection.close()


def test_the_folder_of_a_broker_of_several(tmp_path: Path) -> None:
    """With real processes: a session moves on, its old broker runs alone, and then not alone."""
    alone = tmp_path / "alone"
    alone.mkdir()
    with BrokerProcesses(tmp_path, "one", "two", "three") as cluster:
        ports = cluster.ports
        with WireClient(ports["one"], "roamer", persistent=True) as client:
            client.subscribe("here", 1)
        with WireClient(ports["one"], "stays", persistent=True) as client:
            client.subscribe("here", 1)
        cluster.kill("three")  # as long as it may have something for the session, the ghost waits
        with WireClient(ports["two"], "roamer", persistent=True) as client:
            assert client.connack.session_present
        for name in ("one", "two"):
            cluster.kill(name)

        with BrokerProcess(alone, data=tmp_path / "one") as broker:
            broker.wait_for_log(f"{SAID}cluster: 1")
            with WireClient(broker.port) as publisher:
                assert publisher.publish("here", b"while alone", 1) == 0
            with WireClient(broker.port, "stays", persistent=True) as client:
                assert client.connack.session_present
                message = client.receive_message()
                assert message.payload == b"while alone"
                client.acknowledge(message)
            wait_until(lambda: broker.metric("sessions") == 1, "the publisher has left")
        assert sessions_in(broker.data) == [("roamer", True), ("stays", False)]

        for name in ports:
            cluster.start(name)
        with WireClient(ports["three"]) as publisher:
            assert publisher.publish("here", b"together", 1) == 0
        for client_id, name in (("roamer", "two"), ("stays", "one")):
            with WireClient(ports[name], client_id, persistent=True) as client:
                assert client.connack.session_present
                assert client.receive_message().payload == b"together"
