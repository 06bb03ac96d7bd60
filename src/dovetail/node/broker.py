"""One process, put together: settings, store, broker, listeners, HTTP, signals.

Imports modules and opens files before it lets anybody in, as strangers may take all descriptors but
those that are reserved. Stops in the order that loses nothing: no more connections, DISCONNECT to
those there are, queues on disk, HTTP last.
"""

import asyncio
import gc
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from dovetail import __version__
from dovetail.attributes.declaration import declared_spaces
from dovetail.attributes.space_registry import Spaces
from dovetail.broker import delivery
from dovetail.broker.auth.access import AccessRules, ownership
from dovetail.broker.auth.chain import load_passwords
from dovetail.broker.auth.password_checker import Verifier
from dovetail.broker.client_link import Link
from dovetail.broker.engine_requests import Streaming
from dovetail.broker.handle_requests import Polling
from dovetail.broker.kernel_loader import load_kernels
from dovetail.broker.net.listeners import Listening, listen, renew, serve, tls_context
from dovetail.broker.net.server import Server
from dovetail.broker.peering import sketch_exchange
from dovetail.broker.peering.broker_agent import Agent
from dovetail.broker.reporter import Reporter
from dovetail.broker.shared_state import Shared
from dovetail.broker.standalone_queries import StandaloneQueries
from dovetail.broker.store.journal import ArchiveRow, Journal
from dovetail.broker.store.sqlite import Store
from dovetail.broker.sys_topics import SysTopics
from dovetail.cluster.node_settings import ClusterPart, part_of, renewed_tls
from dovetail.codec.packets import Connect
from dovetail.errors import ConfigError, DovetailError
from dovetail.messages import Message
from dovetail.node.broker_views import BrokerViews
from dovetail.node.http_access import HttpAccess
from dovetail.node.limits import CLIENTS_FEW, DESCRIPTORS_MIN, KNOWN_LOGINS_FILE
from dovetail.node.logins import Logins
from dovetail.node.service import http_url, places_of, run_until_told
from dovetail.process.descriptors import clients_max, limit_now
from dovetail.settings import Listener, Settings, check_files
from dovetail.web import HttpServer

if TYPE_CHECKING:
    from dovetail.archive.archiver import ArchiveAgent

log = logging.getLogger("dovetail.node")

# Of new objects, before Python looks for garbage among them; then among so many times as many. That
# takes one millisecond, and some. All objects are looked at after so many times that: hardly ever.
_GC_YOUNG = 5_000
_GC_MIDDLE = 3
_GC_OLD = 60_000
_KINDS = {
    "tcp": "MQTT",
    "tls": "MQTT, TLS",
    "websocket": "WebSocket",
    "secure-websocket": "WebSocket",
}
_NAME_TOPIC = b"$SYS/broker/dovetail/name"


