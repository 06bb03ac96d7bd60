"""What a supervisor tells its child processes, and what they say to it.

A child is told what it is in one line on its standard input, and answers in lines of JSON. The
stream of `up --pipeline` needs Spark, and its supervisor does not: so what they share is here.
"""

from msgspec import Struct

UP = "up"
ERROR = "error"
DRAINED = "drained"
LOAD = "load"
"""The keys of the lines that a child process writes."""

STREAM_MODULE = "dovetail.pipeline.stream.member"
"""The module that runs the stream."""


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
