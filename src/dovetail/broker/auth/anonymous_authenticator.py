"""Authenticates clients that give no name. It is last in the chain, and always decides."""

from typing import Literal

from dovetail.broker.auth.authenticator import Credentials, Decision, Grant, IsWaiting
from dovetail.errors import ReasonCode

_ANONYMOUS = Grant(None)


class AnonymousAuthenticator:
    """Admits clients without a name: `always`, from this machine (`loopback`), or `never`."""

    def __init__(self, anonymous: Literal["always", "loopback", "never"]) -> None:
        self._anonymous = anonymous

    def authenticate(self, credentials: Credentials, _is_waiting: IsWaiting) -> Decision:
        if self._anonymous == "always":
            return _ANONYMOUS
        if self._anonymous == "loopback" and credentials.is_loopback:
            return _ANONYMOUS
        return ReasonCode.NOT_AUTHORIZED