class Node:
    """A broker with everything around it."""

    def __init__(
        self,
        settings: Settings,
        *,
        load: Callable[[], Settings] | None = None,
        movable: frozenset[str] = frozenset(),
        cluster: ClusterPart | None = None,
        shares_ports: bool = False,
        stream_key: str = "",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`load` gets the settings anew, for a reload.

        `movable`: kinds of listeners, "http" and "cluster", that take another port if theirs is
        taken. Without `cluster` the settings say whether there is one. `shares_ports`: with who
        started us and holds them, and those of listeners maybe with other brokers. `stream_key`:
        what the stream that was started with this broker proves itself with; empty: there is none.
        `wall_clock`: seconds since 1970; tests let it jump.
        """
        self.settings = settings
        self._wall_clock = wall_clock
        self._cluster = cluster
        self.agent: Agent | None = None
        self.listening: list[Listening] = []
        self.http_address: tuple[str, int] | None = None
        self._load = load
        self._movable = movable
        self._shares_ports = shares_ports
        self._stream_key = stream_key
        self._stopped = asyncio.Event()
        self._server: Server | None = None
        self._store: Store | None = None
        self._archive: ArchiveAgent | None = None
        self._http: HttpServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._logins: Logins | None = None

    @property
    def name(self) -> str:
        return self.settings.name or socket.gethostname()

    async def start(self) -> None:
        """Everything but HTTP is there when this returns; that follows by itself."""
        settings = self.settings
        check_files(settings)
        passwords = load_passwords(settings.access)
        if self._cluster is None and settings.cluster.enabled:
            self._cluster = part_of(
                settings,
                self.name,
                may_move="cluster" in self._movable,
                shares_port=self._shares_ports,
            )
        loop = asyncio.get_running_loop()
        offset = self._wall_clock() - loop.time()
        load_kernels()
        if settings.spaces:
            delivery.load_kernels()
        self._store = Store.open(Path(settings.data), settings.durability)
        verifier = Verifier(
            Path(settings.data) / KNOWN_LOGINS_FILE, settings.access.failed_logins_per_minute_max
        )
        logins = self._logins = Logins(settings.access, passwords, verifier)
        self._access = HttpAccess(logins, settings, self._stream_key)
        state = self._store.load()
        highest_session, highest_message = self._store.highest_numbers()
        shared = Shared(
            settings.mqtt,
            Journal(next_session=highest_session + 1, next_message=highest_message + 1),
            ownership=ownership(settings.access),
        )
        loop_time = loop.time

        def authenticate(link: Link, packet: Connect) -> None:
            logins.authenticate(server, link, packet)

        server = self._server = Server(
            shared,
            self._store,
            authenticate=authenticate,
            random=Random(secrets.randbits(128)),
            # Steady within a run, whatever happens to the system's clock.
            clock=lambda: loop_time() + offset,
            rules=AccessRules(settings.access.rules),
            spaces=Spaces(declared_spaces(settings.spaces)),
        )
        self._start_archive(self._store, self._server, state.archive)
        self._handles = Polling(self._server, settings.http.polls_max)
        self._engine = Streaming(self._server, self.name)
        self._reporter = Reporter(self._server.broker, self.name, self._server.clock())
        if self._cluster is not None:
            sketch_exchange.load_kernels()
            stream, incarnation = self._store.begin_life(self._wall_clock())
            self.agent = Agent(
                self._cluster,
                self._server,
                self._reporter,
                stream=stream,
                incarnation=incarnation,
                random=Random(secrets.randbits(128)),
            )
        self._server.broker.restore(state, self._wall_clock())
        await self._take_ports(server)
        if settings.http.enabled:
            self._http = self._make_http(server)
            await self._http.bind()
            await self._http.prepare()
        if self._archive is not None:
            await self._archive.ready()
        # All modules are imported and all files are open: from here on strangers take descriptors.
        self._check_descriptors()
        if self.agent is not None:
            await self.agent.start()
        for opened in self.listening:
            await serve(opened)
        if settings.mqtt.sys_interval_seconds:
            self._tasks.append(asyncio.create_task(self._publish_sys(), name="sys"))
        # What was made until now stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_YOUNG, _GC_MIDDLE, _GC_OLD)

    async def _take_ports(self, server: Server) -> None:
        # Ports are taken now, so that one which cannot be had troubles nobody else; clients are
        # let in when we know what is subscribed to elsewhere.
        for listener in self.settings.listeners:
            may_move = listener.kind in self._movable
            opened = await listen(
                server, listener, may_move=may_move, shares_port=self._shares_ports
            )
            self.listening.append(opened)

    def _check_descriptors(self) -> None:
        limit, room = limit_now(), clients_max()
        if room < 1:
            raise ConfigError(
                f"the limit of {limit:,} file descriptors leaves none for clients.",
                hint="`ulimit -Hn`, or LimitNOFILE of a service, has to be at least "
                f"{DESCRIPTORS_MIN:,}.",
            )
        if room < min(CLIENTS_FEW, self.settings.mqtt.connections_max):
            log.warning(
                "%d clients can be connected at a time: the limit of file descriptors is %s "
                "(`ulimit -Hn`)",
                room,
                f"{limit:,}",
            )

    def _start_archive(
        self, store: Store, server: Server, waiting: Mapping[int, ArchiveRow]
    ) -> None:
        """`waiting`: what is in no file since an earlier life."""
        if not self.settings.has_archive:
            if waiting:
                log.warning(
                    "publications that wait for the archive, and stay in the data folder until the "
                    "configuration names topics for it again: %s",
                    f"{len(waiting):,}",
                )
            return
        from dovetail.archive.archiver import (
            ArchiveAgent,  # with pyarrow, which others need not have
        )

        self._archive = ArchiveAgent(
            server,
            self.settings.archive,
            self.name,
            store.next_archived(self._wall_clock()),
            Spaces(declared_spaces(self.settings.spaces)),
        )
        self._archive.start(waiting)

    async def start_http(self) -> None:
        """Whoever asks after its health then learns that it serves clients."""
        if self._http is not None:
            self.http_address = await self._http.start()
            self._reporter.http = http_url(self.http_address)
            if self._http.moved_because is not None:
                log.warning(
                    "HTTP moved to port %d: %s", self.http_address[1], self._http.moved_because
                )

    def _make_http(self, server: Server) -> HttpServer:
        views = BrokerViews(
            server,
            self._reporter,
            StandaloneQueries(self._reporter) if self.agent is None else self.agent.asking,
            access=self._access,
            handles=self._handles,
            engine=self._engine,
            archive=None if self._archive is None else self._archive.reading,
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
        """Until `stop_soon` is called."""
        await self._stopped.wait()

    @property
    def places(self) -> list[tuple[str, str]]:
        """Where it can be reached, and how."""
        listening = [(_KINDS[one.listener.kind], one.address) for one in self.listening]
        return listening + places_of(self.http_address, self.agent)

    def stop_soon(self) -> None:
        self._stopped.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._logins is not None:
            self._logins.stop()
        for listening in self.listening:
            listening.close()
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
        """Passwords, access rules, spaces and certificates, from the files as they are now."""
        try:
            settings = self.settings
            if self._load is not None:
                settings = self._load()
            check_files(settings)
            passwords = load_passwords(settings.access)
            rules = AccessRules(settings.access.rules)
            spaces = Spaces(declared_spaces(settings.spaces))
            renewed = [
                (listening, tls_context(as_named_now(listening.listener, settings)))
                for listening in self.listening
                if listening.tls is not None
            ]
            tls = None
            if self.agent is not None:
                tls = renewed_tls(self.agent.transport.links, settings.cluster)
        except DovetailError as error:
            log.error("not reloaded, all stays as it was: %s", error)
            return
        assert self._server is not None
        assert self._logins is not None
        self._logins.change(settings.access, passwords)
        self._access.change(settings)
        for listening, context in renewed:
            renew(listening, context)
        if tls is not None and self.agent is not None:
            self.agent.transport.renew(tls)
        self._server.broker.change_rules(rules)
        self._server.shared.ownership = ownership(settings.access)
        if spaces.all != self._server.broker.router.spaces.all:
            if self._archive is None and any(space.is_streamed for space in spaces.all):
                log.warning(
                    "an engine reads from the archive, which there is from the next start on: "
                    "until then brokers look at where-clauses themselves"
                )
            self._server.broker.change_spaces(spaces)
        self._change_archive(settings, spaces)
        log.info("reloaded passwords, access rules, spaces and certificates")

    def _change_archive(self, settings: Settings, spaces: Spaces) -> None:
        if self._archive is not None:
            self._archive.change_spaces(spaces)
            self._archive.change(settings.archive)
        elif settings.archive.topics:
            log.warning("publications are archived from the next start on")

    # What the node says of itself ---------------------------------------------------------------

    async def _publish_sys(self) -> None:
        assert self._server is not None
        server = self._server
        topics = SysTopics(__version__, server.clock())
        server.broker.publish(Message(_NAME_TOPIC, self.name.encode(), retain=True))
        while True:
            now = server.clock()
            server.broker.tick(now)
            for topic, payload in topics.publish(server.shared.counters, server.shared.gauges, now):
                server.broker.publish(Message(topic, payload, retain=True))
            await asyncio.sleep(self.settings.mqtt.sys_interval_seconds)


def as_named_now(listener: Listener, settings: Settings) -> Listener:
    """The same listener in new settings, whose files may have other names."""
    place = (listener.kind, listener.host, listener.port)
    return next(
        (one for one in settings.listeners if (one.kind, one.host, one.port) == place), listener
    )


def run_node(
    settings: Settings,
    *,
    load: Callable[[], Settings] | None = None,
    movable: frozenset[str] = frozenset(),
    begin: Callable[[Node], None] | None = None,
    announce: Callable[[Node], None] | None = None,
    cluster: ClusterPart | None = None,
    shares_ports: bool = False,
    stream_key: str = "",
    log_name: str | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> None:
    """Run until SIGINT or SIGTERM. `begin` is called before anything else, in the loop."""

    def make() -> Node:
        return Node(
            settings,
            load=load,
            movable=movable,
            cluster=cluster,
            shares_ports=shares_ports,
            stream_key=stream_key,
            wall_clock=wall_clock,
        )

    run_until_told(
        make, level=settings.log.level, log_name=log_name, begin=begin, announce=announce
    )
