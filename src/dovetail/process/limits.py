"""Limits of every process: file descriptors and log lines."""

FILE_DESCRIPTORS_RESERVED = 48
"""File descriptors that no incoming connection can take (descriptors.py). The process needs them
for files, for name lookups, and to dial other nodes."""

LINK_DESCRIPTORS_RESERVED_SHARE = 0.125
LINK_DESCRIPTORS_RESERVED_MAX = 512
"""Further descriptors that only links between nodes can take: a share of all, up to this
maximum."""

HTTP_DESCRIPTORS_RESERVED = 16
"""Further descriptors that HTTP can take and MQTT clients cannot, so that health checks and metrics
always work."""

LOG_REPEAT_SECONDS = 1.0
"""The log has one line of a kind at once, then one per interval with the number of suppressed
ones."""

LOG_KINDS_MAX = 256
"""Kinds of log lines that are counted separately; all further ones are one kind. The source has
some hundred, and lines about nodes have one kind per node."""
