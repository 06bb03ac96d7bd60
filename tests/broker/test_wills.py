"""Wills: when they are published, when they are dropped, and their delay."""

import pytest

from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Connect, Disconnect, Publish, Will
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, World

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
LATER = Will(b"w", b"gone", delay_seconds=30)


def witness(world: World, qos: int = 2) -> Client:
    client = world.client("witness")
    client.subscribe("w", qos=qos)
    return client


# Without a delay ----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("kept", [False, True])
def test_a_lost_connection_publishes_the_will(version: int, kept: bool) -> None:
    world = World()
    subscriber = witness(world)
    fields = PERSISTENT if kept else {}
    world.client("c", version=version, will=Will(b"w", b"gone"), **fields).lose()
    assert subscriber.payloads() == [b"gone"]


@both
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_a_will_has_its_qos_and_its_flag(version: int, qos: int, retain: bool) -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", version=version, will=Will(b"w", b"gone", qos, retain)).lose()
    (message,) = subscriber.messages()
    assert (message.qos, message.retain) == (qos, False)
    assert len(world.broker.retained) == retain


@both
def test_a_will_that_is_empty_and_retained_takes_away_what_was_kept(version: int) -> None:
    world = World()
    world.client("publisher").publish("w", b"here", retain=True)
    world.client("c", version=version, will=Will(b"w", b"", retain=True)).lose()
    assert len(world.broker.retained) == 0


@both
def test_a_normal_end_takes_the_will_with_it(version: int) -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", version=version, will=Will(b"w", b"gone")).disconnect()
    client = world.client("k", version=version, will=Will(b"w", b"gone"), **PERSISTENT)
    client.disconnect()
    world.pass_time(10_000)
    assert subscriber.take() == []
    # It is not kept for another connection, either.
    client.connect_packet.will = None
    client.connect()
    client.lose()
    assert subscriber.take() == []


@pytest.mark.parametrize(
    "reason", [ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, ReasonCode.UNSPECIFIED_ERROR]
)
def test_a_disconnect_for_another_reason_publishes_it(reason: ReasonCode) -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", will=Will(b"w", b"gone")).disconnect(reason)
    assert subscriber.payloads() == [b"gone"]


@both
def test_a_protocol_error_publishes_it(version: int) -> None:
    world = World()
    subscriber = witness(world)
    client = world.client("c", version=version, will=Will(b"w", b"gone"))
    client.send(client.connect_packet)
    assert subscriber.payloads() == [b"gone"]


@both
def test_silence_publishes_it(version: int) -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", version=version, will=Will(b"w", b"gone"), keep_alive_seconds=10)
    world.pass_time(16)
    assert subscriber.payloads() == [b"gone"]


@both
def test_a_will_is_published_once(version: int) -> None:
    world = World()
    subscriber = witness(world)
    client = world.client("c", version=version, will=Will(b"w", b"gone"), **PERSISTENT)
    client.lose()
    client.connect_packet.will = None
    client.connect()
    client.lose()
    world.pass_time(10_000)
    assert subscriber.payloads() == [b"gone"]


@both
def test_without_a_will_nothing_is_published(version: int) -> None:
    world = World()
    subscriber = world.client("witness")
    subscriber.subscribe("#")
    world.client("c", version=version).lose()
    assert subscriber.take() == []


@both
def test_a_refused_connection_has_no_will(version: int) -> None:
    world = World(sessions_max=1)
    subscriber = witness(world)
    refused = Client(world, "c", version=version, will=Will(b"w", b"gone"))
    assert refused.connect().reason != ReasonCode.SUCCESS
    assert subscriber.take() == []


@both
def test_a_connection_that_takes_over_publishes_it(version: int) -> None:
    world = World()
    subscriber = witness(world)
    first = world.client("c", version=version, will=Will(b"w", b"first"), **PERSISTENT)
    second = world.client("c", version=version, will=Will(b"w", b"second"), **PERSISTENT)
    first.assert_ended(ReasonCode.SESSION_TAKEN_OVER)
    assert subscriber.payloads() == [b"first"]
    second.lose()
    assert subscriber.payloads() == [b"second"]


# With a delay -------------------------------------------------------------------------------------


def test_a_will_waits_for_its_delay() -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", will=LATER, **PERSISTENT).lose()
    world.pass_time(29)
    assert subscriber.take() == []
    world.pass_time(1)
    assert subscriber.payloads() == [b"gone"]
    world.pass_time(10_000)
    assert subscriber.take() == []


def test_coming_back_in_time_takes_the_will_away() -> None:
    world = World()
    subscriber = witness(world)
    client = world.client("c", will=LATER, **PERSISTENT)
    client.lose()
    world.pass_time(29)
    client.connect_packet.will = None
    client.connect()
    world.pass_time(10_000)
    client.lose()
    world.pass_time(10_000)
    assert subscriber.take() == []


def test_coming_back_too_late_does_not() -> None:
    world = World()
    subscriber = witness(world)
    client = world.client("c", will=LATER, **PERSISTENT)
    client.lose()
    world.pass_time(30)
    client.connect()
    assert subscriber.payloads() == [b"gone"]


def test_the_end_of_the_session_does_not_wait_for_the_delay() -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", will=LATER, clean_start=False, session_expiry_seconds=10).lose()
    world.pass_time(9)
    assert subscriber.take() == []
    world.pass_time(1)
    assert subscriber.payloads() == [b"gone"]


def test_a_session_that_ends_with_its_connection_publishes_at_once() -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", will=LATER).lose()
    assert subscriber.payloads() == [b"gone"]


