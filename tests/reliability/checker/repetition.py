"""QoS 2 arrives once; QoS 1 and 0 are not repeated without a reason. Pure.

Judged: every message at every client. The lower of the publisher's and the subscriber's QoS counts.

Excused:

- a repetition at a client that had two sessions (docs/cluster.md: messages that both of them got
  come twice);
- a message at QoS 2 that its publisher sent again in another session than the first time;
- at QoS 1 MQTT itself allows more: a message comes again if its publisher sent it again, if the
  subscriber connected again, or if a broker on the way was disturbed;
- a subscriber at QoS 0 may get a publication at QoS 1 or 2 again, if its broker was killed before
  it had stored that it accepted it, or if a broker without room refused it and the publisher sent
  it again.

Handles get a message until they acknowledge it, so handle.py judges them.
"""

from itertools import pairwise

from reliability.history import Delivered
from reliability.promises import ONCE, REPEATED
from reliability.record import ENDS_PROCESS, Client, Publication, Record
from reliability.verdict import Verdict


def check(record: Record) -> list[Verdict]:
    once, repeated = Verdict(ONCE), Verdict(REPEATED)
    for client in record.clients.values():
        if any(one.is_handle for one in client.subscriptions):
            continue
        for message, arrivals in client.arrivals.items():
            publication = record.publications.get(message)
            if publication is None:
                continue
            verdict = once if arrivals[0].qos == 2 else repeated
            verdict.judged += 1
            for earlier, later in pairwise(arrivals):
                if not client.is_persistent and earlier.connection != later.connection:
                    continue  # another session
                reason = _excuse(record, client, publication, earlier, later)
                if reason:
                    verdict.excused[reason] += 1
                else:
                    verdict.violate(
                        later.at,
                        f"{client.name} got {message} ({later.topic}, QoS {later.qos}) at "
                        f"{earlier.at:.3f} s from {earlier.node}, and again from {later.node}",
                        client=client.name,
                        message=message,
                    )
    return [once, repeated]


def _excuse(
    record: Record,
    client: Client,
    publication: Publication,
    earlier: Delivered,
    later: Delivered,
) -> str:
    is_qos_1 = later.qos == 1
    reasons = {
        "the client had two sessions": client.may_repeat(publication, later.at),
        "the publisher had two sessions, and sent it again": (
            record.was_sent_in_two_sessions(publication)
        ),
        "QoS 1: the publisher sent it again": publication.qos == 1 and publication.sends > 1,
        "QoS 0: the subscriber's broker ended before it had stored what it took": (
            later.qos == 0 and publication.qos > 0 and _has_ended(record, earlier, later)
        ),
        "QoS 0: a broker without room refused it, and the publisher sent it again": (
            later.qos == 0 and publication.sends > 1 and _was_refused(record, publication)
        ),
        "QoS 1: the subscriber connected again": (
            is_qos_1 and earlier.connection != later.connection
        ),
        "QoS 1: a broker was disturbed": (
            is_qos_1 and any(record.disturbed(publication.invoked_at, later.at))
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _has_ended(record: Record, earlier: Delivered, later: Delivered) -> bool:
    """Return whether the broker of the first delivery restarted before the second."""
    return any(
        one.fault in ENDS_PROCESS and one.ended_at >= earlier.at
        for one in record.disturbed(earlier.at, later.at, earlier.node)
    )


def _was_refused(record: Record, publication: Publication) -> bool:
    """Return whether a broker that it was sent to may have had no room for it."""
    since, until = publication.invoked_at, publication.completed_at
    return any(one.fault == "disk" for one in record.disturbed(since, until, *publication.nodes))
