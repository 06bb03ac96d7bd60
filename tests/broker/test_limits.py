"""Limits: packet sizes of client and broker, queues, and numbers of sessions and clients."""

import pytest

from dovetail.broker import message_expiry
from dovetail.broker.limits import FILTERS_PER_PACKET_MAX
from dovetail.codec import encode_publish
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Connack,
    Disconnect,
    Packet,
    PacketType,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from dovetail.errors import ReasonCode
from dovetail.messages import Message
from support.brokers.harness import PERSISTENT, Client, World

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
PUBACK = PacketType.PUBACK


def texts(packets: list[Packet]) -> list[bytes]:
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


def message_of(size: int, qos: int = 0) -> bytes:
    """The payload that makes a packet of this size on topic `t`."""
    return bytes(size - len(encode_publish(MQTT_5, b"t", bytes(size), qos, packet_id=1)) + size)


def outgoing_sizes(client: Client) -> list[int]:
    assert client.link is not None
    return [len(data) for data in client.link.outgoing]


# What the client takes ----------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_a_client_is_dropped(qos: int) -> None:
    world = World()
    client = world.client("c", packet_bytes_max=100, **PERSISTENT)
    client.subscribe("t", qos=2)
    publisher = world.client("publisher")
    publisher.publish("t", b"1", qos)
    publisher.publish("t", message_of(101, qos), qos)
    publisher.publish("t", message_of(100, qos), qos)
    assert [len(payload) for payload in client.payloads()] == [1, len(message_of(100, qos))]
    assert world.shared.counters.publishes_dropped == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_a_dropped_message_is_as_if_delivered(qos: int) -> None:
    world = World()
    client = world.client("c", packet_bytes_max=100, receive_max=1, **PERSISTENT)
    client.subscribe("t", qos=2)
    client.lose()
    publisher = world.client("publisher")
    for payload in (bytes(200), b"1", bytes(200), bytes(200), b"2"):
        publisher.publish("t", payload, qos)
    client.connect()
    (message,) = client.early
    assert isinstance(message, Publish)
    assert message.payload == b"1"
    kinds = [PUBACK] if qos == 1 else [PacketType.PUBREC, PacketType.PUBCOMP]
    client.send(*(Ack(kind, message.packet_id) for kind in kinds))
    assert texts(client.take()) == [b"2"]
    assert len(world.disk.tables["deliveries"]) == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_others_get_what_is_too_large_for_one(qos: int) -> None:
    world = World()
    small = world.client("small", packet_bytes_max=100)
    large = world.client("large")
    for client in (small, large):
        client.subscribe("t", qos=2)
    world.client("publisher").publish("t", bytes(200), qos)
    assert small.take() == []
    assert len(large.messages()) == 1


def test_passing_bytes_on_does_not_make_them_too_large() -> None:
    # From 3.1.1 to 5 a packet grows by a byte or two.
    world = World(packet_bytes_max=1_024)
    exact = world.client("exact", packet_bytes_max=1_024)
    exact.subscribe("t")
    publisher = world.client("publisher", version=MQTT_3_1_1)
    for size in range(1_020, 1_025):
        publisher.publish("t", message_of(size + 1))
    assert max(outgoing_sizes(exact)) <= 1_024
    assert len(exact.messages()) == 4


def test_a_disconnect_leaves_out_what_would_make_it_too_large() -> None:
    client = World().client("c", packet_bytes_max=30)
    client.send(client.connect_packet)
    assert max(outgoing_sizes(client)) <= 30
    assert client.take() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]


