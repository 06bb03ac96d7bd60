"""Retained messages: which are stored, which clients get them, flags, and expiry."""

from collections.abc import Iterable
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.broker.retained import RetainedMessages
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Will,
)
from dovetail.errors import ReasonCode
from dovetail.messages import Message
from dovetail.topics.names import matches
from support.brokers.harness import PERSISTENT, World
from support.strategies.topics import filters, names

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])


def kept(world: World, *filters: str, version: int = MQTT_5, qos: int = 2) -> list[Publish]:
    """Return the retained messages that a new subscriber gets."""
    client = world.client("finder", version=version)
    client.subscribe(*(filters or ("#",)), qos=qos)
    messages = client.messages()
    client.disconnect()
    return messages


def payloads(messages: Iterable[Publish]) -> list[bytes]:
    return sorted(message.payload for message in messages)


# Keeping ------------------------------------------------------------------------------------------


@both
@each_qos
def test_the_last_retained_message_of_a_topic_is_kept(version: int, qos: int) -> None:
    world = World()
    client = world.client("c", version=version)
    client.publish("a", b"first", 2, retain=True)
    client.publish("a", b"last", qos, retain=True)
    (message,) = kept(world, version=version)
    assert (message.payload, message.qos, message.retain) == (b"last", qos, True)


