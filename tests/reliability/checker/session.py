"""A session follows its client. Pure.

Judged: every accepted CONNECT of a client that has a persistent session, for which session present
must be 1.

Excused, by docs/cluster.md:

- the client's last broker, or the new one, was down or cut off, so that the client starts afresh;
- session present 0 is repeated until the client has acted on it, by a SUBSCRIBE or at QoS 2;
- a client that connected at two brokers while the cluster was not whole, and a clock jumped, may
  get the session of the earlier connection.
"""

from reliability.promises import SESSION
from reliability.record import Client, Connection, Record
from reliability.verdict import Verdict


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(SESSION)
    for client in record.clients.values():
        last: Connection | None = None
        for connection in client.connections:
            if not connection.is_up:
                continue
            if last is not None and last.expiry_seconds and not connection.clean_start:
                has_built = last.session_present or _has_built(record, client, last, connection)
                _judge(record, verdict, client, last, connection, has_built=has_built)
            last = connection
    return [verdict]


def _has_built(record: Record, client: Client, last: Connection, connection: Connection) -> bool:
    """Return whether the client relied on its session between two connections."""
    since, until = last.connected_at, connection.tried_since
    return any(since <= one.granted_at <= until for one in client.subscriptions) or any(
        one.qos == 2 and one.is_acknowledged and since <= one.completed_at <= until
        for one in record.publications_of(client.name)
    )


def _is_confused(record: Record, client: Client, connection: Connection) -> bool:
    """Return whether the client had two sessions when clocks could not tell which is later."""
    return any(
        one.node != connection.node
        and one.outcome != "fail"
        and jump.began_at <= one.invoked_at < connection.tried_since
        for jump in record.disturbed(connection.tried_since, connection.connected_at)
        if jump.fault == "clock"
        for one in client.connections
    )


def _judge(
    record: Record,
    verdict: Verdict,
    client: Client,
    last: Connection,
    connection: Connection,
    *,
    has_built: bool,
) -> None:
    verdict.judged += 1
    if connection.session_present:
        return
    if not has_built:
        verdict.excused["the client had not built on its last session"] += 1
        return
    nodes = {last.node, *connection.tried_nodes}
    since, until = connection.tried_since, connection.connected_at
    if len(nodes) > 1 and any(record.disturbed(since, until, *nodes, harmless=False)):
        verdict.excused["a broker that may have had it was away"] += 1
        return
    if _is_confused(record, client, connection):
        verdict.excused["a clock jumped while the client had two sessions"] += 1
        return
    verdict.violate(
        connection.connected_at,
        f"{connection.client} found no session at {connection.node}; its last broker was "
        f"{last.node}",
        client=connection.client,
    )