def test_a_disconnect_that_ends_the_session_publishes_at_once() -> None:
    world = World()
    subscriber = witness(world)
    client = world.client("c", will=LATER, **PERSISTENT)
    client.disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, session_expiry_seconds=0)
    assert subscriber.payloads() == [b"gone"]


def test_a_clean_start_ends_the_session_and_publishes_at_once() -> None:
    world = World()
    subscriber = witness(world)
    client = world.client("c", will=LATER, **PERSISTENT)
    client.lose()
    world.client("c", clean_start=True)
    assert subscriber.payloads() == [b"gone"]


def test_taking_over_with_a_delay_publishes_nothing() -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", will=LATER, **PERSISTENT)
    world.client("c", **PERSISTENT)
    world.pass_time(10_000)
    assert subscriber.take() == []


def test_taking_over_with_a_delay_and_a_clean_start_publishes() -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", will=LATER, **PERSISTENT)
    world.client("c", clean_start=True)
    assert subscriber.payloads() == [b"gone"]


def test_taking_over_a_session_that_is_not_kept_publishes() -> None:
    world = World()
    subscriber = witness(world)
    world.client("c", will=LATER)
    world.client("c", **PERSISTENT)
    assert subscriber.payloads() == [b"gone"]


def test_the_expiry_of_a_will_begins_when_it_is_published() -> None:
    world = World()
    subscriber = witness(world)
    will = Will(b"w", b"gone", expiry_seconds=5, delay_seconds=30)
    world.client("c", will=will, **PERSISTENT).lose()
    world.pass_time(30)
    assert subscriber.messages()[0].expiry_seconds == 5


# Over a restart -----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("kept", [False, True])
def test_a_crash_is_the_end_of_every_connection(version: int, kept: bool) -> None:
    world = World()
    waiting = world.client("waiting", **PERSISTENT)
    waiting.subscribe("w", qos=1)
    fields = PERSISTENT if kept else {}
    world.client("c", version=version, will=Will(b"w", b"gone", 1), **fields)
    after = world.crash()
    (message,) = after.client("waiting", **PERSISTENT).early
    assert isinstance(message, Publish)
    assert message.payload == b"gone"
    # And the will is not published by the next crash, too.
    assert len(after.crash().client("waiting", **PERSISTENT).early) == 1


def test_a_delay_goes_on_over_a_crash() -> None:
    world = World()
    world.client("c", will=LATER, **PERSISTENT).lose()
    world.now += 20
    after = world.crash()
    subscriber = witness(after)
    after.pass_time(9)
    assert subscriber.take() == []
    after.pass_time(1)
    assert subscriber.payloads() == [b"gone"]


def test_a_delay_begins_with_the_crash_that_ends_the_connection() -> None:
    world = World()
    world.client("c", will=LATER, **PERSISTENT)
    world.now += 1_000
    after = world.crash()
    subscriber = witness(after)
    after.pass_time(29)
    assert subscriber.take() == []
    after.pass_time(1)
    assert subscriber.payloads() == [b"gone"]


def test_coming_back_in_time_after_a_crash_takes_the_will_away() -> None:
    world = World()
    world.client("c", will=LATER, **PERSISTENT)
    after = world.crash()
    subscriber = witness(after)
    after.client("c", **PERSISTENT)
    after.pass_time(10_000)
    assert subscriber.take() == []


def test_a_normal_end_before_a_crash_leaves_no_will() -> None:
    world = World()
    world.client("c", will=Will(b"w", b"gone"), **PERSISTENT).disconnect()
    world.client("d", will=Will(b"w", b"gone")).disconnect()
    waiting = world.client("waiting", **PERSISTENT)
    waiting.subscribe("w", qos=1)
    assert world.crash().client("waiting", **PERSISTENT).early == []


def test_a_stop_of_the_broker_owes_the_wills_to_the_next_start() -> None:
    world = World()
    waiting = world.client("waiting", **PERSISTENT)
    waiting.subscribe("w", qos=1)
    world.client("c", will=Will(b"w", b"gone", 1), **PERSISTENT)
    world.client("d", will=Will(b"w", b"gone too", 1, delay_seconds=60), **PERSISTENT)
    world.broker.stop(world.now)
    world.settle()
    after = world.crash()
    back = after.client("waiting", **PERSISTENT)
    assert [packet.payload for packet in back.early if isinstance(packet, Publish)] == [b"gone"]
    after.client("d", **PERSISTENT)
    after.pass_time(100)
    assert back.take() == []


# To oneself ---------------------------------------------------------------------------------------


@both
def test_a_client_that_comes_back_finds_its_own_will(version: int) -> None:
    world = World()
    client = world.client("c", version=version, will=Will(b"w", b"gone", 1), **PERSISTENT)
    client.subscribe("w", qos=1)
    client.lose()
    client.connect()
    (message,) = client.early
    assert isinstance(message, Publish)
    assert message.payload == b"gone"


def test_no_local_holds_for_wills() -> None:
    world = World()
    client = world.client("c", will=Will(b"w", b"gone", 1), **PERSISTENT)
    client.subscribe("w", qos=1, no_local=True)
    client.lose()
    client.connect()
    assert client.early == []


def test_a_will_sent_behind_a_disconnect_is_none() -> None:
    # A CONNECT behind DISCONNECT is not read.
    world = World()
    subscriber = witness(world)
    client = world.client("c")
    client.send(Disconnect(), Connect(MQTT_5, "d", will=Will(b"w", b"gone")))
    assert client.is_closed
    assert "d" not in world.broker.sessions
    assert subscriber.take() == []
