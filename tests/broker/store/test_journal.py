"""What waits for the disk, what a failing disk does, and what a crash leaves.

The last part is a network of clients that lose connections, and a broker that crashes between any
two steps, with a disk that fails at times. Each client does all that the specification asks of it;
then acknowledged messages are never lost, and those of QoS 2 come once.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dovetail.broker.auth.access import AccessRules
from dovetail.broker.store.journal import Batch, DeliveryRow, Journal, SessionRow, SubscriptionRow
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Connack,
    Packet,
    PacketType,
    Ping,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from dovetail.errors import ReasonCode
from dovetail.messages import Message
from dovetail.settings import AccessRule
from support.brokers.harness import PERSISTENT, Client, World

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)
SESSION = SessionRow("c", 10, None, None, None)


# The journal itself -------------------------------------------------------------------------------


def test_a_batch_holds_the_last_state_of_each_key() -> None:
    journal = Journal()
    for expiry in (1, 2):
        journal.save_session(1, SESSION._replace(expiry_seconds=expiry))
    journal.save_subscription(1, "a", SubscriptionRow(1, 0))
    journal.save_subscription(1, "a", None)
    batch = journal.close()
    assert batch is not None
    assert batch.sessions == {1: SESSION._replace(expiry_seconds=2)}
    assert batch.subscriptions == {(1, "a"): None}


def test_what_comes_and_goes_within_a_batch_is_not_written() -> None:
    journal = Journal()
    message = Message(b"t", b"x")
    journal.keep(message)
    journal.save_delivery(1, 1, DeliveryRow(message.number, 1, False, 0, False, ()))
    journal.drop_delivery(1, 1, first_batch=journal.open.number)
    journal.release(message)
    assert journal.close() is None


def test_what_was_written_before_is_deleted() -> None:
    journal = Journal()
    message = Message(b"t", b"x")
    number = journal.keep(message)
    first = journal.open.number
    journal.save_delivery(1, 1, DeliveryRow(number, 1, False, 0, False, ()))
    journal.close()
    journal.drop_delivery(1, 1, first_batch=first)
    journal.release(message)
    journal.finished(stored=True)
    batch = journal.close()
    assert batch is not None
    assert batch.deliveries == {(1, 1): None}
    assert batch.messages == {number: None}


def test_a_message_is_written_once_for_all_who_need_it() -> None:
    journal = Journal()
    message = Message(b"t", b"x")
    assert journal.keep(message) == journal.keep(message)
    journal.release(message)
    batch = journal.close()
    assert batch is not None
    assert len(batch.messages) == 1


def test_one_batch_is_outstanding() -> None:
    journal = Journal()
    journal.save_session(1, SESSION)
    assert journal.close() is not None
    journal.save_session(2, SESSION)
    assert journal.close() is None
    journal.finished(stored=True)
    assert journal.close() is not None


def test_failed_rows_go_with_the_next_batch_below_newer_rows() -> None:
    journal = Journal()
    journal.save_session(1, SESSION)
    journal.save_session(2, SESSION)
    journal.close()
    newer = SESSION._replace(expiry_seconds=99)
    journal.save_session(2, newer)
    journal.finished(stored=False)
    assert journal.failing
    batch = journal.close()
    assert batch is not None
    assert batch.sessions == {1: SESSION, 2: newer}
    journal.finished(stored=True)
    assert not journal.failing


def test_callbacks_run_when_their_batch_is_written() -> None:
    journal = Journal()
    told: list[str] = []

    def teller(name: str) -> Callable[[bool], None]:
        return lambda stored: told.append(f"{name} {stored}")

    journal.when_stored(teller("first"))
    journal.close()
    journal.when_stored(teller("second"))
    assert told == []
    journal.finished(stored=True)
    assert told == ["first True"]
    journal.close()
    journal.finished(stored=False)
    assert told == ["first True", "second False"]


def test_a_callback_that_waits_again_keeps_its_place() -> None:
    journal = Journal()
    told: list[str] = []

    def patient(stored: bool) -> None:
        if stored:
            told.append("patient")
        else:
            journal.wait_on(patient)

    journal.when_stored(patient)
    journal.close()
    journal.when_stored(lambda _: told.append("later"))
    journal.finished(stored=False)
    assert told == []
    journal.close()
    journal.finished(stored=True)
    assert told == ["patient", "later"]


# What waits ---------------------------------------------------------------------------------------


def settled(version: int = MQTT_5, qos: int = 2) -> tuple[World, Client, Client]:
    """A subscriber and a publisher whose sessions are kept, and nothing that waits for the disk."""
    world = World(auto_commit=False)
    subscriber = world.client("s", version=version, **PERSISTENT)
    subscriber.send(Subscribe(1, [SubscriptionRequest("t", qos=qos)]))
    publisher = world.client("p", version=version, **PERSISTENT)
    world.commit_all()
    subscriber.take()
    return world, subscriber, publisher


@both
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_acknowledged_when_it_is_on_disk(version: int, qos: int) -> None:
    world, _, publisher = settled(version)
    packet_id = publisher.publish("t", b"x", qos)
    assert publisher.take() == []
    assert world.disk.tables["deliveries"] == {}
    world.commit_all()
    assert publisher.take() == [Ack(PUBREC if qos == 2 else PUBACK, packet_id)]
    assert len(world.disk.tables["deliveries"]) == 1


@both
def test_pubcomp_waits_for_the_disk(version: int) -> None:
    world, _, publisher = settled(version)
    packet_id = publisher.publish("t", b"x", 2)
    world.commit_all()
    publisher.take()
    publisher.send(Ack(PUBREL, packet_id))
    assert publisher.take() == []
    world.commit_all()
    assert publisher.take() == [Ack(PUBCOMP, packet_id)]
    assert world.disk.tables["incoming"] == {}


def test_the_release_of_an_unknown_message_waits_too() -> None:
    world, _, publisher = settled()
    packet_id = publisher.publish("t", b"x", 2)
    world.commit_all()
    publisher.send(Ack(PUBREL, packet_id))
    publisher.lose()
    # The identifier is free in memory, and not on disk yet: a crash would bring it back.
    publisher.connect()
    publisher.send(Ack(PUBREL, packet_id))
    assert publisher.take() == []
    world.commit_all()
    answer = publisher.take_one()
    assert isinstance(answer, Ack)
    assert answer.type is PUBCOMP


@both
def test_a_retained_message_is_acknowledged_when_it_is_on_disk(version: int) -> None:
    world = World(auto_commit=False)
    client = world.client("c", version=version)
    client.publish("nobody", b"x", 1, retain=True)
    assert client.take() == []
    world.commit_all()
    assert isinstance(client.take_one(), Ack)
    (row,) = world.disk.tables["messages"].values()
    assert row.retained


@both
def test_neighbours_are_acknowledged_together_and_in_order(version: int) -> None:
    world = World(auto_commit=False)
    client = world.client("c", version=version)
    ids = [client.publish(topic, b"x", 1, retain=True) for topic in "abc"]
    world.disk_works = False
    world.commit()
    if version == MQTT_3_1_1:
        client.assert_ended(ReasonCode.QUOTA_EXCEEDED)
        return
    assert client.take() == [Ack(PUBACK, one, ReasonCode.QUOTA_EXCEEDED) for one in ids]
    world.disk_works = True
    world.commit_all()
    ids = [client.publish(topic, b"y", 1, retain=True) for topic in "abc"]
    assert client.take() == []
    assert world.commit()
    ids.append(client.publish("d", b"y", 1, retain=True))
    unseen = ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert client.take() == [Ack(PUBACK, one, unseen) for one in ids[:3]]
    world.commit_all()
    assert client.take() == [Ack(PUBACK, ids[3], unseen)]


def test_a_replaced_message_stays_as_long_as_a_session_needs_it() -> None:
    journal = Journal()
    message, newer = Message(b"t", b"x", 1, True), Message(b"t", b"y", 1, True)
    journal.keep_retained(message)
    journal.keep(message)
    first = closed(journal)
    assert [row and row.retained for row in first.messages.values()] == [True]
    journal.keep_retained(newer, message)
    second = closed(journal)
    assert second.messages[message.number] is not None
    assert [row and row.retained for row in second.messages.values()] == [False, True]
    journal.release(message)
    assert closed(journal).messages == {1: None}


def test_a_message_that_is_replaced_and_delivered_in_one_batch_is_deleted() -> None:
    journal = Journal()
    message = Message(b"t", b"x", 1, True)
    journal.keep_retained(message)
    journal.keep(message)
    closed(journal)
    journal.release_retained(message)
    journal.release(message)
    assert closed(journal).messages == {1: None}  # its row is on disk, and must not stay retained


def test_a_retained_message_takes_over_the_row_of_the_one_before() -> None:
    journal = Journal()
    messages = [Message(b"t", payload, 1, True) for payload in (b"x", b"y", b"z")]
    before = None
    for message in messages:
        journal.keep_retained(message, before)
        before = message
        (row,) = closed(journal).messages.items()
        assert row[0] == 1
        assert row[1] is not None
        assert row[1].payload == message.payload
    assert [message.number for message in messages] == [0, 0, 1]
    assert [message.references for message in messages] == [0, 0, 1]
    journal.release_retained(messages[-1])
    assert closed(journal).messages == {1: None}


def test_a_row_that_another_needs_is_not_taken_over() -> None:
    journal = Journal()
    first, second = Message(b"t", b"x", 1, True), Message(b"t", b"y", 1, True)
    journal.keep_retained(first)
    journal.keep(second)  # a session keeps it already
    journal.keep_retained(second, first)
    assert {number: row and row.payload for number, row in closed(journal).messages.items()} == {
        2: b"y"
    }


def test_a_message_that_comes_and_goes_within_a_batch_is_never_written() -> None:
    journal = Journal()
    message = Message(b"t", b"x", 1, True)
    journal.keep_retained(message)
    journal.release_retained(message)
    journal.when_stored(lambda _: None)
    assert closed(journal).messages == {}


def closed(journal: Journal) -> Batch:
    """Return the open batch, stored."""
    batch = journal.close()
    assert batch is not None
    journal.finished(True)
    return batch


@both
def test_subscribing_and_unsubscribing_wait_for_the_disk(version: int) -> None:
    world = World(auto_commit=False)
    client = world.client("c", version=version, **PERSISTENT)
    for packet, rows in ((Subscribe(1, [SubscriptionRequest("a")]), 1), (Unsubscribe(2, ["a"]), 0)):
        client.send(packet)
        assert client.take() == []
        world.commit_all()
        assert isinstance(client.take_one(), SubscriptionAck)
        assert len(world.disk.tables["subscriptions"]) == rows


def coming(world: World, client_id: str, version: int = MQTT_5, **fields: object) -> Client:
    """A client that has sent CONNECT, and PINGREQ behind it."""
    client = Client(world, client_id, version=version, **fields)
    client.open()
    client.send(client.connect_packet, Ping(PacketType.PINGREQ))
    return client


@both
def test_connack_waits_until_the_session_that_it_ends_is_off_the_disk(version: int) -> None:
    world, subscriber, _ = settled(version)
    subscriber.lose()
    again = coming(world, "s", version)
    assert again.take() == []
    assert "s" in {row.client_id for row in world.disk.tables["sessions"].values()}
    world.commit_all()
    connack, ping = again.take()
    assert isinstance(connack, Connack)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, False)
    assert ping == Ping(PacketType.PINGRESP)
    after = world.crash()
    assert "s" not in after.broker.sessions
    assert after.broker.router.count == 0


@both
def test_connack_of_who_had_no_session_that_is_kept_does_not_wait(version: int) -> None:
    world = World(auto_commit=False)
    for _ in range(2):
        connack = world.client("c", version=version, will=Will(b"w", b"x")).connack
        assert connack is not None
        assert connack.reason == ReasonCode.SUCCESS


def test_connack_waits_however_the_session_ended() -> None:
    world, subscriber, _ = settled()
    subscriber.disconnect(session_expiry_seconds=0)
    again = coming(world, "s", **PERSISTENT)
    assert again.take() == []
    world.commit_all()
    connack = again.take()[0]
    assert isinstance(connack, Connack)
    assert not connack.session_present


@both
def test_who_comes_last_is_let_in(version: int) -> None:
    world, subscriber, _ = settled(version)
    subscriber.lose()
    first, lost, last = (coming(world, "s", version) for _ in range(3))
    lost.lose()
    world.commit_all()
    assert first.is_closed
    assert isinstance(last.take()[0], Connack)
    assert not last.is_closed
    assert world.shared.gauges.clients_connected == 2  # and the publisher


@both
def test_what_needs_no_disk_does_not_wait(version: int) -> None:
    world = World(auto_commit=False)
    client = world.client("c", version=version)
    client.send(Subscribe(1, [SubscriptionRequest("t", qos=2)]))
    first = client.publish("t", b"x", 1)
    second = client.publish("t", b"y", 2)
    client.send(Ack(PUBREL, second), Unsubscribe(2, ["t"]), Ping(PacketType.PINGREQ))
    acks = [packet for packet in client.take() if isinstance(packet, Ack)]
    assert acks == [Ack(PUBACK, first), Ack(PUBREC, second), Ack(PUBCOMP, second)]
    world.commit_all()
    assert client.take() == []


@both
def test_qos_2_leaves_when_its_identifier_is_on_disk(version: int) -> None:
    world, subscriber, publisher = settled(version)
    publisher.publish("t", b"x", 2)
    assert subscriber.take() == []
    world.commit_all()
    (message,) = subscriber.messages()
    (row,) = world.disk.tables["deliveries"].values()
    assert row.packet_id == message.packet_id


@both
def test_pubrel_leaves_when_the_receipt_is_on_disk(version: int) -> None:
    world, subscriber, publisher = settled(version)
    publisher.publish("t", b"x", 2)
    world.commit_all()
    (message,) = subscriber.messages()
    subscriber.send(Ack(PUBREC, message.packet_id))
    assert subscriber.take() == []
    world.commit_all()
    assert subscriber.take() == [Ack(PUBREL, message.packet_id)]
    assert [row.released for row in world.disk.tables["deliveries"].values()] == [True]


@both
@pytest.mark.parametrize("received", [False, True])
def test_a_new_connection_does_not_overtake_the_disk(version: int, received: bool) -> None:
    world, subscriber, publisher = settled(version)
    publisher.publish("t", b"x", 2)
    if received:
        world.commit_all()
        subscriber.send(Ack(PUBREC, subscriber.messages()[0].packet_id))
    subscriber.lose()
    subscriber.connect()
    assert subscriber.early == []
    world.commit_all()
    packet = subscriber.take_one()
    assert isinstance(packet, Ack if received else Publish)


@both
def test_qos_1_does_not_wait(version: int) -> None:
    _, subscriber, publisher = settled(version)
    publisher.publish("t", b"x", 1)
    assert subscriber.payloads() == [b"x"]


# A disk that fails --------------------------------------------------------------------------------


def failing(version: int) -> tuple[World, Client, Client]:
    world, subscriber, publisher = settled(version)
    world.disk_works = False
    return world, subscriber, publisher


def heal(world: World) -> None:
    world.disk_works = True
    world.commit_all()


def refused(client: Client, kind: PacketType, packet_id: int) -> None:
    """In version 5 with a reason; in 3.1.1 by the end of the connection."""
    if client.version == MQTT_5:
        assert client.take() == [Ack(kind, packet_id, ReasonCode.QUOTA_EXCEEDED)]
        assert not client.is_closed
    else:
        client.assert_ended(ReasonCode.QUOTA_EXCEEDED)


@both
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("known", [False, True])
def test_what_cannot_be_stored_is_refused(version: int, qos: int, known: bool) -> None:
    """The first time we learn it from the disk, then we know."""
    world, subscriber, publisher = failing(version)
    subscriber.lose()
    if known:
        world.client("other", **PERSISTENT)
        world.commit()
        assert world.shared.journal.failing
    packet_id = publisher.publish("t", b"x", qos)
    if not known:
        assert publisher.take() == []
        world.commit()
    refused(publisher, PUBREC if qos == 2 else PUBACK, packet_id)
    heal(world)
    assert world.disk.tables["deliveries"] == world.disk.tables["messages"] == {}
    assert world.disk.tables["incoming"] == {}
    subscriber.connect()
    assert subscriber.early == []
    # The same identifier is a new message.
    publisher.connect()
    publisher.send(Publish(b"t", b"again", qos, packet_id=packet_id))
    world.commit_all()
    assert subscriber.payloads() == [b"again"]


@both
def test_qos_2_that_cannot_be_stored_is_not_sent(version: int) -> None:
    world, subscriber, publisher = failing(version)
    publisher.publish("t", b"x", 2)
    world.commit()
    heal(world)
    assert subscriber.take() == []
    assert world.disk.tables["deliveries"] == {}


@both
@pytest.mark.parametrize("qos", [1, 2])
def test_what_needs_no_disk_goes_on(version: int, qos: int) -> None:
    world = World(auto_commit=False)
    world.disk_works = False
    client = world.client("c", version=version)
    client.subscribe("t", qos=2)
    world.client("other", **PERSISTENT)
    world.commit()
    assert world.shared.journal.failing
    packet_id = client.publish("t", b"x", qos)
    packets = client.take()
    assert Ack(PUBREC if qos == 2 else PUBACK, packet_id) in packets
    assert len(packets) == 2


@both
def test_what_a_session_that_is_not_kept_has_is_not_taken_back(version: int) -> None:
    """It went to one subscriber before the disk failed for the other: its exchange goes on."""
    world, _, publisher = failing(version)
    fleeting = world.client("f", version=version)
    fleeting.subscribe("t", qos=2)
    publisher.publish("t", b"x", 2)
    (message,) = fleeting.messages()
    world.commit()
    fleeting.send(Ack(PUBREC, message.packet_id))
    assert fleeting.take() == [Ack(PUBREL, message.packet_id)]


@both
@pytest.mark.parametrize("qos", [1, 2])
def test_a_disk_with_little_room_delivers_and_takes_nothing_new(version: int, qos: int) -> None:
    world = World()
    subscriber = world.client("s", version=version, **PERSISTENT)
    subscriber.subscribe("t", qos=qos)
    subscriber.lose()
    publisher = world.client("p")
    publisher.publish("t", b"stored", qos)
    publisher.take()
    world.shared.journal.is_low = True
    subscriber.connect()
    (message,) = [packet for packet in subscriber.early if isinstance(packet, Publish)]
    assert message.payload == b"stored"
    for kind in [PUBACK] if qos == 1 else [PUBREC, PUBCOMP]:
        subscriber.send(Ack(kind, message.packet_id))
    subscriber.take()
    assert world.disk.tables["deliveries"] == {}
    for retain in (False, True):
        packet_id = publisher.publish("t", b"new", qos, retain=retain)
        answer = PUBREC if qos == 2 else PUBACK
        assert publisher.take() == [Ack(answer, packet_id, ReasonCode.QUOTA_EXCEEDED)]
    assert world.client("other", **PERSISTENT).subscribe("t") == [ReasonCode.QUOTA_EXCEEDED]
    assert subscriber.unsubscribe("t") == ([0] if version == MQTT_5 else [])
    world.shared.journal.is_low = False
    assert subscriber.subscribe("t", qos=qos) == [qos]


@both
def test_a_window_that_a_failure_opens_is_used(version: int) -> None:
    world = World(auto_commit=False, inflight_max=1)
    subscriber = world.client("s", version=version, **PERSISTENT)
    subscriber.send(Subscribe(1, [SubscriptionRequest("t", qos=2)]))
    publisher = world.client("p", **PERSISTENT)
    world.commit_all()
    subscriber.take()
    publisher.publish("t", b"fails", 2)
    batch = world.shared.journal.close()
    assert batch is not None
    publisher.publish("t", b"works", 2)
    world.shared.journal.finished(stored=False)
    world.commit_all()
    assert [packet.payload for packet in subscriber.take() if isinstance(packet, Publish)] == [
        b"works"
    ]


@both
def test_a_window_that_a_large_message_leaves_is_used(version: int) -> None:
    world = World(auto_commit=False)
    subscriber = world.client("s", packet_bytes_max=100, receive_max=1, **PERSISTENT)
    subscriber.send(Subscribe(1, [SubscriptionRequest("t", qos=2)]))
    world.commit_all()
    subscriber.take()
    publisher = world.client("p", version=version)
    publisher.publish("t", bytes(200), 2)
    publisher.publish("t", b"fits", 2)
    world.commit_all()
    assert subscriber.payloads() == [b"fits"]


@both
def test_who_had_a_session_that_stays_on_disk_is_kept_out(version: int) -> None:
    world, subscriber, _ = failing(version)
    subscriber.lose()
    for _ in range(2):
        again = coming(world, "s", version)
        assert again.take() == []
        world.commit()
        connack = again.take_one()
        assert isinstance(connack, Connack)
        assert connack.reason == ReasonCode.SERVER_UNAVAILABLE
        assert again.is_closed
    waiting = coming(world, "s", version)
    heal(world)
    connack = waiting.take()[0]
    assert isinstance(connack, Connack)
    assert connack.reason == ReasonCode.SUCCESS


def test_a_disk_that_does_not_answer_in_time() -> None:
    world, subscriber, _ = settled()
    subscriber.lose()
    again = coming(world, "s")
    world.pass_time(world.shared.limits.connect_timeout_seconds)
    connack = again.take_one()
    assert isinstance(connack, Connack)
    assert connack.reason == ReasonCode.SERVER_UNAVAILABLE
    world.commit_all()
    assert "s" not in world.broker.sessions


@both
def test_a_subscription_that_cannot_be_stored_is_not_made(version: int) -> None:
    world = World(auto_commit=False)
    client = world.client("c", version=version, **PERSISTENT)
    client.send(Subscribe(1, [SubscriptionRequest("old", qos=1)]))
    world.commit_all()
    client.take()
    world.disk_works = False
    client.send(Subscribe(2, [SubscriptionRequest("new"), SubscriptionRequest("old", qos=2)]))
    world.commit()
    reason = ReasonCode.QUOTA_EXCEEDED if version == MQTT_5 else 0x80
    assert client.take() == [SubscriptionAck(PacketType.SUBACK, 2, [reason, reason])]
    heal(world)
    publisher = world.client("p")
    publisher.publish("new", b"")
    publisher.publish("old", b"", 2)
    world.commit_all()
    assert [message.qos for message in client.messages()] == [1]
    assert {key[1]: row.options for key, row in world.disk.tables["subscriptions"].items()} == {
        "old": 1
    }


@both
def test_a_subscription_that_cannot_be_removed_stays(version: int) -> None:
    world, client, publisher = failing(version)
    client.send(Unsubscribe(7, ["t", "unknown"]))
    assert client.take() == []
    world.commit()
    if version == MQTT_5:
        (answer,) = client.take()
        assert isinstance(answer, SubscriptionAck)
        assert answer.reasons == [
            ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
            ReasonCode.NO_SUBSCRIPTION_EXISTED,
        ]
    else:
        client.assert_ended(ReasonCode.QUOTA_EXCEEDED)
    heal(world)
    assert [key[1] for key in world.disk.tables["subscriptions"]] == ["t"]
    if version == MQTT_3_1_1:
        client.connect()
    publisher.publish("t", b"x")
    assert client.payloads() == [b"x"]


@both
def test_unsubscribing_from_nothing_needs_no_disk(version: int) -> None:
    world, client, _ = failing(version)
    client.send(Unsubscribe(7, ["unknown"]))
    world.commit()
    answer = client.take_one()
    assert isinstance(answer, SubscriptionAck)
    assert not client.is_closed


def test_a_session_that_has_ended_gets_no_subscription_back() -> None:
    world, client, _ = failing(MQTT_5)
    client.send(Unsubscribe(7, ["t"]))
    client.disconnect(session_expiry_seconds=0)
    world.commit()
    heal(world)
    assert world.broker.router.count == 0
    assert world.disk.tables["subscriptions"] == {}


def test_a_subscription_that_is_forbidden_by_now_does_not_come_back() -> None:
    world, client, _ = failing(MQTT_5)
    client.send(Unsubscribe(7, ["t"]), Subscribe(8, [SubscriptionRequest("t")]))
    client.lose()
    world.broker.change_rules(AccessRules((AccessRule(subscribe=("other",)),)))
    client.connect()
    world.commit()
    heal(world)
    assert world.broker.router.count == 0
    assert world.disk.tables["subscriptions"] == {}


@both
def test_pubcomp_is_not_given_without_the_disk(version: int) -> None:
    world, _, publisher = settled(version)
    packet_id = publisher.publish("t", b"x", 2)
    world.commit_all()
    publisher.take()
    world.disk_works = False
    publisher.send(Ack(PUBREL, packet_id))
    world.commit()
    publisher.assert_ended(ReasonCode.QUOTA_EXCEEDED)
    heal(world)
    publisher.connect()
    publisher.send(Ack(PUBREL, packet_id))
    world.commit_all()
    answer = publisher.take_one()
    assert isinstance(answer, Ack)
    assert answer.type is PUBCOMP


@both
def test_a_failure_after_the_connection_was_lost_takes_the_message_back(version: int) -> None:
    world, subscriber, publisher = failing(version)
    publisher.send(Publish(b"t", b"x", 2, packet_id=7))
    publisher.lose()
    world.commit()
    heal(world)
    publisher.connect()
    publisher.send(Publish(b"t", b"x", 2, packet_id=7, duplicate=True))
    world.commit_all()
    assert publisher.take() == [Ack(PUBREC, 7)]
    assert subscriber.payloads() == [b"x"]


@both
def test_a_repetition_is_not_acknowledged_when_the_message_was_taken_back(version: int) -> None:
    world, subscriber, publisher = settled(version)
    journal = world.shared.journal
    publisher.send(Publish(b"t", b"x", 2, packet_id=7))
    assert journal.close() is not None
    publisher.lose()
    publisher.connect()
    publisher.send(Publish(b"t", b"x", 2, packet_id=7, duplicate=True))
    journal.finished(stored=False)
    world.commit_all()
    refused(publisher, PUBREC, 7)
    assert subscriber.take() == []


@both
def test_a_repetition_does_not_take_back_what_is_stored(version: int) -> None:
    world, subscriber, publisher = settled(version)
    publisher.send(Publish(b"t", b"x", 2, packet_id=7))
    world.commit_all()
    publisher.lose()
    publisher.connect()
    world.disk_works = False
    publisher.send(Publish(b"t", b"x", 2, packet_id=7, duplicate=True))
    world.commit()
    heal(world)
    assert publisher.take() == [Ack(PUBREC, 7)]
    assert subscriber.payloads() == [b"x"]


@both
def test_messages_keep_their_order_while_the_disk_fails(version: int) -> None:
    world, subscriber, _ = settled(version)
    journal = world.shared.journal
    fleeting = world.client("f")  # whose own session needs no disk
    subscriber.lose()
    fleeting.publish("t", b"1", 2)
    fleeting.publish("t", b"2", 2)
    world.commit_all()
    subscriber.connect()
    assert journal.close() is not None
    fleeting.publish("t", b"3", 2)
    journal.finished(stored=False)
    world.commit_all()
    assert [packet.payload for packet in subscriber.take() if isinstance(packet, Publish)] == [
        b"1",
        b"2",
        b"3",
    ]


# Crashes ------------------------------------------------------------------------------------------


@both
def test_a_crash_before_the_disk_leaves_nothing(version: int) -> None:
    world, _, publisher = settled(version)
    publisher.send(Publish(b"t", b"x", 2, packet_id=7))
    after = world.crash()
    subscriber = after.client("s", version=version, **PERSISTENT)
    assert subscriber.early == []
    publisher = after.client("p", version=version, **PERSISTENT)
    publisher.send(Publish(b"t", b"x", 2, packet_id=7, duplicate=True))
    assert subscriber.payloads() == [b"x"]


@both
def test_a_crash_after_the_disk_leaves_everything(version: int) -> None:
    world, _, publisher = settled(version)
    publisher.send(Publish(b"t", b"x", 2, packet_id=7))
    world.commit_all()
    after = world.crash()
    subscriber = after.client("s", version=version, **PERSISTENT)
    assert [packet.payload for packet in subscriber.early if isinstance(packet, Publish)] == [b"x"]
    publisher = after.client("p", version=version, **PERSISTENT)
    publisher.send(Publish(b"t", b"x", 2, packet_id=7, duplicate=True))
    assert publisher.take() == [Ack(PUBREC, 7)]
    publisher.send(Ack(PUBREL, 7))
    assert publisher.take() == [Ack(PUBCOMP, 7)]
    assert subscriber.take() == []


@dataclass
class Sending:
    payload: bytes
    qos: int
    is_received: bool = False


class Peer:
    """A client that publishes and subscribes, with a session of its own that outlives everything.

    What it has to send waits in `outbox`: what is there when the connection ends was not sent.
    """

    def __init__(self, name: str, version: int, qos: int, receive_max: int) -> None:
        self.name = name
        self.version = version
        self.qos = qos
        self.receive_max = receive_max
        self.client: Client | None = None
        self.outbox: deque[Packet] = deque()
        self.sending: dict[int, Sending] = {}
        self.held: set[int] = set()
        self.received: list[bytes] = []
        self.confirmed: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.unacknowledged = 0
        self._next_packet_id = 1

    @property
    def is_connected(self) -> bool:
        return self.client is not None and not self.client.is_closed

    def connect(self, world: World, *, expect_session: bool = True) -> None:
        fields = {"receive_max": self.receive_max} if self.version == MQTT_5 else {}
        self.client = Client(world, self.name, version=self.version, **PERSISTENT, **fields)
        self.outbox.clear()
        self.unacknowledged = 0
        connack = self.client.connect()
        assert connack.session_present == expect_session
        for packet_id, message in self.sending.items():
            self.outbox.append(self._packet(packet_id, message, duplicate=True))
        for packet in self.client.early:
            self._take(packet)

    @staticmethod
    def _packet(packet_id: int, message: Sending, *, duplicate: bool) -> Packet:
        if message.is_received:
            return Ack(PUBREL, packet_id)
        return Publish(b"t", message.payload, message.qos, packet_id=packet_id, duplicate=duplicate)

    def publish(self, payload: bytes, qos: int) -> None:
        packet_id = self._next_packet_id
        self._next_packet_id += 1
        self.sending[packet_id] = Sending(payload, qos)
        if self.is_connected:
            self.outbox.append(self._packet(packet_id, self.sending[packet_id], duplicate=False))

    def send(self, count: int = 1_000) -> None:
        while self.outbox and count and self.is_connected:
            assert self.client is not None
            packet = self.outbox.popleft()
            if isinstance(packet, Ack) and packet.type in {PUBACK, PUBCOMP}:
                self.unacknowledged -= 1
            self.client.send(packet)
            count -= 1

    def read(self) -> None:
        if self.client is not None:
            for packet in self.client.take():
                self._take(packet)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._take_publish(packet)
        elif isinstance(packet, Ack):
            self._take_ack(packet)

    def _take_publish(self, packet: Publish) -> None:
        self.unacknowledged += 1
        if self.version == MQTT_5:
            assert self.unacknowledged <= self.receive_max
        if packet.qos == 1:
            self.received.append(packet.payload)
            self.outbox.append(Ack(PUBACK, packet.packet_id))
        else:
            if packet.packet_id not in self.held:
                self.held.add(packet.packet_id)
                self.received.append(packet.payload)
            self.outbox.append(Ack(PUBREC, packet.packet_id))

    def _take_ack(self, packet: Ack) -> None:
        if packet.type is PUBREL:
            self.held.discard(packet.packet_id)
            self.outbox.append(Ack(PUBCOMP, packet.packet_id))
            return
        message = self.sending[packet.packet_id]
        if packet.type is PUBREC and packet.reason < 0x80:
            message.is_received = True
            self.outbox.append(Ack(PUBREL, packet.packet_id))
            return
        del self.sending[packet.packet_id]
        if packet.reason >= 0x80 and packet.type is not PUBCOMP:
            assert packet.reason == ReasonCode.QUOTA_EXCEEDED
            self.refused.add(message.payload)
        else:
            self.confirmed.add(message.payload)


PEERS = (("a", MQTT_5, 2, 2), ("b", MQTT_3_1_1, 2, 0), ("c", MQTT_5, 1, 65_535))


class CrashMachine(RuleBasedStateMachine):
    """Three clients, a broker, a disk; everything breaks between any two steps."""

    @initialize(inflight_max=st.sampled_from([1, 2, 100]))
    def begin(self, inflight_max: int) -> None:
        self.limits = {"inflight_max": inflight_max, "auto_commit": False}
        self.world = World(**self.limits)  # type: ignore[arg-type]
        self.batch: Batch | None = None
        self.messages: dict[bytes, tuple[str, int]] = {}
        self.has_failed = False
        self.peers = [Peer(*fields) for fields in PEERS]
        for peer in self.peers:
            peer.connect(self.world, expect_session=False)
            assert peer.client is not None
            peer.client.send(Subscribe(1, [SubscriptionRequest("t", qos=peer.qos)]))
        self.world.commit_all()
        for peer in self.peers:
            peer.read()

    # The clients

    @rule(who=st.integers(0, 2), qos=st.sampled_from([1, 2, 2]))
    def publish(self, who: int, qos: int) -> None:
        payload = b"%d" % len(self.messages)
        self.messages[payload] = self.peers[who].name, qos
        self.peers[who].publish(payload, qos)

    @rule(who=st.integers(0, 2), count=st.integers(1, 5))
    def send(self, who: int, count: int) -> None:
        self.peers[who].send(count)

    @rule(who=st.integers(0, 2))
    def read(self, who: int) -> None:
        self.peers[who].read()

    @rule(times=st.integers(1, 3))
    def talk(self, times: int) -> None:
        """All of them, as far as it goes without the disk."""
        for _ in range(times):
            for peer in self.peers:
                peer.read()
                peer.send()

    @rule(who=st.integers(0, 2))
    def lose(self, who: int) -> None:
        peer = self.peers[who]
        if peer.client is not None and peer.is_connected:
            peer.client.lose()

    @rule(who=st.integers(0, 2))
    def connect(self, who: int) -> None:
        """Or take over one's own connection."""
        self.peers[who].connect(self.world)

    # The disk

    @rule()
    def commit(self) -> None:
        if self.batch is None:
            self.world.commit()

    @rule()
    def begin_commit(self) -> None:
        if self.batch is None:
            self.batch = self.world.shared.journal.close()

    @precondition(lambda self: self.batch is not None)
    @rule(stored=st.sampled_from([True, True, False]))
    def end_commit(self, stored: bool) -> None:
        assert self.batch is not None
        if stored:
            self.world.disk.write(self.batch)
        self.has_failed |= not stored
        self.batch = None
        self.world.shared.journal.finished(stored=stored)

    # The broker

    @rule(written=st.booleans())
    def crash(self, written: bool) -> None:
        """The batch that was on its way may have arrived."""
        if self.batch is not None and written:
            self.world.disk.write(self.batch)
        self.batch = None
        self.world = self.world.crash(**self.limits)
        for peer in self.peers:
            peer.client = None

    # The end

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.batch is not None:
            self.end_commit(stored=True)
        for _ in range(1_000):
            for peer in self.peers:
                if not peer.is_connected:
                    peer.connect(self.world)
                peer.read()
                peer.send()
            self.world.commit_all()
            if self.is_quiet():
                break
        self.check_deliveries()
        if not self.has_failed:
            self.check_order()
        for name in ("deliveries", "messages", "incoming"):
            assert self.world.disk.tables[name] == {}

    def is_quiet(self) -> bool:
        waiting = any(
            peer.outbox
            or peer.sending
            or (peer.client and peer.client.link and peer.client.link.outgoing)
            for peer in self.peers
        )
        return not waiting and all(
            not session.queue.count and not session.inflight
            for session in self.world.broker.sessions.values()
        )

    def check_deliveries(self) -> None:
        confirmed = set().union(*(peer.confirmed for peer in self.peers))
        refused_ones = set().union(*(peer.refused for peer in self.peers))
        assert confirmed | refused_ones == set(self.messages)
        assert confirmed.isdisjoint(refused_ones)
        for peer in self.peers:
            counts = Counter(peer.received)
            for payload, (_, qos) in self.messages.items():
                count = counts[payload]
                if min(qos, peer.qos) == 2:
                    assert count == (payload in confirmed), (peer.name, payload, count)
                elif payload in confirmed:
                    assert count >= 1, (peer.name, payload)

    def check_order(self) -> None:
        """Of each publisher, at each QoS, by what came first."""
        for peer in self.peers:
            first_seen = list(dict.fromkeys(peer.received))
            for publisher in self.peers:
                for qos in (1, 2):
                    expected = [
                        payload
                        for payload, sent in self.messages.items()
                        if sent == (publisher.name, qos)
                    ]
                    found = [payload for payload in first_seen if payload in set(expected)]
                    assert found == expected


TestCrashes = CrashMachine.TestCase
TestCrashes.settings = settings(max_examples=60, stateful_step_count=50)
