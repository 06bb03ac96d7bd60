"""The authentication seam: what an authenticator gets, and what it may answer.

To add a way to log in, write an `Authenticator` in a file of its own and add it to `make_chain`
(chain.py). Rules:

- An authenticator judges only credentials of its own kind. It answers None for all others, and the
  chain asks the next authenticator.
- It answers on the event loop, so it must not block. Where a check takes time, it returns a future.
- It keeps no answer for another client: the same `Credentials` may come from anybody.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from dovetail.errors import ReasonCode
from dovetail.settings import Listener


class Credentials(NamedTuple):
    """Everything that a client shows of itself: in its CONNECT, in TLS, or in an HTTP request."""

    client_id: str = ""
    """Empty: the broker chooses one, or the client uses HTTP."""
    user: str | None = None
    password: bytes | None = None
    certificate_name: str | None = None
    """The common name in the client's certificate. TLS has verified the certificate."""
    host: str = "?"
    """The address that the connection comes from."""
    is_loopback: bool = False
    """Does the client run on this machine?"""
    listener: Listener | None = None
    """The listener that the client connected to; None: it uses HTTP."""


class Grant(NamedTuple):
    """A client that may connect."""

    user: str | None
    """None: an anonymous client."""


Decision = Grant | ReasonCode
"""The client is this user, or it is refused for this reason."""

Answer = Decision | None
"""None: these credentials are of another kind; the chain asks the next authenticator."""

IsWanted = Callable[[], bool]
"""Does the client still wait? If not, a check may be skipped and its future cancelled."""


class Authenticator(Protocol):
    """One way to prove a name."""

    def authenticate(
        self, credentials: Credentials, is_wanted: IsWanted, /
    ) -> "Answer | asyncio.Future[Answer]":
        """Return the answer, or a future of it. A cancelled future means that nobody waits."""
