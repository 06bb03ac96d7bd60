"""Limits of what brokers tell each other: sketches, streams, groups, wills, retained messages."""

SKETCH_PEER_RATE = 0.003
"""False positives per query in the sketches that brokers exchange. A search checks each yes twice,
so it errs less than once in ten thousand times (docs/cluster.md has the measurements)."""

SKETCH_ELEMENTS_START = 4_096
"""Elements that a broker's sketch has room for at the start."""

SKETCH_GROWTH = 2**0.5
"""The factor by which a full sketch grows. All brokers use the same steps, so sizes of peers
coincide. Larger steps waste room, smaller ones send the whole sketch more often."""

SKETCH_SHRINK = 0.25
"""A sketch with less than this share of its room in use is rebuilt smaller."""

SKETCH_PART_BYTES = 4_194_304
"""Bytes of a whole sketch in one frame to a peer."""

WILL_GRACE_SECONDS = 5.0
"""Clients of a dead broker have this long to connect elsewhere before the others publish their
wills."""

WILLS_RESTORED_SECONDS = 15.0
"""A starting broker of a cluster publishes restored wills after this time, unless another broker
has done so."""

WILLS_FRAME_BYTES = 262_144
"""Bytes of wills in one frame to another broker, approximately."""

LINEAGE_MAX = 1 << 48
"""The largest lineage of a sketch, which is usually a time in milliseconds. The broker ignores a
peer's claim to know one far above its own."""

SECONDS_MAX = 0xFFFF_FFFF
"""The longest expiry or delay that a client can ask for: four bytes."""

STAMP_MAX = 1 << 62
"""All stamps are below this: clocks up to the year 2109."""

STAMP_JUMP_MAX = STAMP_MAX - (1 << 58)
"""Up to here, the year 2100, another broker's stamp may be ahead of ours by any time."""

STAMP_STEP_MAX = 1 << 50
"""Above that it may be ahead by this much. Exhausting the stamps would take brokers a trillion
steps, so no broker can use them up."""

GROUPS_MAX = 20_000
"""Shared subscriptions (groups with different names or filters) of one broker in a cluster. Every
broker knows all of them, so a broker refuses further ones."""

GROUPS_BYTES_MAX = 4_194_304
"""Bytes of their names and filters, so that one frame holds them."""

GROUP_HOPS_MAX = 8
"""Brokers that may pass on a publication because the picked member has left meanwhile."""

REMOVALS_SECONDS = 86_400.0
"""The broker remembers for this long that a retained message was removed: as long as it knows a
broker that is gone. After that an older copy could bring it back."""

REMOVALS_MAX = 100_000
"""Topics whose removal the broker remembers; the oldest give way."""

RETAINED_PAGE_BYTES = 262_144
"""Bytes of retained messages in one frame to a new broker, approximately."""

OUTBOX_MESSAGES_MAX = 100_000
"""QoS 1 and 2 publications spooled for one peer, in memory or, while it is down, on disk. Beyond,
the broker drops and counts the newest. Messages that must not be lost are exempt."""

OUTBOX_BYTES_MAX = 268_435_456
"""Bytes of publications spooled for one peer."""

COMPLAIN_SECONDS = 60.0
"""Seconds between two log lines of the same kind about a peer."""

OUTBOX_WINDOW_MESSAGES = 2_000
"""Publications in flight to one peer."""

OUTBOX_WAIT_SECONDS_MAX = 5.0
"""A publisher waits this long for a live peer to acknowledge. Then the broker spools the
publication on disk; the time is that of a silent connection."""

RUNS_JOINED_BYTES_MAX = 65_536
"""Runs from one peer that come together are delivered as one run up to this size. More would save
nothing."""

STREAM_POSITIONS_MAX = 10_000
"""Streams whose position is remembered, with those of forgotten brokers. Beyond, the oldest gives
way: only a broker that returns after so many others could have its last messages counted twice."""

RETAINED_AGAIN_SECONDS = 60.0
"""Seconds between two attempts to fetch retained messages that had no room before."""

PEER_FRAME_EXTRA_BYTES = 262_144
"""Bytes of a forwarded publication besides the client's packet: the client, the scope and the
frame. The longest MQTT text has 65,535 bytes."""

SCOPE_BYTES_MAX = 131_072
"""Bytes of group names and filters in one forwarded publication. Further groups go with another
frame; one always fits."""
