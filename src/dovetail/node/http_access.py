"""Permissions of HTTP users.

- Messages by handle: users that may connect over MQTT, checked by the same authenticators.
- Reading the subscriptions of clients: everybody, unless the settings restrict clients.
- Administration: `access.administrators`. If the settings name none, users of this machine, or
  nobody if the settings restrict clients.
- The stream that was started with the broker authenticates with a key, and may administer.
"""

import hmac
import logging

from dovetail.broker.auth.authenticator import Credentials, Grant
from dovetail.broker.auth.password_checker import REFUSALS
from dovetail.errors import ClientError, ReasonCode
from dovetail.limits import STREAM_USER
from dovetail.node.logins import Logins
from dovetail.settings import Settings
from dovetail.web import HttpCredentials

log = logging.getLogger("dovetail.node")


class HttpAccess:
    """Decides what the user of an HTTP request may do."""

    def __init__(self, logins: Logins, settings: Settings, stream_key: str) -> None:
        """`stream_key` authenticates our stream; empty: there is none."""
        self._logins = logins
        self._stream_key = stream_key.encode()
        self._administrators: tuple[str, ...] = ()
        self._is_restricted = False
        self.change(settings)

    def change(self, settings: Settings) -> None:
        """Apply these settings from now on. Log it if nobody may administer any more."""
        was_closed = self._is_closed
        self._administrators = settings.access.administrators
        self._is_restricted = settings.restricts_clients
        if self._is_closed and not was_closed and settings.http.enabled:
            log.info(
                "HTTP is closed (403) for /archive, /drain, /engine, /plan and /route: there are "
                "users, rules or client certificates, and access.administrators names nobody"
            )

    @property
    def _is_closed(self) -> bool:
        return self._is_restricted and not self._administrators

    async def log_in(self, credentials: HttpCredentials) -> str | None:
        """Return the authenticated name, None for an anonymous user, or raise ClientError."""
        decision = await self._logins.decide(
            Credentials(
                user=credentials.user,
                password=credentials.password,
                host=credentials.host,
                is_loopback=credentials.is_local,
            )
        )
        if isinstance(decision, Grant):
            return decision.user
        if decision in REFUSALS:
            raise ClientError(decision, REFUSALS[decision])
        why = "a name and its password are needed here"
        if decision == ReasonCode.BAD_USER_NAME_OR_PASSWORD:
            why = "the name or the password is wrong"
        raise ClientError(ReasonCode.BAD_USER_NAME_OR_PASSWORD, why)

    async def inspect(self, credentials: HttpCredentials) -> None:
        """Raise ClientError unless this user may see what clients have subscribed to."""
        if self._is_restricted:
            await self.administer(credentials)

    async def administer(self, credentials: HttpCredentials) -> None:
        """Raise ClientError unless this user may change the cluster and read the archive."""
        if self._is_stream(credentials):
            return
        if self._is_closed:
            why = (
                "this is for administrators, as there are users, rules or client certificates, and "
                "access.administrators in the broker's configuration names nobody"
            )
            raise ClientError(ReasonCode.NOT_AUTHORIZED, why)
        if not self._administrators and not credentials.is_local:
            why = "without access.administrators this is taken from the broker's own machine only"
            raise ClientError(ReasonCode.NOT_AUTHORIZED, why)
        user = await self.log_in(credentials)
        if self._administrators and user is None:
            why = "an administrator's name and password are needed here"
            raise ClientError(ReasonCode.BAD_USER_NAME_OR_PASSWORD, why)
        if self._administrators and user not in self._administrators:
            raise ClientError(ReasonCode.NOT_AUTHORIZED, f"{user} is none of the administrators")

    def _is_stream(self, credentials: HttpCredentials) -> bool:
        return (
            bool(self._stream_key)
            and credentials.user == STREAM_USER
            and hmac.compare_digest(credentials.password or b"", self._stream_key)
        )
