"""Brokers end only when told, and the cluster becomes whole after each fault. Pure.

Judged: every fault, and every end of a process. A run that was interrupted has not healed its
faults, and is judged by the ends of processes alone.
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
    is_finished = record.has_reached("over")
    for one in record.disturbances:
        verdict.judged += 1
        if is_finished and one.over_at == inf:
            verdict.violate(
                one.began_at,
                f"the cluster was not whole again after '{one.fault}' of "
                f"{', '.join(one.nodes) or 'all brokers'}",
            )
    return [verdict]
