"""A matcher process, put together: settings, agent, HTTP, signals.

It has no data folder, no listeners and no sessions. Its settings are the brokers': of them it needs
`[cluster]`, `[http]` and the spaces. Ports that are taken it leaves to who has them, and takes the
next free ones: a broker with the same file may be on this machine.
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
from dovetail.cluster.node_settings import part_of, renewed_tls
from dovetail.errors import DovetailError
from dovetail.matcher.held_boxes import load_kernels
from dovetail.matcher.layout import Layout, layout_of, layouts_of
from dovetail.matcher.matcher_agent import MatcherAgent
from dovetail.node.service import places_of, run_until_told
from dovetail.settings import Settings, check_files, check_spaces
from dovetail.web import HttpServer, MatcherViews

log = logging.getLogger("dovetail.matcher")


class MatcherNode:
    """A matcher with everything around it."""

    def __init__(
        self,
        settings: Settings,
        *,
        load: Callable[[], Settings] | None = None,
        on_drain: Callable[[], None] | None = None,
        shares_ports: bool = False,
    ) -> None:
        """`load` gets the settings anew, for a reload.

        `on_drain`: called when it begins to leave because somebody asked for that (`drain`).
        `shares_ports`: with who started us, and holds them.
        """
        self.settings = settings
        self.agent: MatcherAgent | None = None
        self.http_address: tuple[str, int] | None = None
        self._load = load
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
        layouts = layouts_in(settings)
        part = part_of(
            settings, self.name, role="matcher", may_move=True, shares_port=self._shares_ports
        )
        load_kernels()
        self.agent = MatcherAgent(
            part,
            layouts,
            # Nothing of an earlier life is kept, and a later one is later by this.
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
        """Until `stop_soon` is called."""
        await self._stopped.wait()

    @property
    def places(self) -> list[tuple[str, str]]:
        return places_of(self.http_address, self.agent)

    def stop_soon(self) -> None:
        """The second time: without handing over."""
        if self._stopped.is_set() and self.agent is not None:
            self.agent.hurry()
        self._stopped.set()

    def _drain(self) -> None:
        """Who is told a second time goes on leaving."""
        if not self._stopped.is_set():
            log.info("was told to hand over and leave")
            if self._on_drain is not None:
                self._on_drain()
            self._stopped.set()

    async def stop(self) -> None:
        if self.agent is not None:
            await self.agent.stop()
        if self._http is not None:
            await self._http.stop()

    def reload(self) -> None:
        """Spaces and certificates, from the files as they are now."""
        agent = self.agent
        if agent is None or self._stopped.is_set():
            return
        try:
            settings = self.settings if self._load is None else self._load()
            check_files(settings)
            layouts = layouts_in(settings)
            tls = renewed_tls(agent.transport.links, settings.cluster)
        except DovetailError as error:
            log.error("not reloaded, all stays as it was: %s", error)
            return
        if tls is not None:
            agent.transport.renew(tls)
        if layouts != agent.back.view.layouts:
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
        return await self.agent.asking.cluster()


def layouts_in(settings: Settings) -> Mapping[str, Layout]:
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
    """Run until SIGINT, SIGTERM or `drain`. `begin` is called before all else, in the loop."""
    run_until_told(
        lambda: MatcherNode(settings, load=load, on_drain=on_drain, shares_ports=shares_ports),
        level=settings.log.level,
        log_name=log_name,
        begin=begin,
        announce=announce,
    )
