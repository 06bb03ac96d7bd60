"""Limits that several packages share, each with the reason for its value.

A limit of one package is in that package's `limits.py`. These files hold constants only. Where a
deployment may want another value, the limit is an argument or a setting, and the constant is its
default.
"""

TOPIC_BYTES_MAX = 65_535
"""Bytes of a topic name or filter in UTF-8 [MQTT-4.7.3-3]: its length has two bytes on the wire."""

STREAM_USER = "#stream"
"""The user that the stream of `up --pipeline` logs in as, at local brokers without administrators.
No user of a password file can have this name."""

WHERE_CHARACTERS_MAX = 4_096
"""Characters of a where-clause. Together with the limits below it bounds all work on a clause."""

SPACE_DIMENSIONS_MAX = 16
"""Numeric attributes of a space. Each is a column of every box and every point."""

SPACE_TEXTS_MAX = 16
"""Text attributes of a space."""

SPACES_MAX = 64
"""Spaces of one broker. The broker compares each new topic with all of them."""

ATTRIBUTE_NAME_CHARACTERS_MAX = 128
"""Characters in the name of an attribute or a space."""

NODE_NAME_BYTES_MAX = 128
"""Characters of a node's name."""

MATCHERS_ADD_ABOVE = 0.6
"""The load above which an autoscaled cluster adds a matcher. Above it queues grow quickly, and a
joining matcher costs the others time."""

WORKERS_MAX = 64
"""Brokers that one command starts. A typing error must not start thousands."""

CLUSTER_NODES_MAX = 1_000
"""Nodes in the table of a node. It ignores further ones."""

CLUSTER_JOIN_SECONDS_MAX = 5.0
"""A starting broker waits this long for the subscriptions of the others. Then it accepts clients
without them; the others spool what they cannot deliver yet."""

FORGET_SECONDS = 86_400.0
"""The nodes forget a node that has been dead, or has left, for this long."""

CLUSTER_PORT = 7_883
"""The port on which nodes listen for each other: MQTT's TLS port minus 1,000."""

PORTS_TRIED_MAX = 20
"""If the default port is taken, a node tries this many ports behind it, then any free port."""

HOST_BYTES_MAX = 255
"""Bytes of a host name (RFC 1035 section 2.3.4) or address that a node advertises."""

LINK_SILENCE_SECONDS_MAX = 5.0
"""A node closes a connection to a peer that is silent for this long, and dials again."""
