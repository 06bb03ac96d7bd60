"""Handles as sessions: queues, repeated messages, owners and limits."""

import pytest

from dovetail.api.handles import PolledMessage
from dovetail.attributes.space import Dimension, Space
from dovetail.broker import mailbox as module
from dovetail.broker.limits import HANDLE_PREFIX
from dovetail.broker.mailbox import new_handle, parse_handle
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5
from dovetail.codec.properties import forwardable_properties
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message
from dovetail.settings import AccessRule
from support.brokers import mailboxes
from support.brokers.harness import Client, World, attributes
from support.brokers.mailboxes import (
    FIRST_ID,
    acknowledge,
    payloads,
    poll,
    session_of,
    subscribe,
    waiting,
)

RANDOM = bytes(range(16))


# Whose it is --------------------------------------------------------------------------------------


def test_a_handle_says_whose_it_is_and_how_long_it_lives() -> None:
    for user in (None, "", "anna", "änne"):
        handle = new_handle(RANDOM, user, 123)
        assert len(handle.text) == 40
        assert parse_handle(handle.text, user) == handle
        others = {None, "", "anna", "bert"} - {user}
        assert [parse_handle(handle.text, other) for other in others] == [None] * len(others)


@pytest.mark.parametrize("text", ["", "a", "a" * 39, "a" * 40, "ä" * 40, "\ud800" * 40, "=" * 40])
def test_what_is_no_handle_is_nobodys(text: str) -> None:
    assert parse_handle(text, None) is None


def test_a_handle_that_was_changed_is_another() -> None:
    text = new_handle(RANDOM, "anna", 100).text
    for at in range(40):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        assert parse_handle(changed, "anna") is None


def test_a_handle_that_is_not_there_is_not_begun() -> None:
    world = World()
    with pytest.raises(ClientError) as caught:
        poll(world, new_handle(RANDOM, None, 100))
    assert caught.value.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert world.broker.sessions == {}
    assert world.broker.links == set()


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_no_mqtt_client_has_the_name_of_a_handle(version: int) -> None:
    world = World()
    handle, _ = subscribe(world, "t")
    for client_id in (handle.client_id, HANDLE_PREFIX):
        client = Client(world, client_id, version=version)
        assert client.connect().reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert list(session_of(world, handle).subscriptions) == ["t"]


# What waits, and comes again ----------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_while_nobody_polls_waits(qos: int) -> None:
    world = World()
    handle, reasons = subscribe(world, "a/+", "b")
    assert reasons == [1, 1]
    publisher = world.client()
    publisher.publish("a/x", b"one", qos)
    publisher.publish("b", b"\xff\x00", qos)
    publisher.publish("c", b"no", qos)
    assert poll(world, handle) == [
        PolledMessage(FIRST_ID, "a/x", "one", "utf-8", qos, False, False),
        PolledMessage(FIRST_ID + 1, "b", "/wA=", "base64", qos, False, False),
    ]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_poll_that_waits_gets_what_is_published(qos: int) -> None:
    world = World()
    handle, _ = subscribe(world, "t")
    mailbox = waiting(world, handle)
    assert mailbox.messages == []
    publisher = world.client()
    publisher.publish("t", b"1", qos)
    publisher.publish("t", b"2", qos)
    assert [message.payload for message in mailbox.messages] == ["1", "2"]


def test_what_was_polled_comes_again_until_it_is_acknowledged() -> None:
    world = World()
    handle, _ = subscribe(world, "t")
    publisher = world.client()
    for number in range(4):
        publisher.publish("t", str(number).encode(), 1)
    first = poll(world, handle, 2)
    assert [message.payload for message in first] == ["0", "1"]
    again = poll(world, handle, 3)
    assert [(one.payload, one.duplicate) for one in again] == [
        ("0", True),
        ("1", True),
        ("2", False),
    ]
    assert [one.id for one in again[:2]] == [one.id for one in first]
    assert acknowledge(world, handle, first[1].id, again[2].id) == [True, True]
    assert acknowledge(world, handle, first[1].id, 1) == [False, False]
    assert payloads(world, handle) == ["0", "3"]
    assert acknowledge(world, handle, *(one.id for one in poll(world, handle))) == [True, True]
    assert poll(world, handle) == []
    assert world.shared.gauges.queued_messages == 0
    assert world.disk.tables["deliveries"] == {}


