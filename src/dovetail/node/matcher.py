"""Assembles a matcher process: settings, agent, HTTP.

A matcher has no data folder, no listeners and no sessions. It reads the same settings as brokers,
and uses `[cluster]`, `[http]` and the spaces. If a port is taken, it uses the next free one,
because a broker with the same file may run on this machine.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from random import Random

from dovetail.api.reports import ClusterReport, NodeReport
from dovetail.attributes.declaration import declared_spaces
from dovetail.cluster.node_settings import node_settings_of, renewed_tls
from dovetail.errors import DovetailError
from dovetail.matcher.held_boxes import load_kernels
from dovetail.matcher.layout import Layout, layout_of, layouts_of
from dovetail.matcher.matcher_agent import MatcherAgent
from dovetail.node.service import addresses_of, run_service
from dovetail.settings import Settings, check_files, check_spaces
from dovetail.web import HttpServer, MatcherViews

log = logging.getLogger("dovetail.matcher")


class MatcherNode:
    """A matcher process: the agent with its links and HTTP."""

    def __init__(
        self,
        settings: Settings,
        *,
        load: Callable[[], Settings] | None = None,
        on_drain: Callable[[], None] | None = None,
        shares_ports: bool = False,
    ) -> None:
        """Take what a node needs besides its settings.

        `load` returns the settings for a reload, and by default the same ones. `on_drain` is called
        when the matcher starts to leave after a `drain`. `shares_ports`: our parent process holds
        the ports.
        """
        self.settings = settings
        self.agent: MatcherAgent | None = None
        self.http_address: tuple[str, int] | None = None
        self._load = load or (lambda: settings)
        self._on_drain = on_drain
        self._shares_ports = shares_ports
        self._stopped = asyncio.Event()
        self._http: HttpServer | None = None

    @property
    def name(self) -> str:
        return self.settings.name or socket.gethostname()

    async def start(self) -> None:
        settings = self.settings
        check_files(settings)
        layouts = live_layouts(settings)
        node_settings = node_settings_of(
            settings, self.name, role="matcher", may_move=True, shares_port=self._shares_ports
        )
        load_kernels()
        self.agent = MatcherAgent(
            node_settings,
            layouts,
            # Nothing is stored, so only the clock makes this higher than in an earlier life.
            incarnation=int(time.time() * 1_000),
            random=Random(secrets.randbits(128)),
            on_drain=self._drain,
        )
        if settings.http.enabled:
            self._http = self._make_http()
            await self._http.bind()
            await self._http.prepare()
        await self.agent.start()

    async def start_http(self) -> None:
        if self._http is not None:
            self.http_address = await self._http.start()

    def _make_http(self) -> HttpServer:
        views = MatcherViews(self._health, self._report, self._cluster)
        http = self.settings.http
        return HttpServer(
            http.host, http.port, views, may_move=True, shares_port=self._shares_ports
        )

    async def run(self) -> None:
        """Wait until `stop_soon` is called."""
        await self._stopped.wait()

    @property
    def addresses(self) -> list[tuple[str, str]]:
        return addresses_of(self.http_address, self.agent)

    def stop_soon(self) -> None:
        """Stop; a second call skips the hand-over."""
        if self._stopped.is_set() and self.agent is not None:
            self.agent.hurry()
        self._stopped.set()

    def _drain(self) -> None:
        """Start to leave. A repeated drain changes nothing."""
        if not self._stopped.is_set():
            log.info("the matcher is drained: it hands over and leaves")
            if self._on_drain is not None:
                self._on_drain()
            self._stopped.set()

    async def stop(self) -> None:
        if self.agent is not None:
            await self.agent.stop()
        if self._http is not None:
            await self._http.stop()

    def reload(self) -> None:
        """Read the files again, and apply spaces and certificates."""
        agent = self.agent
        if agent is None or self._stopped.is_set():
            return
        try:
            settings = self._load()
            check_files(settings)
            layouts = live_layouts(settings)
            tls = renewed_tls(agent.transport.links, settings.cluster)
        except DovetailError as error:
            log.error("settings not reloaded, nothing has changed: %s", error)
            return
        if tls is not None:
            agent.transport.renew(tls)
        if layouts != agent.side.directory.layouts:
            agent.change(layouts)
        log.info("reloaded spaces and certificates")

    def _health(self) -> tuple[bool, str]:
        if self.agent is None or not self.agent.brokers():
            return False, "no broker is there"
        return True, "ok"

    def _report(self) -> NodeReport:
        assert self.agent is not None
        return self.agent.report()

    async def _cluster(self) -> ClusterReport:
        assert self.agent is not None
        return await self.agent.queries.cluster()


def live_layouts(settings: Settings) -> Mapping[str, Layout]:
    """Return the layouts of the spaces that matchers serve, by name of the space."""
    check_spaces(settings)
    spaces = [space for space in declared_spaces(settings.spaces) if not space.is_streamed]
    return layouts_of([layout_of(space) for space in spaces])


def run_matcher(
    settings: Settings,
    *,
    load: Callable[[], Settings] | None = None,
    begin: Callable[[MatcherNode], None] | None = None,
    announce: Callable[[MatcherNode], None] | None = None,
    on_drain: Callable[[], None] | None = None,
    shares_ports: bool = False,
    log_name: str | None = None,
) -> None:
    """Run until SIGINT, SIGTERM or `drain`. `begin` is called first, in the event loop."""
    run_service(
        lambda: MatcherNode(settings, load=load, on_drain=on_drain, shares_ports=shares_ports),
        level=settings.log.level,
        log_name=log_name,
        begin=begin,
        announce=announce,
    )
