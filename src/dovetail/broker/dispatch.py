"""Sends one publication along its route to links, queues and other brokers. Pure.

Two ways lead to the same result; tests compare them, and run_dispatch.py, with each other:

- `pass_on` takes a single plain packet at QoS 1 or 2, and its bytes.
- `publish` takes one decoded message and does everything else: retained messages, subscription
  options and identifiers, No Local, shared subscriptions, redirects.

In a cluster a publication goes to the other brokers that may need it. If matchers are asked at
which of them a clause holds (matcher_client.py), it continues later. If a stream evaluates the
clauses (engine_backlog.py), it goes to the subscribers without a clause, and into the archive for
the others.

A publication reaches all its receivers in one step, however many there are. Between two slices
(slices.py) either all of them have it, or none.
"""

from collections.abc import Iterable

from dovetail.attributes.space import Point
from dovetail.broker.archive_queue import ArchivedTopics
from dovetail.broker.delivery import Delivery
from dovetail.broker.engine_backlog import Engine
from dovetail.broker.local_delivery import LocalDelivery, OutgoingMessages
from dovetail.broker.other_brokers import Forwarding, MatcherLookup, RetainedOrder
from dovetail.broker.outgoing_message import OutgoingMessage
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.pending_publication import MatchingBrokers, PendingPublication
from dovetail.broker.publication_point import NO_ATTRIBUTES, Attributes, point_of
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.route import Group, Route
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.errors import ClientError
from dovetail.messages import Message
from dovetail.topics.names import SYS_PREFIX

_DUPLICATE = 0x08


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

    # One packet, as it came ----------------------------------------------------------------------

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
        if route.is_special and route.needs_each_packet(origin.client_id):
            return False
        if route.space is not None and (
            route.has_fields or self._matchers.has_pending(origin.client_id)
        ):
            return False
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
        sequence = 0
        if route.archived or route.streamed:
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

    def publish_matched(
        self, message: Message, wanted: MatchingBrokers, point: Point | None = None
    ) -> tuple[OutgoingMessages | None, Ticket | None]:
        """Publish a message that waited for matchers.

        Its route is looked up again, because subscriptions may have changed.
        """
        route = self._route(message.topic)
        if point is None:
            point = self.read(route, message).point
        return self._publish(route, message, point, wanted)

    def _resume(self, publication: PendingPublication) -> None:
        """Continue with a message that waited for matchers."""
        message = publication.message
        journal = self._shared.journal
        rows_before = journal.rows_written
        if publication.before_dispatch is not None:
            publication.before_dispatch()
        entries, ticket = self.publish_matched(
            message, publication.matching_brokers, publication.point
        )
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
        known = retained.get(message.topic)
        order = None if volatile else self._retained_order
        if order is not None and order.is_late(message, known):
            return
        if not message.payload:  # [MQTT-3.3.1-6], [MQTT-3.3.1-7]
            self.forget_retained(message.topic)
            if order is not None:
                order.remove(message.topic, message.stamp)
            return
        if not volatile and not self._has_room(message, known):
            shared.counters.publishes_dropped += 1
            retained.note_lack(message)
            return
        retained.put(message)  # [MQTT-3.3.1-5]
        if order is not None:
            if known is not None:
                order.taken(known)
            order.put(message)
        if not volatile:
            shared.journal.keep_retained(message, known)

    def expire_retained(self, message: Message) -> None:
        """Remove a retained message that has expired."""
        self.forget_retained(message.topic)
        self._retained_order.remove(message.topic, message.stamp)

    def has_room_for(self, message: Message) -> bool:
        """Would the retained messages stay within their limits with this one?"""
        return self._has_room(message, self._retained.get(message.topic))

    def _has_room(self, message: Message, known: Message | None) -> bool:
        retained = self._retained
        limits = self._shared.limits
        if known is None and len(retained) >= limits.retained_messages_max:
            return False
        replaced = 0 if known is None else known.size
        return retained.nbytes - replaced + message.size <= limits.retained_bytes_max

    def forget_retained(self, topic: bytes) -> None:
        known = self._retained.remove(topic)
        if known is None:
            return
        if not topic.startswith(SYS_PREFIX):
            self._retained_order.taken(known)
        if known.number:
            self._shared.journal.release_retained(known)


def _deliveries(route: Route, message: Message, point: Point | None) -> Iterable[Delivery]:
    if point is not None and route.clauses:
        return route.deliveries_with(message.origin, point)
    return route.deliveries_from(message.origin) if route.own else route.deliveries


def _peers(route: Route, point: Point | None) -> tuple[str, ...]:
    """Return the other brokers that may need a message."""
    return route.peers if point is None else route.clause_peers
