"""The reload of a running broker: passwords, access rules, spaces and certificates.

All files are read and checked before anything changes, so a faulty file changes nothing. Other
settings need a restart.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail.attributes.declaration import declared_spaces
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.auth.access import AccessRules, ownership_rules
from dovetail.broker.auth.chain import load_passwords
from dovetail.broker.net.listeners import OpenListener, renew, tls_context
from dovetail.broker.net.server import BrokerServer
from dovetail.broker.peering.broker_agent import BrokerAgent
from dovetail.cluster.node_settings import renewed_tls
from dovetail.errors import DovetailError
from dovetail.node.http_access import HttpAccess
from dovetail.node.logins import Logins
from dovetail.settings import ListenerSettings, Settings, check_files

if TYPE_CHECKING:
    from dovetail.archive.archiver import Archiver

log = logging.getLogger("dovetail.node")


class BrokerReload:
    """Applies changed settings to the parts of one broker."""

    def __init__(
        self,
        server: BrokerServer,
        listeners: Sequence[OpenListener],
        *,
        logins: Logins,
        access: HttpAccess,
        agent: BrokerAgent | None,
        archive: "Archiver | None",
    ) -> None:
        """`agent`: None without a cluster. `archive`: None without an archive."""
        self._server = server
        self._listeners = listeners
        self._logins = logins
        self._access = access
        self._agent = agent
        self._archive = archive

    def run(self, load: Callable[[], Settings]) -> None:
        """Apply the settings that `load` returns, or log why they cannot be used."""
        try:
            settings = load()
            check_files(settings)
            passwords = load_passwords(settings.access)
            rules = AccessRules(settings.access.rules)
            spaces = SpaceRegistry(declared_spaces(settings.spaces))
            renewed = [
                (opened, tls_context(_current_settings(opened.listener, settings)))
                for opened in self._listeners
                if opened.tls is not None
            ]
            tls = None
            if self._agent is not None:
                tls = renewed_tls(self._agent.transport.links, settings.cluster)
        except DovetailError as error:
            log.error("settings not reloaded, nothing has changed: %s", error)
            return
        self._logins.change(settings.access, passwords)
        self._access.change(settings)
        for opened, context in renewed:
            renew(opened, context)
        if tls is not None and self._agent is not None:
            self._agent.transport.renew(tls)
        self._server.broker.change_rules(rules)
        self._server.shared.ownership = ownership_rules(settings.access)
        self._change_spaces(spaces)
        self._change_archive(settings, spaces)
        log.info("reloaded passwords, access rules, spaces and certificates")

    def _change_spaces(self, spaces: SpaceRegistry) -> None:
        broker = self._server.broker
        if spaces.all == broker.router.spaces.all:
            return
        if self._archive is None and any(space.is_streamed for space in spaces.all):
            log.warning(
                "an engine needs an archive, which this broker opens at its next start; until then "
                "it evaluates where-clauses itself"
            )
        broker.change_spaces(spaces)

    def _change_archive(self, settings: Settings, spaces: SpaceRegistry) -> None:
        if self._archive is not None:
            self._archive.change_spaces(spaces)
            self._archive.change(settings.archive)
        elif settings.archive.topics:
            log.warning("the broker archives publications from its next start on")


def _current_settings(listener: ListenerSettings, settings: Settings) -> ListenerSettings:
    """Return the new settings of an open listener: the paths of its files may have changed."""
    address = (listener.kind, listener.host, listener.port)
    return next(
        (one for one in settings.listeners if (one.kind, one.host, one.port) == address), listener
    )
