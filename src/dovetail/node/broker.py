"""Assembles a broker process: store, broker core, listeners, archive, cluster agent, HTTP.

Rules:

- The node imports all modules and opens all files before it accepts a connection: from then on
  strangers may take every file descriptor that is not reserved.
- It stops in an order that loses nothing: accept no more connections, send DISCONNECT to clients,
  write queues to disk, stop HTTP last.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from dovetail.attributes.declaration import declared_spaces
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker import delivery
from dovetail.broker.archive_queue import ArchiveQueue
from dovetail.broker.auth.access import AccessRules, ownership_rules
from dovetail.broker.auth.chain import load_passwords
from dovetail.broker.auth.password_checker import PasswordChecker
from dovetail.broker.client_link import ClientLink
from dovetail.broker.engine_requests import EngineRequests
from dovetail.broker.handle_requests import HandleRequests
from dovetail.broker.kernel_loader import load_kernels
from dovetail.broker.net.listeners import OpenListener, listen, serve
from dovetail.broker.net.server import BrokerServer
from dovetail.broker.peering import sketch_exchange
from dovetail.broker.peering.broker_agent import BrokerAgent
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.broker.reporter import Reporter
from dovetail.broker.shared_state import SharedState
from dovetail.broker.standalone_queries import StandaloneQueries
from dovetail.broker.store.journal import ArchiveRow, Journal
from dovetail.broker.store.sqlite import Store
from dovetail.cluster.node_settings import NodeSettings, node_settings_of
from dovetail.codec.packets import Connect
from dovetail.node.broker_reload import BrokerReload
from dovetail.node.broker_views import BrokerViews
from dovetail.node.descriptor_check import check_descriptors
from dovetail.node.http_access import HttpAccess
from dovetail.node.limits import KNOWN_LOGINS_FILE
from dovetail.node.logins import Logins
from dovetail.node.service import addresses_of, http_url, run_service
from dovetail.node.sys_publisher import publish_sys
from dovetail.process import garbage
from dovetail.settings import Settings, check_files
from dovetail.web import HttpServer

if TYPE_CHECKING:
    from dovetail.archive.archiver import Archiver

log = logging.getLogger("dovetail.node")

_LISTENER_NAMES = {
    "tcp": "MQTT",
    "tls": "MQTT, TLS",
    "websocket": "WebSocket",
    "secure-websocket": "WebSocket",
}


class BrokerNode:
    """A broker process: the broker core with sockets, disk, HTTP and cluster."""

    def __init__(
        self,
        settings: Settings,
        *,
        load: Callable[[], Settings] | None = None,
        movable: frozenset[str] = frozenset(),
        cluster: NodeSettings | None = None,
        shares_ports: bool = False,
        stream_key: str = "",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take what a node needs besides its settings.

        `load` returns the settings for a reload, and by default the same ones. `movable` has kinds
        of listeners, "http" and "cluster", that use another port if theirs is taken. Without
        `cluster` the settings say whether there is one. `shares_ports`: our parent process holds
        the ports, and other brokers may share those of listeners. `stream_key` authenticates the
        stream that was started with this broker; empty: there is none. `wall_clock` returns
        seconds since 1970; tests let it jump.
        """
        self.settings = settings
        self._wall_clock = wall_clock
        self._cluster = cluster
        self.agent: BrokerAgent | None = None
        self.listeners: list[OpenListener] = []
        self.http_address: tuple[str, int] | None = None
        self._load = load or (lambda: settings)
        self._movable = movable
        self._shares_ports = shares_ports
        self._stream_key = stream_key
        self._stopped = asyncio.Event()
        self._server: BrokerServer | None = None
        self._store: Store | None = None
        self._archive: Archiver | None = None
        self._http: HttpServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._logins: Logins | None = None
        self._reload: BrokerReload | None = None

    @property
    def name(self) -> str:
        return self.settings.name or socket.gethostname()

    async def start(self) -> None:
        """Start everything but HTTP (`start_http`)."""
        settings = self.settings
        check_files(settings)
        passwords = load_passwords(settings.access)
        if self._cluster is None and settings.cluster.enabled:
            self._cluster = node_settings_of(
                settings,
                self.name,
                may_move="cluster" in self._movable,
                shares_port=self._shares_ports,
            )
        load_kernels()
        if settings.spaces:
            delivery.load_kernels()
        self._store = Store.open(Path(settings.data), settings.durability)
        checker = PasswordChecker(
            Path(settings.data) / KNOWN_LOGINS_FILE, settings.access.failed_logins_per_minute_max
        )
        logins = self._logins = Logins(settings.access, passwords, checker)
        self._access = HttpAccess(logins, settings, self._stream_key)
        state = self._store.load()
        highest_session, highest_message = self._store.highest_numbers()
        shared = SharedState(
            settings.mqtt,
            Journal(next_session=highest_session + 1, next_message=highest_message + 1),
            ownership=ownership_rules(settings.access),
        )

        def authenticate(link: ClientLink, packet: Connect) -> None:
            logins.authenticate(server, link, packet)

        self._queue = self._archive_queue(shared, self._store, state.archive)
        server = self._server = self._make_server(shared, self._store, authenticate)
        self._start_archive(server, state.archive)
        self._handles = HandleRequests(server, settings.http.polls_max)
        self._engine = EngineRequests(server)
        self._reload = BrokerReload(
            server,
            self.listeners,
            logins=logins,
            access=self._access,
            agent=self.agent,
            archive=self._archive,
        )
        server.broker.restore(state, self._wall_clock())
        await self._take_ports(server)
        if settings.http.enabled:
            self._http = self._make_http(server)
            await self._http.bind()
            await self._http.prepare()
        if self._archive is not None:
            await self._archive.ready()
        # All modules are imported and all files are open: from here on strangers take descriptors.
        check_descriptors(settings.mqtt.connections_max)
        if self.agent is not None:
            await self.agent.start()
        for opened in self.listeners:
            await serve(opened)
        interval_seconds = settings.mqtt.sys_interval_seconds
        if interval_seconds:
            publishing = publish_sys(server, self.name, interval_seconds)
            self._tasks.append(asyncio.create_task(publishing, name="sys"))
        garbage.start_serving()

    async def _take_ports(self, server: BrokerServer) -> None:
        # Bind ports now, so that a port that is taken ends the start before others notice us.
        # Clients are accepted later, when we know the subscriptions of the other brokers.
        for listener in self.settings.listeners:
            may_move = listener.kind in self._movable
            opened = await listen(
                server, listener, may_move=may_move, shares_port=self._shares_ports
            )
            self.listeners.append(opened)

    def _make_server(
        self,
        shared: SharedState,
        store: Store,
        authenticate: Callable[[ClientLink, Connect], None],
    ) -> BrokerServer:
        """Make the server, and in a cluster the agent."""
        settings = self.settings
        loop_time = asyncio.get_running_loop().time
        offset = self._wall_clock() - loop_time()

        def make(membership: ClusterMembership | None) -> BrokerServer:
            return BrokerServer(
                shared,
                store,
                authenticate=authenticate,
                random=Random(secrets.randbits(128)),
                # Steady within a run, even if the system's clock jumps.
                clock=lambda: loop_time() + offset,
                rules=AccessRules(settings.access.rules),
                spaces=SpaceRegistry(declared_spaces(settings.spaces)),
                cluster=membership,
                archive=self._queue,
            )

        if self._cluster is None:
            server = make(None)
            self._reporter = Reporter(server.broker, self.name, server.clock())
            return server
        sketch_exchange.load_kernels()
        stream, incarnation = store.begin_life(self._wall_clock())
        self.agent = BrokerAgent(
            self._cluster,
            settings.mqtt.packet_bytes_max,
            make,
            stream=stream,
            incarnation=incarnation,
            random=Random(secrets.randbits(128)),
        )
        self._reporter = self.agent.reporter
        return self.agent.server

    def _archive_queue(
        self, shared: SharedState, store: Store, waiting: Mapping[int, ArchiveRow]
    ) -> ArchiveQueue | None:
        """Return the queue of the archive, if there is one.

        `waiting`: rows of an earlier life that are in no file yet.
        """
        archive = self.settings.archive
        if self.settings.has_archive:
            return ArchiveQueue(
                shared,
                self.name,
                archive.topics,
                bytes_max=archive.buffer_bytes_max,
                next_sequence=store.next_archived(self._wall_clock()),
            )
        if waiting:
            log.warning(
                "%s publications wait in the data folder until the configuration names topics for "
                "the archive again",
                f"{len(waiting):,}",
            )
        return None

    def _start_archive(self, server: BrokerServer, waiting: Mapping[int, ArchiveRow]) -> None:
        if self._queue is None:
            return
        from dovetail.archive.archiver import (
            Archiver,  # imports pyarrow, which brokers without an archive do not need
        )

        self._archive = Archiver(
            server,
            self._queue,
            self.settings.archive,
            SpaceRegistry(declared_spaces(self.settings.spaces)),
        )
        self._archive.start(waiting)

    async def start_http(self) -> None:
        """Start HTTP last: a health check that succeeds means that clients are served."""
        if self._http is not None:
            self.http_address = await self._http.start()
            self._reporter.http = http_url(self.http_address)
            if self._http.moved_because is not None:
                log.warning(
                    "HTTP moved to port %d: %s", self.http_address[1], self._http.moved_because
                )

    def _make_http(self, server: BrokerServer) -> HttpServer:
        views = BrokerViews(
            server,
            self._reporter,
            StandaloneQueries(self._reporter) if self.agent is None else self.agent.queries,
            access=self._access,
            handles=self._handles,
            engine=self._engine,
            archive=None if self._archive is None else self._archive.reader,
        )
        http = self.settings.http
        return HttpServer(
            http.host,
            http.port,
            views,
            http.polls_max,
            may_move="http" in self._movable,
            shares_port=self._shares_ports,
        )

    async def run(self) -> None:
        """Wait until `stop_soon` is called."""
        await self._stopped.wait()

    @property
    def addresses(self) -> list[tuple[str, str]]:
        """Return the addresses of the node, each with the name of its protocol."""
        mqtt = [(_LISTENER_NAMES[one.listener.kind], one.address) for one in self.listeners]
        return mqtt + addresses_of(self.http_address, self.agent)

    def stop_soon(self) -> None:
        self._stopped.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._logins is not None:
            self._logins.stop()
        for opened in self.listeners:
            opened.close()
        if self.agent is not None:
            await self.agent.stop()
        if self._server is not None:
            self._handles.stop()
            if self._archive is not None:
                await self._archive.stop()
            await self._server.stop()
        if self._store is not None:
            self._store.close()
        if self._http is not None:
            await self._http.stop()

    def reload(self) -> None:
        """Read the files again, and apply what may change while the broker runs."""
        assert self._reload is not None
        self._reload.run(self._load)


def run_node(
    settings: Settings,
    *,
    load: Callable[[], Settings] | None = None,
    movable: frozenset[str] = frozenset(),
    begin: Callable[[BrokerNode], None] | None = None,
    announce: Callable[[BrokerNode], None] | None = None,
    cluster: NodeSettings | None = None,
    shares_ports: bool = False,
    stream_key: str = "",
    log_name: str | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> None:
    """Run until SIGINT or SIGTERM. `begin` is called first, in the event loop."""

    def make() -> BrokerNode:
        return BrokerNode(
            settings,
            load=load,
            movable=movable,
            cluster=cluster,
            shares_ports=shares_ports,
            stream_key=stream_key,
            wall_clock=wall_clock,
        )

    run_service(make, level=settings.log.level, log_name=log_name, begin=begin, announce=announce)
