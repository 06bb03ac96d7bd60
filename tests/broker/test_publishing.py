"""The way of a PUBLISH: acknowledgement, QoS, topic, properties and expiry."""

from collections.abc import Callable

import pytest

from dovetail.broker.limits import RECEIVERS_PER_PIECE
from dovetail.codec import encode, forwardable_properties, user_properties
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, Packet, PacketType, Publish, Will
from dovetail.errors import ReasonCode
from dovetail.messages import Message
from dovetail.settings import AccessRule
from support.brokers.harness import PERSISTENT, Client, World

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])

PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)


def witness(world: World, *filters: str, version: int = MQTT_5, qos: int = 0) -> Client:
    client = world.client("witness", version=version)
    client.subscribe(*(filters or ("#",)), qos=qos)
    return client


def acknowledged(client: Client) -> tuple[PacketType, int, int]:
    packet = client.take_one()
    assert isinstance(packet, Ack)
    return packet.type, packet.packet_id, packet.reason


# Answers ------------------------------------------------------------------------------------------


@both
def test_each_qos_has_its_answer(version: int) -> None:
    world = World()
    witness(world)
    client = world.client("c", version=version)
    client.publish("t", b"")
    assert client.take() == []
    packet_id = client.publish("t", b"", 1)
    assert acknowledged(client) == (PUBACK, packet_id, 0)
    packet_id = client.publish("t", b"", 2)
    assert acknowledged(client) == (PUBREC, packet_id, 0)
    client.send(Ack(PUBREL, packet_id))
    assert acknowledged(client) == (PUBCOMP, packet_id, 0)


@each_qos
def test_nobody_has_subscribed(qos: int) -> None:
    client = World().client("c")
    client.publish("t", b"", qos)
    answers = [packet.reason for packet in client.take() if isinstance(packet, Ack)]
    assert answers == [ReasonCode.NO_MATCHING_SUBSCRIBERS] * bool(qos)


def test_nobody_has_subscribed_is_not_said_in_3_1_1() -> None:
    client = World().client("c", version=MQTT_3_1_1)
    client.publish("t", b"", 1)
    assert acknowledged(client)[2] == 0


@both
def test_answers_come_in_the_order_of_the_messages(version: int) -> None:
    world = World(auto_commit=False)
    kept = world.client("kept", **PERSISTENT)
    kept.send_bytes(b"\x82\x09\x00\x01\x00\x00\x03s/t\x02")
    world.commit_all()
    client = world.client("c", version=version, **PERSISTENT)
    # The first has to wait for the disk, the second would not, the third has to again.
    first = client.publish("s/t", b"", 1)
    second = client.publish("nobody", b"", 1)
    third = client.publish("s/t", b"", 2)
    assert client.take() == []
    world.commit_all()
    answers = [packet for packet in client.take() if isinstance(packet, Ack)]
    assert [packet.packet_id for packet in answers] == [first, second, third]


# The same packet identifier again -----------------------------------------------------------------


@both
def test_qos_1_again_is_a_new_message(version: int) -> None:
    world = World()
    subscriber = witness(world, qos=1)
    client = world.client("c", version=version)
    for _ in range(2):
        client.send(Publish(b"t", b"x", 1, duplicate=True, packet_id=7))
    assert [packet.packet_id for packet in client.take() if isinstance(packet, Ack)] == [7, 7]
    assert subscriber.payloads() == [b"x", b"x"]


@both
def test_qos_2_again_before_its_release_is_the_same_message(version: int) -> None:
    world = World()
    subscriber = witness(world, qos=2)
    client = world.client("c", version=version)
    for duplicate in (False, True, True, False):
        client.send(Publish(b"t", b"x", 2, duplicate=duplicate, packet_id=7))
    assert client.take() == [Ack(PUBREC, 7)] * 4
    assert subscriber.payloads() == [b"x"]


@both
def test_qos_2_again_after_its_release_is_a_new_message(version: int) -> None:
    world = World()
    subscriber = witness(world, qos=2)
    client = world.client("c", version=version)
    for _ in range(2):
        client.send(Publish(b"t", b"x", 2, packet_id=7), Ack(PUBREL, 7))
        assert client.take() == [Ack(PUBREC, 7), Ack(PUBCOMP, 7)]
    assert subscriber.payloads() == [b"x", b"x"]


