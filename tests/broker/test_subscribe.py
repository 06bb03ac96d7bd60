"""SUBSCRIBE and UNSUBSCRIBE: their answers, options, identifiers, and overlapping filters."""

from itertools import product

import pytest

from dovetail.broker.store.journal import Batch
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    PacketType,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Unsubscribe,
)
from dovetail.errors import ReasonCode
from dovetail.settings import AccessRule
from support.brokers.harness import PERSISTENT, Client, World

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])


# Answers ------------------------------------------------------------------------------------------


@both
def test_every_filter_has_its_reason_in_its_place(version: int) -> None:
    client = World(rules=(AccessRule(subscribe=("a/#",)),)).client("c", version=version)
    client.send(
        Subscribe(
            77,
            [
                SubscriptionRequest("a/1", qos=1),
                SubscriptionRequest("b", qos=1),
                SubscriptionRequest("a/2", qos=0),
                SubscriptionRequest("a/+", qos=2),
            ],
        )
    )
    refused = ReasonCode.NOT_AUTHORIZED if version == MQTT_5 else 0x80
    why = "'b' is not allowed" if version == MQTT_5 else None
    assert client.take() == [SubscriptionAck(PacketType.SUBACK, 77, [1, refused, 0, 2], why)]


@both
def test_unsubscribing_has_its_answer_too(version: int) -> None:
    client = World().client("c", version=version)
    client.subscribe("a", "b")
    client.send(Unsubscribe(78, ["a", "never", "b", "a"]))
    gone, not_there = ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED
    reasons = [gone, not_there, gone, not_there] if version == MQTT_5 else []
    assert client.take() == [SubscriptionAck(PacketType.UNSUBACK, 78, [*reasons])]


@both
def test_unsubscribing_from_nothing_is_answered(version: int) -> None:
    client = World().client("c", version=version)
    client.send(Unsubscribe(79, ["never"]))
    answer = client.take_one()
    assert isinstance(answer, SubscriptionAck)
    assert answer.packet_id == 79


@both
def test_several_filters_are_as_several_packets(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    assert client.subscribe("a", "b", "a", qos=1) == [1, 1, 1]
    assert world.broker.router.count == 2
    client.unsubscribe("a", "b")
    assert world.broker.router.count == 0


@both
@pytest.mark.parametrize("maximum", [0, 1])
def test_a_lower_qos_may_be_granted(version: int, maximum: int) -> None:
    world = World(maximum_qos=maximum)
    client = world.client("c", version=version)
    assert client.subscribe("a", qos=2) == [maximum]
    world.client("publisher").publish("a", b"", maximum)
    assert client.messages()[0].qos == maximum


@both
@pytest.mark.parametrize("name", ["a/#/b", "a#", "a+/b", "$share/g", "$share//a", "$share/+/a"])
def test_a_filter_that_is_none_ends_the_connection(version: int, name: str) -> None:
    client = World().client("c", version=version)
    client.send(Subscribe(1, [SubscriptionRequest("fine"), SubscriptionRequest(name)]))
    client.assert_ended(ReasonCode.TOPIC_FILTER_INVALID)


@both
def test_there_is_at_least_one_filter(version: int) -> None:
    for first in (0x82, 0xA2):
        client = World().client("c", version=version)
        client.send_bytes(
            bytes([first]) + (b"\x02\0\1" if version == MQTT_3_1_1 else b"\x03\0\1\0")
        )
        client.assert_ended(ReasonCode.PROTOCOL_ERROR)


@both
def test_a_subscription_that_is_not_allowed_is_not_made(version: int) -> None:
    world = World(rules=(AccessRule(publish=("#",), subscribe=("mine/#",)),))
    client = world.client("c", version=version)
    client.subscribe("#", "yours", "mine/t")
    publisher = world.client("publisher")
    for topic in ("yours", "mine/t"):
        publisher.publish(topic, topic.encode())
    assert client.payloads() == [b"mine/t"]


# What arrives -------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("a/b", ["a/b"]),
        ("a/+", ["a/", "a/b", "a/c"]),
        ("a/#", ["a", "a/", "a/b", "a/b/c", "a/c"]),
        ("+/+", ["/a", "a/", "a/b", "a/c"]),
        ("/+", ["/a"]),
        ("+", ["a"]),
        ("#", ["/a", "a", "a/", "a/b", "a/b/c", "a/c"]),
        ("$x/#", ["$x", "$x/a"]),
        ("a/b/#", ["a/b", "a/b/c"]),
    ],
)
def test_messages_match_their_filter(version: int, name: str, topics: list[str]) -> None:
    world = World()
    client = world.client("c", version=version)
    client.subscribe(name)
    publisher = world.client("publisher")
    for topic in ("/a", "a", "a/", "a/b", "a/b/c", "a/c", "$x", "$x/a"):
        publisher.publish(topic)
    assert sorted(message.topic.decode() for message in client.messages()) == sorted(topics)


