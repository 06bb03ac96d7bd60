"""Limits of session moves: how long they may take, and how many there may be."""

CLAIM_WAIT_SECONDS = 0.5
"""A broker waits this long for the others to say whether they have a client's session, then begins
a new one. For a connected broker that may have it, it waits as long as a move may take."""

MOVE_SECONDS_MAX = 5.0
"""The longest time for a session to arrive from a broker that has promised it."""

INQUIRE_AGAIN_SECONDS = 1.0
"""A broker with a session whose client has not come asks again after this time where the client is,
until the session is settled there."""

INQUIRIES_MAX = 5
"""Inquiries after which the session goes to the client's broker in any case."""

NOTICES_PER_BROKER_MAX = 100_000
"""Clients that began a new session without a broker that is down. This broker remembers so many for
each such broker, to tell it when it returns."""

GHOSTS_PER_CLIENT_MAX = 2
"""Sessions of one client that moved away from the same broker and still redirect messages. If there
are more, because a broker is down and the client roams, two are merged."""

ROUND_SECONDS = 1.0
"""Seconds between two checks of all moving sessions."""

ROUND_SESSIONS = 1_000
"""Moving sessions that are checked in one turn, so that no turn is long."""

REROUTE_AGAIN_SECONDS = 5.0
"""After this time a broker asks the others again to send directly to a session's new broker."""

REROUTES_WAITING_MAX = 100_000
"""Reroute requests that wait for a sketch. A broker whose request finds no room asks again."""

FRESH_SESSION_SECONDS = 300
"""A session that began only to hold messages from other brokers waits this long for its client."""

FILTERS_ITEM_BYTES = 32_768
"""Bytes of a session's filters in one control message, approximately."""