def test_qos_2_again_after_a_refusal_is_a_new_message() -> None:
    world = World(retained_messages_max=0)
    subscriber = witness(world, qos=2)
    client = world.client("c")
    client.send(Publish(b"t", b"refused", 2, retain=True, packet_id=7))
    assert acknowledged(client) == (PUBREC, 7, ReasonCode.QUOTA_EXCEEDED)
    client.send(Publish(b"t", b"new", 2, packet_id=7))
    assert acknowledged(client) == (PUBREC, 7, 0)
    assert subscriber.payloads() == [b"new"]


@both
def test_qos_2_is_remembered_by_the_session(version: int) -> None:
    world = World()
    subscriber = witness(world, qos=2)
    client = world.client("c", version=version, **PERSISTENT)
    client.send(Publish(b"t", b"x", 2, packet_id=7))
    client.lose()
    client.connect()
    client.send(Publish(b"t", b"x", 2, duplicate=True, packet_id=7))
    client.send(Ack(PUBREL, 7))
    assert client.take() == [Ack(PUBREC, 7), Ack(PUBCOMP, 7)]
    assert subscriber.payloads() == [b"x"]


@both
def test_the_release_of_an_unknown_message(version: int) -> None:
    client = World().client("c", version=version)
    client.send(Ack(PUBREL, 9))
    reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version == MQTT_5 else 0
    assert acknowledged(client) == (PUBCOMP, 9, reason)


@both
@pytest.mark.parametrize("packet_type", [PUBACK, PUBCOMP])
def test_acknowledgements_of_unknown_messages_do_nothing(
    version: int, packet_type: PacketType
) -> None:
    client = World().client("c", version=version)
    client.send(Ack(packet_type, 9))
    assert client.take() == []
    assert not client.is_closed


@both
def test_the_receipt_of_an_unknown_message(version: int) -> None:
    client = World().client("c", version=version)
    client.send(Ack(PUBREC, 9))
    reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version == MQTT_5 else 0
    assert acknowledged(client) == (PUBREL, 9, reason)


def test_the_refusal_of_an_unknown_message() -> None:
    client = World().client("c")
    client.send(Ack(PUBREC, 9, ReasonCode.UNSPECIFIED_ERROR))
    assert client.take() == []


# QoS and flags ------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("granted", [0, 1, 2])
@each_qos
def test_a_message_comes_at_the_lower_of_two_qos(version: int, granted: int, qos: int) -> None:
    world = World()
    subscriber = witness(world, version=version, qos=granted)
    world.client("c").publish("t", b"x", qos)
    (message,) = subscriber.messages()
    assert message.qos == min(qos, granted)
    assert bool(message.packet_id) == bool(message.qos)


@both
def test_the_duplicate_flag_is_not_passed_on(version: int) -> None:
    world = World()
    subscriber = witness(world, version=version, qos=1)
    world.client("c").send(Publish(b"t", b"x", 1, duplicate=True, packet_id=1))
    (message,) = subscriber.messages()
    assert not message.duplicate


@both
@each_qos
def test_a_message_is_new_at_first(version: int, qos: int) -> None:
    world = World()
    subscriber = witness(world, version=version, qos=2)
    world.client("c").publish("t", b"x", qos)
    assert not subscriber.messages()[0].duplicate


@both
def test_packet_identifiers_are_those_that_are_free(version: int) -> None:
    world = World()
    subscriber = witness(world, version=version, qos=1)
    assert subscriber.link is not None
    session = subscriber.link.session
    assert session is not None
    publisher = world.client("c")
    publisher.publish("t", b"", 1)
    session.next_packet_id = 65_535
    for _ in range(3):
        publisher.publish("t", b"", 1)
    assert [message.packet_id for message in subscriber.messages()] == [1, 65_535, 2, 3]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_qos_above_the_maximum_ends_the_connection(qos: int) -> None:
    world = World(maximum_qos=0)
    subscriber = witness(world)
    client = world.client("c")
    client.publish("t", b"", qos)
    client.assert_ended(ReasonCode.QOS_NOT_SUPPORTED)
    assert subscriber.take() == []


def test_the_maximum_qos_itself_is_taken() -> None:
    world = World(maximum_qos=1)
    client = world.client("c")
    client.publish("t", b"", 1)
    assert acknowledged(client)[0] is PUBACK


@both
def test_retaining_where_nothing_is_retained_ends_the_connection(version: int) -> None:
    client = World(retain_available=False).client("c", version=version)
    client.publish("t", b"x", retain=True)
    client.assert_ended(ReasonCode.RETAIN_NOT_SUPPORTED)


def test_a_client_does_not_send_subscription_identifiers() -> None:
    client = World().client("c")
    client.send(Publish(b"t", b"", identifiers=(1,)))
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)


# Topics -------------------------------------------------------------------------------------------


