"""Sessions: QoS exchanges, windows, repeated messages, take-over and end."""

import pytest

from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    SESSION_NEVER_EXPIRES,
    Ack,
    Packet,
    PacketType,
    Ping,
    Publish,
    Subscribe,
    SubscriptionRequest,
)
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, World

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])

PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)


def subscriber(world: World, version: int = MQTT_5, qos: int = 2, **fields: object) -> Client:
    client = world.client("s", version=version, **{**PERSISTENT, **fields})
    client.subscribe("t", qos=qos)
    return client


def publish(world: World, *payloads: bytes, qos: int = 1) -> None:
    publisher = world.client("publisher")
    for payload in payloads:
        publisher.publish("t", payload, qos)


def publications(packets: list[Packet]) -> list[Publish]:
    return [packet for packet in packets if isinstance(packet, Publish)]


def texts(packets: list[Packet]) -> list[bytes]:
    return [packet.payload for packet in publications(packets)]


def acknowledge(client: Client, message: Publish) -> None:
    """The whole exchange, to its end."""
    if message.qos == 1:
        client.send(Ack(PUBACK, message.packet_id))
    elif message.qos == 2:
        client.send(Ack(PUBREC, message.packet_id), Ack(PUBCOMP, message.packet_id))


# Exchanges ----------------------------------------------------------------------------------------


@both
def test_qos_1_ends_with_its_puback(version: int) -> None:
    world = World()
    client = subscriber(world, version)
    publish(world, b"x")
    (message,) = client.messages()
    assert len(world.disk.tables["deliveries"]) == 1
    client.send(Ack(PUBACK, message.packet_id))
    assert client.take() == []
    assert world.disk.tables["deliveries"] == world.disk.tables["messages"] == {}


@both
def test_qos_2_ends_with_its_pubcomp(version: int) -> None:
    world = World()
    client = subscriber(world, version)
    publish(world, b"x", qos=2)
    (message,) = client.messages()
    client.send(Ack(PUBREC, message.packet_id))
    assert client.take() == [Ack(PUBREL, message.packet_id)]
    assert len(world.disk.tables["deliveries"]) == 1
    client.send(Ack(PUBCOMP, message.packet_id))
    assert client.take() == []
    assert world.disk.tables["deliveries"] == world.disk.tables["messages"] == {}


