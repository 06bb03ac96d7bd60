"""Limits of the network side of a broker: reading, writing, and waiting for the disk."""

UNKNOWN_CONNECTIONS_MAX = 1_000
"""Connections beyond `mqtt.connections_max`: clients that are not admitted yet, or are refused."""

SLICE_SECONDS = 0.004
"""Time in one turn of the loop for the long work of all clients (slices.py). It keeps the whole
turn below the 20 milliseconds that a client may keep others waiting."""

FLUSH_SECONDS = 0.005
"""Time in one turn for writing to clients. The remaining clients are first in the next turn."""

FLUSHED_MIN = 64
"""Clients that are written to before the clock is checked."""

QUIET_SECONDS_MIN = 0.000_05
"""If there was no read for this long, a message is sent at once and not at the end of the turn."""

JOIN_READS_MIN = 2
"""If one turn reads this many connections, writing may wait for the next turn."""

JOIN_SECONDS_MAX = 0.000_3
"""The longest time that writing waits in that case: a tenth of what anybody would notice."""

REST_READS_MIN = 16
"""If one turn reads this many connections, the loop pauses before the next one, as network cards
do. Packets gather meanwhile, and one read costs the system the same for one packet as for ten."""

REST_SECONDS = 0.000_1
"""The length of that pause."""

REST_JOIN_SECONDS_MAX = 0.001
"""The longest time that writing waits in total while the loop pauses."""

JOURNAL_MESSAGES_MAX = 20_000
"""Messages that wait for the disk before the broker stops reading from publishers: TCP
back-pressure slows them down."""

JOURNAL_BYTES_MAX = 33_554_432
"""Payload bytes that wait for the disk before the broker stops reading from publishers."""

STORE_RETRY_SECONDS = 1.0
"""Seconds between attempts to write to a disk that refused."""
