"""Brokers end only when told, and the cluster becomes whole after each fault. Pure.

Judged: every end of a process. In a complete run also every fault, and every publication at QoS 1
or 2, which a whole cluster must answer.
"""

from math import inf

from reliability.promises import ALIVE
from reliability.record import Record
from reliability.verdict import Verdict


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(ALIVE)
    for exited in record.exits:
        verdict.violate(
            exited.at, f"{exited.node} ended with exit code {exited.code}. {exited.detail}"
        )
    verdict.judged += len(record.disturbances)
    if not record.has_reached("over"):
        return [verdict]
    for publication in record.publications.values():
        if publication.qos and publication.completed_at == inf:
            verdict.violate(
                publication.invoked_at,
                f"{publication.message} (QoS {publication.qos}) was never answered",
                client=publication.publisher,
                message=publication.message,
            )
    for one in record.disturbances:
        if one.over_at == inf:
            verdict.violate(
                one.began_at,
                f"the cluster was not whole again after '{one.fault}' of "
                f"{', '.join(one.nodes) or 'all brokers'}",
            )
    return [verdict]