@both
def test_what_is_not_retained_changes_nothing(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    client.publish("a", b"not kept")
    assert kept(world) == []
    client.publish("a", b"kept", retain=True)
    client.publish("a", b"not kept")
    client.publish("a", b"")
    assert payloads(kept(world)) == [b"kept"]


@both
@each_qos
def test_an_empty_one_takes_it_away_and_is_passed_on(version: int, qos: int) -> None:
    world = World()
    live = world.client("live", version=version)
    live.subscribe("a", qos=2)
    client = world.client("c", version=version)
    client.publish("a", b"kept", 1, retain=True)
    client.publish("a", b"", qos, retain=True)
    assert [(message.payload, message.retain) for message in live.messages()] == [
        (b"kept", False),
        (b"", False),
    ]
    assert kept(world) == []
    assert len(world.broker.retained) == 0
    assert world.disk.tables["messages"] == {}


@both
def test_an_empty_one_where_there_is_none_is_not_kept(version: int) -> None:
    world = World()
    world.client("c", version=version).publish("a", b"", retain=True)
    assert len(world.broker.retained) == 0


@both
@each_qos
def test_retained_messages_survive_their_sessions_and_restarts(version: int, qos: int) -> None:
    world = World()
    client = world.client("c", version=version)
    client.publish("a", b"x", qos, retain=True)
    client.disconnect()
    assert payloads(kept(world)) == [b"x"]
    after = world.crash()
    (message,) = kept(after)
    assert (message.payload, message.qos) == (b"x", qos)
    after.client("c").publish("a", b"", retain=True)
    assert kept(after.crash()) == []


def test_a_message_that_is_both_queued_and_retained_is_on_disk_once() -> None:
    world = World()
    subscriber = world.client("s", **PERSISTENT)
    subscriber.subscribe("a", qos=1)
    subscriber.lose()
    client = world.client("c")
    client.publish("a", b"x", 1, retain=True)
    assert len(world.disk.tables["messages"]) == 1
    client.publish("a", b"", retain=True)
    after = world.crash()
    (message,) = after.client("s", **PERSISTENT).early
    assert isinstance(message, Publish)
    assert message.payload == b"x"


# Flags --------------------------------------------------------------------------------------------


@both
def test_the_flag_says_that_a_message_was_kept(version: int) -> None:
    world = World()
    client = world.client("c", version=version)
    client.publish("a", b"kept", retain=True)
    client.subscribe("a")
    client.publish("a", b"live", retain=True)
    assert [(message.payload, message.retain) for message in client.messages()] == [
        (b"kept", True),
        (b"live", False),
    ]


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("retain", [False, True])
@each_qos
def test_retain_as_published(as_published: bool, retain: bool, qos: int) -> None:
    world = World()
    client = world.client("c")
    client.subscribe("a", qos=2, retain_as_published=as_published)
    world.client("publisher").publish("a", b"x", qos, retain=retain)
    (message,) = client.messages()
    assert message.retain == (retain and as_published)


@pytest.mark.parametrize("as_published", [False, True])
def test_what_was_kept_has_the_flag_however_it_is_published(as_published: bool) -> None:
    world = World()
    world.client("publisher").publish("a", b"x", retain=True)
    client = world.client("c")
    client.subscribe("a", retain_as_published=as_published)
    assert client.messages()[0].retain


def test_the_flag_waits_with_the_message() -> None:
    world = World()
    client = world.client("c", **PERSISTENT)
    client.subscribe("a", qos=1, retain_as_published=True)
    client.lose()
    world.client("publisher").publish("a", b"x", 1, retain=True)
    (message,) = world.crash().client("c", **PERSISTENT).early
    assert isinstance(message, Publish)
    assert message.retain


# Retain handling ----------------------------------------------------------------------------------


def found(world: World, handling: int) -> list[int]:
    """Count the retained messages after a first, a repeated and a new subscription."""
    client = world.client("c")
    counts = []
    for _ in range(2):
        client.subscribe("a", retain_handling=handling)
        counts.append(len(client.messages()))
    client.unsubscribe("a")
    client.subscribe("a", retain_handling=handling)
    return [*counts, len(client.messages())]


@pytest.mark.parametrize(("handling", "counts"), [(0, [1, 1, 1]), (1, [1, 0, 1]), (2, [0, 0, 0])])
def test_retain_handling(handling: int, counts: list[int]) -> None:
    world = World()
    world.client("publisher").publish("a", b"x", retain=True)
    assert found(world, handling) == counts


def test_a_subscription_of_a_resumed_session_is_not_new() -> None:
    world = World()
    world.client("publisher").publish("a", b"x", retain=True)
    world.client("c", **PERSISTENT).subscribe("a", retain_handling=2)
    client = world.crash().client("c", **PERSISTENT)
    client.subscribe("a", retain_handling=1)
    assert client.take() == []
    client.subscribe("a", retain_handling=0)
    assert client.payloads() == [b"x"]


@both
def test_subscribing_again_brings_them_again(version: int) -> None:
    world = World()
    world.client("publisher").publish("a", b"x", retain=True)
    client = world.client("c", version=version)
    for _ in range(2):
        client.subscribe("a")
        assert client.payloads() == [b"x"]


@both
def test_they_come_after_the_answer(version: int) -> None:
    world = World()
    world.client("publisher").publish("a/1", b"x", 1, retain=True)
    client = world.client("c", version=version)
    client.send(Subscribe(1, [SubscriptionRequest("a/+", qos=1), SubscriptionRequest("a/#")]))
    answer, *messages = client.take()
    assert isinstance(answer, SubscriptionAck)
    assert [message.qos for message in messages if isinstance(message, Publish)] == [1, 0]


def test_they_come_with_the_identifier_of_their_subscription() -> None:
    world = World()
    world.client("publisher").publish("a", b"x", retain=True)
    client = world.client("c")
    client.subscribe("#", identifier=1, retain_handling=2)
    client.subscribe("a", identifier=2)
    assert client.messages()[0].identifiers == (2,)


def test_shared_subscriptions_get_none() -> None:
    world = World()
    world.client("publisher").publish("a", b"x", retain=True)
    client = world.client("c")
    client.subscribe("$share/g/a", "$share/g/#")
    assert client.take() == []


def test_no_local_holds_for_them_too() -> None:
    world = World()
    client = world.client("c")
    client.publish("a", b"mine", retain=True)
    world.client("other").publish("b", b"theirs", retain=True)
    client.subscribe("#", no_local=True)
    assert client.payloads() == [b"theirs"]


@both
def test_topics_with_a_dollar_are_found_by_name_only(version: int) -> None:
    world = World()
    world.client("publisher").publish("$x/y", b"x", retain=True)
    assert kept(world, "#", "+/y", version=version) == []
    assert payloads(kept(world, "$x/#", version=version)) == [b"x"]


# Expiry -------------------------------------------------------------------------------------------


def test_a_retained_message_has_what_is_left_of_its_time() -> None:
    world = World()
    world.client("publisher").publish("a", b"x", retain=True, expiry_seconds=30)
    world.pass_time(10)
    (message,) = kept(world)
    assert message.expiry_seconds == 20
    world.pass_time(20)
    assert kept(world) == []
    assert world.disk.tables["messages"] == {}


def test_expiry_of_a_retained_message_goes_on_over_a_restart() -> None:
    world = World()
    client = world.client("publisher")
    client.publish("a", b"x", retain=True, expiry_seconds=30)
    client.publish("b", b"y", retain=True, expiry_seconds=10)
    world.now += 10
    after = world.crash()
    (message,) = kept(after)
    assert (message.payload, message.expiry_seconds) == (b"x", 20)
    after.pass_time(20)
    assert kept(after) == []


def test_a_newer_message_is_not_taken_for_the_one_that_expired() -> None:
    world = World()
    client = world.client("publisher")
    client.publish("a", b"short", retain=True, expiry_seconds=10)
    client.publish("a", b"long", retain=True)
    world.pass_time(10)
    assert payloads(kept(world)) == [b"long"]


def test_a_retained_will_expires_too() -> None:
    world = World()
    world.client("c", will=Will(b"a", b"x", retain=True, expiry_seconds=10)).lose()
    assert kept(world)[0].expiry_seconds == 10
    world.pass_time(10)
    assert kept(world) == []


# Limits -------------------------------------------------------------------------------------------


def test_too_many_are_refused_and_replacing_goes_on() -> None:
    world = World(retained_messages_max=1)
    client = world.client("c")
    client.publish("a", b"x", 1, retain=True)
    client.publish("b", b"y", 1, retain=True)
    client.publish("a", b"z", 1, retain=True)
    reasons = [getattr(packet, "reason", None) for packet in client.take()]
    unseen = ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert reasons == [unseen, ReasonCode.QUOTA_EXCEEDED, unseen]
    assert payloads(kept(world)) == [b"z"]


def test_too_many_bytes_are_refused() -> None:
    world = World(retained_bytes_max=100)
    client = world.client("c")
    client.publish("a", bytes(90), 1, retain=True)
    client.publish("b", bytes(90), 1, retain=True)
    assert [getattr(packet, "reason", None) for packet in client.take()] == [
        ReasonCode.NO_MATCHING_SUBSCRIBERS,
        ReasonCode.QUOTA_EXCEEDED,
    ]
    client.publish("a", b"", retain=True)
    client.publish("b", bytes(90), 1, retain=True)
    assert len(kept(world)) == 1


def test_a_client_of_3_1_1_keeps_what_is_refused() -> None:
    client = World(retained_messages_max=0).client("c", version=MQTT_3_1_1)
    client.publish("a", b"x", 1, retain=True)
    client.assert_ended(ReasonCode.QUOTA_EXCEEDED)


# The tree -----------------------------------------------------------------------------------------


@given(st.lists(names, max_size=12), st.lists(names, max_size=4), filters())
def test_matching_as_the_oracle_has_it(put: list[str], removed: list[str], name: str) -> None:
    tree = RetainedMessages()
    oracle: dict[str, Message] = {}
    for number, topic in enumerate(put):
        message = Message(topic.encode(), b"x" * number)
        assert tree.put(message) is oracle.get(topic)
        oracle[topic] = message
    for topic in removed:
        assert tree.remove(topic.encode()) is oracle.pop(topic, None)
    assert set(tree) == set(oracle.values())
    assert len(tree) == len(oracle)
    assert tree.nbytes == sum(message.size for message in oracle.values())
    assert all(tree.get(topic.encode()) is oracle.get(topic) for topic in put)
    found = list(tree.match(name))
    expected = {message for topic, message in oracle.items() if matches(name, topic)}
    assert len(found) == len(expected)
    assert set(found) == expected
    assert tree.may_match(name) or not expected


# Topics that part from each other here and there.
near_names = st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map("/".join)
near_filters = st.builds(
    lambda levels, ends: "/".join([*levels, *ends]),
    st.lists(st.sampled_from("ab+"), max_size=3),
    st.sampled_from([("a",), ("+",), ("#",)]),
)


@settings(max_examples=500)
@given(
    st.lists(near_names, min_size=3, max_size=12),
    near_filters,
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), near_names), min_size=3, max_size=20),
)
def test_who_walks_while_the_tree_changes_finds_all_that_stays(
    put: list[str], name: str, changes: list[tuple[int, bool, str]]
) -> None:
    tree = RetainedMessages()
    for topic in put:
        tree.put(Message(topic.encode(), b"x"))
    known = set(tree)
    stays = set(known)
    walk = tree.walk(name)
    found: list[Message] = []
    for steps, is_there, topic in changes:
        found += filter(None, islice(walk, steps))
        if is_there:
            tree.put(message := Message(topic.encode(), b"x"))
            known.add(message)
        else:
            tree.remove(topic.encode())
        stays &= set(tree)
    found += filter(None, walk)
    assert len(found) == len(set(found))
    assert {one for one in stays if matches(name, one.topic.decode())} <= set(found) <= known
    assert all(matches(name, one.topic.decode()) for one in found)


@given(st.lists(names, min_size=1, max_size=12))
def test_an_empty_tree_is_empty(put: list[str]) -> None:
    tree = RetainedMessages()
    for topic in put:
        tree.put(Message(topic.encode(), b"x"))
    for topic in put:
        tree.remove(topic.encode())
    assert tree._root == {}
    assert (len(tree), tree.nbytes) == (0, 0)


def test_a_first_level_that_fits_no_topic_is_seen_at_once() -> None:
    tree = RetainedMessages()
    tree.put(Message(b"$SYS/broker/uptime", b"x"))
    assert not any(map(tree.may_match, ["a", "a/b", "#", "+/b"]))
    assert tree.may_match("$SYS/#")
    tree.put(Message(b"a/b", b"x"))
    assert all(map(tree.may_match, ["a", "a/c", "#", "+/c"]))
    assert not tree.may_match("b")


def test_deep_topics_need_no_deep_stack() -> None:
    tree = RetainedMessages()
    topic = b"/" * 65_000
    tree.put(Message(topic, b"x"))
    assert len(list(tree.match("#"))) == 1
    assert len(list(tree.match("/#"))) == 1
    assert tree.remove(topic) is not None
