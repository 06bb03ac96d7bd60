"""Nothing acknowledged is lost. Pure.

Judged: each pair of an acknowledged publication at QoS 1 or 2 and a persistent subscription at QoS
1 or 2 that matches it, if the subscription was established before the publication began. group.py
judges the members of shared subscriptions together, and will.py judges wills.

Excused: publications between a CONNECT that found no session and the moment when the new
subscription is established (session.py judges whether the session may be missing), and publications
after UNSUBSCRIBE.
"""

from collections.abc import Sequence

from reliability.promises import DELIVERED
from reliability.record import Client, Publication, Record, Subscription
from reliability.verdict import Verdict

_NO_SUBSCRIBERS = 0x10


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(DELIVERED)
    acknowledged = [one for one in record.publications.values() if one.is_acknowledged]
    for client in record.clients.values():
        if not client.is_persistent:
            continue
        for subscriptions in client.by_filter().values():
            if subscriptions[0].qos and not subscriptions[0].group:
                for publication in acknowledged:
                    if subscriptions[0].wants(publication):
                        _judge(verdict, client, subscriptions, publication)
    return [verdict]


def _judge(
    verdict: Verdict,
    client: Client,
    subscriptions: Sequence[Subscription],
    publication: Publication,
) -> None:
    if not any(one.is_guaranteed(publication) for one in subscriptions):
        if publication.completed_at >= subscriptions[0].granted_at:
            verdict.excused["no session was established for the client just then"] += 1
        return
    verdict.judge(client.name)
    what = f"{publication.message} ({publication.topic}, QoS {publication.qos})"
    if publication.message not in client.arrivals:
        verdict.violate(
            publication.completed_at,
            f"{client.name} never got {what}, which {publication.nodes[-1]} acknowledged",
            client=client.name,
            message=publication.message,
        )
    elif publication.reason == _NO_SUBSCRIBERS:
        verdict.violate(
            publication.completed_at,
            f"{publication.nodes[-1]} acknowledged {what} with 'no matching subscribers', although "
            f"{client.name} has subscribed",
            client=client.name,
            message=publication.message,
        )
