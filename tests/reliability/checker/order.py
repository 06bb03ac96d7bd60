"""Messages of one publisher on one topic, at one QoS, arrive in order. Pure.

Judged: the first arrival of each message at each client. MQTT allows that a message at QoS 1 comes
again later, so repetitions do not count.

Excused, by docs/cluster.md:

- a message at QoS 1 that its publisher sent again, to a subscriber that could miss the first copy:
  at QoS 0, or because it subscribed later. MQTT allows the second copy to come then;
- a client that had two sessions gets the messages of the other one later;
- a publisher that moves from one broker to another. At QoS 0 its messages may overtake each other.
  At QoS 1 and 2 its former broker may spool messages while a broker is down or cut off; they come
  later than those that the publisher sends now;
- a subscriber or handle that has moved, while a broker is down or cut off: messages that its former
  broker still has come later.
"""

from collections import defaultdict

from reliability.history import Delivered
from reliability.promises import ORDER
from reliability.record import Client, Publication, Record
from reliability.verdict import Verdict

Arrival = tuple[Delivered, Publication]


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(ORDER)
    for client in record.clients.values():
        if any(one.group for one in client.subscriptions):
            continue  # the other messages go to other members
        for arrivals in first_arrivals(record, client).values():
            _judge(record, verdict, client, arrivals)
    return [verdict]


Flow = tuple[str, str, int, int]


def first_arrivals(record: Record, client: Client) -> dict[Flow, list[Arrival]]:
    """Return the first arrivals of messages, by publisher, topic, QoS and session.

    The session of a client that is not persistent is its connection.
    """
    flows: dict[Flow, list[Arrival]] = defaultdict(list)
    for message, arrivals in client.arrivals.items():
        publication = record.publications.get(message)
        if publication is not None:
            session = 0 if client.is_persistent else arrivals[0].connection
            key = (publication.publisher, publication.topic, publication.qos, session)
            flows[key].append((arrivals[0], publication))
    return flows


def _judge(record: Record, verdict: Verdict, client: Client, arrivals: list[Arrival]) -> None:
    latest: Arrival | None = None
    for arrival in arrivals:
        if latest is None or arrival[1].number > latest[1].number:
            verdict.judged += latest is not None
            latest = arrival
            continue
        verdict.judged += 1
        reason = _excuse(record, client, arrival, latest)
        if reason:
            verdict.excused[reason] += 1
        else:
            (delivery, publication), (overtaker, _) = arrival, latest
            verdict.violate(
                delivery.at,
                f"{client.name} got {publication.message} ({publication.topic}, QoS "
                f"{publication.qos}) from {delivery.node} after {overtaker.message}",
                client=client.name,
                message=publication.message,
            )


def _excuse(record: Record, client: Client, late: Arrival, overtaker: Arrival) -> str:
    delivery, publication = late
    newer = overtaker[1]
    has_moved = publication.nodes != newer.nodes
    reasons = {
        "QoS 1: the publisher sent it again": (
            publication.sent_at[-1] >= newer.invoked_at and _may_miss(client, publication)
        ),
        "the client had two sessions": client.may_repeat(publication, delivery.at),
        "QoS 0: the publisher moved": has_moved and not publication.qos,
        "the publisher moved while a broker was away": has_moved
        and any(
            record.disturbed(
                publication.invoked_at,
                publication.completed_at,
                *publication.nodes,
                delivery.node,
            )
        ),
        "the subscriber moved while a broker was away": (
            _has_moved(client, delivery.at)
            and any(record.disturbed(publication.invoked_at, delivery.at, harmless=False))
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _has_moved(client: Client, until: float) -> bool:
    """Return whether the client has used more than one broker by then."""
    nodes = {one.node for one in client.connections if one.connected_at <= until}
    nodes |= {one.node for one in client.deliveries if one.at <= until}
    return len(nodes) > 1


def _may_miss(client: Client, publication: Publication) -> bool:
    """Return whether the client may have missed the first copy."""
    return not any(
        one.qos and one.established_at <= publication.invoked_at <= one.guaranteed_until
        for one in client.subscriptions
        if one.wants(publication)
    )
