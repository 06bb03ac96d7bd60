"""Which users may do what over HTTP.

- Messages by handle: users that may connect over MQTT, by the same authenticators.
- Reading what clients subscribe to: everybody, unless the settings restrict clients.
- Administration: `access.administrators`. Where the settings name none, users of this machine, or
  nobody if the settings restrict clients.
- A stream that was started together with the broker proves itself with a key, and may administer.
"""

import hmac
import logging

from dovetail.broker.auth.authenticator import Credentials, Grant
from dovetail.broker.auth.password_checker import REFUSALS
from dovetail.errors import ClientError, ReasonCode
from dovetail.limits import STREAM_USER
from dovetail.node.logins import Logins
from dovetail.settings import Settings
from dovetail.web import Claim

log = logging.getLogger("dovetail.node")


class HttpAccess:
    """Judges the claims of HTTP requests."""

    def __init__(self, logins: Logins, settings: Settings, stream_key: str) -> None:
        """`stream_key`: proves that a request comes from our stream; empty: there is none."""
        self._logins = logins
        self._stream_key = stream_key.encode()
        self._administrators: tuple[str, ...] = ()
        self._is_restricted = False
        self.change(settings)

    def change(self, settings: Settings) -> None:
        """Judge by these settings from now on. Log it if they leave nobody to administer."""
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

    async def log_in(self, claim: Claim) -> str | None:
        """Return the proven name; None: an anonymous user. Raise ClientError for a refusal."""
        decision = await self._logins.decide(
            Credentials(
                user=claim.user,
                password=claim.password,
                host=claim.host,
                is_loopback=claim.is_local,
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

    async def inspect(self, claim: Claim) -> None:
        """Raise ClientError unless this user may see what clients have subscribed to."""
        if self._is_restricted:
            await self.administer(claim)

    async def administer(self, claim: Claim) -> None:
        """Raise ClientError unless this user may change the cluster and read the archive."""
        if self._is_stream(claim):
            return
        if self._is_closed:
            why = (
                "this is for administrators, as there are users, rules or client certificates, and "
                "access.administrators in the broker's configuration names nobody"
            )
            raise ClientError(ReasonCode.NOT_AUTHORIZED, why)
        if not self._administrators and not claim.is_local:
            why = "without access.administrators this is taken from the broker's own machine only"
            raise ClientError(ReasonCode.NOT_AUTHORIZED, why)
        proven = await self.log_in(claim)
        if self._administrators and proven is None:
            why = "an administrator's name and password are needed here"
            raise ClientError(ReasonCode.BAD_USER_NAME_OR_PASSWORD, why)
        if self._administrators and proven not in self._administrators:
            raise ClientError(ReasonCode.NOT_AUTHORIZED, f"{proven} is none of the administrators")

    def _is_stream(self, claim: Claim) -> bool:
        return (
            bool(self._stream_key)
            and claim.user == STREAM_USER
            and hmac.compare_digest(claim.password or b"", self._stream_key)
        )
