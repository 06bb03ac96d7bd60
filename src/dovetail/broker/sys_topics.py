"""The broker's status under `$SYS/broker/`. Pure.

Names, units and averages are Mosquitto's (mosquitto(8), "Broker Status"), so that its dashboards
work here. Values that only Dovetail has are under `$SYS/broker/dovetail/`.

Counters and the time go in, topics and payloads come out, and the caller publishes them as retained
messages. A payload is returned only if it has changed. Each topic is one line of a table.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from dovetail.stats import Counters, Gauges

PREFIX = "$SYS/broker/"

AVERAGED_SECONDS: Mapping[str, float] = {"1min": 60.0, "5min": 300.0, "15min": 900.0}
"""The last level of a load, and the time in which a reading's weight falls to 1/e."""

_MINUTE_SECONDS = 60.0


class StatusValues(NamedTuple):
    """The values from which payloads are made."""

    counters: Counters
    gauges: Gauges
    version: str
    uptime_seconds: float
    connected_max: int


TOPICS: Mapping[str, Callable[[StatusValues], object]] = {
    "version": lambda now: f"dovetail version {now.version}",
    "uptime": lambda now: f"{int(now.uptime_seconds)} seconds",
    "clients/total": lambda now: now.gauges.sessions,
    "clients/connected": lambda now: now.gauges.clients_connected,
    "clients/active": lambda now: now.gauges.clients_connected,
    "clients/disconnected": lambda now: now.gauges.sessions - now.gauges.clients_connected,
    "clients/inactive": lambda now: now.gauges.sessions - now.gauges.clients_connected,
    "clients/maximum": lambda now: now.connected_max,
    "clients/expired": lambda now: now.counters.sessions_expired,
    "messages/received": lambda now: now.counters.packets_received,
    "messages/sent": lambda now: now.counters.packets_sent,
    "messages/stored": lambda now: now.gauges.retained_messages + now.gauges.queued_messages,
    "store/messages/count": lambda now: now.gauges.retained_messages + now.gauges.queued_messages,
    "store/messages/bytes": lambda now: now.gauges.retained_bytes + now.gauges.queued_bytes,
    "publish/messages/received": lambda now: now.counters.publishes_received,
    "publish/messages/sent": lambda now: now.counters.publishes_sent,
    "publish/messages/dropped": lambda now: now.counters.publishes_dropped,
    "publish/bytes/received": lambda now: now.counters.publish_bytes_received,
    "publish/bytes/sent": lambda now: now.counters.publish_bytes_sent,
    "bytes/received": lambda now: now.counters.bytes_received,
    "bytes/sent": lambda now: now.counters.bytes_sent,
    "subscriptions/count": lambda now: now.gauges.subscriptions,
    "retained messages/count": lambda now: now.gauges.retained_messages,
    "dovetail/commits": lambda now: now.counters.commits,
    "dovetail/commit_failures": lambda now: now.counters.commit_failures,
    "dovetail/connections_accepted": lambda now: now.counters.connections_accepted,
    "dovetail/connections_lost": lambda now: now.counters.connections_lost,
    "dovetail/connections_refused": lambda now: now.counters.connections_refused,
    "dovetail/protocol_errors": lambda now: now.counters.protocol_errors,
    "dovetail/publishes_expired": lambda now: now.counters.publishes_expired,
    "dovetail/publisher_waits": lambda now: now.counters.publisher_waits,
    "dovetail/publisher_wait_milliseconds": lambda now: now.counters.publisher_wait_milliseconds,
    "dovetail/publisher_waits_expired": lambda now: now.counters.publisher_waits_expired,
    "dovetail/publishers_waiting": lambda now: now.gauges.publishers_waiting,
    "dovetail/routes_computed": lambda now: now.counters.routes_computed,
    "dovetail/publishes_forwarded": lambda now: now.counters.publishes_forwarded,
    "dovetail/publishes_from_peers": lambda now: now.counters.publishes_from_peers,
    "dovetail/publishes_in_vain": lambda now: now.counters.publishes_in_vain,
    "dovetail/peer_messages_dropped": lambda now: now.counters.peer_messages_dropped,
    "dovetail/group_messages_passed_on": lambda now: now.counters.group_messages_passed_on,
    "dovetail/attributes_unreadable": lambda now: now.counters.attributes_unreadable,
    "dovetail/archive_rows": lambda now: now.counters.archive_rows,
    "dovetail/archive_files": lambda now: now.counters.archive_files,
    "dovetail/archive_rows_dropped": lambda now: now.counters.archive_rows_dropped,
    "dovetail/archive_failures": lambda now: now.counters.archive_failures,
    "dovetail/archive_rows_waiting": lambda now: now.gauges.archive_rows_waiting,
    "dovetail/archive_bytes_waiting": lambda now: now.gauges.archive_bytes_waiting,
    "dovetail/archive_failing": lambda now: now.gauges.archive_failing,
    "dovetail/engine_rows": lambda now: now.counters.engine_rows,
    "dovetail/engine_deliveries": lambda now: now.counters.engine_deliveries,
    "dovetail/engine_repeats": lambda now: now.counters.engine_repeats,
    "dovetail/engine_rows_waiting": lambda now: now.gauges.engine_rows_waiting,
    "dovetail/engine_wait_seconds": lambda now: now.gauges.engine_wait_seconds,
    "dovetail/engine_silent": lambda now: now.gauges.engine_silent,
    "dovetail/queued_bytes": lambda now: now.gauges.queued_bytes,
    "dovetail/queued_messages": lambda now: now.gauges.queued_messages,
    "dovetail/retained_bytes": lambda now: now.gauges.retained_bytes,
    "dovetail/store_failing": lambda now: now.gauges.store_failing,
}
"""Under `$SYS/broker/`. Mosquitto's "messages" are packets of any type; its "publish" are ours."""