@both
def test_unsubscribing_ends_it(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    publisher = world.client("publisher")
    client.subscribe("a/+")
    publisher.publish("a/b", b"before")
    client.send(Unsubscribe(9, ["a/+"]))
    publisher.publish("a/b", b"after")
    first, answer = client.take()
    assert isinstance(first, Publish)
    assert isinstance(answer, SubscriptionAck)


@both
def test_filters_are_compared_character_by_character(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    client.subscribe("a/+", "A/b")
    client.unsubscribe("a/b", "a/#", "+/b", "a/b/", "A/B")
    assert world.broker.router.count == 2


@both
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_begun_is_finished_after_unsubscribing(version: int, qos: int) -> None:
    world = World()
    client = world.client("c", version=version, **PERSISTENT)
    client.subscribe("a", qos=2)
    world.client("publisher").publish("a", b"x", qos)
    (message,) = client.messages()
    client.unsubscribe("a")
    client.lose()
    client.connect()
    (again,) = client.early
    assert isinstance(again, Publish)
    assert again.packet_id == message.packet_id
    if qos == 2:
        client.send(Ack(PacketType.PUBREC, message.packet_id))
        assert client.take() == [Ack(PacketType.PUBREL, message.packet_id)]
        client.send(Ack(PacketType.PUBCOMP, message.packet_id))
    else:
        client.send(Ack(PacketType.PUBACK, message.packet_id))
    assert world.disk.tables["deliveries"] == {}


def test_nothing_new_is_queued_after_unsubscribing() -> None:
    world = World()
    client = world.client("c", **PERSISTENT)
    client.subscribe("a", qos=1)
    client.unsubscribe("a")
    client.lose()
    world.client("publisher").publish("a", b"x", 1)
    client.connect()
    assert client.early == []


# Subscribing again --------------------------------------------------------------------------------


@both
def test_the_same_filter_again_replaces_the_subscription(version: int) -> None:
    world = World()
    client = world.client("c", version=version, **PERSISTENT)
    assert client.subscribe("a", qos=2) == [2]
    assert client.subscribe("a", qos=0) == [0]
    publisher = world.client("publisher")
    publisher.publish("a", b"x", 2)
    (message,) = client.messages()
    assert message.qos == 0
    client.lose()
    # Also on disk.
    assert [row.options & 3 for row in world.disk.tables["subscriptions"].values()] == [0]


def test_the_identifier_is_replaced_too() -> None:
    world = World()
    client = world.client("c")
    publisher = world.client("publisher")
    seen = []
    for identifier in (5, 6, 0):
        client.subscribe("a", identifier=identifier)
        publisher.publish("a")
        seen.append(client.messages()[0].identifiers)
    assert seen == [(5,), (6,), ()]


@both
def test_no_message_is_lost_while_a_subscription_is_replaced(version: int) -> None:
    world = World(auto_commit=False)
    client = world.client("c", version=version, **PERSISTENT)
    client.send(Subscribe(1, [SubscriptionRequest("a", qos=1)]))
    world.commit_all()
    client.take()
    publisher = world.client("publisher")
    client.send(Subscribe(2, [SubscriptionRequest("a", qos=1)]))
    publisher.publish("a", b"between", 1)
    world.commit_all()
    assert [packet.payload for packet in client.take() if isinstance(packet, Publish)] == [
        b"between"
    ]


# Overlapping subscriptions ------------------------------------------------------------------------


@both
def test_overlapping_subscriptions_bring_one_message_at_the_highest_qos(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    for qos, name in enumerate(("a/#", "a/+", "a/b")):
        client.subscribe(name, qos=qos)
    publisher = world.client("publisher")
    publisher.publish("a/b", b"", 2)
    publisher.publish("a/c", b"", 2)
    publisher.publish("a", b"", 2)
    assert [message.qos for message in client.messages()] == [2, 1, 0]


def test_a_message_has_the_identifiers_of_all_its_subscriptions() -> None:
    world = World()
    client = world.client("c")
    client.subscribe("a/#", identifier=1)
    client.subscribe("a/+", identifier=268_435_455)
    client.subscribe("a/b", identifier=1)
    client.subscribe("+/b")
    publisher = world.client("publisher")
    publisher.publish("a/b")
    publisher.publish("c/b")
    both_kinds = client.messages()
    assert sorted(both_kinds[0].identifiers) == [1, 1, 268_435_455]
    assert both_kinds[1].identifiers == ()


def test_identifiers_wait_with_the_message() -> None:
    world = World()
    client = world.client("c", **PERSISTENT)
    client.subscribe("a", identifier=300, qos=1)
    client.lose()
    world.client("publisher").publish("a", b"", 1)
    (message,) = world.crash().client("c", **PERSISTENT).early
    assert isinstance(message, Publish)
    assert message.identifiers == (300,)


# No Local -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_no_local_keeps_a_clients_own_messages_from_it(qos: int, retain: bool) -> None:
    world = World()
    client = world.client("c")
    other = world.client("other")
    for each in (client, other):
        each.subscribe("a", qos=2, no_local=True)
    client.publish("a", b"x", qos, retain=retain)
    assert [packet for packet in client.take() if isinstance(packet, Publish)] == []
    assert other.payloads() == [b"x"]


def test_no_local_goes_by_the_client_identifier() -> None:
    world = World()
    client = world.client("c", **PERSISTENT)
    client.subscribe("a", qos=1, no_local=True)
    client.publish("a", b"x", 1)
    client.lose()
    client.connect()
    assert client.early == []


def test_a_subscription_without_no_local_still_brings_it() -> None:
    world = World()
    client = world.client("c")
    client.subscribe("a", qos=2, no_local=True, identifier=1)
    client.subscribe("+", qos=0, identifier=2)
    client.publish("a", b"x")
    world.client("other").publish("a", b"y")
    own, others = client.messages()
    assert own.identifiers == (2,)
    assert sorted(others.identifiers) == [1, 2]


def test_no_local_is_remembered_over_a_restart() -> None:
    world = World()
    world.client("c", **PERSISTENT).subscribe("a", no_local=True)
    client = world.crash().client("c", **PERSISTENT)
    client.publish("a")
    assert client.take() == []


def test_no_local_and_a_shared_subscription_exclude_each_other() -> None:
    client = World().client("c")
    client.send(Subscribe(1, [SubscriptionRequest("$share/g/a", no_local=True)]))
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)


@both
def test_own_messages_come_back_otherwise(version: int) -> None:
    client = World().client("c", version=version)
    client.subscribe("a")
    client.publish("a", b"x")
    assert client.payloads() == [b"x"]


# Limits -------------------------------------------------------------------------------------------


@both
def test_a_filter_deeper_or_longer_than_the_limit_is_refused(version: int) -> None:
    client = World(topic_levels_max=3, topic_bytes_max=10).client("c", version=version)
    refused = ReasonCode.TOPIC_FILTER_INVALID if version == MQTT_5 else 0x80
    reasons = client.subscribe("a/b/c", "a/b/c/d", "a" * 11, "$share/group/a/b/c", "é" * 6)
    assert reasons == [0, refused, refused, 0, refused]


@both
def test_subscriptions_of_a_session_have_a_limit(version: int) -> None:
    client = World(subscriptions_per_session_max=2).client("c", version=version)
    refused = ReasonCode.QUOTA_EXCEEDED if version == MQTT_5 else 0x80
    assert client.subscribe("a", "b", "c", "a") == [0, 0, refused, 0]
    client.unsubscribe("a")
    assert client.subscribe("c") == [0]


@both
@pytest.mark.parametrize("restart", [False, True])
def test_filters_of_a_session_have_a_limit_in_bytes(version: int, restart: bool) -> None:
    limits = {"subscriptions_bytes_per_session_max": 21}
    world = World(**limits)  # type: ignore[arg-type]
    client = world.client("c", version=version, **PERSISTENT)
    refused = ReasonCode.QUOTA_EXCEEDED if version == MQTT_5 else 0x80
    assert client.subscribe("a" * 10, "$share/g/é", "b", "a" * 10) == [0, 0, refused, 0]
    if restart:
        client = world.crash(**limits).client("c", version=version, **PERSISTENT)
        assert client.subscribe("b") == [refused]
    client.unsubscribe("a" * 10)
    assert client.subscribe("b" * 10, "c") == [0, refused]


@both
def test_subscriptions_of_all_have_a_limit(version: int) -> None:
    world = World(subscriptions_max=2)
    first, second = (world.client(name, version=version) for name in ("one", "two"))
    refused = ReasonCode.QUOTA_EXCEEDED if version == MQTT_5 else 0x80
    assert first.subscribe("a", "b") == [0, 0]
    assert second.subscribe("c") == [refused]
    first.disconnect()
    assert second.subscribe("c") == [0]


def delivered(client: Client) -> list[bytes]:
    return [packet.payload for packet in client.take() if isinstance(packet, Publish)]


@both
def test_messages_may_come_before_the_answer_and_do_come_after(version: int) -> None:
    world = World(auto_commit=False)
    client = world.client("c", version=version, **PERSISTENT)
    publisher = world.client("publisher")
    client.send(Subscribe(1, [SubscriptionRequest("a")]))
    publisher.publish("a", b"early")
    world.commit_all()
    publisher.publish("a", b"late")
    assert delivered(client)[-1:] == [b"late"]


@pytest.mark.parametrize("first_is_stored", [True, False])
@pytest.mark.parametrize("second_is_stored", [True, False])
def test_two_subscribes_of_a_filter_whose_batches_may_fail(
    first_is_stored: bool, second_is_stored: bool
) -> None:
    world = World(auto_commit=False)
    client = world.client("c", **PERSISTENT)
    world.commit_all()
    journal = world.shared.journal
    client.send(Subscribe(1, [SubscriptionRequest("a", 1)]))
    for packet_id, is_stored in ((2, first_is_stored), (3, second_is_stored)):
        batch = journal.close()
        assert batch is not None
        if packet_id == 2:
            client.send(Subscribe(2, [SubscriptionRequest("a", 2)]))
        if is_stored:
            world.disk.write(batch)
        journal.finished(stored=is_stored)
    granted = 2 if second_is_stored else 1 if first_is_stored else None
    reasons = [packet.reasons[0] for packet in client.take() if isinstance(packet, SubscriptionAck)]
    assert reasons == [
        1 if first_is_stored else ReasonCode.QUOTA_EXCEEDED,
        2 if second_is_stored else ReasonCode.QUOTA_EXCEEDED,
    ]
    world.commit_all()
    known = world.broker.sessions["c"].subscriptions.get("a")
    assert (None if known is None else known.qos) == granted
    assert [row.options & 3 for row in world.disk.tables["subscriptions"].values()] == (
        [] if granted is None else [granted]
    )


@pytest.mark.parametrize("are_stored", list(product([True, False], repeat=3)))
@pytest.mark.parametrize("wanted", list(product([None, 1, 2], repeat=3)))
def test_changes_of_a_filter_whose_batches_may_fail(
    wanted: tuple[int | None, ...], are_stored: tuple[bool, ...]
) -> None:
    """It ends in the state that the answers say. None unsubscribes.

    Each packet comes when the batch of the one before is on its way to the disk.
    """
    world = World(auto_commit=False)
    client = world.client("c", **PERSISTENT)
    client.send(Subscribe(1, [SubscriptionRequest("a")]))
    world.commit_all()
    client.take()
    journal = world.shared.journal

    def ask(packet_id: int, qos: int | None) -> None:
        if qos is None:
            client.send(Unsubscribe(packet_id, ["a"]))
        else:
            client.send(Subscribe(packet_id, [SubscriptionRequest("a", qos)]))

    def finish(batch: Batch | None, is_stored: bool) -> None:
        assert batch is not None
        if is_stored:
            world.disk.write(batch)
        journal.finished(stored=is_stored)

    ask(2, wanted[0])
    for packet_id, is_stored in zip((3, 4), are_stored, strict=False):
        batch = journal.close()
        ask(packet_id, wanted[packet_id - 2])
        finish(batch, is_stored)
    finish(journal.close(), are_stored[2])
    answers = {
        packet.packet_id: packet.reasons[0]
        for packet in client.take()
        if isinstance(packet, SubscriptionAck)
    }
    assert sorted(answers) == [2, 3, 4]
    expected: int | None = 0
    for packet_id, qos in zip((2, 3, 4), wanted, strict=True):
        if answers[packet_id] < 0x80:
            expected = qos
    world.commit_all()
    known = world.broker.sessions["c"].subscriptions.get("a")
    assert (None if known is None else known.qos) == expected
    assert [row.options & 3 for row in world.disk.tables["subscriptions"].values()] == (
        [] if expected is None else [expected]
    )
