"""The broker as a machine: connections, bytes and time go in; bytes and rows come out. Pure.

`Broker` assembles the parts; links and shells talk to it. admission.py admits clients,
session_lifetime.py begins and ends sessions, subscribe.py changes subscriptions, and
broker/store/recovery.py restores the state of an earlier process.

Two shells drive it: broker/net/server.py with sockets and a disk, and tests with neither. The shell
passes `schedule`, which the broker calls when `dirty` has links to write, and `authenticate`, which
finds the user of a CONNECT and then calls `admit` or `Link.refuse`. It calls `tick` every
TICK_SECONDS_MAX (keep_alive.py).
"""

import logging
from collections.abc import Callable, Iterable
from itertools import chain
from random import Random

from dovetail.attributes.space_registry import Spaces
from dovetail.broker.admission import Admission
from dovetail.broker.archive_queue import Archiving
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.client_link import Link
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.engine_backlog import Streamed
from dovetail.broker.keep_alive import KeepAlive
from dovetail.broker.limits import CONNECT_BYTES_MAX, REVIEWED_PER_PIECE, TIMERS_PER_PIECE
from dovetail.broker.outlet import Outlet, Peer
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.retained_delivery import Greetings
from dovetail.broker.route import Group
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import Lifetimes
from dovetail.broker.shared_state import Shared
from dovetail.broker.store.journal import StoredState
from dovetail.broker.store.recovery import restore
from dovetail.broker.subscribe import Subscribing
from dovetail.broker.timers import Timers
from dovetail.codec.packets import Connect, Subscribe, Unsubscribe
from dovetail.codec.scanner import Scanner
from dovetail.errors import ReasonCode
from dovetail.messages import Message
from dovetail.process.logs import about
from dovetail.slices import Slices, Work, in_one_go

log = logging.getLogger("dovetail.broker")


