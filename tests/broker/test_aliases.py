"""Topic aliases, in both directions (MQTT 5.0 section 3.3.2.3.4)."""

import pytest

from dovetail.codec.packets import Ack, PacketType, Publish
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, World


def witness(world: World) -> Client:
    client = world.client("witness")
    client.subscribe("#", qos=2)
    return client


def topics(client: Client) -> list[tuple[bytes, int]]:
    return [(message.topic, message.alias) for message in client.messages()]


# From clients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alias", [1, 7, 10])
def test_an_alias_stands_for_the_topic_it_came_with(alias: int) -> None:
    world = World(alias_in_max=10)
    subscriber = witness(world)
    client = world.client("c")
    client.publish("a/b", b"1", alias=alias)
    client.publish("", b"2", alias=alias)
    client.publish("c", b"3", 1, alias=alias)
    client.publish("", b"4", 2, alias=alias)
    assert [(message.topic, message.payload) for message in subscriber.messages()] == [
        (b"a/b", b"1"),
        (b"a/b", b"2"),
        (b"c", b"3"),
        (b"c", b"4"),
    ]


def test_aliases_are_not_passed_on() -> None:
    world = World()
    subscriber = witness(world)
    world.client("c").publish("a", b"", alias=3)
    assert topics(subscriber) == [(b"a", 0)]


@pytest.mark.parametrize("alias", [11, 65_535])
def test_an_alias_above_the_maximum(alias: int) -> None:
    client = World(alias_in_max=10).client("c")
    client.publish("a", b"", alias=alias)
    client.assert_ended(ReasonCode.TOPIC_ALIAS_INVALID)


def test_no_alias_where_there_are_none() -> None:
    client = World(alias_in_max=0).client("c")
    assert client.connack is not None
    assert client.connack.alias_max == 0
    client.publish("a", b"", alias=1)
    client.assert_ended(ReasonCode.TOPIC_ALIAS_INVALID)


def test_alias_0_is_none() -> None:
    client = World().client("c")
    client.send_bytes(b"\x30\x07\x00\x01a\x03\x23\x00\x00")
    client.assert_ended(ReasonCode.TOPIC_ALIAS_INVALID)


def test_an_alias_that_stands_for_nothing_yet() -> None:
    client = World().client("c")
    client.publish("a", b"", alias=1)
    client.publish("", b"", alias=2)
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)


def test_an_alias_does_not_outlive_the_connection() -> None:
    client = World().client("c", **PERSISTENT)
    client.publish("a", b"", alias=1)
    client.lose()
    client.connect()
    client.publish("", b"", alias=1)
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)


def test_each_connection_has_its_own() -> None:
    world = World()
    subscriber = witness(world)
    clients = [world.client(name) for name in ("c", "d")]
    for client, topic in zip(clients, ("a", "b"), strict=True):
        client.publish(topic, alias=1)
    for client in clients:
        client.publish("", alias=1)
    assert topics(subscriber) == [(b"a", 0), (b"b", 0), (b"a", 0), (b"b", 0)]


def test_an_aliased_message_that_comes_twice_is_still_one() -> None:
    world = World()
    subscriber = witness(world)
    client = world.client("c")
    client.publish("a", b"first", alias=1)
    for duplicate in (False, True):
        client.send(Publish(b"", b"x", 2, packet_id=9, duplicate=duplicate, alias=1))
    assert client.take() == [Ack(PacketType.PUBREC, 9)] * 2
    assert subscriber.payloads() == [b"first", b"x"]


# To clients ---------------------------------------------------------------------------------------


def test_a_client_that_takes_none_gets_none() -> None:
    world = World()
    client = world.client("c", alias_max=0)
    client.subscribe("#")
    publisher = world.client("publisher")
    for _ in range(3):
        publisher.publish("a")
    assert topics(client) == [(b"a", 0)] * 3


def test_topics_get_aliases_as_long_as_there_are_some() -> None:
    world = World()
    client = world.client("c", alias_max=2)
    client.subscribe("#")
    publisher = world.client("publisher")
    for topic in ("a", "b", "c", "a", "c", "b"):
        publisher.publish(topic)
    expected = [(b"a", 1), (b"b", 2), (b"c", 0), (b"", 1), (b"c", 0), (b"", 2)]
    assert topics(client) == expected


def test_the_broker_has_a_maximum_of_its_own() -> None:
    world = World(alias_out_max=1)
    client = world.client("c", alias_max=65_535)
    client.subscribe("#")
    publisher = world.client("publisher")
    for topic in ("a", "b", "a", "b"):
        publisher.publish(topic)
    assert topics(client) == [(b"a", 1), (b"b", 0), (b"", 1), (b"b", 0)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_qos_share_them(qos: int) -> None:
    world = World()
    client = world.client("c", alias_max=5)
    client.subscribe("#", qos=2)
    publisher = world.client("publisher")
    publisher.publish("a", b"1")
    publisher.publish("a", b"2", qos, expiry_seconds=9)
    first, second = client.messages()
    assert (first.topic, first.alias, second.topic, second.alias) == (b"a", 1, b"", 1)
    assert second.expiry_seconds == 9


def test_a_resumed_session_begins_with_topics_in_full() -> None:
    world = World()
    client = world.client("c", alias_max=5, **PERSISTENT)
    client.subscribe("#", qos=1)
    world.client("publisher").publish("a", b"1", 1)
    assert topics(client) == [(b"a", 1)]
    client.lose()
    client.connect()
    (again,) = client.early
    assert isinstance(again, Publish)
    assert (again.topic, again.alias, again.duplicate) == (b"a", 1, True)


def test_an_alias_the_client_has_not_heard_of_is_not_used() -> None:
    world = World()
    client = world.client("c", alias_max=5, packet_bytes_max=100)
    client.subscribe("#")
    publisher = world.client("publisher")
    publisher.publish("a", bytes(200))  # too large for it, and not sent
    publisher.publish("a", b"fits")
    assert topics(client) == [(b"a", 1)]