LOADS: Mapping[str, Callable[[Counters], int]] = {
    "load/messages/received": lambda counters: counters.packets_received,
    "load/messages/sent": lambda counters: counters.packets_sent,
    "load/publish/received": lambda counters: counters.publishes_received,
    "load/publish/sent": lambda counters: counters.publishes_sent,
    "load/publish/dropped": lambda counters: counters.publishes_dropped,
    "load/bytes/received": lambda counters: counters.bytes_received,
    "load/bytes/sent": lambda counters: counters.bytes_sent,
    # A socket counts once its CONNECT was answered: one that says nothing is not in any counter.
    "load/sockets": lambda counters: counters.connections_accepted + counters.connections_refused,
    "load/connections": lambda counters: (
        counters.connections_accepted + counters.connections_refused
    ),
}
"""Counters whose rate per minute is averaged over each of `AVERAGED_SECONDS`."""


class SysTopics:
    """The topics of one broker. All times come from one monotonic clock."""

    def __init__(self, version: str, started_at: float) -> None:
        self._version = version
        self._started_at = started_at
        self._averaged_at = started_at
        self._counted = {name: count(Counters()) for name, count in LOADS.items()}
        self._averages = {(name, span): 0.0 for name in LOADS for span in AVERAGED_SECONDS}
        self._connected_max = 0
        self._published: dict[str, bytes] = {}

    def publish(self, counters: Counters, gauges: Gauges, now: float) -> list[tuple[bytes, bytes]]:
        """Return the topics and payloads that are new or have changed since the last call."""
        self._average(counters, now)
        # Sampled at each call, as in Mosquitto: a peak between two calls is not seen.
        self._connected_max = max(self._connected_max, gauges.clients_connected)
        reading = StatusValues(
            counters, gauges, self._version, now - self._started_at, self._connected_max
        )
        changed: list[tuple[bytes, bytes]] = []
        for name, payload in self._payloads(reading):
            if self._published.get(name) != payload:
                self._published[name] = payload
                changed.append((f"{PREFIX}{name}".encode(), payload))
        return changed

    def _payloads(self, reading: StatusValues) -> Iterator[tuple[str, bytes]]:
        for name, value in TOPICS.items():
            yield name, str(value(reading)).encode()
        for (name, span), average in self._averages.items():
            yield f"{name}/{span}", f"{average:.2f}".encode()

    def _average(self, counters: Counters, now: float) -> None:
        """Move each average towards the rate since the last call, by e^(-elapsed / span)."""
        elapsed_seconds = now - self._averaged_at
        if elapsed_seconds <= 0:
            return
        self._averaged_at = now
        for name, count in LOADS.items():
            counted = count(counters)
            rate = (counted - self._counted[name]) * _MINUTE_SECONDS / elapsed_seconds
            self._counted[name] = counted
            for span, seconds in AVERAGED_SECONDS.items():
                kept = math.exp(-elapsed_seconds / seconds)
                self._averages[name, span] = rate + kept * (self._averages[name, span] - rate)