class Broker:
    """One broker: its clients, sessions, routes and retained messages."""

    def __init__(
        self,
        shared: Shared,
        *,
        authenticate: Callable[[Link, Connect], None],
        schedule: Callable[[], None],
        random: Random,
        rules: AccessRules | None = None,
        spaces: Spaces | None = None,
    ) -> None:
        self.shared = shared
        self.router = Router(shared.limits, spaces)
        self.retained = RetainedMessages()
        self.dispatch = Dispatch(shared, self.router, self.retained)
        self.slices = Slices(schedule)
        """Long work, done in pieces so that other clients do not wait for it."""
        self.greetings = Greetings(shared, self.slices, self.retained, self.dispatch)
        self.timers = Timers()
        self.scan = Scanner()
        self.links: set[Outlet] = set()
        self.dirty: list[Outlet] = []
        """Links with bytes to write, or to close."""
        self.mesh: Mesh | None = None
        """The other brokers, in a cluster."""
        self.streamed: Streamed | None = None
        """The publications that wait for a stream, if there is an archive."""
        self.connect_bytes_max = min(CONNECT_BYTES_MAX, shared.limits.packet_bytes_max)
        self._keep_alive = KeepAlive(shared, self.timers)
        self._lifetimes = Lifetimes(
            shared, self.slices, self.router, self.timers, self.dispatch, self.publish
        )
        self._subscribing = Subscribing(shared, self.slices, self.router, self.greetings)
        self._admission = Admission(
            shared,
            self.slices,
            self.router,
            self._lifetimes,
            self._subscribing,
            self._keep_alive,
            random,
            rules or AccessRules(()),
        )
        self._random = random
        self._authenticate = authenticate
        self._schedule = schedule

    @property
    def sessions(self) -> dict[str, Session]:
        """By client identifier."""
        return self._lifetimes.sessions

    # The shell's side ---------------------------------------------------------------------------

    def accept(self, peer: Peer, now: float) -> Link:
        """Return the link of a new connection, which has to send CONNECT in time."""
        self.shared.now = now
        link = Link(self, peer, now)
        self.expect(link)
        return link

    def expect(self, link: Link) -> None:
        """Add a link, which has to be admitted in time."""
        self.links.add(link)
        self._keep_alive.expect(link)

    def admit(
        self, link: Link, packet: Connect, user: str | None, stamp: int | None = None
    ) -> None:
        """Admit an authenticated client. With a `stamp` the other brokers are not asked."""
        self._admission.admit(link, packet, user, stamp)

    def tick(self, now: float) -> None:
        self.shared.now = now
        self._keep_alive.tick(now)
        self.slices.begin(self._run_timers())
        self.shared.expiring.tick(now)
        self.greetings.go_on_all()
        if self.mesh is not None:
            self.mesh.stamps.tick()
        if self.streamed is not None:
            self.streamed.tick()
        gauges = self.shared.gauges
        gauges.sessions = len(self.sessions)
        gauges.subscriptions = self.router.count
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
        sessions = [*self.sessions.values()]
        if self.mesh is not None:
            sessions += chain.from_iterable(self.mesh.moving.ghosts.values())
        self.slices.begin(self._review(sessions))

    def _review(self, sessions: Iterable[Session]) -> Work:
        """Remove what the rules now forbid from sessions, until the rules change again."""
        rules = self._admission.rules
        ended = 0
        for place, session in enumerate(sessions, 1):
            if rules is not self._admission.rules:
                break
            if not session.is_over:
                ended += yield from self._admission.review(session)
            if not place % REVIEWED_PER_PIECE:
                yield
        if ended:
            log.warning("ended %s subscriptions that are not allowed any more", f"{ended:,}")

    def _review_all(self, sessions: Iterable[Session]) -> None:
        in_one_go(self._review(sessions))

    def change_spaces(self, spaces: Spaces) -> None:
        """Replace the spaces. Clauses whose space has gone stay, and match nothing meanwhile."""
        if self.mesh is not None:
            self.mesh.narrowing.drain()
        self.router.clause_changed = None  # `spaces_changed` announces all clauses anew
        lost = self.router.change_spaces(spaces)
        if self.mesh is not None:
            self.mesh.narrowing.spaces_changed()
        if lost:
            log.warning(
                "%d subscriptions have a where-clause that no space knows now: they stay, and get "
                "nothing until one does",
                lost,
            )
        self._schedule()

    def join(
        self,
        *,
        name: str,
        stream: int,
        incarnation: int,
        seed: int,
        send: Callable[[str, int, bytes], bool],
    ) -> Mesh:
        """Make this broker one of a cluster, before anything is restored.

        `name` identifies this broker, `stream` its data folder, `incarnation` this run of the
        process, and `seed` the cluster. `send` sends a frame to a peer.
        """
        mesh = self.mesh = Mesh(
            self.shared,
            self.router,
            self.dispatch,
            self.retained,
            self._lifetimes,
            self.expire_retained,
            self.publish,
            name=name,
            stream=stream,
            incarnation=incarnation,
            seed=seed,
            send=send,
            random=self._random,
            wake=self._schedule,
        )
        self.dispatch.forwarding = mesh.forwarding
        self.dispatch.stamps = mesh.stamps
        self.dispatch.narrowing = mesh.narrowing
        self.dispatch.lacks_room_for = mesh.walk.lacks_room_for
        self._subscribing.mesh = mesh
        self._admission.moving = mesh.moving
        self.router.search_peers = mesh.exchange.search
        self.router.search_peer = mesh.exchange.search_peer
        exchange = mesh.exchange

        def filter_changed(topic_filter: str, is_there: bool) -> None:
            exchange.filter_changed(topic_filter, is_there)
            self._schedule()  # peers hear of it at the end of the turn, and SUBACK waits for that

        def group_changed(group: Group) -> None:
            mesh.roster.group_changed(group)
            self._schedule()

        self.router.filter_changed = filter_changed
        self.router.search_groups = mesh.groups.search
        self.router.group_changed = group_changed
        return mesh

    def archive_to(self, archive: Archiving) -> None:
        """Archive publications. Called before anything is restored."""
        self.dispatch.archive = archive
        self.router.is_archived = archive.wants
        self.router.may_stream = True
        self.streamed = self.dispatch.streamed = Streamed(
            self.shared, self.router, self.dispatch, life=archive.next_sequence
        )

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
        if self.streamed is not None:
            self.streamed.restore(state.heard)
        self.dispatch.count_retained()
        self.timers.run(now)

    def stop(self, now: float) -> None:
        """Disconnect all clients. Persistent sessions and their wills wait for the next start."""
        self.shared.now = now
        if self.mesh is not None:
            self.mesh.narrowing.drain()
        for link in list(self.links):
            session = link.session
            if session is not None and link.is_connected:
                link.session = None
                self._lifetimes.suspend(session)
                self.shared.gauges.clients_connected -= 1
            link.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)

    # A link's side ------------------------------------------------------------------------------

    def wake(self, link: Outlet) -> None:
        if not self.dirty:
            self._schedule()
        self.dirty.append(link)

    def ask(self, link: Link, packet: Connect) -> None:
        """Refuse a CONNECT that is invalid for every user, else have the shell authenticate."""
        refusal = self._admission.refusal(packet)
        if refusal is None:
            self._authenticate(link, packet)
        else:
            link.refuse(*refusal)

    def subscribe(self, link: Link, packet: Subscribe) -> Work:
        return self._subscribing.subscribe(link, packet)

    def unsubscribe(self, link: Link, packet: Unsubscribe) -> Work:
        return self._subscribing.unsubscribe(link, packet)

    def closed(self, link: Outlet, *, was_connected: bool, with_will: bool) -> None:
        """Forget a closed link. The link calls this once."""
        self.links.discard(link)
        self.greetings.end(link)
        self._keep_alive.end(link)
        session = link.session
        link.session = None
        if was_connected and session is not None and session.link is link:
            self.shared.gauges.clients_connected -= 1
            self._lifetimes.leave(session, with_will=with_will)

    # Publications that no client's packet brought -----------------------------------------------

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
                self.dispatch.forget_retained(message.topic)
                if self.mesh is not None:
                    self.mesh.stamps.remove(message.topic, message.stamp)

        self.timers.set(key, message.expires_at, expire)

    def refusal(self, message: Message, origin: Session) -> ReasonCode | None:
        """Return why a publication cannot be accepted now, or None."""
        shared = self.shared
        if message.retain and message.payload and not self.dispatch.has_room_for(message):
            return ReasonCode.QUOTA_EXCEEDED
        if shared.journal.refuses_more and message.qos:
            if message.qos == 2 and origin.persistent:
                return ReasonCode.QUOTA_EXCEEDED
            if self.dispatch.needs_disk(message):
                return ReasonCode.QUOTA_EXCEEDED
        return None

    # What the log says --------------------------------------------------------------------------

    def note_refusal(self, link: Outlet, reason: ReasonCode, why: str | None) -> None:
        log.warning(
            "refused a client from %s: %s%s",
            link.peer.address,
            reason.name.lower().replace("_", " "),
            f" ({why})" if why else "",
            extra=about(reason.name),
        )

    def note_failure(self, link: Outlet, reason: ReasonCode, why: str) -> None:
        # repr: a client chooses its identifier, and could forge log lines with line breaks.
        name = repr(link.session.client_id) if link.session is not None else "a client"
        log.warning(
            "disconnected %s from %s: %s (%s)",
            name,
            link.peer.address,
            reason.name.lower().replace("_", " "),
            why,
            extra=about(reason.name),
        )
