"""Sends a publication along its route to links, queues and other brokers. Pure.

Several ways lead to the same result; tests compare them:

- `forward` passes the bytes of a QoS 0 run on untouched.
- `pass_on_run` takes a run at QoS 1, or with attributes: it matches them all at once, and writes
  what each session gets.
- `pass_on` takes a single plain packet at QoS 1 or 2.
- `publish` takes one decoded message and does everything else: retained messages, subscription
  options and identifiers, No Local, shared subscriptions, redirects.

In a cluster a publication goes to the other brokers that may need it. If matchers are asked at
which of them a clause holds (matcher_client.py), it continues later, through `resume`. If a stream
evaluates the clauses (engine_backlog.py), it goes to the subscribers without a clause, and into the
archive for the others.

A publication reaches all its receivers in one step, however many there are. Between two slices
(slices.py) either all of them have it, or none.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.attributes.box_index import Slots
from dovetail.attributes.space import Point
from dovetail.broker.archive_queue import ArchivedTopics
from dovetail.broker.delivery import Delivery, Share
from dovetail.broker.engine_backlog import Engine
from dovetail.broker.limits import RECEIVERS_PER_PIECE, RUN_DELIVERIES_MAX
from dovetail.broker.local_delivery import LocalDelivery, OutgoingMessages, message_of
from dovetail.broker.other_brokers import Forwarding, MatcherLookup, RetainedOrder
from dovetail.broker.outgoing_message import OutgoingMessage
from dovetail.broker.outgoing_run import OutgoingRun, StoredRun
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.publication_point import (
    NO_ATTRIBUTES,
    Attributes,
    RunPoints,
    point_of,
    points_of,
)
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.route import Group, Route
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.codec.run import (
    Flags,
    Run,
    first_packets,
    packets_of,
    rewritten,
    rewritten_rows,
)
from dovetail.errors import ClientError
from dovetail.messages import Message
from dovetail.slices import Work
from dovetail.topics.names import SYS_PREFIX

if TYPE_CHECKING:
    from dovetail.broker.matcher_client import PendingPublication

_DUPLICATE = 0x08

MatchingBrokers = frozenset[str] | None


class RunOutcome(NamedTuple):
    """The outcome of a run that was passed on."""

    run: Run
    """The packets that were passed on: maybe only the first ones."""
    deliveries: int
    matched: Flags
    """Which of its publications have a subscriber."""
    stored: list[tuple[Session, OutgoingRun]]
    """What persistent sessions got of it, which has to be on disk before it is acknowledged."""


class Dispatch:
    """The data plane of one broker."""

    def __init__(
        self,
        shared: SharedState,
        router: Router,
        retained: RetainedMessages,
        local: LocalDelivery,
        *,
        forwarding: Forwarding,
        matchers: MatcherLookup,
        retained_order: RetainedOrder,
        archive: ArchivedTopics,
        engine: Engine,
    ) -> None:
        """Only the broker that a client published to writes to its archive."""
        self._shared = shared
        self._counters = shared.counters
        self._backlog_bytes_max = shared.limits.backlog_bytes_max
        self._router = router
        self._retained = retained
        self._local = local
        self._forwarding = forwarding
        self._matchers = matchers
        self._retained_order = retained_order
        self._archive = archive
        self._engine = engine

    # Plain packets, as they came ----------------------------------------------------------------

    def forward(self, route: Route, run: Run, origin: Session | None, client_id: str = "") -> int:
        """Send a run at QoS 0 along this route. A client's packets have no attributes here.

        Without an `origin` it comes from another broker, where the client published it, and goes
        to local receivers only. Return how many packets were handled one by one.
        """
        if origin is not None:
            if self._accept_packets(route, run, origin):
                self._publish_each(run, origin)
                return run.packets
            if route.is_special and route.needs_each_packet(origin.client_id):
                self._publish_packets(route, run, origin.client_id)
                return run.packets
        elif (route.space is not None and run.has_properties) or (
            route.is_special and (route.reads_payload or client_id in route.own)
        ):
            for part in packets_of(run):
                message = message_of(part, client_id)
                self._deliver_here(route, message, self.read(route, message).point, [], ())
            return run.packets
        is_each = self._local.send_run(route.deliveries, run)
        return run.packets if is_each or route.archived else 0

    def _accept_packets(self, route: Route, run: Run, origin: Session) -> bool:
        """Count, archive and forward a client's packets.

        Return True, with nothing done, if each has to be published by itself.
        """
        if route.space is not None and (
            (route.streamed and route.reads_payload)
            or self._matchers.may_wait(route, origin.client_id)
        ):
            return True
        self._count_received(run)
        if route.archived:
            self._archive_run(run)
        if route.peers and not (route.pools or route.reads_payload):
            self._forwarding.forward(route.peers, run, origin.client_id)
        return False

    def pass_on(
        self,
        route: Route,
        data: bytes,
        start: int,
        topic_end: int,
        end: int,
        version: int,
        origin: Session,
    ) -> bool:
        """Pass on the bytes of one QoS 1 or 2 packet without properties or retain flag.

        Each receiver gets them with its own packet identifier. Return False, with nothing done, if
        some receiver needs more than that.
        """
        deliveries = route.deliveries
        if not deliveries or route.peers or route.archived:
            return False
        if route.space is not None and self._matchers.may_wait(route, origin.client_id):
            return False
        if route.is_special and route.needs_each_packet(origin.client_id):
            return False
        if route.space is not None and route.space.json_fields:
            return False  # its attributes are in the payload
        qos = data[start] >> 1 & 3
        congestion_bytes = self._backlog_bytes_max // 2
        for delivery in deliveries:
            if (
                delivery.qos < qos
                or not delivery.plain
                or not delivery.session.can_pass_on(version, congestion_bytes)
            ):
                return False
        head = data[start:topic_end]
        if head[0] & _DUPLICATE:  # [MQTT-3.3.1-3]
            head = bytes([head[0] - _DUPLICATE]) + head[1:]
        tail = data[topic_end + 2 : end]
        for delivery in deliveries:
            delivery.session.pass_on(head, tail, qos)
        counters = self._counters
        size = end - start
        counters.publishes_received += 1
        counters.publish_bytes_received += size
        counters.publishes_sent += len(deliveries)
        counters.publish_bytes_sent += size * len(deliveries)
        return True

    def forward_each(self, route: Route, run: Run, origin: Session) -> Work:
        """Forward in slices, for routes with many receivers that need each packet by itself."""
        self._count_received(run)
        done = 0
        for part in packets_of(run):
            route = self._router.cache.young.get(part.topic, route)
            message = message_of(part, origin.client_id)
            self.publish_on(route, message, self.read(route, message).point)
            done += 1 + len(route.deliveries) + len(route.groups) + len(route.pools)
            if done > RECEIVERS_PER_PIECE:
                done = 0
                yield

    def _publish_each(self, run: Run, origin: Session) -> None:
        self._count_received(run)
        for part in packets_of(run):
            self.publish(message_of(part, origin.client_id))

    def _count_received(self, run: Run) -> None:
        counters = self._counters
        counters.packets_received += run.packets
        counters.publishes_received += run.packets
        counters.publish_bytes_received += len(run.data)

    def _publish_packets(self, route: Route, run: Run, client_id: str) -> None:
        """Publish packets that are counted, archived and, without groups, forwarded."""
        forwarding = self._forwarding
        for part in packets_of(run):
            message = message_of(part, client_id)
            point = self.read(route, message).point
            # Each packet of a group may go to another broker.
            groups, marks = forwarding.pick(route, point, 0)
            if route.pools or route.reads_payload:
                forwarding.publish(_peers(route, point), message, marks)
            self._deliver_here(route, message, point, [], groups)

    def _archive_run(self, run: Run) -> None:
        for part in packets_of(run):
            self._archive.add(part.topic, part.payload, properties=part.properties)

    def pass_on_run(self, route: Route, run: Run, origin: Session) -> RunOutcome | None:
        """Pass on the bytes of a run. Return None, with nothing done, if that is impossible.

        Each receiver gets them at its own QoS and version, with its own packet identifiers. If
        there are very many deliveries, only the first packets are passed on.
        """
        has_attributes = route.space is not None and bool(run.has_properties)
        if (
            not (route.takes_attributes if has_attributes else route.takes_runs)
            or origin.client_id in route.own
            or (route.space is not None and self._matchers.may_wait(route, origin.client_id))
        ):
            return None
        packets_max = _packets_max(route, has_attributes=has_attributes)
        if run.packets > packets_max:
            run = first_packets(run, packets_max)
        points = None
        shares = [Share(one.session, min(one.qos, run.qos), None) for one in route.deliveries]
        if has_attributes and (route.clauses or run.qos):
            assert route.space is not None
            points = points_of(route.space, run)
            if points is None or not self._add_shares(route, run, points, origin, shares):
                return None
        if not self._have_room(shares, run):
            return None
        self._count_received(run)
        stored = StoredRun(run, origin.client_id, None if points is None else points.starts)
        deliveries = self._send_shares(shares, run, stored)
        queued = [
            (session, _offer(session, stored, rows))
            for session, qos, rows in shares
            if qos and session.expiry_seconds
        ]
        matched = np.ones(run.packets, np.uint8)
        if not route.deliveries:
            matched[:] = 0
            for _, _, rows in shares:
                matched[rows] = 1
        return RunOutcome(run, deliveries, matched, queued)

    def _have_room(self, shares: list[Share], run: Run) -> bool:
        """Can all sessions take what they get of a run?"""
        congestion_bytes = self._backlog_bytes_max // 2
        size = len(run.data)
        stored_bytes = 0
        for session, qos, rows in shares:
            count = run.packets if rows is None else len(rows)
            if not session.takes_run(count, size, qos, congestion_bytes):
                return False
            if qos and session.expiry_seconds:
                stored_bytes += size
        shared = self._shared
        room = shared.limits.queued_bytes_total_max - shared.gauges.queued_bytes
        return not stored_bytes or stored_bytes <= room

    def _add_shares(
        self, route: Route, run: Run, points: RunPoints, origin: Session, shares: list[Share]
    ) -> bool:
        """Add what sessions get by where-clauses. Return False if they have to be joined."""
        for clauses in route.clauses:
            more = clauses.shares(points, origin.client_id, run.qos)
            if more is None:
                return False
            shares += more
        return len({share.session for share in shares}) == len(shares)

    def _send_shares(self, shares: list[Share], run: Run, stored: StoredRun) -> int:
        """Send to sessions that take it at once. Return the number of deliveries to all."""
        counters = self._counters
        whole: dict[int, bytes] = {}  # the run at QoS 0, by version
        deliveries = 0
        for session, qos, rows in shares:
            count = run.packets if rows is None else len(rows)
            if qos and session.expiry_seconds:
                deliveries += count
                continue
            link = session.link
            if link is None or (
                not qos and link.unsent > self._backlog_bytes_max and not link.flush_backlog()
            ):
                counters.publishes_dropped += count
                continue
            first_id = session.light_ids(count) if qos else 0
            if rows is not None:
                data = rewritten_rows(run, stored.starts, rows, link.version, qos, first_id)
            elif qos:
                data = rewritten(run, link.version, qos, first_id)
            else:
                if link.version not in whole:
                    whole[link.version] = rewritten(run, link.version, 0)
                data = whole[link.version]
            deliveries += count
            link.send_packets(data, count)
        return deliveries

    # One message at a time ----------------------------------------------------------------------

    def publish(self, message: Message) -> tuple[OutgoingMessages | None, Ticket | None]:
        """Publish a message of this broker, or of a client that has gone."""
        route = self._route(message.topic)
        return self.publish_on(route, message, self.read(route, message).point)

    def publish_on(
        self, route: Route, message: Message, point: Point | None
    ) -> tuple[OutgoingMessages | None, Ticket | None]:
        """Publish a message to all matching subscriptions, and retain it if its flag says so.

        `point` is what `read` has returned. Return the QoS 1 and 2 deliveries, or None if there is
        no subscriber. The ticket closes when the other brokers have taken the message.
        """
        if route.space is not None and message.origin:
            publication = self._matchers.submit(
                route,
                message,
                point if route.reads_attributes and not route.streamed else None,
                self._resume,
            )
            if publication is not None:
                return publication.entries, publication
        return self._publish(route, message, point)

    def _publish(
        self, route: Route, message: Message, point: Point | None, wanted: MatchingBrokers = None
    ) -> tuple[OutgoingMessages | None, Ticket | None]:
        """Publish a message. `wanted` are the brokers at which a clause holds, if known."""
        sequence, point = self._put_into_archive(route, message, point)
        peers: tuple[str, ...] = ()
        ticket = None
        is_wanted = bool(sequence)
        if message.topic.startswith(SYS_PREFIX):  # it stays at this broker
            groups: Iterable[Group] = route.groups
        else:
            groups, marks = self._forwarding.pick(route, point, message.qos)
            peers = _peers(route, point)
            if wanted is not None:
                peers = tuple(name for name in peers if name in route.peers or name in wanted)
            is_wanted = is_wanted or bool(peers or marks)
            if message.retain:
                peers = self._forwarding.everywhere(message)
            if peers or marks:
                ticket = self._forwarding.publish(peers, message, marks, archived=sequence)
        if wanted is not None and self._matchers.name not in wanted:
            point = None  # no clause holds here
        entries = self.publish_here(route, message, point, groups)
        if sequence:
            self.note_delivered(route, message, "", sequence)
        return ([] if entries is None and is_wanted else entries), ticket

    def _put_into_archive(
        self, route: Route, message: Message, point: Point | None
    ) -> tuple[int, Point | None]:
        """Archive a message if its route says so.

        If a stream evaluates the clauses, return the sequence for it, and no point: nobody else
        does. The row is in the batch that the acknowledgement waits for. At QoS 2 the packet
        identifier is in the same batch.
        """
        if route.streamed and point is not None:
            assert route.space is not None
            sequence = self._engine.archive(route.space.name, message)
            if sequence:
                return sequence, None
            # The archive has no room: this broker evaluates the clauses itself.
        elif route.archived:
            self._archive.add(
                message.topic, message.payload, message.qos, message.retain, message.properties
            )
        return 0, point

    def note_delivered(self, route: Route, message: Message, broker: str, sequence: int) -> None:
        """Note the sessions that got a message without a clause, so that the stream skips them.

        `broker` is the one that archived it under `sequence`; empty means this one.
        """
        if route.clauses:
            for delivery in route.deliveries_from(message.origin):
                self._engine.note_delivered(delivery, message.qos, broker, sequence)

    def publish_here(
        self,
        route: Route,
        message: Message,
        point: Point | None,
        groups: Iterable[Group] = (),
    ) -> OutgoingMessages | None:
        """Publish to the sessions of this broker, and to one member of each of `groups`.

        Without a `point` no clause holds. Return the QoS 1 and 2 deliveries, or None if there is no
        subscriber here.
        """
        if message.retain:
            self.retain(message)
        if route.is_empty_here and not groups:
            return None
        entries: OutgoingMessages = []
        return entries if self._deliver_here(route, message, point, entries, groups) else None

    def needs_disk(self, route: Route, message: Message, point: Point | None) -> bool:
        """Would `publish_on` have to wait for the disk?"""
        if message.retain:
            return True
        if not message.qos:
            return False
        if route.archived or (route.streamed and point is not None):
            return True
        if self._forwarding.needs_disk(route, message.qos):
            return True
        if any(
            delivery.qos and delivery.session.persistent
            for delivery in _deliveries(route, message, point)
        ):
            return True
        groups = route.groups if point is None else (*route.groups, *route.groups_for(point))
        return any(
            member.qos and member.session.persistent
            for group in groups
            for member in group.members.values()
        )

    def _deliver_here(
        self,
        route: Route,
        message: Message,
        point: Point | None,
        entries: OutgoingMessages,
        groups: Iterable[Group],
    ) -> bool:
        """Deliver to the local receivers of a route. Return False if there are none."""
        local = self._local
        matched = False
        for delivery in _deliveries(route, message, point):
            matched = True
            # [MQTT-3.3.1-12], [MQTT-3.3.1-13]
            local.deliver(
                delivery, message, message.retain and delivery.retain_as_published, entries
            )
        for group in groups:
            if local.share(group, message, entries):
                matched = True
            elif group.has_ended_members:
                # The sessions of its members here are over; other brokers may have members.
                matched = self._forwarding.share_elsewhere(group, message) or matched
        return matched

    def _resume(self, publication: "PendingPublication") -> None:
        """Publish a message that waited for matchers.

        Its route is looked up again, because subscriptions may have changed.
        """
        message = publication.message
        journal = self._shared.journal
        rows_before = journal.rows_written
        if publication.before_dispatch is not None:
            publication.before_dispatch()
        route = self._route(message.topic)
        point = publication.point
        if point is None:
            point = self.read(route, message).point
        entries, ticket = self._publish(route, message, point, publication.matching_brokers)
        publication.entries += entries or ()
        combined = Ticket()
        if journal.rows_written != rows_before:
            journal.when_stored(combined.expect())
        if ticket is not None:
            ticket.close(combined.expect())
        combined.close(publication.settle)

    def _route(self, topic: bytes) -> Route:
        return self._router.cache.young.get(topic) or self._router.route(topic)

    def read(self, route: Route, message: Message) -> Attributes:
        """Return the attributes of a publication in a space, unless nobody needs them."""
        if route.space is None or not (route.reads_attributes or route.streamed or message.qos):
            return NO_ATTRIBUTES
        try:
            return Attributes(point_of(route.space, message))
        except ClientError as error:
            self._counters.attributes_unreadable += 1
            return Attributes(None, error)

    def redistribute(self, entry: OutgoingMessage) -> None:
        """Give a group's message that an ended session did not get to another member."""
        expires_at = entry.message.expires_at
        if entry.group is None or (expires_at is not None and expires_at <= self._shared.now):
            return
        self._forwarding.redistribute(entry.group, entry.message)

    # Retained messages --------------------------------------------------------------------------

    def retain(self, message: Message) -> None:
        """Retain a message; an empty payload removes the retained message of its topic."""
        shared = self._shared
        volatile = message.topic.startswith(SYS_PREFIX)
        retained = self._retained
        order = None if volatile else self._retained_order
        if order is not None and order.is_late(message, retained.get(message.topic)):
            return
        if not message.payload:  # [MQTT-3.3.1-6], [MQTT-3.3.1-7]
            self.forget_retained(message.topic)
            if order is not None:
                order.remove(message.topic, message.stamp)
            return
        if not volatile and not self.has_room_for(message):
            shared.counters.publishes_dropped += 1
            retained.note_lack(message)
            return
        known = retained.get(message.topic)
        retained.put(message)  # [MQTT-3.3.1-5]
        if order is not None:
            if known is not None:
                order.taken(known)
            order.put(message)
        if not volatile:
            number = shared.journal.keep(message)
            shared.journal.save_retained(message.topic, number)
            if known is not None:
                shared.journal.release(known)
        self.count_retained()

    def expire_retained(self, message: Message) -> None:
        """Remove a retained message that has expired."""
        self.forget_retained(message.topic)
        self._retained_order.remove(message.topic, message.stamp)

    def has_room_for(self, message: Message) -> bool:
        """Would the retained messages stay within their limits with this one?"""
        retained = self._retained
        limits = self._shared.limits
        known = retained.get(message.topic)
        if known is None and len(retained) >= limits.retained_messages_max:
            return False
        replaced = 0 if known is None else known.size
        return retained.nbytes - replaced + message.size <= limits.retained_bytes_max

    def forget_retained(self, topic: bytes) -> None:
        known = self._retained.remove(topic)
        if known is not None and not topic.startswith(SYS_PREFIX):
            self._retained_order.taken(known)
        if known is not None and known.number:
            self._shared.journal.save_retained(topic, None)
            self._shared.journal.release(known)
        self.count_retained()

    def count_retained(self) -> None:
        self._shared.gauges.retained_messages = len(self._retained)
        self._shared.gauges.retained_bytes = self._retained.nbytes


def _packets_max(route: Route, *, has_attributes: bool) -> int:
    """Return how many packets of a run may be passed on in one piece."""
    deliveries = float(len(route.deliveries))
    if has_attributes:
        deliveries += sum(clauses.deliveries_likely for clauses in route.clauses)
    return max(int(RUN_DELIVERIES_MAX / max(deliveries, 1.0)), 1)


def _offer(session: Session, stored: StoredRun, rows: Slots | None) -> OutgoingRun:
    """Queue a run. If it has much that the session does not get, only what it gets is stored."""
    if rows is not None and len(rows) < stored.run.packets // 2:
        return session.offer_run(stored.narrowed(rows), None)
    return session.offer_run(stored, rows)


def _deliveries(route: Route, message: Message, point: Point | None) -> Iterable[Delivery]:
    if point is not None and route.clauses:
        return route.deliveries_with(message.origin, point)
    return route.deliveries_from(message.origin) if route.own else route.deliveries


def _peers(route: Route, point: Point | None) -> tuple[str, ...]:
    """Return the other brokers that may need a message."""
    return route.peers if point is None else route.clause_peers
