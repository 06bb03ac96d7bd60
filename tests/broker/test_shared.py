"""Shared subscriptions (MQTT 5.0 section 4.8.2): each message to one member of a group."""

from collections import Counter

import pytest

from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, PacketType, Publish
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, World


def members(world: World, *names: str, group: str = "g", qos: int = 1) -> list[Client]:
    clients = [world.client(name, **PERSISTENT) for name in names]
    for client in clients:
        assert client.subscribe(f"$share/{group}/a/#", qos=qos) == [qos]
    return clients


def publish(world: World, count: int, qos: int = 1) -> None:
    publisher = world.client("publisher")
    for number in range(count):
        publisher.publish("a/t", b"%d" % number, qos)


def received(client: Client) -> list[bytes]:
    return [packet.payload for packet in client.take() if isinstance(packet, Publish)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member_and_all_get_some(qos: int) -> None:
    world = World()
    clients = members(world, "m1", "m2", "m3", qos=2)
    publish(world, 30, qos)
    shares = [received(client) for client in clients]
    assert Counter(payload for share in shares for payload in share) == Counter(
        b"%d" % number for number in range(30)
    )
    assert [len(share) for share in shares] == [10, 10, 10]


def test_each_group_gets_every_message() -> None:
    world = World()
    (one,) = members(world, "one", group="g1")
    (two,) = members(world, "two", group="g2")
    publish(world, 3)
    assert len(received(one)) == len(received(two)) == 3


def test_a_group_is_its_name_and_its_filter() -> None:
    world = World()
    first, second = world.client("first"), world.client("second")
    first.subscribe("$share/g/a/+")
    second.subscribe("$share/g/a/#")
    publish(world, 4)
    assert len(received(first)) == len(received(second)) == 4


def test_who_subscribes_without_a_group_gets_everything() -> None:
    world = World()
    members(world, "m1", "m2")
    plain = world.client("plain")
    plain.subscribe("a/#")
    publish(world, 6)
    assert len(received(plain)) == 6


def test_a_client_may_do_both() -> None:
    world = World()
    (client,) = members(world, "m1")
    client.subscribe("a/t")
    publish(world, 2)
    assert len(received(client)) == 4


def test_each_member_has_its_own_qos_and_identifier() -> None:
    world = World()
    clients = [world.client(f"m{qos}") for qos in range(3)]
    for qos, client in enumerate(clients):
        client.subscribe("$share/g/a/#", qos=qos, identifier=qos + 1)
    publish(world, 3, qos=2)
    for qos, client in enumerate(clients):
        (message,) = client.messages()
        assert (message.qos, message.identifiers) == (qos, (qos + 1,))


def test_retain_as_published_is_the_members_own() -> None:
    world = World()
    clients = [world.client(name) for name in ("m1", "m2")]
    clients[0].subscribe("$share/g/a", retain_as_published=True)
    clients[1].subscribe("$share/g/a")
    publisher = world.client("publisher")
    for _ in range(2):
        publisher.publish("a", b"x", retain=True)
    assert [client.messages()[0].retain for client in clients] == [True, False]


def test_who_leaves_the_group_gets_nothing_more() -> None:
    world = World()
    leaving, staying = members(world, "m1", "m2")
    assert leaving.unsubscribe("$share/g/a/#") == [ReasonCode.SUCCESS]
    publish(world, 4)
    assert (len(received(leaving)), len(received(staying))) == (0, 4)
    staying.unsubscribe("$share/g/a/#")
    publish(world, 4)
    assert world.broker.router.count == 0
    assert received(staying) == []


def test_connected_members_come_before_others() -> None:
    world = World()
    away, here = members(world, "m1", "m2")
    away.lose()
    publish(world, 4)
    assert len(received(here)) == 4
    away.connect()
    assert away.early == []


def test_when_all_are_away_messages_wait_with_one_of_them() -> None:
    world = World()
    clients = members(world, "m1", "m2")
    for client in clients:
        client.lose()
    publish(world, 4)
    waiting = []
    for client in clients:
        client.connect()
        waiting += [packet.payload for packet in client.early if isinstance(packet, Publish)]
    assert sorted(waiting) == [b"0", b"1", b"2", b"3"]


def test_qos_0_does_not_wait() -> None:
    world = World()
    (client,) = members(world, "m1")
    client.lose()
    publish(world, 4, qos=0)
    client.connect()
    assert client.early == []


def test_a_session_that_ends_leaves_its_groups() -> None:
    world = World()
    ending, staying = members(world, "m1", "m2")
    ending.disconnect(session_expiry_seconds=0)
    staying.lose()
    publish(world, 2)
    staying.connect()
    assert len(staying.early) == 2


@pytest.mark.parametrize("step", ["sent", "received", "released"])
def test_qos_2_is_finished_with_the_member_that_had_it(step: str) -> None:
    world = World()
    (first,) = members(world, "m1", qos=2)
    publish(world, 1, qos=2)
    (message,) = first.messages()
    (other,) = members(world, "m2", qos=2)
    if step != "sent":
        first.send(Ack(PacketType.PUBREC, message.packet_id))
    if step == "released":
        assert first.take() == [Ack(PacketType.PUBREL, message.packet_id)]
    first.lose()
    first.connect()
    (again,) = first.early
    if step == "sent":
        assert isinstance(again, Publish)
        assert (again.packet_id, again.payload) == (message.packet_id, message.payload)
    else:
        assert again == Ack(PacketType.PUBREL, message.packet_id)
    assert received(other) == []


def test_qos_2_goes_to_nobody_else_when_the_session_ends() -> None:
    world = World()
    (first,) = members(world, "m1", qos=2)
    publish(world, 1, qos=2)
    (other,) = members(world, "m2", qos=2)
    first.disconnect(session_expiry_seconds=0)
    world.pass_time(10_000)
    assert received(other) == []


@pytest.mark.parametrize("end", ["disconnect", "expiry", "clean start"])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_waited_for_a_session_that_ends_goes_to_another_member(qos: int, end: str) -> None:
    world = World()
    (ending,) = members(world, "m1", qos=2)
    ending.lose()
    if end == "disconnect":
        ending.connect_packet.receive_max = 1
        ending.connect()
    publish(world, 3, qos=qos)
    (staying,) = members(world, "m2", qos=2)
    if end == "disconnect":
        assert len(received(ending)) == 1  # and two wait
        ending.disconnect(session_expiry_seconds=0)
    elif end == "expiry":
        world.pass_time(PERSISTENT["session_expiry_seconds"])
    else:
        world.client("m1")
    under_way = int(end == "disconnect" and qos == 2)
    messages = [packet for packet in staying.take() if isinstance(packet, Publish)]
    assert [message.payload for message in messages] == [b"0", b"1", b"2"][under_way:]
    assert {(message.qos, message.duplicate) for message in messages} == {(qos, False)}
    assert len(world.disk.tables["deliveries"]) == len(messages)


def test_what_was_not_acknowledged_goes_to_another_member() -> None:
    world = World()
    ending = world.client("m1")  # not kept: it ends with its connection
    ending.subscribe("$share/g/a/#", qos=1)
    publish(world, 3)
    first, *_ = ending.messages()
    ending.send(Ack(PacketType.PUBACK, first.packet_id))
    (staying,) = members(world, "m2")
    staying.lose()
    ending.lose()
    staying.connect()
    assert [packet.payload for packet in staying.early if isinstance(packet, Publish)] == [
        b"1",
        b"2",
    ]


def test_what_waits_ends_with_the_last_member() -> None:
    world = World()
    (ending,) = members(world, "m1")
    plain = world.client("plain", **PERSISTENT)
    plain.subscribe("a/#", qos=1)
    ending.lose()
    publish(world, 2)
    received(plain)
    world.client("m1").disconnect()
    assert received(plain) == []
    assert len(world.disk.tables["deliveries"]) == 2  # of the one without a group


def test_what_has_expired_goes_to_nobody_else() -> None:
    world = World()
    (ending,) = members(world, "m1")
    ending.lose()
    world.client("publisher").publish("a/t", b"x", 1, expiry_seconds=10)
    (staying,) = members(world, "m2")
    world.now += 10
    world.client("m1")
    assert received(staying) == []


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_member_refuses_goes_to_nobody_else(qos: int) -> None:
    world = World()
    (first,) = members(world, "m1", qos=2)
    publish(world, 1, qos=qos)
    (message,) = first.messages()
    (other,) = members(world, "m2", qos=2)
    kind = PacketType.PUBREC if qos == 2 else PacketType.PUBACK
    first.send(Ack(kind, message.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    assert received(other) == []
    first.lose()
    first.connect()
    assert first.early == []


def test_groups_survive_a_restart() -> None:
    world = World()
    members(world, "m1", "m2")
    after = world.crash()
    clients = [after.client(name, **PERSISTENT) for name in ("m1", "m2")]
    publish(after, 4)
    assert [len(received(client)) for client in clients] == [2, 2]


def test_members_may_speak_different_versions() -> None:
    world = World()
    clients = [world.client(f"v{version}", version=version) for version in (MQTT_3_1_1, MQTT_5)]
    for client in clients:
        client.subscribe("$share/g/a/#")
    publish(world, 4)
    assert [len(received(client)) for client in clients] == [2, 2]


def test_dollar_topics_are_not_for_wildcards_here_either() -> None:
    world = World()
    client = world.client("c")
    client.subscribe("$share/g/#", "$share/g/+/t")
    world.client("publisher").publish("$x/t", b"x")
    assert received(client) == []
    client.subscribe("$share/g/$x/#")
    world.client("publisher").publish("$x/t", b"x")
    assert received(client) == [b"x"]