@both
@each_qos
@pytest.mark.parametrize(
    "topic", [b"a/+", b"#", b"a+", b"a\0b", b"\xff", b"\xed\xa0\x80", b"a/" * 4 + b"a"]
)
@pytest.mark.parametrize("properties", [b"", forwardable_properties(content_type="x")])
def test_a_topic_that_is_none_ends_the_connection(
    version: int, qos: int, topic: bytes, properties: bytes
) -> None:
    world = World(topic_levels_max=4)
    subscriber = witness(world)
    client = world.client("c", version=version, **PERSISTENT)
    client.send(Publish(topic, b"x", qos, packet_id=7 if qos else 0, properties=properties))
    assert client.is_closed
    assert [packet for packet in client.take() if isinstance(packet, Ack)] == []
    assert subscriber.take() == []
    # Nothing of it is remembered, either.
    client.connect()
    client.send(Publish(b"t", b"good", 2, packet_id=7))
    assert subscriber.payloads() == [b"good"]


@both
def test_an_empty_topic_needs_an_alias(version: int) -> None:
    client = World().client("c", version=version)
    client.publish("", b"x")
    assert client.is_closed


@both
def test_a_topic_longer_than_the_limit(version: int) -> None:
    world = World(topic_bytes_max=5)
    subscriber = witness(world)
    client = world.client("c", version=version)
    client.publish("a" * 5, b"fits")
    client.publish("a" * 6, b"does not")
    client.assert_ended(ReasonCode.TOPIC_NAME_INVALID)
    assert subscriber.payloads() == [b"fits"]


def test_topics_are_compared_as_they_are() -> None:
    world = World()
    composed, decomposed = "é", "e\N{COMBINING ACUTE ACCENT}"
    subscriber = witness(world, composed, "\ufeffbom", "case", "a//b")
    client = world.client("c")
    for topic in (composed, decomposed, "\ufeffbom", "bom", "case", "Case", "a//b", "a/b"):
        client.publish(topic, topic.encode())
    received = [composed, "\ufeffbom", "case", "a//b"]
    assert [message.topic.decode() for message in subscriber.messages()] == received


@both
def test_topics_that_begin_with_a_dollar_are_not_for_wildcards(version: int) -> None:
    world = World()
    subscriber = witness(world, "#", "+/t", "+", version=version)
    named = world.client("named", version=version)
    named.subscribe("$mine/#")
    client = world.client("c", version=version)
    client.publish("$mine/t", b"x")
    client.publish("$mine", b"y")
    assert subscriber.take() == []
    assert named.payloads() == [b"x", b"y"]


@each_qos
def test_clients_do_not_publish_below_sys(qos: int) -> None:
    world = World()
    subscriber = witness(world, "$SYS/#")
    client = world.client("c")
    client.publish("$SYS/broker/version", b"mine", qos, retain=True)
    assert [packet.reason for packet in client.take() if isinstance(packet, Ack)] == (
        [ReasonCode.NOT_AUTHORIZED] * bool(qos)
    )
    assert subscriber.take() == []
    assert len(world.broker.retained) == 0


@each_qos
def test_what_a_client_may_not_publish_gets_a_reason(qos: int) -> None:
    world = World(rules=(AccessRule(publish=("mine/#",), subscribe=("#",)),))
    subscriber = witness(world, qos=2)
    client = world.client("c")
    client.publish("yours", b"no", qos, retain=True)
    client.publish("mine/t", b"yes", qos)
    assert [packet.reason for packet in client.take() if isinstance(packet, Ack)] == (
        [ReasonCode.NOT_AUTHORIZED, 0] * bool(qos)
    )
    assert subscriber.payloads() == [b"yes"]
    assert len(world.broker.retained) == 0


@each_qos
def test_what_a_client_may_not_publish_is_acknowledged_in_3_1_1(qos: int) -> None:
    world = World(rules=(AccessRule(publish=("mine/#",), subscribe=("#",)),))
    subscriber = witness(world, qos=2)
    client = world.client("c", version=MQTT_3_1_1)
    packet_id = client.publish("yours", b"no", qos)
    if qos == 2:
        client.send(Ack(PUBREL, packet_id))
    kinds = [packet.type for packet in client.take() if isinstance(packet, Ack)]
    assert kinds == [[], [PUBACK], [PUBREC, PUBCOMP]][qos]
    assert subscriber.take() == []


