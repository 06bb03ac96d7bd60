"""Clients get only what they subscribed to, exactly as it was published. Pure.

Judged: every delivery. The client must have sent a SUBSCRIBE before that matches by topic,
where-clause and no local, and must not have left it before the publication began. The message must
have been published before, on this topic, with this payload. Its QoS must be the lower one of
publication and subscription.
"""

from reliability.history import Delivered
from reliability.promises import CONTENT, RECEIVER
from reliability.record import Client, Publication, Record, Subscription
from reliability.verdict import Verdict


def check(record: Record) -> list[Verdict]:
    receiver, content = Verdict(RECEIVER), Verdict(CONTENT)
    for client in record.clients.values():
        for delivery in client.deliveries:
            publication = record.publications.get(delivery.message)
            if publication is None and delivery.message in record.wills:
                publication = record.wills[delivery.message][0]
            content.judged += 1
            fault = _fault(client, delivery, publication)
            if fault:
                content.violate(delivery.at, fault, client=client.name, message=delivery.message)
            if publication is not None:
                receiver.judged += 1
                _judge(receiver, content, client, delivery, publication)
    return [receiver, content]


def _fault(client: Client, delivery: Delivered, publication: Publication | None) -> str:
    what = f"{client.name} got {delivery.message or 'a message'}"
    if delivery.damaged:
        return f"{what} on {delivery.topic} with another payload than it was published with"
    if publication is None:
        return f"{what} on {delivery.topic}, which nobody published"
    if delivery.topic != publication.topic:
        return f"{what} on {delivery.topic}, published on {publication.topic}"
    if delivery.at < publication.invoked_at:
        return f"{what} before it was published"
    if delivery.retain and not publication.retain:
        return f"{what} as a retained message, published without that flag"
    return ""


def _judge(
    receiver: Verdict,
    content: Verdict,
    client: Client,
    delivery: Delivered,
    publication: Publication,
) -> None:
    fitting = [one for one in client.subscriptions if one.wants(publication)]
    open_then = [one for one in fitting if _is_open(one, delivery, publication)]
    what = f"{client.name} got {delivery.message} ({publication.topic})"
    if open_then:
        granted = {one.qos if not one.is_handle else 2 for one in open_then}
        if delivery.qos not in {min(publication.qos, qos) for qos in granted}:
            content.violate(
                delivery.at,
                f"{what} at QoS {delivery.qos}: published at {publication.qos}, subscribed at "
                f"{' or '.join(map(str, sorted(granted)))}",
                client=client.name,
                message=delivery.message,
            )
        return
    if fitting:
        why = "it had unsubscribed before" if fitting[0].asked_at <= delivery.at else "too early"
    else:
        why = "no subscription of its matches"
    receiver.violate(delivery.at, f"{what}: {why}", client=client.name, message=delivery.message)


def _is_open(one: Subscription, delivery: Delivered, publication: Publication) -> bool:
    if delivery.retain:  # an answer to SUBSCRIBE, whenever it was published
        return one.asked_at <= delivery.at <= one.left_at
    return one.asked_at <= delivery.at and publication.invoked_at <= one.left_at
