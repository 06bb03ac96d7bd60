"""The broker as a machine: connections, bytes and time go in; bytes and rows come out. Pure.

It owns the sessions and decides their life: who may connect, take-over, wills, expiry,
subscriptions. Two shells drive it: the live one (server.py) with sockets and a disk, and tests with
neither. The shell gives `schedule` (something waits in `dirty` to be written), `authenticate` (ask
who a client is, and call `admit` or `Link.refuse`), and calls `tick` at least once a second.
"""

import logging
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import NamedTuple

from dovetail.broker import codec
from dovetail.broker.access import AccessRules
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.greeting import Greetings
from dovetail.broker.journal import StoredState, SubscriptionRow
from dovetail.broker.link import Link
from dovetail.broker.outlet import Outlet, Peer, State
from dovetail.broker.packets import (
    MQTT_3_1_1,
    MQTT_5,
    SESSION_NEVER_EXPIRES,
    Connack,
    Connect,
    PacketType,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.routing import Router
from dovetail.broker.scanning import Scanner
from dovetail.broker.session import Outgoing, Session, Subscription
from dovetail.broker.state import Shared
from dovetail.broker.timers import Timers
from dovetail.config import FILTERS_PER_PACKET_MAX
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message
from dovetail.topics.names import split_shared

log = logging.getLogger("dovetail.broker")

_TICK_SECONDS_MAX = 1.0
"""The shell calls `tick` at least so often, and `seen_at` may be older by as much."""

_CONNECT_BYTES_MAX = 262_144
"""A CONNECT packet: nobody has to prove anything before sending one, so it is no large one."""


class _Change(NamedTuple):
    """A subscription on its way to disk: by which SUBSCRIBE last, and what the disk has of it."""

    revision: int
    before: SubscriptionRow | None


class Broker:
    """Everything that one node knows of its clients."""

    def __init__(
        self,
        shared: Shared,
        *,
        authenticate: Callable[[Link, Connect], None],
        schedule: Callable[[], None],
        random: Random,
        rules: AccessRules | None = None,
    ) -> None:
        self.shared = shared
        self.rules = rules or AccessRules(())
        self.router = Router(shared.limits)
        self.retained = RetainedMessages()
        self.dispatch = Dispatch(shared, self.router, self.retained)
        self.greetings = Greetings(shared, self.retained, self.dispatch)
        self.timers = Timers()
        self.scan = Scanner()
        self.sessions: dict[str, Session] = {}
        self.links: set[Outlet] = set()
        self.dirty: list[Outlet] = []
        """Links with something to write, or to close."""
        self.connect_bytes_max = min(_CONNECT_BYTES_MAX, shared.limits.packet_bytes_max)
        self._changing: dict[tuple[int, str], _Change] = {}
        self._revisions = count(1)
        self._authenticate = authenticate
        self._schedule = schedule
        self._random = random

    # The shell's side ---------------------------------------------------------------------------

    def accept(self, peer: Peer, now: float) -> Link:
        """A new connection. It has a while to say who it is."""
        self.shared.now = now
        link = Link(self, peer, now)
        self.links.add(link)
        self.timers.set(
            link, now + self.shared.limits.connect_timeout_seconds, partial(self._too_slow, link)
        )
        return link

    def tick(self, now: float) -> None:
        self.shared.now = now
        self.timers.run(now)
        self.greetings.go_on_all()
        gauges = self.shared.gauges
        gauges.sessions = len(self.sessions)
        gauges.subscriptions = self.router.count
        self.shared.counters.routes_computed = self.router.computed

    def wake(self, link: Outlet) -> None:
        if not self.dirty:
            self._schedule()
        self.dirty.append(link)

    def stop(self, now: float) -> None:
        """Clients are told; sessions that persist, and their wills, wait for the next start."""
        self.shared.now = now
        for link in list(self.links):
            session = link.session
            if session is not None and link.is_connected:
                # The will stays in the session's row: it is owed if the client does not come back.
                link.session = None
                session.link = None
                session.ended_at = now
                session.save()
                self.shared.gauges.clients_connected -= 1
            link.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)

    def change_rules(self, rules: AccessRules) -> None:
        """For everybody, also those who are connected; subscriptions stay until they reconnect."""
        self.rules = rules
        for link in self.links:
            if link.session is not None:
                link.access = rules.for_client(link.session.user, link.session.client_id)

    # A client comes -----------------------------------------------------------------------------

    def ask(self, link: Link, packet: Connect) -> None:
        """What can be refused without knowing who it is; then the shell finds out."""
        limits = self.shared.limits
        if packet.authentication_method is not None:
            # There is no method we know [MQTT-4.12.0-1].
            link.refuse(
                ReasonCode.BAD_AUTHENTICATION_METHOD,
                "no enhanced authentication is supported here",
            )
        elif len(packet.client_id.encode()) > limits.client_id_bytes_max:
            link.refuse(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"a client identifier has at most {limits.client_id_bytes_max:,} bytes here",
            )
        elif not packet.client_id and packet.version == MQTT_3_1_1 and not packet.clean_start:
            # [MQTT3-3.1.3-8]
            link.refuse(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                "a session that is kept needs a client identifier",
            )
        else:
            self._authenticate(link, packet)

    def admit(self, link: Link, packet: Connect, user: str | None) -> None:
        """The client is who it says: give it its session [MQTT-3.1.4-4]."""
        if link.state is not State.ASKING:
            return
        assigned = None
        if not packet.client_id:  # [MQTT-3.1.3-6]
            assigned = packet.client_id = f"auto-{self._random.getrandbits(96):024x}"
        if self._is_full_for(packet.client_id):
            link.refuse(ReasonCode.SERVER_BUSY, "there are as many clients as are allowed")
            return
        link.access = self.rules.for_client(user, packet.client_id)
        refusal = self._refuse_will(link, packet.will)
        if refusal is not None:
            link.refuse(*refusal)
            return
        wanted = packet.session_expiry_seconds
        if packet.version == MQTT_3_1_1:
            wanted = 0 if packet.clean_start else SESSION_NEVER_EXPIRES
        expiry_seconds = min(wanted, self.shared.limits.session_expiry_max_seconds)
        link.keep_alive_seconds = self._keep_alive(packet)
        answer = self._connack(packet, expiry_seconds, assigned, link)
        if not link.takes(codec.encode(packet.version, answer)):  # [MQTT-3.1.2-24]
            link.refuse(ReasonCode.PACKET_TOO_LARGE, "the answer is too large for the client")
            return
        session, answer.session_present = self._session_for(packet, user)
        if session is None:
            link.refuse(ReasonCode.QUOTA_EXCEEDED, "there are as many sessions as are allowed")
            return
        self._drop_forbidden(session, link)
        now = self.shared.now
        session.user = user
        session.expiry_seconds = expiry_seconds
        session.ended_at = None
        session.will = packet.will
        if session.persistent or session.stored or session.will is not None:
            session.save()
        self.timers.cancel(link)
        if link.keep_alive_seconds:
            self._watch(link)
        self.shared.gauges.clients_connected += 1
        self.shared.counters.connections_accepted += 1
        log.debug("%r connected from %s", packet.client_id, link.peer.address)
        link.admitted(session, packet, answer)
        session.resume(link, min(packet.receive_max, self.shared.limits.inflight_max), now)

    def _drop_forbidden(self, session: Session, link: Link) -> None:
        """Rules may have changed since the session's subscriptions were made."""
        if not link.access.everything:
            for topic_filter in list(session.subscriptions):
                if not link.access.may_subscribe(topic_filter):
                    self._drop_subscription(session, topic_filter)

    def _is_full_for(self, client_id: str) -> bool:
        """Who takes over a connection needs no more room than there is."""
        if self.shared.gauges.clients_connected < self.shared.limits.connections_max:
            return False
        session = self.sessions.get(client_id)
        return session is None or session.link is None

    def _refuse_will(self, link: Link, will: Will | None) -> tuple[ReasonCode, str] | None:
        if will is None:
            return None
        limits = self.shared.limits
        try:
            self.router.check(will.topic)
        except ClientError as error:
            return error.reason, error.message
        if will.qos > limits.maximum_qos:  # [MQTT-3.2.2-12]
            return ReasonCode.QOS_NOT_SUPPORTED, "the will's QoS is not supported here"
        if will.retain and not limits.retain_available:  # [MQTT-3.2.2-13]
            return ReasonCode.RETAIN_NOT_SUPPORTED, "retained messages are switched off here"
        if not link.access.may_publish(will.topic) or will.topic.startswith(b"$SYS/"):
            return ReasonCode.NOT_AUTHORIZED, "the will may not be published to its topic"
        return None

    def _session_for(self, packet: Connect, user: str | None) -> tuple[Session | None, bool]:
        """The client's session, and was it there before? [MQTT-3.2.2-2], [MQTT-3.2.2-3]

        What one user was promised is not for another who comes under the same client identifier.
        """
        session = self.sessions.get(packet.client_id)
        if session is not None and session.link is not None:
            # [MQTT-3.1.4-3]; one that does not persist ends here.
            assert isinstance(session.link, Outlet)
            session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
            session = self.sessions.get(packet.client_id)
        if session is not None and (packet.clean_start or session.user != user):  # [MQTT-3.1.2-4]
            self._end(session)
            session = None
        if session is not None:  # [MQTT-3.1.2-5]
            self.timers.cancel(("expiry", session.number))
            self.timers.cancel(("will", session.number))  # [MQTT-3.1.3-9]
            return session, True
        if len(self.sessions) >= self.shared.limits.sessions_max:
            return None, False
        session = Session(self.shared, self.shared.journal.new_session_number(), packet.client_id)
        self.sessions[packet.client_id] = session
        return session, False

    def _keep_alive(self, packet: Connect) -> int:
        limit = self.shared.limits.keep_alive_max_seconds
        # 3.1.1 has no words for a server's keep alive.
        if packet.version == MQTT_5 and limit and not 0 < packet.keep_alive_seconds <= limit:
            return limit
        return packet.keep_alive_seconds

    def _connack(
        self,
        packet: Connect,
        expiry_seconds: int,
        assigned: str | None,
        link: Link,
    ) -> Connack:
        limits = self.shared.limits
        answer = Connack(session_present=False, reason=ReasonCode.SUCCESS)
        if packet.version == MQTT_5:
            if expiry_seconds != packet.session_expiry_seconds:
                answer.session_expiry_seconds = expiry_seconds
            answer.receive_max = limits.receive_max
            answer.maximum_qos = limits.maximum_qos if limits.maximum_qos < 2 else None
            answer.retain_available = limits.retain_available
            answer.packet_bytes_max = limits.packet_bytes_max
            answer.assigned_client_id = assigned
            answer.alias_max = limits.alias_in_max
            if link.keep_alive_seconds != packet.keep_alive_seconds:  # [MQTT-3.2.2-21]
                answer.keep_alive_seconds = link.keep_alive_seconds
        return answer

    # A client goes ------------------------------------------------------------------------------

    def closed(self, link: Outlet, *, was_connected: bool, with_will: bool) -> None:
        """Called by the link, once."""
        self.links.discard(link)
        self.greetings.end(link)
        self.timers.cancel(link)
        session = link.session
        link.session = None
        if not was_connected or session is None or session.link is not link:
            return
        self.shared.gauges.clients_connected -= 1
        session.link = None
        now = self.shared.now
        log.debug("%r is gone", session.client_id)
        if not with_will:
            session.will = None  # [MQTT-3.1.2-10]
        if not session.persistent:
            self._end(session)
            return
        if session.will is not None:
            delay = session.will.delay_seconds
            if delay:
                self.timers.set(
                    ("will", session.number), now + delay, partial(self._publish_will, session)
                )
            else:
                self._publish_will(session)
        session.ended_at = now
        session.save()
        self._expire_later(session)

    def _expire_later(self, session: Session) -> None:
        if not session.never_expires and session.ended_at is not None:
            when = session.ended_at + session.expiry_seconds
            self.timers.set(("expiry", session.number), when, partial(self._expire, session))

    def _expire(self, session: Session) -> None:
        if session.link is None and self.sessions.get(session.client_id) is session:
            self.shared.counters.sessions_expired += 1
            self._end(session)  # [MQTT-4.1.0-2]

    def _end(self, session: Session) -> None:
        """The session is over, and a will that waited is due [MQTT-3.1.2-8]."""
        self.timers.cancel(("expiry", session.number))
        self.timers.cancel(("will", session.number))
        del self.sessions[session.client_id]
        for topic_filter in list(session.subscriptions):
            self.router.unsubscribe(session, topic_filter)
        will, session.will = session.will, None
        session.discard()
        if will is not None:
            self.publish(self._will_message(will, session), session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        if will is not None:
            if session.stored:
                session.save()
            self.publish(self._will_message(will, session), session)

    def _will_message(self, will: Will, session: Session) -> Message:
        expiry = will.expiry_seconds
        return Message(
            will.topic,
            will.payload,
            will.qos,
            will.retain,
            will.properties,
            None if expiry is None else self.shared.now + expiry,
            session.client_id,
        )

    def _too_slow(self, link: Outlet) -> None:
        log.debug("%s did not connect in time", link.peer.address)
        link.close()

    def _watch(self, link: Outlet) -> None:
        self.timers.set(link, self._silent_at(link), partial(self._check_alive, link))

    def _silent_at(self, link: Outlet) -> float:
        # [MQTT-3.1.2-22]: one and a half times the interval, and what our clock may lag behind.
        return link.seen_at + 1.5 * link.keep_alive_seconds + _TICK_SECONDS_MAX

    def _check_alive(self, link: Outlet) -> None:
        if self._silent_at(link) > self.shared.now:
            self._watch(link)
        else:
            link.disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)

    # Subscriptions ------------------------------------------------------------------------------

    def subscribe(self, link: Link, packet: Subscribe) -> None:
        session = link.session
        assert session is not None
        reasons: list[int] = []
        changed: dict[str, SubscriptionRow] = {}
        greet: list[Subscription] = []
        revision = next(self._revisions)
        for position, request in enumerate(packet.requests):
            refusal = self._refuse_subscription(link, session, request, position)
            if refusal is not None:
                reasons.append(refusal)
                continue
            is_new = request.filter not in session.subscriptions
            self._begin_change(session, request.filter, revision)
            subscription = self._subscribe(session, request, packet.identifier)
            changed[request.filter] = subscription.row()
            reasons.append(subscription.qos)
            if _wants_retained(request, is_new=is_new):
                greet.append(subscription)

        def answer(stored: bool) -> None:
            for topic_filter, row in changed.items():
                self._end_change(session, topic_filter, revision, row if stored else None)
            if not stored:
                reasons[:] = [
                    reason if reason >= 0x80 else ReasonCode.QUOTA_EXCEEDED for reason in reasons
                ]
            if link.is_connected:
                link.answer_reasons(PacketType.SUBACK, packet.packet_id, reasons)  # [MQTT-3.8.4-1]
                for subscription in greet if stored else ():
                    self.greetings.begin(link, subscription)

        if session.persistent:
            self.shared.journal.when_stored(answer)
        else:
            answer(True)

    def _begin_change(self, session: Session, topic_filter: str, revision: int) -> None:
        """Remember what is on disk of a subscription until its change is there too."""
        key = session.number, topic_filter
        if not session.persistent:
            return
        if key in self._changing:
            before = self._changing[key].before
        else:
            known = session.subscriptions.get(topic_filter)
            before = None if known is None else known.row()
        self._changing[key] = _Change(revision, before)

    def _end_change(
        self, session: Session, topic_filter: str, revision: int, stored: SubscriptionRow | None
    ) -> None:
        """What could not be stored has not been, unless a later SUBSCRIBE says otherwise."""
        key = session.number, topic_filter
        change = self._changing.get(key)
        if change is None:
            return
        if change.revision == revision:
            del self._changing[key]
            if stored is None:
                self._restore_subscription(session, topic_filter, change.before)
        elif stored is not None:
            self._changing[key] = _Change(change.revision, stored)

    def _subscribe(
        self, session: Session, request: SubscriptionRequest, identifier: int
    ) -> Subscription:
        options = (
            min(request.qos, self.shared.limits.maximum_qos)  # [MQTT-3.8.4-7]
            | request.no_local << 2
            | request.retain_as_published << 3
            | request.retain_handling << 4
        )
        if session.persistent:
            self.shared.journal.save_subscription(
                session.number, request.filter, SubscriptionRow(options, identifier)
            )
        return self.router.subscribe(session, request.filter, options, identifier)

    def _restore_subscription(
        self, session: Session, topic_filter: str, before: SubscriptionRow | None
    ) -> None:
        """What could not be stored has not been."""
        if before is None:
            self._drop_subscription(session, topic_filter)
        elif topic_filter in session.subscriptions:
            self.shared.journal.save_subscription(session.number, topic_filter, before)
            self.router.subscribe(session, topic_filter, before.options, before.identifier)

    def _refuse_subscription(
        self, link: Link, session: Session, request: SubscriptionRequest, position: int
    ) -> ReasonCode | None:
        if position >= FILTERS_PER_PACKET_MAX:
            return ReasonCode.QUOTA_EXCEEDED
        limits = self.shared.limits
        topic_filter = request.filter
        shared = split_shared(topic_filter)
        inner = topic_filter if shared is None else shared.filter
        if (
            inner.count("/") >= limits.topic_levels_max
            or len(inner.encode()) > limits.topic_bytes_max
        ):
            return ReasonCode.TOPIC_FILTER_INVALID
        if not link.access.may_subscribe(topic_filter):
            return ReasonCode.NOT_AUTHORIZED
        if topic_filter not in session.subscriptions and (
            len(session.subscriptions) >= limits.subscriptions_per_session_max
            or self.router.count >= limits.subscriptions_max
            or (session.persistent and self.shared.journal.failing)
        ):
            return ReasonCode.QUOTA_EXCEEDED
        return None

    def unsubscribe(self, link: Link, packet: Unsubscribe) -> None:
        session = link.session
        assert session is not None
        reasons: list[int] = [
            ReasonCode.SUCCESS
            if self._drop_subscription(session, topic_filter)
            else ReasonCode.NO_SUBSCRIPTION_EXISTED
            for topic_filter in packet.filters
        ]

        def answer(stored: bool) -> None:
            del stored  # what is gone from memory will be gone from disk with the next batch
            if link.is_connected:
                link.answer_reasons(PacketType.UNSUBACK, packet.packet_id, reasons)

        if session.persistent:
            self.shared.journal.when_stored(answer)
        else:
            answer(True)

    def _drop_subscription(self, session: Session, topic_filter: str) -> bool:
        known = self.router.unsubscribe(session, topic_filter)
        if known and session.persistent:
            self.shared.journal.save_subscription(session.number, topic_filter, None)
        return known

    # Publications that no client's packet brought -----------------------------------------------

    def publish(self, message: Message, origin: Session | None = None) -> None:
        """In the server's own name, or in that of a client (`origin`) that is gone."""
        self.dispatch.publish(message, origin)
        if message.retain:
            self.expire_retained(message)

    def expire_retained(self, message: Message) -> None:
        """Take a retained message away when its time is over; an earlier one's time is no more."""
        key = ("retained", message.topic)
        if message.expires_at is None or self.retained.get(message.topic) is not message:
            self.timers.cancel(key)
            return

        def expire() -> None:
            if self.retained.get(message.topic) is message:
                self.shared.counters.publishes_expired += 1
                self.dispatch.forget_retained(message.topic)

        self.timers.set(key, message.expires_at, expire)

    def refusal(self, message: Message, origin: Session) -> ReasonCode | None:
        """Why a publication cannot be taken just now."""
        shared = self.shared
        if message.retain and message.payload and not self.dispatch.has_room_for(message):
            return ReasonCode.QUOTA_EXCEEDED
        if shared.journal.failing and message.qos:
            if message.qos == 2 and origin.persistent:
                return ReasonCode.QUOTA_EXCEEDED
            if self.dispatch.needs_disk(message, origin):
                return ReasonCode.QUOTA_EXCEEDED
        return None

    # What the log says --------------------------------------------------------------------------

    def note_refusal(self, link: Outlet, reason: ReasonCode, why: str | None) -> None:
        log.warning(
            "refused a client from %s: %s%s",
            link.peer.address,
            reason.name.lower().replace("_", " "),
            f" ({why})" if why else "",
        )

    def note_failure(self, link: Outlet, reason: ReasonCode, why: str) -> None:
        # A client chooses its name; with line breaks as they are it could write our log.
        name = repr(link.session.client_id) if link.session is not None else "a client"
        log.warning(
            "disconnected %s from %s: %s (%s)",
            name,
            link.peer.address,
            reason.name.lower().replace("_", " "),
            why,
        )

    # From disk ----------------------------------------------------------------------------------

    def restore(self, state: StoredState, now: float) -> None:
        """What an earlier process promised."""
        self.shared.now = now
        messages = {
            number: Message(
                row.topic,
                row.payload,
                row.qos,
                row.retain,
                row.properties,
                row.expires_at,
                row.origin,
            )
            for number, row in state.messages.items()
        }
        for number, message in messages.items():
            message.number = number
        by_number: dict[int, Session] = {}
        for number, row in state.sessions.items():
            session = Session(self.shared, number, row.client_id)
            session.user = row.user
            session.expiry_seconds = row.expiry_seconds
            session.ended_at = row.ended_at
            session.will = None if row.will is None else self.shared.decode_will(row.will)
            session.stored = True
            by_number[number] = self.sessions[row.client_id] = session
        for (number, topic_filter), subscription in state.subscriptions.items():
            self.router.subscribe(
                by_number[number], topic_filter, subscription.options, subscription.identifier
            )
        for (number, sequence), delivery in sorted(state.deliveries.items()):
            entry = Outgoing(
                messages[delivery.message],
                delivery.qos,
                delivery.retain,
                delivery.identifiers,
                sequence,
            )
            entry.packet_id = delivery.packet_id
            entry.released = delivery.released
            entry.first_batch = -1
            by_number[number].restore(entry)
        for number, packet_id in state.incoming:
            by_number[number].incoming.add(packet_id)
        for number in state.retained.values():
            message = messages[number]
            message.references += 1
            self.retained.put(message)
            if message.expires_at is not None:
                self.expire_retained(message)
        self.dispatch.count_retained()
        for session in by_number.values():
            self._wait_for(session, now)
        self.timers.run(now)

    def _wait_for(self, session: Session, now: float) -> None:
        """A session whose client is not there, as if its connection had just been lost."""
        if session.ended_at is None:
            session.ended_at = now
            session.save()
        if not session.persistent:
            self._end(session)
            return
        if session.will is not None:
            self.timers.set(
                ("will", session.number),
                session.ended_at + session.will.delay_seconds,
                partial(self._publish_will, session),
            )
        self._expire_later(session)


def _options(request: SubscriptionRequest, qos: int) -> int:
    """As on the wire, with the QoS that was granted (section 3.8.3.1)."""
    return (
        qos
        | request.no_local << 2
        | request.retain_as_published << 3
        | request.retain_handling << 4
    )


def _wants_retained(request: SubscriptionRequest, *, is_new: bool) -> bool:
    # [MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]
    wanted = request.retain_handling == 0 or (request.retain_handling == 1 and is_new)
    return wanted and split_shared(request.filter) is None  # section 4.8.2
