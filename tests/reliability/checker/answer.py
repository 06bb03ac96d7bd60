"""Publishers get acknowledgements while other brokers are away. Pure.

Judged: each publication at QoS 1 or 2 that was sent once and answered, while its own broker was not
killed, stopped, restarted or out of room. A broker gives up a silent one after 5 s
(docs/cluster.md). The checker allows for a busy machine, and for a client that stops reading for a
while.
"""

from reliability.promises import ANSWERED
from reliability.record import ENDS_PROCESS, HARMLESS, Publication, Record
from reliability.verdict import Verdict

ANSWER_SECONDS_MAX = 15.0


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(ANSWERED)
    for publication in record.publications.values():
        if not publication.qos or publication.sends > 1 or publication.outcome == "unknown":
            continue
        if _is_disturbed_itself(record, publication):
            verdict.excused["its own broker was disturbed"] += 1
            continue
        verdict.judge(publication.publisher)
        seconds = publication.completed_at - publication.invoked_at
        if seconds > ANSWER_SECONDS_MAX:
            verdict.violate(
                publication.completed_at,
                f"{publication.message} (QoS {publication.qos}) was answered by {publication.node} "
                f"after {seconds:.1f} s",
                client=publication.publisher,
                message=publication.message,
            )
    return [verdict]


def _is_disturbed_itself(record: Record, publication: Publication) -> bool:
    return any(
        one.fault in ENDS_PROCESS | HARMLESS and one.ended_at >= publication.invoked_at
        for one in record.disturbed(
            publication.invoked_at, publication.completed_at, publication.node
        )
    )
