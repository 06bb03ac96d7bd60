"""A shared subscription gives each message to one member. Pure.

Judged: each acknowledged publication that a group matches, if the group had an established member
before. At least one member must get it; at QoS 2 one member must get it once.

Excused: at QoS 1 a repetition for the reasons of repetition.py; at QoS 2 a member that had two
sessions, or a publisher that had two and sent the message again.
"""

from collections import defaultdict
from itertools import pairwise

from reliability.history import Delivered
from reliability.promises import GROUP
from reliability.record import Client, Publication, Record, Subscription
from reliability.verdict import Verdict

Members = list[tuple[Client, Subscription]]


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(GROUP)
    groups: dict[tuple[str, str], Members] = defaultdict(list)
    for client in record.clients.values():
        for subscription in client.subscriptions:
            if subscription.group:
                groups[subscription.group, subscription.filter].append((client, subscription))
    acknowledged = [one for one in record.publications.values() if one.is_acknowledged]
    for (name, _), members in groups.items():
        for publication in acknowledged:
            if members[0][1].wants(publication):
                _judge(record, verdict, name, members, publication)
    return [verdict]


def _judge(
    record: Record, verdict: Verdict, name: str, members: Members, publication: Publication
) -> None:
    clients = {client.name: client for client, _ in members}
    got = sorted(
        (delivery for client in clients.values() for delivery in _arrivals(client, publication)),
        key=lambda delivery: delivery.at,
    )
    what = f"{publication.message} ({publication.topic}, QoS {publication.qos})"
    if any(subscription.is_guaranteed(publication) for _, subscription in members):
        verdict.judged += 1
        if not got:
            verdict.violate(
                publication.completed_at,
                f"no member of the group {name} got {what}",
                message=publication.message,
            )
    elif not got:
        verdict.excused["no member was established just then"] += 1
    for earlier, later in pairwise(got):
        reason = _excuse(record, clients, publication, earlier, later)
        if reason:
            verdict.excused[reason] += 1
        else:
            verdict.violate(
                later.at,
                f"the group {name} got {what} twice: {earlier.client} at {earlier.at:.3f} s, then "
                f"{later.client}",
                client=later.client,
                message=publication.message,
            )


def _arrivals(client: Client, publication: Publication) -> list[Delivered]:
    return client.arrivals.get(publication.message, [])


def _excuse(
    record: Record,
    clients: dict[str, Client],
    publication: Publication,
    earlier: Delivered,
    later: Delivered,
) -> str:
    is_qos_1 = later.qos == 1
    members = [clients[one.client] for one in (earlier, later)]
    reasons = {
        "a member had two sessions": any(one.may_repeat(publication, later.at) for one in members),
        "the publisher had two sessions, and sent it again": (
            record.was_sent_in_two_sessions(publication)
        ),
        "QoS 1: the publisher sent it again": is_qos_1 and publication.sends > 1,
        "QoS 1: a member connected again": (
            is_qos_1 and any(one.was_away(earlier.at, later.at) for one in members)
        ),
        "QoS 1: a broker was disturbed": (
            is_qos_1 and any(record.disturbed(publication.invoked_at, later.at))
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