@both
def test_no_packet_of_a_read_is_lost_where_each_has_many_receivers(version: int) -> None:
    """The broker takes them in pieces."""
    world = World()
    subscribers = [world.client(version=version) for _ in range(RECEIVERS_PER_PIECE)]
    member = world.client(version=version)
    member.subscribe("$share/group/t")
    for subscriber in subscribers:
        subscriber.subscribe("t")
    publisher = world.client(version=version)
    publisher.publish("t", b"the broker knows the route then")
    payloads = [b"%03d" % number for number in range(100)]
    publisher.send(*(Publish(b"t", payload) for payload in payloads))
    for client in (member, *subscribers):
        assert client.payloads()[1:] == payloads


@both
def test_messages_come_in_their_order(version: int) -> None:
    world = World()
    subscriber = witness(world, version=version, qos=2)
    publisher = world.client("c")
    for number in range(30):
        publisher.publish("t", b"%d" % number, 1 + number % 2)
    assert subscriber.payloads() == [b"%d" % number for number in range(30)]


# Properties ---------------------------------------------------------------------------------------

PROPERTIES = forwardable_properties(
    payload_format=1,
    content_type="text/é",
    response_topic="answers/\ufeff",
    correlation_data=b"\0\xff",
    user=(("b", "1"), ("a", "2"), ("b", "1"), ("", "")),
)
REORDERED = (
    forwardable_properties(user=(("z", "1"),))
    + forwardable_properties(correlation_data=b"c")
    + forwardable_properties(user=(("a", "2"),))
    + forwardable_properties(payload_format=0)
)
each_properties = pytest.mark.parametrize("properties", [PROPERTIES, REORDERED])


def live(world: World, properties: bytes, qos: int) -> Publish:
    subscriber = witness(world, qos=2)
    world.client("c").publish("t", b"x", qos, properties=properties)
    return subscriber.messages()[0]


def retained(world: World, properties: bytes, qos: int) -> Publish:
    world.client("c").publish("t", b"x", qos, retain=True, properties=properties)
    return witness(world, qos=2).messages()[0]


def retained_and_restarted(world: World, properties: bytes, qos: int) -> Publish:
    world.client("c").publish("t", b"x", qos, retain=True, properties=properties)
    return witness(world.crash(), qos=2).messages()[0]


def will(world: World, properties: bytes, qos: int) -> Publish:
    subscriber = witness(world, qos=2)
    world.client("c", will=Will(b"t", b"x", qos, properties=properties)).lose()
    return subscriber.messages()[0]


def will_and_restarted(world: World, properties: bytes, qos: int) -> Publish:
    delayed = Will(b"t", b"x", qos, properties=properties, delay_seconds=10)
    world.client("c", will=delayed, **PERSISTENT).lose()
    after = world.crash()
    subscriber = witness(after, qos=2)
    after.pass_time(10)
    return subscriber.messages()[0]


def queued(world: World, properties: bytes, qos: int) -> Publish:
    subscriber = world.client("s", **PERSISTENT)
    subscriber.subscribe("t", qos=2)
    subscriber.lose()
    world.client("c").publish("t", b"x", qos, properties=properties)
    subscriber.connect()
    (message,) = subscriber.early
    assert isinstance(message, Publish)
    return message


def queued_and_restarted(world: World, properties: bytes, qos: int) -> Publish:
    subscriber = world.client("s", **PERSISTENT)
    subscriber.subscribe("t", qos=2)
    subscriber.lose()
    world.client("c").publish("t", b"x", qos, properties=properties)
    (message,) = world.crash().client("s", **PERSISTENT).early
    assert isinstance(message, Publish)
    return message


@each_properties
@pytest.mark.parametrize("way", [live, retained, retained_and_restarted, will, will_and_restarted])
@each_qos
def test_properties_pass_through_unaltered(
    way: Callable[[World, bytes, int], Publish], properties: bytes, qos: int
) -> None:
    assert way(World(), properties, qos).properties == properties


@each_properties
@pytest.mark.parametrize("way", [queued, queued_and_restarted])
@pytest.mark.parametrize("qos", [1, 2])
def test_properties_wait_unaltered(
    way: Callable[[World, bytes, int], Publish], properties: bytes, qos: int
) -> None:
    message = way(World(), properties, qos)
    assert message.properties == properties
    assert user_properties(message.properties) == user_properties(properties)


@each_qos
def test_3_1_1_hears_nothing_of_properties(qos: int) -> None:
    world = World()
    subscriber = witness(world, version=MQTT_3_1_1, qos=2)
    world.client("c").publish("t", b"x", qos, properties=PROPERTIES, expiry_seconds=9)
    (message,) = subscriber.messages()
    assert message == Publish(b"t", b"x", qos, packet_id=message.packet_id)


