"""The broker as a machine: connections, bytes and time go in; bytes and rows come out. Pure.

`Broker` assembles the parts; links and shells talk to it. admission.py admits clients,
session_lifetime.py begins and ends sessions, subscribe.py changes subscriptions, and
broker/store/recovery.py restores the state of an earlier process.

Two shells drive it: broker/net/server.py with sockets and a disk, and tests with neither. The shell
passes `schedule`, which the broker calls when there is work at the end of the turn, and
`authenticate`, which finds the user of a CONNECT and then calls `admit` or `ClientLink.refuse`. It
calls `tick` every TICK_SECONDS_MAX (keep_alive.py). It gives each connection a `Wire`
(client_wire.py), and the bytes that it reads to a PacketReader.
"""

import logging
from collections.abc import Callable, Iterable
from random import Random

from dovetail.attributes.space import Point
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.admission import Admission
from dovetail.broker.archive_queue import ArchiveQueue, NoArchive
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.back_pressure import BackPressure
from dovetail.broker.client_link import ClientLink
from dovetail.broker.client_wire import RemoteEnd, Wire
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.engine_backlog import EngineBacklog, NoEngine
from dovetail.broker.joined_reads import JoinedReads
from dovetail.broker.keep_alive import KeepAlive
from dovetail.broker.limits import CONNECT_BYTES_MAX, REVIEWED_PER_PIECE, TIMERS_PER_PIECE
from dovetail.broker.local_delivery import LocalDelivery
from dovetail.broker.matcher_client import MatcherClient
from dovetail.broker.other_brokers import (
    Forwarding,
    MatcherLookup,
    NoForwarding,
    NoMatchers,
    NoOtherBrokers,
    NoPeers,
    NoRetainedOrder,
    OtherBrokers,
    PeerLookup,
    RetainedOrder,
)
from dovetail.broker.packet_reader import PacketReader
from dovetail.broker.peering.forwarder import Forwarder
from dovetail.broker.peering.limits import WILLS_RESTORED_SECONDS
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.peering.peer_tables import ClusterMembership, PeerTables
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.retained_delivery import RetainedDeliveries
from dovetail.broker.retained_runs import RetainedRuns
from dovetail.broker.route import Route
from dovetail.broker.route_cache import RouteCache
from dovetail.broker.router import Router
from dovetail.broker.run_dispatch import RunDispatch
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import StoredState
from dovetail.broker.store.recovery import restore
from dovetail.broker.subscribe import SubscribeHandler
from dovetail.broker.timers import Timers
from dovetail.codec.packets import Connect, Subscribe, Unsubscribe
from dovetail.codec.scanner import Scanner
from dovetail.errors import ReasonCode
from dovetail.messages import Message
from dovetail.process.logs import about
from dovetail.slices import SliceScheduler, Work, run_to_end

log = logging.getLogger("dovetail.broker")


