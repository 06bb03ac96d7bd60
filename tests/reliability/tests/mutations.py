"""Mutations that falsify a clean history by one event. A checker must notice every one.

A mutation draws an event that the promise judges, from a seed. It returns the history without the
event, or with it twice, or in another place. It returns None if the history has no such event.
"""

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from reliability.builder import build
from reliability.history import Completed, Delivered, Event, Invoked, Read
from reliability.record import Client, Publication, Record

Mutation = Callable[[list[Event], Random], list[Event] | None]


def _deliveries(events: Sequence[Event], qos: int) -> list[tuple[Delivered, Client, Publication]]:
    """Return deliveries of acknowledged publications, except excused ones."""
    record = build(events)
    return [
        (delivery, client, publication)
        for client in record.clients.values()
        if client.is_persistent and not client.splits
        for delivery in client.deliveries
        if not delivery.retain and delivery.qos == qos
        for publication in [record.publications.get(delivery.message)]
        if publication is not None and _is_judged(client, publication, delivery)
    ]


def _is_judged(client: Client, publication: Publication, delivery: Delivered) -> bool:
    return (
        publication.is_acknowledged
        and publication.sends == 1
        and len(client.arrivals[delivery.message]) == 1
        and any(
            not one.group and not one.is_handle and one.qos and one.is_guaranteed(publication)
            for one in client.subscriptions
            if one.wants(publication)
        )
    )


def _of_group(record: Record, qos: int) -> list[Delivered]:
    return [
        delivery
        for client in record.clients.values()
        if not client.splits and any(one.group for one in client.subscriptions)
        for delivery in client.deliveries
        if delivery.qos == qos
        for publication in [record.publications[delivery.message]]
        if publication.is_acknowledged
        and any(
            one.is_guaranteed(publication) for one in client.subscriptions if one.wants(publication)
        )
    ]


def drop(qos: int) -> Mutation:
    def mutate(events: list[Event], random: Random) -> list[Event] | None:
        found = _deliveries(events, qos)
        if not found:
            return None
        victim = random.choice(found)[0]
        return [event for event in events if event is not victim]

    return mutate


def repeat(events: list[Event], random: Random) -> list[Event] | None:
    """QoS 2."""
    found = _deliveries(events, 2)
    if not found:
        return None
    victim = random.choice(found)[0]
    index = next(index for index, event in enumerate(events) if event is victim)
    return [*events[: index + 1], victim, *events[index + 1 :]]


def reorder(events: list[Event], random: Random) -> list[Event] | None:
    """Exchange two messages of a publisher that stayed at its broker."""
    last: dict[tuple[str, str, int, tuple[str, ...]], Delivered] = {}
    pairs = []
    for delivery, client, publication in _deliveries(events, 1) + _deliveries(events, 2):
        key = (client.name, publication.topic, publication.qos, publication.nodes)
        if key in last and last[key].message.rpartition(":")[0] == publication.publisher:
            pairs.append((last[key], delivery))
        last[key] = delivery
    if not pairs:
        return None
    first, second = random.choice(pairs)
    exchanged = {
        id(first): msgspec.structs.replace(first, message=second.message),
        id(second): msgspec.structs.replace(second, message=first.message),
    }
    return [exchanged.get(id(event), event) for event in events]


def misdirect(events: list[Event], random: Random) -> list[Event] | None:
    """Give a message to a client that did not ask for it."""
    record = build(events)
    strangers = [
        (delivery, other)
        for delivery, _, publication in _deliveries(events, 2)
        for other in record.clients.values()
        if other.deliveries and not any(one.wants(publication) for one in other.subscriptions)
    ]
    if not strangers:
        return None
    delivery, stranger = random.choice(strangers)
    index = next(index for index, event in enumerate(events) if event is delivery)
    return [
        *events[:index],
        msgspec.structs.replace(delivery, client=stranger.name),
        *events[index:],
    ]


def damage(events: list[Event], random: Random) -> list[Event] | None:
    found = [event for event in events if isinstance(event, Delivered)]
    if not found:
        return None
    victim = random.choice(found)
    return [
        msgspec.structs.replace(event, damaged=True)
        if event is victim and isinstance(event, Delivered)
        else event
        for event in events
    ]


def drop_from_group(events: list[Event], random: Random) -> list[Event] | None:
    record = build(events)
    counts: dict[str, int] = {}
    deliveries = _of_group(record, 2)
    for one in deliveries:
        counts[one.message] = counts.get(one.message, 0) + 1
    found = [one for one in deliveries if counts[one.message] == 1]
    if not found:
        return None
    victim = random.choice(found)
    return [event for event in events if event is not victim]


def repeat_in_group(events: list[Event], random: Random) -> list[Event] | None:
    found = _of_group(build(events), 2)
    if not found:
        return None
    victim = random.choice(found)
    index = next(index for index, event in enumerate(events) if event is victim)
    return [*events[: index + 1], victim, *events[index + 1 :]]


def diverge(events: list[Event], random: Random) -> list[Event] | None:
    """Let one broker answer with another retained message."""
    reads = {
        event.number: event.action.topic
        for event in events
        if isinstance(event, Invoked) and isinstance(event.action, Read)
    }
    last: dict[str, Completed] = {
        reads[event.number]: event
        for event in events
        if isinstance(event, Completed) and event.number in reads
    }
    if not last:
        return None
    victim = random.choice(list(last.values()))
    changed = msgspec.structs.replace(victim, message="" if victim.message else "nobody:1")
    return [changed if event is victim else event for event in events]


def _will_deliveries(events: list[Event]) -> list[Delivered]:
    record = build(events)
    return [
        event
        for event in events
        if isinstance(event, Delivered)
        and event.message in record.wills
        and record.wills[event.message][1].is_up
        and sum(one.message == event.message for one in record.clients[event.client].deliveries)
        == 1
    ]


def drop_will(events: list[Event], random: Random) -> list[Event] | None:
    found = _will_deliveries(events)
    if not found:
        return None
    victim = random.choice(found)
    return [event for event in events if event is not victim]


MUTATIONS: dict[str, tuple[str, Mutation]] = {
    "drop at QoS 1": ("delivered", drop(1)),
    "drop at QoS 2": ("delivered", drop(2)),
    "repeat at QoS 2": ("once", repeat),
    "reorder": ("order", reorder),
    "misdirect": ("receiver", misdirect),
    "damage": ("content", damage),
    "drop from a group": ("group", drop_from_group),
    "repeat in a group": ("group", repeat_in_group),
    "diverge": ("retained", diverge),
    "drop a will": ("will", drop_will),
}
"""By name: the promise that a checker must call broken, and the mutation."""
