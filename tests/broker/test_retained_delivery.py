"""Many retained messages at once all arrive, at the pace of the client."""

import pytest

from dovetail.attributes.space import Dimension, Space
from dovetail.broker.limits import RETAINED_LOOKS_PER_PIECE
from dovetail.codec.packets import Ack, PacketType, Publish, Unsubscribe
from support.brokers.harness import Client, World, attributes

TOPICS = 2_000


def world() -> World:
    """Limits that a burst of all retained messages would break by far."""
    return World(backlog_bytes_max=20_000, queue_messages_max=100)


def retain_many(world: World, qos: int) -> None:
    publisher = world.client("publisher")
    for number in range(TOPICS):
        publisher.publish(f"r/{number}", b"x" * 50, qos, retain=True)
        publisher.take()


def take_all(client: Client, world: World) -> list[Publish]:
    """Return the messages that come while the client reads and acknowledges, and time passes."""
    received: list[Publish] = []
    while messages := client.messages():
        received += messages
        for message in messages:
            if message.qos:
                client.send(Ack(PacketType.PUBACK, message.packet_id))
        world.pass_time(0.5)
    return received


@pytest.mark.parametrize("qos", [0, 1])
def test_none_is_dropped(qos: int) -> None:
    here = world()
    retain_many(here, qos)
    dropped = here.shared.counters.publishes_dropped
    subscriber = here.client("subscriber")
    subscriber.subscribe("r/#", qos=qos)
    assert subscriber.link is not None
    assert subscriber.link.unsent < 20_000
    received = take_all(subscriber, here)
    assert {message.topic for message in received} == {b"r/%d" % n for n in range(TOPICS)}
    assert len(received) == TOPICS
    assert all(message.retain for message in received)
    assert here.shared.counters.publishes_dropped == dropped


def test_what_is_replaced_meanwhile_comes_once() -> None:
    here = world()
    retain_many(here, 0)
    subscriber = here.client("subscriber")
    subscriber.subscribe("r/#")
    first = subscriber.messages()
    seen = {message.topic for message in first}
    late = next(b"r/%d" % n for n in range(TOPICS) if b"r/%d" % n not in seen)
    here.client("publisher").publish(late.decode(), b"newer", retain=True)
    received = first + take_all(subscriber, here)
    assert [message.payload for message in received if message.topic == late] == [b"newer"]


def test_it_ends_with_the_subscription_and_with_the_connection() -> None:
    here = world()
    retain_many(here, 0)
    for end in ("unsubscribe", "lose"):
        subscriber = here.client("subscriber")
        subscriber.subscribe("r/#")
        begun = len(subscriber.messages())
        assert 0 < begun < TOPICS
        if end == "unsubscribe":
            subscriber.send(Unsubscribe(7, ["r/#"]))
            # What had been sent before comes, and no more.
            assert len(subscriber.take()) < TOPICS - begun
            here.pass_time(1)
            assert subscriber.messages() == []
        subscriber.lose()
        here.pass_time(1)
        assert not here.broker.retained_deliveries._waiting


def test_a_clause_that_passes_over_nearly_all_lets_others_go_first() -> None:
    here = World(spaces=(Space("r", "r/#", (Dimension("x", 0, TOPICS),)),))
    publisher = here.client("publisher")
    for number in range(TOPICS):
        publisher.publish(f"r/{number}", b"x", retain=True, properties=attributes(x=number))
    subscriber = here.client("subscriber")
    wanted = [f"r/#?x={number}" for number in (0, 1, TOPICS - 1)]
    here.works = False
    subscriber.subscribe(*wanted)
    received = subscriber.messages()
    assert len(received) < len(wanted)  # all that can be after a few looks
    turns = 0
    while len(received) < len(wanted):
        here.broker.slices.run(lambda: True)
        received += subscriber.messages()
        turns += 1
    assert 1 < turns <= len(wanted) * (TOPICS // RETAINED_LOOKS_PER_PIECE + 1) + 1
    here.work()
    assert {one.topic for one in received} == {b"r/0", b"r/1", b"r/%d" % (TOPICS - 1)}
    assert len(received) == len(wanted)


def test_who_leaves_in_between_is_not_waited_for() -> None:
    here = World(spaces=(Space("r", "r/#", (Dimension("x", 0, TOPICS),)),))
    publisher = here.client("publisher")
    for number in range(RETAINED_LOOKS_PER_PIECE + 1):
        publisher.publish(f"r/{number}", b"x", retain=True, properties=attributes(x=number))
    subscriber = here.client("subscriber")
    here.works = False
    subscriber.subscribe("r/#?x<0")
    assert here.broker.slices
    subscriber.lose()
    here.work()
    assert not here.broker.slices
    assert here.client("other").subscribe("r/#?x<0") == [0]