class Broker:
    """One broker: its clients, sessions, routes and retained messages."""

    def __init__(
        self,
        shared: SharedState,
        *,
        authenticate: Callable[[ClientLink, Connect], None],
        schedule: Callable[[], None],
        random: Random,
        rules: AccessRules | None = None,
        spaces: SpaceRegistry | None = None,
        cluster: ClusterMembership | None = None,
        archive: ArchiveQueue | None = None,
    ) -> None:
        """Assemble a broker, alone or in a cluster, with or without an archive."""
        self.shared = shared
        self.retained = RetainedMessages()
        self.slices = SliceScheduler(schedule)
        """Long work, done in pieces so that other clients do not wait for it."""
        self.timers = Timers()
        self.back_pressure = BackPressure(shared, self.timers)
        self.scan = Scanner()
        self.links: set[ClientLink] = set()
        self.connect_bytes_max = min(CONNECT_BYTES_MAX, shared.limits.packet_bytes_max)
        self._random = random
        self._authenticate = authenticate
        self._schedule = schedule
        self._keep_alive = KeepAlive(shared, self.timers)

        local = LocalDelivery(shared)
        routes = RouteCache(shared.limits.routes_max)
        spaces = spaces or SpaceRegistry()
        archived = archive or NoArchive()
        lookup: PeerLookup = NoPeers()
        forwarding: Forwarding = NoForwarding(local)
        matchers: MatcherLookup = NoMatchers()
        order: RetainedOrder = NoRetainedOrder()
        if cluster is not None:
            lookup = tables = PeerTables(shared, cluster, routes, random, schedule)
            forwarding = forwarder = Forwarder(shared, local, tables, cluster)
            matchers = matcher_client = MatcherClient(shared, cluster, spaces, random, schedule)
            order = tables.stamps
        self.router = Router(shared.limits, spaces, routes, lookup, archived)
        self.engine_backlog: EngineBacklog | None = None
        """The publications that wait for a stream, if there is an archive."""
        if archive is not None:
            self.engine_backlog = EngineBacklog(shared, self.router, local, forwarding, archive)
        self.dispatch = Dispatch(
            shared,
            self.router,
            self.retained,
            local,
            forwarding=forwarding,
            matchers=matchers,
            retained_order=order,
            archive=archived,
            engine=self.engine_backlog or NoEngine(),
        )
        self.runs = RunDispatch(
            shared,
            self.router,
            self.dispatch,
            local,
            forwarding=forwarding,
            matchers=matchers,
            archive=archived,
        )
        self.joined_reads = JoinedReads(
            shared, routes, self.runs, self.back_pressure, asks_matchers=cluster is not None
        )
        self._lifetimes = SessionLifetimes(
            shared,
            self.slices,
            self.router,
            self.timers,
            self.dispatch,
            self.publish,
            wills_restored_seconds=0.0 if cluster is None else WILLS_RESTORED_SECONDS,
        )
        self.mesh: Mesh | None = None
        """The other brokers, in a cluster."""
        self.others: OtherBrokers = NoOtherBrokers()
        if cluster is not None:
            self.router.observe(tables)
            self.router.observe(matcher_client)
            self.others = self.mesh = Mesh(
                shared,
                self.router,
                self.dispatch,
                self.runs,
                local,
                self.retained,
                self._lifetimes,
                tables,
                forwarder,
                matcher_client,
                cluster,
                expire_retained=self.expire_retained,
                publish=self.publish,
            )
        self.retained_runs = RetainedRuns(
            shared, self.router, self.retained, self.expire_retained, is_alone=cluster is None
        )
        self.retained_deliveries = RetainedDeliveries(shared, self.slices, self.retained, local)
        self._subscribe_handler = SubscribeHandler(
            shared, self.slices, self.router, self.retained_deliveries, self.others
        )
        self._admission = Admission(
            shared,
            self.slices,
            self.router,
            self._lifetimes,
            self._subscribe_handler,
            self._keep_alive,
            random,
            rules or AccessRules(()),
            self.others,
        )

    @property
    def sessions(self) -> dict[str, Session]:
        """By client identifier."""
        return self._lifetimes.sessions

    # Called by the shell ------------------------------------------------------------------------

    def accept(self, wire: Wire, remote: RemoteEnd, now: float) -> PacketReader:
        """Return the reader of a new connection, whose client has to send CONNECT in time."""
        self.shared.now = now
        link = ClientLink(self, wire, remote, now)
        self.add_link(link)
        return PacketReader(self, link)

    def add_link(self, link: ClientLink) -> None:
        """Add a link, which has to be admitted in time."""
        self.links.add(link)
        self._keep_alive.await_admission(link)

    def admit(
        self, link: ClientLink, packet: Connect, user: str | None, stamp: int | None = None
    ) -> None:
        """Admit an authenticated client. With a `stamp` the other brokers are not asked."""
        self._admission.admit(link, packet, user, stamp)

    def tick(self, now: float) -> None:
        self.shared.now = now
        self._keep_alive.tick(now)
        self.slices.begin(self._run_timers())
        self.shared.message_expiry.tick(now)
        self.retained_deliveries.resume_all()
        if self.engine_backlog is not None:
            self.engine_backlog.tick()
        self._count()

    def _count(self) -> None:
        gauges = self.shared.gauges
        gauges.sessions = len(self.sessions)
        gauges.subscriptions = self.router.count
        gauges.retained_messages = len(self.retained)
        gauges.retained_bytes = self.retained.nbytes
        self.shared.counters.routes_computed = self.router.computed

    def _run_timers(self) -> Work:
        while self.timers.run(self.shared.now, TIMERS_PER_PIECE):
            yield

    def change_rules(self, rules: AccessRules) -> None:
        """Apply new access rules to all clients, connected or not."""
        if rules.rules == self._admission.rules.rules:
            return
        self._admission.rules = rules
        for link in self.links:
            if link.session is not None:
                link.access = rules.for_client(link.session.user, link.session.client_id)
        self.slices.begin(self._review([*self.sessions.values(), *self.others.moved_sessions()]))

    def _review(self, sessions: Iterable[Session]) -> Work:
        """Remove what the rules now forbid from sessions, until the rules change again."""
        rules = self._admission.rules
        ended = 0
        for place, session in enumerate(sessions, 1):
            if rules is not self._admission.rules:
                break
            if not session.has_ended:
                ended += yield from self._admission.review(session)
            if not place % REVIEWED_PER_PIECE:
                yield
        if ended:
            log.warning("ended %s subscriptions that are not allowed any more", f"{ended:,}")

    def _review_all(self, sessions: Iterable[Session]) -> None:
        run_to_end(self._review(sessions))

    def change_spaces(self, spaces: SpaceRegistry) -> None:
        """Replace the spaces. Clauses whose space has gone stay, and match nothing meanwhile."""
        self.others.resume_all()
        lost = self.router.change_spaces(spaces)
        self.others.spaces_changed()
        if lost:
            log.warning(
                "no space knows the where-clauses of %d subscriptions now: they stay, and get "
                "nothing until a space knows them",
                lost,
            )
        self._schedule()

    def restore(self, state: StoredState, now: float) -> None:
        """Restore what an earlier process stored."""
        self.shared.now = now
        restore(
            state,
            self.shared,
            self.router,
            self._lifetimes,
            self.retained,
            self.expire_retained,
            self._review_all,
            self.mesh,
        )
        if self.engine_backlog is not None:
            self.engine_backlog.restore(state.heard)
        self._count()
        self.timers.run(now)

    def stop(self, now: float) -> None:
        """Disconnect all clients. Persistent sessions and their wills wait for the next start."""
        self.shared.now = now
        self.others.resume_all()
        for link in list(self.links):
            session = link.session
            if session is not None and link.is_connected:
                link.session = None
                self._lifetimes.suspend(session)
                self.shared.gauges.clients_connected -= 1
            link.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)

    # Called by links ----------------------------------------------------------------------------

    def authenticate(self, link: ClientLink, packet: Connect) -> None:
        """Refuse a CONNECT that is invalid for every user, else have the shell authenticate."""
        refusal = self._admission.refusal(packet)
        if refusal is None:
            self._authenticate(link, packet)
        else:
            link.refuse(*refusal)

    def subscribe(self, link: ClientLink, packet: Subscribe) -> Work:
        return self._subscribe_handler.subscribe(link, packet)

    def unsubscribe(self, link: ClientLink, packet: Unsubscribe) -> Work:
        return self._subscribe_handler.unsubscribe(link, packet)

    def link_closed(self, link: ClientLink, *, was_connected: bool, with_will: bool) -> None:
        """Forget a closed link. The link calls this once."""
        self.links.discard(link)
        self.retained_deliveries.end(link)
        self._keep_alive.end(link)
        self.back_pressure.end(link)
        session = link.session
        link.session = None
        if was_connected and session is not None and session.link is link:
            self.shared.gauges.clients_connected -= 1
            self._lifetimes.disconnected(session, with_will=with_will)

    # Publications of the broker itself ------------------------------------------------------------

    def publish(self, message: Message) -> None:
        """Publish a message of the broker itself, or of a client that has gone."""
        self.dispatch.publish(message)
        if message.retain:
            self.expire_retained(message)

    def expire_retained(self, message: Message) -> None:
        """Remove a retained message when it expires; cancel the expiry of an earlier one."""
        key = ("retained", message.topic)
        if message.expires_at is None or self.retained.get(message.topic) is not message:
            self.timers.cancel(key)
            return

        def expire() -> None:
            if self.retained.get(message.topic) is message:
                self.shared.counters.publishes_expired += 1
                self.dispatch.expire_retained(message)

        self.timers.set(key, message.expires_at, expire)

    def refusal(
        self, route: Route, message: Message, point: Point | None, origin: Session
    ) -> ReasonCode | None:
        """Return why a publication cannot be accepted now, or None."""
        shared = self.shared
        if message.retain and message.payload and not self.dispatch.has_room_for(message):
            return ReasonCode.QUOTA_EXCEEDED
        if shared.journal.refuses_more and message.qos:
            if message.qos == 2 and origin.persistent:
                return ReasonCode.QUOTA_EXCEEDED
            if self.dispatch.needs_disk(route, message, point):
                return ReasonCode.QUOTA_EXCEEDED
        return None

    # Log ------------------------------------------------------------------------------------------

    def log_refusal(self, link: ClientLink, reason: ReasonCode, why: str | None) -> None:
        log.warning(
            "refused a client from %s: %s%s",
            link.remote.address,
            reason.name.lower().replace("_", " "),
            f" ({why})" if why else "",
            extra=about(reason.name),
        )

    def log_failure(self, link: ClientLink, reason: ReasonCode, why: str) -> None:
        # repr: a client chooses its identifier, and could forge log lines with line breaks.
        name = repr(link.session.client_id) if link.session is not None else "a client"
        log.warning(
            "disconnected %s from %s: %s (%s)",
            name,
            link.remote.address,
            reason.name.lower().replace("_", " "),
            why,
            extra=about(reason.name),
        )
