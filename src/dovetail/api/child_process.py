"""The messages between a supervisor and its child processes.

A child reads its role from one line on its standard input, and answers in lines of JSON. The stream
of `up --pipeline` needs Spark and its supervisor does not, so their shared types are here.
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
    """A stream that copies the archives of brokers to a table, and serves spaces."""

    name: str
    urls: tuple[str, ...]
    """The HTTP addresses of the brokers."""
    out: str
    checkpoint: str
    is_serving: bool
    """Does the stream evaluate the where-clauses of some space?"""
    user: str | None = None
    """The name of an administrator, whose password is in the environment; None without one."""
    key: str = ""
    """Authenticates the stream at the brokers that start with it, if there is no `user`."""
    log_level: str = "info"