def test_a_refusal_leaves_out_what_would_make_it_too_large() -> None:
    world = World(client_id_bytes_max=23)
    client = Client(world, "c" * 24, packet_bytes_max=10)
    answer = client.connect()
    assert answer == Connack(session_present=False, reason=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    silent = Client(world, "c" * 24, packet_bytes_max=4)
    silent.open()
    silent.send(silent.connect_packet)
    assert silent.is_closed
    assert silent.take() == []


def test_a_client_that_cannot_take_our_connack_is_refused() -> None:
    world = World()
    witness = world.client("witness")
    witness.subscribe("#")
    client = Client(world, "c", packet_bytes_max=15, **PERSISTENT)
    assert client.connect().reason == ReasonCode.PACKET_TOO_LARGE
    assert client.is_closed
    assert "c" not in world.broker.sessions
    assert world.client("c", packet_bytes_max=16).connack is not None


def test_an_answer_too_large_for_its_client_ends_the_connection() -> None:
    requests = [SubscriptionRequest(f"a/{number}") for number in range(40)]
    client = World().client("c", packet_bytes_max=40)
    client.send(Subscribe(1, requests))
    client.assert_ended(ReasonCode.PACKET_TOO_LARGE)
    client = World().client("c", packet_bytes_max=40)
    client.send(Unsubscribe(1, [request.filter for request in requests]))
    client.assert_ended(ReasonCode.PACKET_TOO_LARGE)


def test_reason_strings_are_for_those_who_want_them() -> None:
    for wants in (False, True):
        client = World().client("c", wants_problem_information=wants)
        client.send(client.connect_packet)
        packet = client.take_one()
        assert isinstance(packet, Disconnect)
        assert (packet.reason_string is not None) == wants


def test_acknowledgements_have_neither_text_nor_properties() -> None:
    world = World(retained_messages_max=0)
    client = world.client("c")
    client.publish("t", b"x", 1, retain=True)
    client.publish("t", b"x", 2, retain=True)
    client.publish("t", b"x", 2)
    client.send(Ack(PacketType.PUBREL, 99))
    for packet in client.take():
        assert isinstance(packet, Ack)
        assert packet.reason_string is None
        assert packet.user_properties == ()


# What the broker takes ----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_packet_too_large_for_the_broker_ends_the_connection(version: int, qos: int) -> None:
    world = World(packet_bytes_max=2_000)
    witness = world.client("witness")
    witness.subscribe("#", qos=2)
    client = world.client("c", version=version)
    client.publish("t", b"fits", qos)
    client.publish("t", bytes(2_000), qos)
    client.assert_ended(ReasonCode.PACKET_TOO_LARGE)
    assert witness.payloads() == [b"fits"]


@both
def test_a_packet_too_large_is_noticed_by_its_first_bytes(version: int) -> None:
    client = World(packet_bytes_max=2_000).client("c", version=version)
    client.send_bytes(b"\x30\xd0\x0f")  # 2,000 and the header
    client.assert_ended(ReasonCode.PACKET_TOO_LARGE)


@both
def test_the_largest_packet_is_taken(version: int) -> None:
    world = World(packet_bytes_max=2_000)
    witness = world.client("witness", version=version)
    witness.subscribe("#")
    client = world.client("c", version=version)
    payload = bytes(2_000 - len(encode_publish(version, b"t", bytes(1_990))) + 1_990)
    client.publish("t", payload)
    assert witness.payloads() == [payload]


# Queues -------------------------------------------------------------------------------------------


@both
def test_a_full_queue_drops_the_newest(version: int) -> None:
    world = World(queue_messages_max=3)
    client = world.client("c", version=version, **PERSISTENT)
    client.subscribe("t", qos=1)
    client.lose()
    publisher = world.client("publisher")
    for number in range(5):
        publisher.publish("t", b"%d" % number, 1)
    assert world.shared.counters.publishes_dropped == 2
    client.connect()
    assert texts(client.early) == [b"0", b"1", b"2"]


def test_what_is_under_way_counts_as_waiting() -> None:
    world = World(queue_messages_max=3)
    client = world.client("c", receive_max=2)
    client.subscribe("t", qos=1)
    publisher = world.client("publisher")
    for number in range(5):
        publisher.publish("t", b"%d" % number, 1)
    first, _ = client.messages()
    client.send(Ack(PUBACK, first.packet_id))
    assert client.payloads() == [b"2"]
    publisher.publish("t", b"room", 1)
    assert world.shared.counters.publishes_dropped == 2


@pytest.mark.parametrize("restart", [False, True])
def test_what_has_expired_gives_way_in_a_full_queue(restart: bool) -> None:
    world = World(queue_messages_max=3)
    client = world.client("c", **PERSISTENT)
    client.subscribe("t", qos=1)
    client.lose()
    publisher = world.client("publisher")
    for number, expiry in enumerate((None, 10, 20)):
        publisher.publish("t", b"%d" % number, 1, expiry_seconds=expiry)
    if restart:
        world = world.crash(queue_messages_max=3)
        publisher = world.client("publisher")
    publisher.publish("t", b"too early", 1)
    world.now += 10  # and nothing else happens
    publisher.publish("t", b"3", 1)
    publisher.publish("t", b"too many", 1)
    counters = world.shared.counters
    assert (counters.publishes_dropped, counters.publishes_expired) == (2, 1)
    assert texts(world.client("c", **PERSISTENT).early) == [b"0", b"2", b"3"]


def test_what_has_expired_goes_with_time() -> None:
    world = World()
    client = world.client("c", **PERSISTENT)
    client.subscribe("t", qos=2)
    client.lose()
    publisher = world.client("publisher")
    for qos, expiry in ((1, 10), (2, 20), (1, None)):
        publisher.publish("t", b"x", qos, expiry_seconds=expiry)
    for waiting in (3, 2, 1, 1):
        assert world.shared.gauges.queued_messages == waiting
        assert len(world.disk.tables["deliveries"]) == waiting
        world.pass_time(10)
    assert len(world.shared.message_expiry) == 0


def test_a_tick_looks_at_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_expiry, "_CHECKS_PER_TICK_MAX", 4)
    world = World()
    for name in ("one", "two", "three"):
        client = world.client(name, **PERSISTENT)
        client.subscribe("t", qos=1)
        client.lose()
    publisher = world.client("publisher")
    for _ in range(3):
        publisher.publish("t", b"x", 1, expiry_seconds=1)
    for waiting in (9, 3, 0):
        assert world.shared.gauges.queued_messages == waiting
        world.pass_time(1)


