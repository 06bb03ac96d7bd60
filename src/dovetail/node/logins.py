"""Logins at a broker: MQTT clients and users of HTTP go through the same authenticators.

The authenticators are pure or wait for a thread (broker/auth). This module connects them to the
broker: it answers a CONNECT, and remembers which user has logged in from which address.
"""

import asyncio

from dovetail.broker.auth.authenticator import Credentials, Decision, Grant
from dovetail.broker.auth.chain import make_chain
from dovetail.broker.auth.password_checker import REFUSALS, PasswordChecker
from dovetail.broker.auth.passwords import PasswordFile
from dovetail.broker.client_link import ClientLink
from dovetail.broker.core import Broker
from dovetail.broker.net.server import BrokerServer
from dovetail.codec.packets import Connect
from dovetail.settings import AccessSettings


class Logins:
    """The logins of one broker."""

    def __init__(
        self, access: AccessSettings, passwords: PasswordFile | None, checker: PasswordChecker
    ) -> None:
        """`passwords`: the content of `access.password_file`, None without one."""
        self._checker = checker
        self._chain = make_chain(access, passwords, checker)

    def change(self, access: AccessSettings, passwords: PasswordFile | None) -> None:
        """Apply other settings from now on. Throttled addresses may try again."""
        self._chain = make_chain(access, passwords, self._checker)
        self._checker.limit(access.failed_logins_per_minute_max)

    def stop(self) -> None:
        """Drop the logins that wait, without an answer."""
        self._checker.stop()

    def authenticate(self, server: BrokerServer, link: ClientLink, packet: Connect) -> None:
        """Admit or refuse an MQTT client, now or when its password has been checked."""
        broker, peer = server.broker, link.remote
        credentials = Credentials(
            client_id=packet.client_id,
            user=packet.user,
            password=packet.password,
            certificate_name=peer.certificate_name,
            host=peer.host,
            is_loopback=peer.is_loopback,
            listener=peer.listener,
        )
        decision = self._chain.authenticate(credentials, lambda: not link.is_closed)
        if not isinstance(decision, asyncio.Future):
            self._settle(broker, link, packet, credentials, decision)
            return

        def done(decision: "asyncio.Future[Decision]") -> None:
            broker.shared.now = server.clock()
            if not link.is_closed and not decision.cancelled():
                self._settle(broker, link, packet, credentials, decision.result())
                link.resume()

        decision.add_done_callback(done)

    def _settle(
        self,
        broker: Broker,
        link: ClientLink,
        packet: Connect,
        credentials: Credentials,
        decision: Decision,
    ) -> None:
        if isinstance(decision, Grant):
            self._remember(decision, credentials)
            broker.admit(link, packet, decision.user)
        else:
            link.refuse(decision, REFUSALS.get(decision))

    async def decide(self, credentials: Credentials) -> Decision:
        """Return the decision about a user of HTTP."""
        decision = self._chain.authenticate(credentials)
        if isinstance(decision, asyncio.Future):
            decision = await decision
        if isinstance(decision, Grant):
            self._remember(decision, credentials)
        return decision

    def _remember(self, grant: Grant, credentials: Credentials) -> None:
        if grant.user is not None and credentials.password:
            self._checker.remember(grant.user, credentials.host)
