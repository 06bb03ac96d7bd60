"""The network's side of a client's connection, as its link uses it. Pure.

The link (client_link.py) never writes or reads by itself. It collects bytes and wakes its wire. The
shell implements `Wire` with a socket (net/server.py), and tests without one.
"""

from typing import NamedTuple, Protocol

from dovetail.settings import ListenerSettings


class RemoteEnd(NamedTuple):
    """The other end of a connection, as the network sees it."""

    address: str = "?"
    is_loopback: bool = True
    certificate_name: str | None = None
    host: str = "?"
    listener: ListenerSettings | None = None
    """The listener that the client connected to, if any."""


class Wire(Protocol):
    """Moves the bytes of one connection."""

    def wake(self) -> None:
        """At the end of the turn: write the link's bytes, and close or read on if it may."""

    def flush(self) -> None:
        """Write the link's bytes now."""

    def resume(self) -> None:
        """Read on: the client was admitted."""


class NoWire:
    """The wire of a link that has no bytes to move: a mailbox, or a connection that is lost."""

    def wake(self) -> None:
        """There is nothing to write."""

    def flush(self) -> None:
        """There is nothing to write."""

    def resume(self) -> None:
        """There is nothing to read."""


NO_WIRE = NoWire()
