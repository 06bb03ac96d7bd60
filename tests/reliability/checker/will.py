"""A will is published once if the connection is lost, and never if its client left. Pure.

Judged: each accepted connection with a will that is over. Watchers are persistent subscriptions at
QoS 2 that match the will's topic and were established before the connection began.

Excused, by docs/cluster.md: a broker that is stopped or cut off counts as down, so the others may
publish the wills of clients that are connected to it. Such a will may come early, or once more. A
will that could not be stored because the disk was full is lost if its broker is killed before there
is room. If a client lost its connection while it sent DISCONNECT, its intention is unknown.
"""

from math import inf

from reliability.history import Delivered
from reliability.promises import WILL
from reliability.record import ENDS_PROCESS, Client, Connection, Publication, Record
from reliability.verdict import Verdict

COUNTS_AS_DOWN = frozenset({"stop", "cut", "one-way", "delay", "loss", "slow"})
"""Faults after which others may consider a live broker dead."""

STORE_SECONDS = 2.0
"""The time until a broker has stored what did not fit on its full disk."""


def check(record: Record) -> list[Verdict]:
    verdict = Verdict(WILL)
    watchers = [client for client in record.clients.values() if client.is_persistent]
    for publication, connection in record.wills.values():
        if connection.outcome == "fail":
            continue
        for watcher in watchers:
            if any(
                one.qos == 2
                and not one.group
                and one.wants(publication)
                and one.established_at <= publication.invoked_at
                and one.guaranteed_until == inf
                for one in watcher.subscriptions
            ):
                _judge(record, verdict, watcher, publication, connection)
    return [verdict]


def _judge(
    record: Record,
    verdict: Verdict,
    watcher: Client,
    publication: Publication,
    connection: Connection,
) -> None:
    got = watcher.arrivals.get(publication.message, [])
    least, most, why = _expected(record, connection)
    if connection.ended_at == inf:
        least, most = 0, 0  # it is still connected
    verdict.judged += 1
    is_doubtful = _is_doubtful(record, connection, got)
    if least <= len(got) <= most and not _is_early(connection, got):
        return
    if len(got) >= least and is_doubtful:
        verdict.excused["its broker counted as down, and was not"] += 1
        return
    if not got and _was_killed_with_full_disk(record, connection):
        verdict.excused["its broker was killed while its disk was full"] += 1
        return
    many = {0: "never", 1: "once"}.get(len(got), f"{len(got)} times")
    early = ", before its client was gone" if _is_early(connection, got) else ""
    verdict.violate(
        got[-1].at if got else connection.ended_at,
        f"{watcher.name} got the will {publication.message} {many}{early}: {why} "
        f"{connection.node} at {connection.ended_at:.3f} s",
        client=watcher.name,
        message=publication.message,
    )


def _expected(record: Record, connection: Connection) -> tuple[int, int, str]:
    """Return the least and most times that the will may be published, and why."""
    if not connection.is_up:
        return 0, 1, "its client may have been connected to"
    if connection.disconnect_at == inf or connection.disconnect_with_will:
        return 1, 1, "its client lost its connection to"
    if connection.disconnect_outcome != "ok" or any(
        record.disturbed(connection.disconnect_at, connection.ended_at, connection.node)
    ):
        return 0, 1, "its client was about to leave"
    return 0, 0, "its client left"


def _is_early(connection: Connection, got: list[Delivered]) -> bool:
    over_at = min(connection.ended_at, connection.disconnect_at)
    return any(delivery.at < over_at for delivery in got)


def _was_killed_with_full_disk(record: Record, connection: Connection) -> bool:
    """Return whether the broker died before the will could be stored."""
    node = connection.node
    full = [one for one in record.disturbed(0, inf, node) if one.fault == "disk"]
    ends = [one for one in record.disturbed(0, inf, node) if one.fault in ENDS_PROCESS]
    return any(
        disk.began_at <= end.began_at <= disk.ended_at + STORE_SECONDS
        and connection.invoked_at <= disk.ended_at
        and connection.ended_at >= disk.began_at
        and connection.ended_at <= end.ended_at
        for disk in full
        for end in ends
    )


def _is_doubtful(record: Record, connection: Connection, got: list[Delivered]) -> bool:
    until = max([delivery.at for delivery in got], default=connection.ended_at)
    return any(
        one.fault in COUNTS_AS_DOWN for one in record.disturbed(connection.invoked_at, until)
    )