@both
@pytest.mark.parametrize("size", [0, 1, 120, 127, 128, 20_000])
@each_qos
def test_payloads_are_any_bytes_of_any_length(version: int, size: int, qos: int) -> None:
    world = World()
    subscriber = witness(world, version=version, qos=2)
    payload = bytes(at % 256 for at in range(size))
    world.client("c").publish("t", payload, qos)
    assert subscriber.payloads() == [payload]


# Expiry -------------------------------------------------------------------------------------------


def waiting(world: World, qos: int, **fields: object) -> Client:
    """A subscriber that was away when the message came."""
    subscriber = world.client("s", **PERSISTENT)
    subscriber.subscribe("t", qos=2)
    subscriber.lose()
    world.client("c").publish("t", b"x", qos, **fields)
    return subscriber


def arrivals(subscriber: Client) -> list[Publish]:
    subscriber.connect()
    return [packet for packet in subscriber.early if isinstance(packet, Publish)]


def test_a_message_that_is_passed_on_at_once_has_all_its_time() -> None:
    world = World()
    subscriber = witness(world)
    world.client("c").publish("t", b"x", expiry_seconds=30)
    assert subscriber.messages()[0].expiry_seconds == 30


@pytest.mark.parametrize("qos", [1, 2])
def test_time_spent_waiting_is_taken_from_the_expiry(qos: int) -> None:
    world = World()
    subscriber = waiting(world, qos, expiry_seconds=30)
    world.pass_time(12)
    (message,) = arrivals(subscriber)
    assert message.expiry_seconds == 18


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_sent_has_a_second_left(qos: int) -> None:
    """Until it has expired: a receiver may throw one with 0 away."""
    world = World()
    subscriber = waiting(world, qos, expiry_seconds=1)
    world.pass_time(0.05)
    (message,) = arrivals(subscriber)
    assert message.expiry_seconds == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_has_expired_is_not_sent(qos: int) -> None:
    world = World()
    subscriber = waiting(world, qos, expiry_seconds=30)
    world.pass_time(30)
    assert arrivals(subscriber) == []
    assert world.shared.counters.publishes_expired == 1
    assert world.disk.tables["messages"] == {}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_does_not_take_what_has_expired(qos: int) -> None:
    """A message can expire on its long way from another broker."""
    world = World()
    subscriber = world.client("s")
    subscriber.subscribe("t", qos=qos)
    for payload, expires_at in [(b"old", world.now - 1), (b"now", world.now)]:
        world.broker.publish(Message(b"t", payload, qos, expires_at=expires_at))
    world.settle()
    assert subscriber.payloads() == [b"now"]
    assert world.shared.counters.publishes_expired == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_expiry_goes_on_over_a_restart(qos: int) -> None:
    world = World()
    waiting(world, qos, expiry_seconds=30)
    world.now += 12
    after = world.crash()
    after.pass_time(3)
    (message,) = arrivals(Client(after, "s", **PERSISTENT))
    assert message.expiry_seconds == 15


@pytest.mark.parametrize("qos", [1, 2])
def test_what_expires_while_the_broker_is_down_is_not_sent(qos: int) -> None:
    world = World()
    waiting(world, qos, expiry_seconds=30)
    world.now += 30
    assert arrivals(Client(world.crash(), "s", **PERSISTENT)) == []


@pytest.mark.parametrize("qos", [1, 2])
def test_no_expiry_is_applied_to_what_was_sent(qos: int) -> None:
    world = World()
    subscriber = world.client("s", **PERSISTENT)
    subscriber.subscribe("t", qos=2)
    world.client("c").publish("t", b"x", qos, expiry_seconds=30)
    assert len(subscriber.messages()) == 1
    subscriber.lose()
    world.pass_time(100)
    (message,) = arrivals(subscriber)
    assert message.duplicate
    assert message.expiry_seconds == 0


def test_the_exchange_goes_on_when_the_message_has_expired() -> None:
    world = World()
    waiting(world, 1)
    client = world.client("c2")
    packet_id = client.publish("t", b"x", 2, expiry_seconds=1)
    world.pass_time(10)
    client.send(Ack(PUBREL, packet_id))
    expected: list[Packet] = [Ack(PUBREC, packet_id), Ack(PUBCOMP, packet_id)]
    assert client.take() == expected


@both
def test_a_read_may_end_anywhere_in_a_packet(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    client.subscribe("a/b")
    data = encode(version, Publish(b"a/b", b"payload"))
    client.send_bytes(data)  # the topic is known from here on
    for cut in range(1, len(data)):
        client.send_bytes(data[:cut])
        client.send_bytes(data[cut:])
    assert client.payloads() == [b"payload"] * len(data)