def test_a_refused_message_is_not_sent_again() -> None:
    world = World()
    client = subscriber(world)
    publish(world, b"one", qos=1)
    publish(world, b"two", qos=2)
    one, two = client.messages()
    client.send(Ack(PUBACK, one.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    client.send(Ack(PUBREC, two.packet_id, ReasonCode.QUOTA_EXCEEDED))
    assert client.take() == []
    client.lose()
    client.connect()
    assert client.early == []


def test_a_repeated_pubrec_gets_its_pubrel_again() -> None:
    world = World()
    client = subscriber(world)
    publish(world, b"x", qos=2)
    (message,) = client.messages()
    for _ in range(2):
        client.send(Ack(PUBREC, message.packet_id))
        assert client.take() == [Ack(PUBREL, message.packet_id)]


def test_nothing_is_sent_again_while_the_connection_lasts() -> None:
    world = World()
    client = subscriber(world)
    publish(world, b"one", qos=1)
    publish(world, b"two", qos=2)
    client.take()
    world.pass_time(100_000)
    client.send(Ping(PacketType.PINGREQ))
    assert client.take() == [Ping(PacketType.PINGRESP)]


# Coming back --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("restart", [False, True])
def test_unacknowledged_messages_are_sent_again_in_their_order(version: int, restart: bool) -> None:
    world = World()
    client = subscriber(world, version)
    publish(world, b"1", b"2", qos=1)
    publish(world, b"3", b"4", qos=2)
    publish(world, b"5", qos=1)
    sent = {message.payload: message.packet_id for message in client.messages()}
    client.send(Ack(PUBACK, sent[b"1"]))
    client.send(Ack(PUBREC, sent[b"3"]))
    client.lose()
    publish(world, b"6", qos=1)
    if restart:
        client = Client(world.crash(), "s", version=version, **PERSISTENT)
    client.connect()
    assert Ack(PUBREL, sent[b"3"]) in client.early
    again = publications(client.early)
    assert [message.payload for message in again if message.qos == 1] == [b"2", b"5", b"6"]
    assert [message.payload for message in again if message.qos == 2] == [b"4"]
    for message in again:
        if message.payload != b"6":
            assert message.duplicate
            assert message.packet_id == sent[message.payload]
    (new,) = [message for message in again if message.payload == b"6"]
    assert not new.duplicate
    assert new.packet_id not in sent.values()


@both
def test_a_released_message_is_not_sent_again(version: int) -> None:
    world = World()
    client = subscriber(world, version)
    publish(world, b"x", qos=2)
    (message,) = client.messages()
    client.send(Ack(PUBREC, message.packet_id))
    client.lose()
    for _ in range(2):
        client.connect()
        assert client.early == [Ack(PUBREL, message.packet_id)]
        client.lose()
    client.connect()
    client.send(Ack(PUBCOMP, message.packet_id))
    client.lose()
    client.connect()
    assert client.early == []


@both
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_for_who_is_away(version: int, qos: int) -> None:
    world = World()
    client = subscriber(world, version)
    client.lose()
    publish(world, b"0", qos=0)
    publish(world, b"1", b"2", b"3", qos=qos)
    client.connect()
    assert texts(client.early) == [b"1", b"2", b"3"]
    assert not any(message.duplicate for message in publications(client.early))


@both
def test_a_session_that_is_not_kept_waits_for_nobody(version: int) -> None:
    world = World()
    client = world.client("s", version=version)
    client.subscribe("t", qos=1)
    client.lose()
    publish(world, b"x")
    client.connect()
    assert client.connack is not None
    assert not client.connack.session_present
    assert client.early == []
    assert world.disk.tables["messages"] == {}


@both
def test_a_clean_start_leaves_nothing_of_the_session(version: int) -> None:
    world = World()
    client = subscriber(world, version)
    publish(world, b"sent")
    client.lose()
    publish(world, b"queued")
    fresh = world.client("s", version=version, clean_start=True)
    assert fresh.early == []
    publish(world, b"later")
    assert fresh.take() == []
    assert all(
        world.disk.tables[name] == {} for name in ("deliveries", "messages", "subscriptions")
    )


@both
def test_the_session_goes_by_the_client_identifier(version: int) -> None:
    world = World()
    subscriber(world, version).lose()
    publish(world, b"x")
    other = world.client("S", version=version, **PERSISTENT)
    assert other.connack is not None
    assert not other.connack.session_present
    assert other.early == []


def test_a_session_may_go_on_in_another_version() -> None:
    world = World()
    subscriber(world, MQTT_3_1_1).lose()
    publish(world, b"x", qos=2)
    client = world.client("s", version=MQTT_5, **PERSISTENT)
    assert client.connack is not None
    assert client.connack.session_present
    assert texts(client.early) == [b"x"]


# Windows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("limit", ["client", "broker"])
def test_no_more_messages_are_under_way_than_allowed(qos: int, limit: str) -> None:
    world = World(inflight_max=3 if limit == "broker" else 100)
    client = subscriber(world, receive_max=3 if limit == "client" else 100)
    publish(world, *(b"%d" % number for number in range(10)), qos=qos)
    seen: list[bytes] = []
    under_way = client.messages()
    assert len(under_way) == 3
    while under_way:
        message = under_way.pop(0)
        seen.append(message.payload)
        acknowledge(client, message)
        under_way += publications(client.take())
        assert len(under_way) <= 3
    assert seen == [b"%d" % number for number in range(10)]


def test_pubrec_does_not_open_the_window() -> None:
    world = World()
    client = subscriber(world, receive_max=1)
    publish(world, b"1", b"2", qos=2)
    (message,) = client.messages()
    client.send(Ack(PUBREC, message.packet_id))
    assert client.take() == [Ack(PUBREL, message.packet_id)]
    client.send(Ack(PUBCOMP, message.packet_id))
    assert client.payloads() == [b"2"]


def test_a_refusal_opens_the_window() -> None:
    world = World()
    client = subscriber(world, receive_max=1)
    publish(world, b"1", b"2", qos=2)
    (message,) = client.messages()
    client.send(Ack(PUBREC, message.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    assert client.payloads() == [b"2"]


def test_everything_else_goes_on_while_the_window_is_full() -> None:
    world = World()
    client = subscriber(world, receive_max=1)
    publish(world, b"1", b"2")
    client.take()
    client.send(Ping(PacketType.PINGREQ))
    packet_id = client.publish("u", b"", 1)
    publish(world, b"0", qos=0)
    kinds = [type(packet) for packet in client.take()]
    assert kinds == [Ping, Ack, Publish]
    assert client.subscribe("v") == [0]
    assert packet_id


def test_3_1_1_has_the_brokers_window() -> None:
    world = World(inflight_max=2)
    client = subscriber(world, MQTT_3_1_1)
    publish(world, b"1", b"2", b"3")
    first, second = client.messages()
    client.send(Ack(PUBACK, first.packet_id))
    assert client.payloads() == [b"3"]
    assert second.payload == b"2"


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_a_session_may_go_on_with_a_smaller_window(qos: int, restart: bool) -> None:
    world = World()
    client = subscriber(world, receive_max=10)
    payloads = [b"%d" % number for number in range(6)]
    publish(world, *payloads, qos=qos)
    assert len(client.messages()) == 6
    client.lose()
    if restart:
        world = world.crash()
    client = world.client("s", **{**PERSISTENT, "receive_max": 2})
    seen = []
    under_way = publications(client.early)
    while under_way:
        assert len(under_way) <= 2
        message = under_way.pop(0)
        assert message.duplicate
        seen.append(message.payload)
        acknowledge(client, message)
        under_way += publications(client.take())
    assert seen == payloads


def test_an_acknowledgement_of_what_was_not_sent_again_yet_counts() -> None:
    world = World()
    client = subscriber(world, receive_max=10)
    publish(world, b"1", b"2", b"3", b"4", qos=1)
    ids = [message.packet_id for message in client.messages()]
    client.lose()
    client = world.client("s", **{**PERSISTENT, "receive_max": 1})
    assert texts(client.early) == [b"1"]
    # Of the connection before, and against the rules; the window stays as wide as it is.
    client.send(Ack(PUBACK, ids[2]))
    assert client.take() == []
    client.send(Ack(PUBACK, ids[0]))
    assert client.payloads() == [b"2"]
    client.send(Ack(PUBACK, ids[1]))
    assert client.payloads() == [b"4"]


def test_a_message_that_was_received_before_is_not_sent_again() -> None:
    world = World()
    client = subscriber(world, receive_max=10)
    publish(world, b"1", b"2", qos=2)
    ids = [message.packet_id for message in client.messages()]
    client.lose()
    client = world.client("s", **{**PERSISTENT, "receive_max": 1})
    client.send(Ack(PUBREC, ids[1]))
    assert client.take() == [Ack(PUBREL, ids[1])]
    client.send(Ack(PUBREC, ids[0]), Ack(PUBCOMP, ids[0]), Ack(PUBCOMP, ids[1]))
    assert texts(client.take()) == []
    assert world.disk.tables["deliveries"] == {}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_keeps_to_the_brokers_receive_maximum(qos: int) -> None:
    world = World(receive_max=2, auto_commit=False)
    world.client("s", **PERSISTENT).send_bytes(b"\x82\x07\x00\x01\x00\x00\x01t\x02")
    world.commit_all()
    client = world.client("c")
    client.publish("t", b"1", qos)
    client.publish("t", b"2", qos)
    assert not client.is_closed
    client.publish("t", b"3", qos)
    client.assert_ended(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


@pytest.mark.parametrize("qos", [1, 2])
def test_an_acknowledged_message_does_not_count(qos: int) -> None:
    world = World(receive_max=1)
    client = world.client("c")
    for _ in range(5):
        packet_id = client.publish("t", b"", qos)
        if qos == 2:
            client.send(Ack(PUBREL, packet_id))
        client.take()
    assert not client.is_closed


def test_a_message_counts_until_its_pubcomp() -> None:
    client = World(receive_max=1).client("c")
    client.publish("t", b"", 2)
    client.publish("t", b"", 2)
    client.assert_ended(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


def test_the_same_message_again_counts_once() -> None:
    client = World(receive_max=1).client("c")
    for _ in range(3):
        client.send(Publish(b"t", b"", 2, packet_id=5))
    assert not client.is_closed


def test_a_refused_message_does_not_count() -> None:
    client = World(receive_max=1, retained_messages_max=0).client("c")
    for qos in (1, 2, 1, 2):
        client.publish("t", b"x", qos, retain=True)
    assert not client.is_closed


def test_releases_of_the_connection_before_make_no_room() -> None:
    world = World(receive_max=2)
    client = world.client("c", **PERSISTENT)
    ids = [client.publish("t", b"", 2) for _ in range(2)]
    client.lose()
    client.connect()
    for packet_id in ids:
        client.send(Ack(PUBREL, packet_id))
    for _ in range(2):
        client.publish("t", b"", 2)
    assert not client.is_closed
    client.publish("t", b"", 2)
    client.assert_ended(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


def test_3_1_1_has_no_receive_maximum() -> None:
    client = World(receive_max=1).client("c", version=MQTT_3_1_1)
    for _ in range(5):
        client.publish("t", b"", 2)
    assert not client.is_closed


# Take-over ----------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("kept", [False, True])
def test_a_second_connection_of_a_client_ends_the_first(version: int, kept: bool) -> None:
    world = World()
    fields = PERSISTENT if kept else {}
    first = world.client("c", version=version, **fields)
    first.subscribe("t", qos=1)
    second = world.client("c", version=version, **fields)
    first.assert_ended(ReasonCode.SESSION_TAKEN_OVER)
    assert second.connack is not None
    assert second.connack.session_present == kept
    publish(world, b"x")
    assert texts(second.take()) == ([b"x"] if kept else [])
    assert len(world.broker.links) == 2  # and the publisher


@both
def test_messages_under_way_go_over_to_the_new_connection(version: int) -> None:
    world = World()
    first = subscriber(world, version)
    publish(world, b"x")
    (message,) = first.messages()
    second = world.client("s", version=version, **PERSISTENT)
    (again,) = publications(second.early)
    assert (again.payload, again.packet_id, again.duplicate) == (b"x", message.packet_id, True)


@both
def test_the_end_of_the_old_connection_does_not_touch_the_new_one(version: int) -> None:
    world = World()
    first = world.client("c", version=version, **PERSISTENT)
    second = world.client("c", version=version, **PERSISTENT)
    first.lose()
    second.send(Ping(PacketType.PINGREQ))
    assert second.take() == [Ping(PacketType.PINGRESP)]
    assert world.shared.gauges.clients_connected == 1


# The end ------------------------------------------------------------------------------------------


def has_session(world: World) -> bool:
    client = world.client("s", **PERSISTENT)
    assert client.connack is not None
    return client.connack.session_present


@pytest.mark.parametrize("restart", [False, True])
def test_a_session_ends_when_its_time_is_over(restart: bool) -> None:
    for seconds, there in ((9, True), (10, False)):
        world = World()
        subscriber(world, session_expiry_seconds=10).lose()
        if restart:
            world = world.crash()
        world.pass_time(seconds)
        assert has_session(world) == there


def test_time_goes_on_while_the_broker_is_down() -> None:
    world = World()
    subscriber(world, session_expiry_seconds=10).lose()
    world.now += 10
    assert not has_session(world.crash())


def test_a_connection_that_a_crash_ended_had_all_its_time_before_it() -> None:
    world = World()
    subscriber(world, session_expiry_seconds=10)
    world.now += 1_000
    after = world.crash()
    after.pass_time(9)
    assert has_session(after)


def test_a_session_does_not_end_while_it_is_connected() -> None:
    world = World()
    client = subscriber(world, session_expiry_seconds=10)
    world.pass_time(10_000)
    publish(world, b"x")
    assert client.payloads() == [b"x"]


def test_coming_back_begins_the_time_anew() -> None:
    world = World()
    client = subscriber(world, session_expiry_seconds=10)
    for _ in range(3):
        client.lose()
        world.pass_time(9)
        client.connect()
        assert client.connack is not None
        assert client.connack.session_present


def test_the_end_leaves_nothing_on_disk() -> None:
    world = World()
    client = subscriber(world, session_expiry_seconds=10)
    client.send(Publish(b"t", b"x", 2, packet_id=1))
    client.lose()
    publish(world, b"y", qos=1)
    world.pass_time(10)
    assert all(table == {} for table in world.disk.tables.values())
    assert world.shared.gauges.queued_bytes == world.shared.gauges.queued_messages == 0


@both
def test_a_session_may_have_no_end(version: int) -> None:
    world = World()
    never = {"session_expiry_seconds": SESSION_NEVER_EXPIRES}
    subscriber(world, version, **never).lose()
    world.pass_time(10**9)
    assert has_session(world)
    assert has_session(world.crash())


def test_the_brokers_limit_of_a_sessions_time() -> None:
    world = World(session_expiry_max_seconds=10)
    for version in (MQTT_3_1_1, MQTT_5):
        client = subscriber(world, version, session_expiry_seconds=SESSION_NEVER_EXPIRES)
        client.lose()
        world.pass_time(10)
        assert "s" not in world.broker.sessions


def test_disconnect_may_change_the_time() -> None:
    world = World()
    client = subscriber(world, session_expiry_seconds=10)
    client.disconnect(session_expiry_seconds=20)
    world.pass_time(19)
    assert has_session(world)
    world.client("s", **PERSISTENT).disconnect(session_expiry_seconds=5)
    after = world.crash()
    after.pass_time(5)
    assert not has_session(after)


def test_disconnect_may_end_the_session() -> None:
    world = World()
    subscriber(world).disconnect(session_expiry_seconds=0)
    assert "s" not in world.broker.sessions
    assert not has_session(world.crash())


def test_disconnect_cannot_give_time_to_a_session_without_any() -> None:
    world = World()
    client = subscriber(world, session_expiry_seconds=0)
    client.send_bytes(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x05")
    client.assert_ended(ReasonCode.PROTOCOL_ERROR)
    assert "s" not in world.broker.sessions


def test_disconnect_without_time_leaves_a_session_without_any() -> None:
    world = World()
    client = subscriber(world, session_expiry_seconds=0)
    client.disconnect(session_expiry_seconds=0)
    assert "s" not in world.broker.sessions


def test_coming_back_may_change_the_time() -> None:
    world = World()
    subscriber(world).lose()
    world.client("s", clean_start=False, session_expiry_seconds=0).lose()
    assert "s" not in world.broker.sessions
    assert all(table == {} for table in world.disk.tables.values())


@both
def test_a_restart_finds_the_whole_session(version: int) -> None:
    world = World()
    client = subscriber(world, version)
    client.send(Publish(b"u", b"", 2, packet_id=9))
    client.take()
    client.lose()
    publish(world, b"1", qos=2)
    after = world.crash()
    client = after.client("s", version=version, **PERSISTENT)
    assert client.connack is not None
    assert client.connack.session_present
    assert texts(client.early) == [b"1"]
    client.send(Publish(b"t", b"the same", 2, packet_id=9, duplicate=True))
    assert client.take() == [Ack(PUBREC, 9)]
    assert after.broker.router.count == 1


def test_the_order_of_a_kept_session_that_resumes_without_an_expiry() -> None:
    world = World(auto_commit=False)
    client = world.client("c", **PERSISTENT)
    client.send(Subscribe(1, [SubscriptionRequest("t", 2)]))
    world.commit_all()
    client.lose()
    publisher = world.client("publisher")
    for number in range(3):
        publisher.publish("t", b"%d" % number, 2)
    world.commit_all()
    again = Client(world, "c", clean_start=False)
    connack = again.connect()
    assert connack.session_present
    publisher.publish("t", b"live", 2)
    received = [packet for packet in (*again.early, *again.take()) if isinstance(packet, Publish)]
    world.commit_all()
    received += [packet for packet in again.take() if isinstance(packet, Publish)]
    assert [message.payload for message in received] == [b"0", b"1", b"2", b"live"]
    again.lose()
    world.commit_all()
    assert not any(world.disk.tables[name] for name in ("sessions", "deliveries", "messages"))
    assert world.shared.gauges.queued_messages == 0
