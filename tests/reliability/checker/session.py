"""A session follows its client. Pure.

Judged: every accepted CONNECT of a client that has a persistent session, for which session present
has to be 1.

Excused: the client's last broker, or the one that it comes to, was down or cut off
(docs/cluster.md: the client begins anew).
"""

from reliability.promises import SESSION
from reliability.record import Connection, Record
from reliability.verdict import Verdict


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(SESSION)
    for client in record.clients.values():
        last: Connection | None = None
        for connection in client.connections:
            if not connection.is_up:
                continue
            if last is not None and last.expiry_seconds and not connection.clean_start:
                _judge(record, verdict, last, connection)
            last = connection
    return [verdict]


def _judge(record: Record, verdict: Verdict, last: Connection, connection: Connection) -> None:
    verdict.judged += 1
    if connection.session_present:
        return
    nodes = (last.node, connection.node)
    since, until = connection.tried_since, connection.connected_at
    if last.node != connection.node and any(record.disturbed(since, until, *nodes, harmless=False)):
        verdict.excused["its last broker was away"] += 1
        return
    verdict.violate(
        connection.connected_at,
        f"{connection.client} found no session at {connection.node}; its last broker was "
        f"{last.node}",
        client=connection.client,
    )