def test_acknowledging_leaves_the_rest_of_the_queue_as_it_is() -> None:
    """A message that no poll has returned is no duplicate later."""
    world = World()
    handle, _ = subscribe(world, "t")
    publisher = world.client()
    publisher.publish("t", b"1", 1)
    (one,) = poll(world, handle)
    publisher.publish("t", b"2", 1)
    acknowledge(world, handle, one.id)
    assert [(one.payload, one.duplicate) for one in poll(world, handle)] == [("2", False)]


def test_an_acknowledgement_lets_a_waiting_poll_have_more() -> None:
    world = World()
    handle, _ = subscribe(world, "t")
    publisher = world.client()
    publisher.publish("t", b"1", 1)
    mailbox = waiting(world, handle, 1)
    publisher.publish("t", b"2", 1)
    assert [one.payload for one in mailbox.messages] == ["1"]
    session_of(world, handle).handle_puback(FIRST_ID, world.now)
    assert [one.payload for one in mailbox.messages] == ["1", "2"]


def test_the_later_request_has_the_handle() -> None:
    world = World()
    handle, _ = subscribe(world, "t")
    earlier = waiting(world, handle)
    later = waiting(world, handle)
    assert earlier.error is not None
    assert earlier.error.reason == ReasonCode.SESSION_TAKEN_OVER
    world.client().publish("t", b"1", 1)
    assert (earlier.messages, len(later.messages)) == ([], 1)


def test_a_crash_between_poll_and_acknowledgement() -> None:
    world = World()
    handle, _ = subscribe(world, "t")
    publisher = world.client()
    publisher.publish("t", b"1", 1)
    publisher.publish("t", b"2", 0)
    before = poll(world, handle, 1)
    world = world.crash()
    after = poll(world, handle)
    assert [(one.payload, one.duplicate) for one in after] == [("1", True), ("2", False)]
    assert after[0].id == before[0].id
    assert acknowledge(world, handle, before[0].id) == [True]
    world = world.crash()
    assert payloads(world, handle) == ["2"]


def test_ids_do_not_begin_again_after_a_crash() -> None:
    """A repeated acknowledgement must not match another message."""
    world = World()
    handle, _ = subscribe(world, "t")
    world.client().publish("t", b"1", 1)
    (one,) = poll(world, handle)
    acknowledge(world, handle, one.id)
    world = world.crash()
    world.client().publish("t", b"2", 1)
    mailbox = mailboxes.begin(world)
    mailbox._first_id = 9_000
    mailbox.open(handle, None, 10)
    assert [one.id for one in mailbox.messages] == [9_000]
    assert not session_of(world, handle).handle_puback(one.id, world.now)


def test_retained_messages_come_first() -> None:
    world = World()
    publisher = world.client()
    publisher.publish("t/1", b"kept", 0, retain=True)
    handle, _ = subscribe(world, "t/#")
    publisher.publish("t/2", b"new", 0, retain=True)
    found = [(one.payload, one.retain, one.duplicate) for one in poll(world, handle)]
    assert found == [("kept", True, False), ("new", False, False)]


TRAFFIC = Space("traffic", "traffic/#", (Dimension("speed", 0, 200),))


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    ("topic_filter", "where"), [("traffic/#", "speed < 25"), ("traffic/#?speed<25", None)]
)
def test_a_where_clause(topic_filter: str, where: str | None, qos: int) -> None:
    world = World(spaces=(TRAFFIC,))
    handle, reasons = subscribe(world, topic_filter, where=where)
    assert reasons == [1]
    publisher = world.client()
    for speed in (10, 30, 20):
        publisher.publish("traffic/a", b"%d" % speed, qos, properties=attributes(speed=speed))
    (first, second) = poll(world, handle)
    assert (first.payload, second.payload) == ("10", "20")
    assert first.user_properties == (("speed", "10"),)
    assert payloads(World(world.disk, spaces=(TRAFFIC,)), handle) == ["10", "20"]


def test_what_a_publisher_says_of_a_message() -> None:
    properties = forwardable_properties(
        payload_format=1,
        content_type="text/plain",
        response_topic="answer",
        correlation_data=b"\x00\xff",
        user=(("a", "1"), ("a", "2")),
    )
    message = Message(b"t", b"x", 1, False, properties, expires_at=110.5)
    found = module.polled_message(message, 7, retain=False, duplicate=True, now=100.0)
    assert found == PolledMessage(
        id=7,
        topic="t",
        payload="x",
        encoding="utf-8",
        qos=1,
        retain=False,
        duplicate=True,
        user_properties=(("a", "1"), ("a", "2")),
        content_type="text/plain",
        response_topic="answer",
        correlation_data="AP8=",
        expires_in_seconds=11,
    )


