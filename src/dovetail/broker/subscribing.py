"""SUBSCRIBE and UNSUBSCRIBE: what is granted, and what the answer promises. Pure.

- Every filter has its reason code, in its place; one that is refused does not hold up others.
- A change counts at once. The answer to a kept session waits until it is on disk; if the disk
  refuses, the subscription is again what is there, and the answer says so.
- In a cluster SUBACK also waits, for a while, until the other brokers know: what is published
  anywhere after it comes here.
- Retained messages follow the SUBACK (greeting.py).
"""

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from dovetail.broker.access import ClientAccess
from dovetail.broker.greeting import Greetings
from dovetail.broker.journal import SubscriptionRow
from dovetail.broker.link import Link
from dovetail.broker.packets import (
    MQTT_3_1_1,
    PacketType,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.routing import Router
from dovetail.broker.session import Session, Subscription
from dovetail.broker.state import Shared
from dovetail.config import FILTERS_PER_PACKET_MAX, SUBACK_WAIT_SECONDS
from dovetail.errors import ReasonCode
from dovetail.topics.names import split_shared


class _Change(NamedTuple):
    """A subscription on its way to disk: by which packet last, and what the disk has of it."""

    revision: int
    before: SubscriptionRow | None


class Subscribing:
    """The subscriptions of all sessions, as their clients ask for them."""

    def __init__(self, shared: Shared, router: Router, greetings: Greetings) -> None:
        self._shared = shared
        self._router = router
        self._greetings = greetings
        self.mesh: Mesh | None = None
        """The other brokers, if there are some."""
        self._changing: dict[tuple[int, str], _Change] = {}
        self._revisions = count(1)

    # A client asks ------------------------------------------------------------------------------

    def subscribe(self, link: Link, packet: Subscribe) -> None:
        session = link.session
        assert session is not None
        session.is_used()
        reasons: list[int] = []
        changed: dict[str, SubscriptionRow] = {}
        greet: list[Subscription] = []
        revision = next(self._revisions)
        for position, request in enumerate(packet.requests):
            refusal = self._refuse(link, session, request, position)
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
                self._end_change(session, topic_filter, revision, row, stored)
            if not stored:
                reasons[:] = [
                    reason if reason >= 0x80 else ReasonCode.QUOTA_EXCEEDED for reason in reasons
                ]
            to_greet = greet if stored else []
            self._when_known(lambda: self._acknowledge(link, packet.packet_id, reasons, to_greet))

        if session.persistent:
            self._shared.journal.when_stored(answer)
        else:
            answer(True)

    def _acknowledge(
        self, link: Link, packet_id: int, reasons: list[int], greet: list[Subscription]
    ) -> None:
        if link.is_connected:
            link.answer_reasons(PacketType.SUBACK, packet_id, reasons)  # [MQTT-3.8.4-1]
            for subscription in greet:
                self._greetings.begin(link, subscription)

    def _when_known(self, act: Callable[[], None]) -> None:
        """When the other brokers know of all that is subscribed to here."""
        if self.mesh is None:
            act()
        else:
            self.mesh.when_known(self._shared.now + SUBACK_WAIT_SECONDS, act)

    def unsubscribe(self, link: Link, packet: Unsubscribe) -> None:
        session = link.session
        assert session is not None
        reasons: list[int] = []
        changed: set[str] = set()
        revision = next(self._revisions)
        for topic_filter in packet.filters:
            is_known = topic_filter in session.subscriptions
            if is_known or (session.number, topic_filter) in self._changing:
                self._begin_change(session, topic_filter, revision)
                changed.add(topic_filter)
            self._drop(session, topic_filter)
            reasons.append(ReasonCode.SUCCESS if is_known else ReasonCode.NO_SUBSCRIPTION_EXISTED)

        def answer(stored: bool) -> None:
            for topic_filter in changed:
                self._end_change(session, topic_filter, revision, None, stored)
            if not stored:
                # UNSUBACK has no word for a quota.
                reasons[:] = [
                    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR if topic_filter in changed else reason
                    for topic_filter, reason in zip(packet.filters, reasons, strict=True)
                ]
            if not link.is_connected:
                return
            if changed and not stored and link.version == MQTT_3_1_1:  # which has no words at all
                link.fail(ReasonCode.QUOTA_EXCEEDED, "what cannot be stored is not acknowledged")
            else:
                link.answer_reasons(PacketType.UNSUBACK, packet.packet_id, reasons)

        if session.persistent:
            self._shared.journal.when_stored(answer)
        else:
            answer(True)

    def drop_forbidden(self, session: Session, access: ClientAccess) -> None:
        """Rules may have changed since the session's subscriptions were made."""
        if not access.everything:
            for topic_filter in list(session.subscriptions):
                if not access.may_subscribe(topic_filter):
                    self._changing.pop((session.number, topic_filter), None)  # for good
                    self._drop(session, topic_filter)

    def _refuse(
        self, link: Link, session: Session, request: SubscriptionRequest, position: int
    ) -> ReasonCode | None:
        if position >= FILTERS_PER_PACKET_MAX:
            return ReasonCode.QUOTA_EXCEEDED
        limits = self._shared.limits
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
            or session.filter_bytes + len(topic_filter.encode())
            > limits.subscriptions_bytes_per_session_max
            or self._router.count >= limits.subscriptions_max
            or (session.persistent and self._shared.journal.failing)
        ):
            return ReasonCode.QUOTA_EXCEEDED
        if shared is not None and self.mesh is not None and not self.mesh.has_room_for(shared):
            return ReasonCode.QUOTA_EXCEEDED
        return None

    def _subscribe(
        self, session: Session, request: SubscriptionRequest, identifier: int
    ) -> Subscription:
        options = (
            min(request.qos, self._shared.limits.maximum_qos)  # [MQTT-3.8.4-7]
            | request.no_local << 2
            | request.retain_as_published << 3
            | request.retain_handling << 4
        )
        if session.persistent:
            self._shared.journal.save_subscription(
                session.number, request.filter, SubscriptionRow(options, identifier)
            )
        return self._router.subscribe(session, request.filter, options, identifier)

    def _drop(self, session: Session, topic_filter: str) -> bool:
        known = self._router.unsubscribe(session, topic_filter)
        if known and session.persistent:
            self._shared.journal.save_subscription(session.number, topic_filter, None)
        return known

    # Until it is on disk ------------------------------------------------------------------------

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
        self,
        session: Session,
        topic_filter: str,
        revision: int,
        row: SubscriptionRow | None,
        stored: bool,
    ) -> None:
        """What could not be stored has not been, unless a later packet says otherwise."""
        key = session.number, topic_filter
        change = self._changing.get(key)
        if change is None:
            return
        if change.revision == revision:
            del self._changing[key]
            if not stored:
                self._restore(session, topic_filter, change.before)
        elif stored:
            self._changing[key] = _Change(change.revision, row)

    def _restore(self, session: Session, topic_filter: str, before: SubscriptionRow | None) -> None:
        """As it is on disk; a session that has ended is not there any more."""
        if before is None:
            self._drop(session, topic_filter)
        elif session.stored:
            self._shared.journal.save_subscription(session.number, topic_filter, before)
            self._router.subscribe(session, topic_filter, before.options, before.identifier)


def _wants_retained(request: SubscriptionRequest, *, is_new: bool) -> bool:
    # [MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]
    wanted = request.retain_handling == 0 or (request.retain_handling == 1 and is_new)
    return wanted and split_shared(request.filter) is None  # section 4.8.2
