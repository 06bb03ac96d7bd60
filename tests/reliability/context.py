"""What happened around a violation, as lines of text. Pure."""

from math import inf

from reliability.record import Record
from reliability.verdict import Violation

_BEFORE_SECONDS, _AFTER_SECONDS = 10.0, 10.0
_LINES_MAX = 60


def context(record: Record, violation: Violation) -> list[str]:
    """Return the life of the message, the client's connections, and the faults of that time."""
    happened: list[tuple[float, str]] = []
    happened += _of_message(record, violation.message)
    since = min([violation.at, *(at for at, _ in happened)]) - _BEFORE_SECONDS
    until = max([violation.at, *(at for at, _ in happened)]) + _AFTER_SECONDS
    happened += _of_client(record, violation.client, since, until)
    for one in record.disturbed(since, until):
        name = f"{one.fault} {one.detail}".strip()
        happened.append((one.began_at, f"fault: {name} ({', '.join(one.nodes)}) begins"))
        if one.ended_at < inf:
            happened.append((one.ended_at, f"fault: {name} ({', '.join(one.nodes)}) ends"))
    happened.append((violation.at, "--> here"))
    happened.sort(key=lambda entry: entry[0])
    return [f"{at:9.3f} s  {text}" for at, text in happened[:_LINES_MAX]]


def _of_message(record: Record, message: str) -> list[tuple[float, str]]:
    publication = record.publications.get(message)
    if publication is None and message in record.wills:
        publication = record.wills[message][0]
    if publication is None:
        return []
    happened = [
        (at, f"{message}: {'sent again to' if index else 'sent to'} {node}")
        for index, (at, node) in enumerate(zip(publication.sent_at, publication.nodes, strict=True))
    ]
    if publication.completed_at < inf:
        happened.append((publication.completed_at, f"{message}: {publication.outcome}"))
    happened += [
        (one.at, f"{message}: delivered to {client.name} by {one.node}, QoS {one.qos}")
        for client in record.clients.values()
        for one in client.arrivals.get(message, [])
    ]
    return happened


def _of_client(record: Record, name: str, since: float, until: float) -> list[tuple[float, str]]:
    client = record.clients.get(name)
    if client is None:
        return []
    happened = []
    for one in client.connections:
        if not since <= one.invoked_at <= until and not since <= one.ended_at <= until:
            continue
        session = "session present" if one.session_present else "no session"
        outcome = {"ok": f"accepted, {session}", "fail": f"refused with {one.reason:#x}"}
        text = outcome.get(one.outcome, "no answer")
        happened.append((one.invoked_at, f"{name}: CONNECT at {one.node}: {text}"))
        if one.ended_at < inf and one.is_up:
            how = "lost" if one.lost else "left"
            happened.append((one.ended_at, f"{name}: connection to {one.node} {how}"))
    happened += [
        (subscription.asked_at, f"{name}: SUBSCRIBE {subscription.filter}")
        for subscription in client.subscriptions
        if since <= subscription.asked_at <= until
    ]
    return happened