# What bounds it -----------------------------------------------------------------------------------


def test_a_full_queue_drops_the_newest_and_counts_it() -> None:
    world = World(queue_messages_max=3)
    handle, _ = subscribe(world, "t")
    publisher = world.client()
    for number in range(5):
        publisher.publish("t", str(number).encode(), number % 2)
    assert payloads(world, handle) == ["0", "1", "2"]
    assert world.shared.counters.publishes_dropped == 2


def test_an_answer_has_so_many_bytes_and_one_message_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HANDLE_ANSWER_BYTES_MAX", 250)
    world = World()
    handle, _ = subscribe(world, "t")
    publisher = world.client()
    for size in (1_000, 100, 100, 100, 100):
        publisher.publish("t", b"x" * size, 1)
    sizes = []
    while found := poll(world, handle):
        sizes.append([len(one.payload) for one in found])
        acknowledge(world, handle, *(one.id for one in found))
    assert sizes == [[1_000], [100, 100, 100], [100]]


def test_messages_expire_in_the_queue() -> None:
    world = World()
    handle, _ = subscribe(world, "t")
    publisher = world.client()
    publisher.publish("t", b"1", 1, expiry_seconds=5)
    publisher.publish("t", b"2", 1)
    world.pass_time(6)
    assert payloads(world, handle) == ["2"]
    assert world.shared.counters.publishes_expired == 1


def test_a_handle_that_nobody_asks_for_expires_with_its_queue() -> None:
    world = World()
    handle, _ = subscribe(world, "t", expiry_seconds=100)
    publisher = world.client()
    publisher.publish("t", b"1", 1)
    for _ in range(3):
        world.pass_time(99)
        assert payloads(world, handle) == ["1"]
    mailbox = waiting(world, handle)
    world.pass_time(1_000)  # who waits is there
    assert not mailbox.is_closed
    mailboxes.close(world, mailbox)
    world = world.crash()
    world.pass_time(99)
    assert handle.client_id in world.broker.sessions
    world.pass_time(2)
    with pytest.raises(ClientError):
        poll(world, handle)
    assert world.shared.gauges.queued_messages == 0
    assert not any(world.disk.tables[name] for name in ("sessions", "messages", "deliveries"))


def test_silence_is_no_fault_of_a_poll() -> None:
    world = World(keep_alive_max_seconds=1)
    handle, _ = subscribe(world, "t")
    mailbox = waiting(world, handle)
    world.pass_time(59)
    assert mailbox.is_connected


def test_there_are_as_many_handles_as_sessions() -> None:
    world = World(sessions_max=1)
    handle, _ = subscribe(world, "t")
    mailbox = mailboxes.begin(world)
    mailbox.open(new_handle(RANDOM, None, 100), None, 0, is_new=True)
    assert mailbox.error is not None
    assert mailbox.error.reason == ReasonCode.QUOTA_EXCEEDED
    assert poll(world, handle) == []


def test_the_end_of_a_handle() -> None:
    world = World()
    handle, _ = subscribe(world, "t")
    world.client().publish("t", b"1", 1)
    mailbox = waiting(world, handle)
    mailbox.end_session()
    world.settle()
    assert world.broker.sessions.keys() & {handle.client_id} == set()
    with pytest.raises(ClientError):
        poll(world.crash(), handle)


# Rules --------------------------------------------------------------------------------------------

RULES = (
    AccessRule(user="anna", subscribe=("anna/#",)),
    AccessRule(client=f"{HANDLE_PREFIX}*", subscribe=("polled/#",)),
    AccessRule(publish=("#",)),
)


def test_rules_hold_as_for_any_client() -> None:
    world = World(rules=RULES)
    handle, reasons = subscribe(world, "anna/x", "bert/x", "polled/x", user="anna")
    assert reasons == [1, ReasonCode.NOT_AUTHORIZED, 1]
    world.client().publish("anna/x", b"1", 1)
    assert [one.payload for one in poll(world, handle, user="anna")] == ["1"]


def test_rules_that_have_changed_hold_from_the_next_request() -> None:
    world = World(rules=RULES)
    handle, _ = subscribe(world, "anna/x", "polled/x", user="anna")
    world = world.crash(rules=RULES[1:])
    poll(world, handle, user="anna")
    assert list(session_of(world, handle).subscriptions) == ["polled/x"]
