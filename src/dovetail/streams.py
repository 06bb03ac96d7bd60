"""The stream that `dovetail up --pipeline` runs beside brokers, as its process is told.

It needs Spark, and the one who starts it does not: so what they say to each other is here.
"""

from msgspec import Struct

MODULE = "dovetail.pipeline.streaming_member"
"""Which process it is."""


class StreamMember(Struct, frozen=True, kw_only=True):
    """A stream from these brokers to a table, and to clients of spaces that Spark serves."""

    name: str
    urls: tuple[str, ...]
    """Where brokers serve HTTP."""
    out: str
    checkpoint: str
    is_serving: bool
    """Some space leaves its where-clauses to it."""
    user: str | None = None
    """An administrator, whose password is in the environment; None: there is none."""
    key: str = ""
    """What the brokers beside it know it by then."""
    log_level: str = "info"
