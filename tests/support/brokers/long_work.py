"""What one client may do within the default limits of a broker, and takes long there.

Each of these does it, and returns when the broker has answered, as far as it answers at all. Sizes
are arguments: benchmarks take the largest that there may be, tests may take smaller ones.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice, product

from dovetail.codec.packets import (
    Disconnect,
    PacketType,
    Publish,
    Reasons,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from support.brokers.wire_client import WireClient

LEVELS = 16
FILTERS_PER_PACKET = 10_000
BATCH = 1_000
DEEP_TOPIC = "/".join("a" * LEVELS)
"""All overlapping filters match it."""
GROUPS_TOPIC = "groups/topic"


def plain_filters(count: int) -> list[str]:
    """Of three levels, every tenth with a wildcard."""
    return [f"site/{n // 100}/{n}" if n % 10 else f"site/+/{n}" for n in range(count)]


def overlapping_filters(count: int) -> list[str]:
    """Of sixteen levels, each of them one word or any: there are 65,536."""
    return ["/".join(levels) for levels in islice(product("+a", repeat=LEVELS), count)]


def group_filters(count: int) -> list[str]:
    """As many groups, all for one topic."""
    return [f"$share/g{n}/{GROUPS_TOPIC}" for n in range(count)]


def packets(filters: Sequence[str]) -> Iterator[Sequence[str]]:
    return (
        filters[at : at + FILTERS_PER_PACKET] for at in range(0, len(filters), FILTERS_PER_PACKET)
    )


def subscribe(client: WireClient, filters: Sequence[str], qos: int = 0) -> None:
    """In packets as large as may be, all sent before the first is answered."""
    for packet_id, some in enumerate(packets(filters), 1):
        client.send(Subscribe(packet_id, [SubscriptionRequest(one, qos) for one in some]))
    for _ in packets(filters):
        answer = client.receive()
        assert isinstance(answer, Reasons)
        assert set(answer.reasons) == {qos}, answer


def close_with(port: int, filters: Sequence[str]) -> None:
    """A client that has subscribed to all of them."""
    with WireClient(port, "closing") as client:
        subscribe(client, filters)


def unsubscribe_from(port: int, filters: Sequence[str]) -> None:
    with WireClient(port, "unsubscribing") as client:
        subscribe(client, filters)
        for packet_id, some in enumerate(packets(filters), 1):
            client.send(Unsubscribe(packet_id, [*some]))
        for _ in packets(filters):
            assert isinstance(client.receive(), Reasons)


def start_clean_over(port: int, filters: Sequence[str]) -> None:
    """A session on disk that has subscribed to all of them."""
    with WireClient(port, "persistent", kept=True) as client:
        subscribe(client, filters, qos=1)
    with WireClient(port, "persistent", kept=True) as client:
        assert client.connack.session_present
        subscribe(client, filters[:FILTERS_PER_PACKET], qos=1)  # again
    with WireClient(port, "persistent", clean_start=True) as client:
        assert not client.connack.session_present


def publish_to(port: int, filters: Sequence[str], topic: str) -> None:
    """A client publishes what another one has subscribed to with all of these."""
    with WireClient(port, "subscriber") as subscriber, WireClient(port, "publisher") as publisher:
        subscribe(subscriber, filters)
        publisher.publish(topic, b"at most once")
        assert subscriber.receive_message().payload == b"at most once"
        publisher.publish(topic, b"at least once", qos=1)


def publish_at_once(port: int, filters: Sequence[str], topic: str, count: int, qos: int) -> None:
    """So many publications in one read, each of which goes to another client by all filters."""
    with WireClient(port, "subscriber") as subscriber, WireClient(port, "publisher") as publisher:
        subscribe(subscriber, filters)
        publisher.publish(topic, b"the route is known", qos=1)
        ids = range(1, count + 1)
        publisher.send(*(Publish(topic.encode(), b"", qos, packet_id=qos and n) for n in ids))
        for _ in range((count + 1) * len(filters)):
            subscriber.receive_message()


def close_together(port: int, filters: Sequence[str], clients: int) -> None:
    """Some that have all subscribed to all of them."""
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
    """So many retained messages, which go away in the end."""
    with WireClient(port, "retaining") as publisher, WireClient(port, "reader") as reader:
        for payload in (b"kept", b""):
            for at in range(0, count, BATCH):
                numbers = range(at, min(at + BATCH, count))
                publisher.send(*(Publish(b"kept/%d" % n, payload, 0, retain=True) for n in numbers))
            publisher.publish("end", b"", qos=1)
            if payload:
                reader.send(Subscribe(1, [SubscriptionRequest("kept/#", 0)]))
                answer = reader.receive()
                assert isinstance(answer, Reasons)
                assert answer.type == PacketType.SUBACK
                for _ in range(count):
                    reader.receive_message()


def forbid_to(port: int, filters: Sequence[str], forbid: Callable[[], object]) -> None:
    """What a persistent session has subscribed to, while its client is there."""
    with WireClient(port, "forbidden", kept=True) as client:
        subscribe(client, filters, qos=1)
        forbid()
    with WireClient(port, "forbidden", kept=True) as client:
        assert client.connack.session_present
    WireClient(port, "forbidden", clean_start=True).close()
