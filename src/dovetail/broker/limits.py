"""Limits of a broker: its clients, its routes, and the work in one turn of the loop.

A piece is the work that is done before other clients have their turn: about half a millisecond.
"""

ROUTE_TOPIC_BYTES_MAX = 1_024
"""The router does not cache routes of longer topics. The cache is bounded by count, and so in
bytes."""

ROUTES_RECHECKED_MAX = 8_192
"""When a peer's sketch changes, the router checks up to this many cached routes at once. If there
are more, it drops all and finds those in use again, one at a time."""

ROUTE_IDENTIFIERS_MAX = 1_000
"""The router does not cache a route that gives a client more subscription identifiers."""

ROUTES_FREED_AT_ONCE = 256
"""Dropped tables with more routes are freed a few routes at a time."""

ROUTES_FREED_PER_ROUTE = 8
"""Dropped routes that the router frees for each route it finds."""

CONNECT_BYTES_MAX = 262_144
"""Bytes of a CONNECT packet. Anybody can send one without authentication, so it has to be small."""

CONNACKS_CACHED_MAX = 64
"""Different CONNACKs that the broker remembers. Clients choose few different expiry intervals."""

EARLY_BYTES_MAX = 2 * 65_535 + 1_024
"""Bytes that may follow a CONNECT before authentication: two long texts and a little more."""

FILTERS_PER_PACKET_MAX = 10_000
"""Topic filters of one SUBSCRIBE, so that its client does not wait long. The others get reason
0x97."""

TIMERS_PER_PIECE = 64
"""Timers that run in one piece, as when many sessions expire at the same time."""

FILTERS_PER_PIECE = 32
"""Topic filters of a SUBSCRIBE or UNSUBSCRIBE in one piece."""

CLAUSE_CHARACTERS_PER_FILTER = 8
"""Characters of a where-clause that count as one filter more."""

ENTRIES_PER_PIECE = 64
"""Messages of an ended session in one piece. Those of a group may have to go to another member."""

GROUPS_PER_PIECE = 256
"""Groups in one piece, of a session whose client came or went."""

REVIEWED_PER_PIECE = 64
"""Sessions, subscriptions or messages that are checked in one piece after access rules change."""

SEARCH_STEPS_PER_PIECE = 2_048
"""Nodes of the filter trie that a search for one topic visits in one piece. If it needs more, the
publication waits, and so do later packets of its client."""

SEARCH_STEPS_MAX = 8_192
"""Nodes that the search for all new topics of one read visits in one piece."""

RECEIVERS_PER_PIECE = 256
"""Receivers of publications, or matching subscriptions of one receiver, in one piece. One
publication goes to all its receivers in one piece: no client may see it half delivered."""

RETAINED_LOOKS_PER_PIECE = 64
"""Retained messages that are compared with a new subscription in one piece."""

CHANGES_PER_PIECE = 512
"""Subscriptions of a stored packet that are settled in one piece."""

CALLBACKS_PER_PIECE = 128
"""Callbacks that wait for the same batch of the journal and run in one piece."""

EFFORT_PER_PIECE = 256
"""Effort for one read in one piece; each receiver of a publication counts as one. The rest waits,
and the broker does not read from this client meanwhile."""

PACKET_EFFORT = 4
"""Effort of a packet by itself."""

RUN_DELIVERIES_MAX = 16_384
"""Deliveries of a run in one piece: some milliseconds. A run with more is passed on in parts; these
are not small, as each costs some microseconds for every receiver."""

RUN_DELIVERIES_PER_EFFORT = 32
"""Deliveries of a run at QoS 1 that count as one."""

ACKNOWLEDGEMENTS_PER_EFFORT = 8
"""PUBACKs of one run that count as one."""

CHECKED_RUNS_PER_PIECE = 64
"""Runs in one piece, of a client that may not publish to every topic."""

LONG_PACKET_BYTES = 4_096
"""A longer SUBSCRIBE or UNSUBSCRIBE is decoded in pieces."""

LOGINS_WAITING_MAX = 100
"""Passwords that wait to be checked, each of which takes tens of milliseconds by design. The broker
refuses further clients at once, so that they can try again."""

LOGIN_LANES_MAX = 10_000
"""Addresses, and known users at an address, whose wrong passwords are remembered. The oldest give
way."""

KNOWN_LOGINS_MAX = 100_000
"""Pairs of user and address that are stored after a login: 1.6 MB. The file grows to twice that
before it is rewritten."""

ENGINE_SILENT_SECONDS = 10
"""The broker logs a warning if publications wait and no engine has asked for this long."""

ENGINE_LISTED_MAX = 10_000
"""Clauses in one answer to an engine: some tens of milliseconds of a broker's time."""

ENGINE_LOG_SPARE = 10_000
"""Changes in a clause log beyond twice its number of clauses. An engine that is further behind gets
all clauses."""

ENGINE_HISTORIES_MAX = 1_024
"""Pairs of engine and broker whose progress is remembered."""

ENGINE_NOTES_MAX = 100_000
"""Notes about sessions that got a publication without a clause, kept until an engine has handled
it. Without a note, such a session may get the publication twice."""

ENGINE_TURN_MATCHES = 500
"""Publications and ids of an engine's request that the broker handles in one turn of its loop."""

ARCHIVE_ROW_BYTES = 200
"""Estimated memory of a waiting archive row besides its topic, payload and properties."""

ARCHIVE_WRITE_ROWS_MAX = 65_536
"""Rows that the broker hands to the writer thread at once."""

ARCHIVE_TURN_ROWS = 2_000
"""Written rows that the broker deletes in one turn of the loop: some milliseconds."""

HANDLE_PREFIX = "handle:"
"""The prefix of the client identifiers of handles. No MQTT client may use it."""

HANDLE_ANSWER_BYTES_MAX = 4_194_304
"""Bytes of messages after which an answer takes no further message."""

MATCHES_SHOWN_MAX = 100
"""Matching filters that a report lists; it counts the others."""

HOLD_SECONDS_MAX = 2.0
"""New publications for a moved session wait this long for its queue from the last broker. A session
waits this long for other brokers to take its client's QoS 2 publications."""

SERVED_SECONDS = 10.0
"""A publisher does not wait for receivers that are behind if it had one that keeps up in this
time."""

SUBACK_WAIT_SECONDS = 0.2
"""SUBACK waits this long for the other brokers to know of a subscription."""

JOINED_READS_MIN = 8
"""Reads in one turn from which on a kernel looks for those that can be joined (joined_reads.py)."""

JOINED_PACKETS_MAX = 8
"""Publications of a read that is joined with others. One with more is a run that pays by itself,
and may have to be taken in pieces."""

JOINED_BACKLOG_SHARE = 8
"""A run of joined reads has at most the eighth part of `mqtt.backlog_bytes_max`, unless a single
read has more. So a receiver that does not read falls behind before its backlog is full."""
