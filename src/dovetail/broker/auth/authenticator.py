"""The interface of authenticators: what they get, and what they may answer.

To add a way to log in, write an `Authenticator` in a file of its own and add it to `make_chain`
(chain.py). Rules:

- An authenticator decides only about its own kind of credentials. For all others it answers None,
  and the chain asks the next authenticator.
- It answers on the event loop, so it must not block. Where a check takes time, it returns a future.
- It does not reuse an answer for another client: anybody may send the same `Credentials`.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from dovetail.errors import ReasonCode
from dovetail.settings import ListenerSettings


class Credentials(NamedTuple):
    """Everything that a client tells about itself: in its CONNECT, in TLS, or in HTTP."""

    client_id: str = ""
    """Empty if the broker chooses one, or if the client uses HTTP."""
    user: str | None = None
    password: bytes | None = None
    certificate_name: str | None = None
    """The common name in the client's certificate. TLS has verified the certificate."""
    host: str = "?"
    """The address that the connection comes from."""
    is_loopback: bool = False
    """Does the client run on this machine?"""
    listener: ListenerSettings | None = None
    """The listener that the client connected to; None if it uses HTTP."""


class Grant(NamedTuple):
    """A client that may connect."""

    user: str | None
    """None for an anonymous client."""


Decision = Grant | ReasonCode
"""Either the client is this user, or it is refused for this reason."""

Answer = Decision | None
"""None means: these credentials are of another kind, so ask the next authenticator."""

IsWaiting = Callable[[], bool]
"""Tells whether the client still waits. If not, a check may be skipped and its future cancelled."""


class Authenticator(Protocol):
    """One way to prove a name."""

    def authenticate(
        self, credentials: Credentials, is_waiting: IsWaiting, /
    ) -> "Answer | asyncio.Future[Answer]":
        """Return the answer, or a future of it. A cancelled future means that nobody waits."""
