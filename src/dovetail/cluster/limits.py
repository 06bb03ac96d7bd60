"""Limits of gossip, the failure detector, and the links between nodes."""

WRITE_JOIN_BYTES_MAX = 65_536
"""Small pieces for one connection are copied together up to this size; larger ones are written as
they are."""

WRITE_HIGH_WATER_BYTES = 262_144
"""Unwritten bytes at which a transport reports back-pressure."""

NODE_RECORDS_MAX = 64
"""Different records that one node gossips about itself."""

RECORD_KEY_BYTES_MAX = 64
"""Characters of a record's key."""

RECORD_BYTES_MAX = 16_384
"""Bytes of a record's value. Larger data is announced by gossip, and fetched."""

GOSSIP_BYTES_MAX = 65_536
"""Bytes of records in one gossip message, approximately. The rest goes with another one; one record
always fits."""

GOSSIP_INTERVAL_SECONDS = 1.0
"""Seconds between two gossip rounds of one node, and between its heartbeats."""

DETECTOR_WINDOW = 100
"""Intervals between signs of life by which the failure detector judges a node."""

PHI_DEAD = 8.0
"""The suspicion at which a node counts as dead: wrong once in a hundred million intervals."""

PHI_SUSPECT = 3.0
"""The suspicion at which reports show a node as late; it has no other effect."""

QUERY_SECONDS_MAX = 1.0
"""A report waits this long for the answers of other brokers, then goes without them."""

LEFT_FORGET_SECONDS = 60.0
"""The nodes forget a node that has left and keeps nothing for others after this time. It is enough
for the wills of its clients, and for a restart."""

SECRET_FILE = "cluster.secret"  # noqa: S105
"""In a data folder, where the settings name no other file."""

SECRET_BYTES_MIN = 16
"""Bytes of a cluster's secret. So many random bytes or letters cannot be guessed."""

SECRET_BYTES_MAX = 4_096
"""A larger file is not a secret file."""

HANDSHAKE_BYTES_MAX = 4_096
"""Bytes of a frame from an unauthenticated peer. The largest HELLO is a quarter of it."""

HANDSHAKE_SECONDS_MAX = 5.0
"""Seconds from the opening of a connection between nodes to its last proof, with TLS."""

MEMBER_HANDSHAKES_MAX = 64
"""Unauthenticated connections from the addresses of members. A handshake takes milliseconds, so an
attacker would need half of them in that time to evict an honest one."""

STRANGER_HANDSHAKES_MAX = 64
"""Unauthenticated connections from all other addresses together."""

STRANGER_HANDSHAKES_PER_ADDRESS_MAX = 16
"""Unauthenticated connections from one such address (for IPv6: one /64 prefix)."""

MEMBER_ADDRESSES_MAX = 4_000
"""Addresses of members that are remembered: four for each node of the largest cluster."""

REFUSAL_CHARACTERS_MAX = 300
"""Characters of the sentence with which a peer refuses us; the rest is ignored."""

PEER_FRAME_BYTES_MAX = 16_777_216
"""Bytes of a frame between authenticated nodes, with its header."""

PEER_BACKLOG_BYTES_MAX = 67_108_864
"""Bytes in flight to one peer. Beyond, the link accepts nothing more for it."""

PEER_STALL_SECONDS_MAX = 30.0
"""The node closes a link whose peer takes no byte for this long while bytes wait."""

LINK_PING_SECONDS = 0.25
"""Seconds between two pings on a link. The detector needs several before it calls a node dead, and
a node with a thousand peers answers four thousand a second."""

LINK_STEADY_SECONDS = 1.0
"""After a link has lived for this long, the next dial attempts begin quickly again."""

DIAL_SECONDS_MIN = 0.1
"""The longest pause before the second dial attempt. The pause doubles each time."""

DIAL_SECONDS_MAX = 10.0
"""The longest pause between dial attempts. A node that returns also dials by itself, which ends the
pause of its peers."""

DIAL_FAILURES_QUIET = 5
"""Failed attempts, some three seconds of them, before the log reports them: nodes that start
together are not ready at the same moment."""

LOGGED_REFUSALS_MAX = 1_000
"""Refusals that are remembered, so that a peer's next attempt does not log the same line."""

LOGGED_REFUSAL_SECONDS = 60.0
"""The same refusal is logged again after this time."""