def test_a_session_that_ends_leaves_nothing_that_expires() -> None:
    world = World()
    client = world.client("c", **PERSISTENT)
    client.subscribe("t", qos=1)
    client.lose()
    world.client("publisher").publish("t", b"x", 1, expiry_seconds=10)
    world.client("c")
    assert len(world.shared.message_expiry) == 0


@pytest.mark.parametrize("limit", ["queue_bytes_max", "queued_bytes_total_max"])
def test_a_queue_is_full_by_its_bytes_too(limit: str) -> None:
    world = World(**{limit: 1_024})  # type: ignore[arg-type]
    client = world.client("c", **PERSISTENT)
    client.subscribe("t", qos=1)
    client.lose()
    publisher = world.client("publisher")
    for _ in range(5):
        publisher.publish("t", bytes(499), 1)
    client.connect()
    assert len(client.early) == 2
    for message in client.early:
        assert isinstance(message, Publish)
        client.send(Ack(PUBACK, message.packet_id))
    publisher.publish("t", bytes(499), 1)
    assert len(client.messages()) == 1


def test_the_total_is_of_all_sessions() -> None:
    world = World(queued_bytes_total_max=1_024)
    for name in ("one", "two"):
        client = world.client(name, **PERSISTENT)
        client.subscribe("t", qos=1)
        client.lose()
    world.client("publisher").publish("t", bytes(600), 1)
    waiting = [len(world.client(name, **PERSISTENT).early) for name in ("one", "two")]
    assert sorted(waiting) == [0, 1]


def test_a_client_that_does_not_read_loses_qos_0_only() -> None:
    world = World(backlog_bytes_max=10_000, publisher_wait_seconds=0)
    client = world.client("c")
    client.subscribe("t", qos=1)
    publisher = world.client("publisher")
    for _ in range(20):
        publisher.publish("t", bytes(1_000))
    for _ in range(20):
        publisher.publish("t", b"\1" + bytes(999), 1)
    received: list[bytes] = []
    # Reading makes room, and what has waited comes.
    while packets := client.take():
        received += texts(packets)
    kinds = [payload[0] for payload in received]
    assert 8 <= kinds.count(0) < 20
    assert kinds.count(1) == 20


# How many -----------------------------------------------------------------------------------------


@both
def test_too_many_sessions(version: int) -> None:
    world = World(sessions_max=2)
    first = world.client("one", version=version, **PERSISTENT)
    world.client("two", version=version)
    third = Client(world, "three", version=version)
    refused = ReasonCode.QUOTA_EXCEEDED if version == MQTT_5 else ReasonCode.SERVER_UNAVAILABLE
    assert third.connect().reason == refused
    # Those that are there may come back.
    first.lose()
    assert first.connect().reason == ReasonCode.SUCCESS
    first.disconnect(**({"session_expiry_seconds": 0} if version == MQTT_5 else {}))
    if version == MQTT_5:
        assert third.connect().reason == ReasonCode.SUCCESS


@both
def test_too_many_connections(version: int) -> None:
    world = World(connections_max=1)
    first = world.client("one", version=version)
    second = Client(world, "two", version=version)
    refused = ReasonCode.SERVER_BUSY if version == MQTT_5 else ReasonCode.SERVER_UNAVAILABLE
    assert second.connect().reason == refused
    first.disconnect()
    assert second.connect().reason == ReasonCode.SUCCESS


def test_retained_bytes_are_bounded_when_messages_are_replaced_too() -> None:
    world = World(retained_bytes_max=10_000)
    publisher = world.client("publisher")
    for number in range(50):
        publisher.publish(f"a/{number}", b"x", 1, retain=True)
    for number in range(50):
        publisher.publish(f"a/{number}", bytes(5_000), 1, retain=True)
    reasons = [packet.reason for packet in publisher.take() if isinstance(packet, Ack)]
    assert world.broker.retained.nbytes <= 10_000
    assert reasons.count(ReasonCode.QUOTA_EXCEEDED) == 49


def test_one_packet_has_so_many_filters() -> None:
    world = World()
    client = world.client("c")
    reasons = client.subscribe(*(str(number) for number in range(FILTERS_PER_PACKET_MAX + 2)))
    assert reasons[:FILTERS_PER_PACKET_MAX] == [0] * FILTERS_PER_PACKET_MAX
    assert reasons[FILTERS_PER_PACKET_MAX:] == [ReasonCode.QUOTA_EXCEEDED] * 2


def test_limits_of_topics_are_for_clients() -> None:
    world = World(topic_levels_max=2)
    client = world.client("c")
    client.subscribe("$SYS/#")
    world.broker.publish(Message(b"$SYS/a/b/c/d", b"x", retain=True))
    assert client.payloads() == [b"x"]
