"""A handle stores its messages until they are acknowledged. Pure.

Judged: each message that a handle acknowledged, which must not come again; and each answer to a
request for a handle that exists, which must not be 404.

Excused, by docs/handles.md: QoS 0 while the handle moves, and publications while brokers die. A
message at QoS 1 that its publisher sent again is another message to the broker.
"""

from reliability.history import Delivered
from reliability.promises import HANDLE
from reliability.record import Client, Publication, Record
from reliability.verdict import Verdict

_UNKNOWN = 404
_MOVE_SECONDS = 2.0
"""How long publications still travel through the former broker (docs/cluster.md)."""


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(HANDLE)
    for name, at, messages in record.acknowledgements:
        client = record.clients[name]
        for message in messages:
            verdict.judge(name)
            for delivery in client.arrivals.get(message, []):
                if delivery.at > at:
                    _judge(record, verdict, client, delivery, at)
    for name, at, status in record.refusals:
        verdict.judge(name)
        if status == _UNKNOWN:
            verdict.violate(at, f"{name} was told that its handle is unknown", client=name)
    return [verdict]


def _judge(
    record: Record, verdict: Verdict, client: Client, delivery: Delivered, acknowledged_at: float
) -> None:
    publication = record.publications.get(delivery.message)
    reason = "" if publication is None else _excuse(record, client, delivery, publication)
    if reason:
        verdict.excused[reason] += 1
    else:
        verdict.violate(
            delivery.at,
            f"{client.name} got {delivery.message} from {delivery.node} after it was acknowledged "
            f"at {acknowledged_at:.3f} s",
            client=client.name,
            message=delivery.message,
        )


def _excuse(record: Record, client: Client, delivery: Delivered, publication: Publication) -> str:
    since, until = publication.invoked_at, delivery.at
    if publication.sends > 1:
        return "QoS 1: the publisher sent it again"
    if not publication.qos and client.was_away(since - _MOVE_SECONDS, until):
        return "QoS 0: the handle moved"
    if any(record.disturbed(since, until)):
        return "brokers died while the handle moved"
    return ""
