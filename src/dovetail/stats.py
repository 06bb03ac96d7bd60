"""Counters and gauges of a node: plain integers that the event loop writes and others read.

The names are the same everywhere: in code, in `$SYS`, and in `/metrics` (there with the prefix
`dovetail_`, and counters with the suffix `_total`).
"""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Totals since the start of the process."""

    bytes_received: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    packets_sent: int = 0
    publishes_received: int = 0
    """PUBLISH packets from clients."""
    publishes_sent: int = 0
    """PUBLISH packets to clients."""
    publishes_dropped: int = 0
    """Deliveries dropped: full queue, offline QoS 0 receiver, or packet too large."""
    publishes_expired: int = 0
    publisher_waits: int = 0
    """Times that a publisher had to wait because its only receivers were behind."""
    publisher_wait_milliseconds: int = 0
    """The time that publishers have waited in all."""
    publisher_waits_expired: int = 0
    """Waits that took too long: after these, messages at QoS 0 were dropped."""
    publish_bytes_received: int = 0
    publish_bytes_sent: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    """CONNECT packets answered with a reason code of failure."""
    connections_lost: int = 0
    """Connections that ended without a DISCONNECT from the client."""
    protocol_errors: int = 0
    routes_computed: int = 0
    """Topics that were not in the route cache."""
    commits: int = 0
    """Transactions of the store."""
    commit_failures: int = 0
    sessions_expired: int = 0
    publishes_forwarded: int = 0
    """Publications sent to peers or spooled for them, once per peer."""
    publishes_from_peers: int = 0
    publishes_in_vain: int = 0
    """Of these, the false positives: no client of this broker had subscribed."""
    peer_messages_dropped: int = 0
    """Publications that a peer did not get: QoS 0 while it was down or too slow, others beyond the
    limits of its spool."""
    group_messages_passed_on: int = 0
    """Publications for a group member that left, passed to a member at another broker."""
    attributes_unreadable: int = 0
    """Publications without numbers or valid JSON: no where-clause can hold for them."""
    archive_rows: int = 0
    """Publications in files of the archive."""
    archive_files: int = 0
    archive_rows_dropped: int = 0
    """Publications not archived, because too many waited for the archive."""
    archive_failures: int = 0
    """Failed attempts to write a file of the archive."""
    engine_rows: int = 0
    """Publications archived so that an engine evaluates the where-clauses."""
    engine_deliveries: int = 0
    """Deliveries from engines to sessions and groups of this broker."""
    engine_repeats: int = 0
    """Publications that an engine sent again; the broker ignored them."""

    def as_dict(self) -> dict[str, int]:
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(slots=True)
class Gauges:
    """Current values."""

    clients_connected: int = 0
    publishers_waiting: int = 0
    """Publishers that the broker does not read from, because their only receivers are behind."""
    sessions: int = 0
    """Sessions, connected or not."""
    subscriptions: int = 0
    retained_messages: int = 0
    retained_bytes: int = 0
    queued_messages: int = 0
    queued_bytes: int = 0
    """Bytes of the messages that wait in sessions, including those in flight."""
    store_failing: int = 0
    """1 while writes to the data folder fail."""
    archive_rows_waiting: int = 0
    """Publications that are not in a file of the archive yet."""
    archive_bytes_waiting: int = 0
    archive_failing: int = 0
    """1 while writes to the folder of the archive fail."""
    engine_rows_waiting: int = 0
    """Publications that no engine has processed yet."""
    engine_wait_seconds: int = 0
    """Age of the oldest of them."""
    engine_silent: int = 0
    """1 while some wait and no engine asks for them."""

    def as_dict(self) -> dict[str, int]:
        return {item.name: getattr(self, item.name) for item in fields(self)}
