"""A handle keeps its messages until they are acknowledged. Pure.

Judged: each message that a handle acknowledged, which must not come again; and each answer to a
request for a handle that exists, which must not be 404.
"""

from reliability.promises import HANDLE
from reliability.record import Record
from reliability.verdict import Verdict

_UNKNOWN = 404


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(HANDLE)
    for client, at, messages in record.acknowledgements:
        arrivals = record.clients[client].arrivals
        for message in messages:
            verdict.judged += 1
            publication = record.publications.get(message)
            for delivery in arrivals.get(message, []):
                if delivery.at <= at:
                    continue
                if publication is not None and publication.sends > 1:
                    verdict.excused["QoS 1: the publisher sent it again"] += 1
                elif any(record.disturbed(publication.invoked_at if publication else 0, at)):
                    verdict.excused["brokers died while the handle moved"] += 1
                else:
                    verdict.violate(
                        delivery.at,
                        f"{client} got {message} from {delivery.node} after it was acknowledged at "
                        f"{at:.3f} s",
                        client=client,
                        message=message,
                    )
    for client, at, status in record.refusals:
        verdict.judged += 1
        if status == _UNKNOWN:
            verdict.violate(at, f"{client} was told that its handle is unknown", client=client)
    return [verdict]
