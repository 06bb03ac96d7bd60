"""What a node counts: plain integers that the event loop adds to, and readers take as they are.

The names are used everywhere: in code, in `$SYS`, in `/metrics` (with `dovetail_` before and
`_total` behind).
"""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Since the start of the process."""

    bytes_received: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    packets_sent: int = 0
    publishes_received: int = 0
    """PUBLISH packets from clients."""
    publishes_sent: int = 0
    """PUBLISH packets to clients."""
    publishes_dropped: int = 0
    """Deliveries not made: a full queue, an offline QoS 0 receiver, a packet too large."""
    publishes_expired: int = 0
    publish_bytes_received: int = 0
    publish_bytes_sent: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    """CONNECT packets that were answered with a reason code of failure."""
    connections_lost: int = 0
    """Ended without a DISCONNECT of the client."""
    protocol_errors: int = 0
    routes_computed: int = 0
    """Topics that were not in the cache of routes."""
    commits: int = 0
    """Transactions of the store."""
    commit_failures: int = 0
    sessions_expired: int = 0
    publishes_forwarded: int = 0
    """Publications sent or owed to peers, once for each peer."""
    publishes_from_peers: int = 0
    publishes_in_vain: int = 0
    """Of those, the ones that nobody here had subscribed to."""
    peer_messages_dropped: int = 0
    """Publications that a peer did not get: QoS 0 while it was down or did not keep up, others
    beyond what may be owed to it."""

    group_messages_passed_on: int = 0
    """Publications for a member of a group that left, given to another broker's."""
    attributes_unreadable: int = 0
    """Publications for which no where-clause could hold: they have no numbers, or no JSON."""

    archive_rows: int = 0
    """Publications that are in files of the archive."""
    archive_files: int = 0
    archive_rows_dropped: int = 0
    """Publications that the archive did not get: more waited for it than may."""
    archive_failures: int = 0
    engine_rows: int = 0
    """Publications that went to the archive for an engine to look at their clauses."""
    engine_deliveries: int = 0
    """What engines had for sessions and groups here."""
    engine_repeats: int = 0
    """Publications that an engine handed over again, and that were not taken again."""
    """Times that its folder did not take a file."""

    def as_dict(self) -> dict[str, int]:
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(slots=True)
class Gauges:
    """How things stand at this moment."""

    clients_connected: int = 0
    sessions: int = 0
    """Connected or not."""
    subscriptions: int = 0
    retained_messages: int = 0
    retained_bytes: int = 0
    queued_messages: int = 0
    queued_bytes: int = 0
    """Messages that wait in sessions, sent and not acknowledged ones among them."""
    store_failing: int = 0
    """1 while the data folder does not take what has to be written."""
    archive_rows_waiting: int = 0
    """Publications that are in no file of the archive yet."""
    archive_bytes_waiting: int = 0
    archive_failing: int = 0
    """1 while the archive's folder does not take files."""
    engine_rows_waiting: int = 0
    """Publications that no engine has dealt with yet."""
    engine_wait_seconds: int = 0
    """Since when the oldest of them waits."""
    engine_silent: int = 0
    """1 while some wait and no engine asks."""

    def as_dict(self) -> dict[str, int]:
        return {item.name: getattr(self, item.name) for item in fields(self)}
