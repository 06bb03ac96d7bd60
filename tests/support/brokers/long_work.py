"""Requests that are within the default limits of a broker but take long there.

Each function sends such requests, and returns when the broker has answered all that it answers.
Sizes are arguments: benchmarks use the largest that is allowed, tests may use smaller ones.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice, product

from dovetail.codec.packets import (
    Disconnect,
    PacketType,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Unsubscribe,
)
from support.brokers.wire_client import WireClient

LEVELS = 16
FILTERS_PER_PACKET = 10_000
BATCH = 1_000
DEEP_TOPIC = "/".join("a" * LEVELS)
"""A topic that all overlapping filters match."""
GROUPS_TOPIC = "groups/topic"


def plain_filters(count: int) -> list[str]:
    """Return filters of three levels. Every tenth has a wildcard."""
    return [f"site/{n // 100}/{n}" if n % 10 else f"site/+/{n}" for n in range(count)]


def overlapping_filters(count: int) -> list[str]:
    """Return filters of sixteen levels, each `+` or `a`. There are 65,536 of them."""
    return ["/".join(levels) for levels in islice(product("+a", repeat=LEVELS), count)]


def group_filters(count: int) -> list[str]:
    """Return the filters of `count` groups, all on one topic."""
    return [f"$share/g{n}/{GROUPS_TOPIC}" for n in range(count)]


def packets(filters: Sequence[str]) -> Iterator[Sequence[str]]:
    return (
        filters[at : at + FILTERS_PER_PACKET] for at in range(0, len(filters), FILTERS_PER_PACKET)
    )


def subscribe(client: WireClient, filters: Sequence[str], qos: int = 0) -> None:
    """Subscribe with packets of the largest size, all sent before the first answer."""
    for packet_id, some in enumerate(packets(filters), 1):
        client.send(Subscribe(packet_id, [SubscriptionRequest(one, qos) for one in some]))
    for _ in packets(filters):
        answer = client.receive()
        assert isinstance(answer, SubscriptionAck)
        assert set(answer.reasons) == {qos}, answer


def close_with(port: int, filters: Sequence[str]) -> None:
    """Close a client that has subscribed to all of these."""
    with WireClient(port, "closing") as client:
        subscribe(client, filters)


def unsubscribe_from(port: int, filters: Sequence[str]) -> None:
    with WireClient(port, "unsubscribing") as client:
        subscribe(client, filters)
        for packet_id, some in enumerate(packets(filters), 1):
            client.send(Unsubscribe(packet_id, [*some]))
        for _ in packets(filters):
            assert isinstance(client.receive(), SubscriptionAck)


def start_clean_over(port: int, filters: Sequence[str]) -> None:
    """Subscribe to all of these with a persistent session, then end it with a clean start."""
    with WireClient(port, "persistent", persistent=True) as client:
        subscribe(client, filters, qos=1)
    with WireClient(port, "persistent", persistent=True) as client:
        assert client.connack.session_present
        subscribe(client, filters[:FILTERS_PER_PACKET], qos=1)  # again
    with WireClient(port, "persistent", clean_start=True) as client:
        assert not client.connack.session_present


def publish_to(port: int, filters: Sequence[str], topic: str) -> None:
    """Publish to a client that has subscribed with all of these filters."""
    with WireClient(port, "subscriber") as subscriber, WireClient(port, "publisher") as publisher:
        subscribe(subscriber, filters)
        publisher.publish(topic, b"at most once")
        assert subscriber.receive_message().payload == b"at most once"
        publisher.publish(topic, b"at least once", qos=1)


def publish_at_once(port: int, filters: Sequence[str], topic: str, count: int, qos: int) -> None:
    """Send `count` publications in one read. Each goes to another client by all filters."""
    with WireClient(port, "subscriber") as subscriber, WireClient(port, "publisher") as publisher:
        subscribe(subscriber, filters)
        publisher.publish(topic, b"the route is known", qos=1)
        ids = range(1, count + 1)
        publisher.send(*(Publish(topic.encode(), b"", qos, packet_id=qos and n) for n in ids))
        for _ in range((count + 1) * len(filters)):
            subscriber.receive_message()


def close_together(port: int, filters: Sequence[str], clients: int) -> None:
    """Close several clients, each of which has subscribed to all of these."""
    with ExitStack() as stack:
        connected = [
            stack.enter_context(WireClient(port, f"closing-{number}")) for number in range(clients)
        ]
        for client in connected:
            subscribe(client, filters)
        for client in connected:
            client.send(Disconnect())


def connect_with_properties(port: int, count: int) -> None:
    properties = [(f"name {number}", f"value {number}") for number in range(count)]
    WireClient(port, "talkative", user_properties=properties).close()


def subscribe_to_retained(port: int, count: int) -> None:
    """Retain `count` messages, subscribe to them, and remove them."""
    with WireClient(port, "retaining") as publisher, WireClient(port, "reader") as reader:
        for payload in (b"kept", b""):
            for at in range(0, count, BATCH):
                numbers = range(at, min(at + BATCH, count))
                publisher.send(*(Publish(b"kept/%d" % n, payload, 0, retain=True) for n in numbers))
            publisher.publish("end", b"", qos=1)
            if payload:
                reader.send(Subscribe(1, [SubscriptionRequest("kept/#", 0)]))
                answer = reader.receive()
                assert isinstance(answer, SubscriptionAck)
                assert answer.type == PacketType.SUBACK
                for _ in range(count):
                    reader.receive_message()


def forbid_to(port: int, filters: Sequence[str], forbid: Callable[[], object]) -> None:
    """Forbid the subscriptions of a persistent session while its client is connected."""
    with WireClient(port, "forbidden", persistent=True) as client:
        subscribe(client, filters, qos=1)
        forbid()
    with WireClient(port, "forbidden", persistent=True) as client:
        assert client.connack.session_present
    WireClient(port, "forbidden", clean_start=True).close()
