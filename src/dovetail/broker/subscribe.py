"""SUBSCRIBE and UNSUBSCRIBE: changes the subscriptions of a session and answers. Pure.

- Every filter gets its reason code; a refused filter does not affect others. The reason string
  explains what is wrong.
- A filter with a where-clause (attributes/space_registry.py) is a subscription of its own. A client
  may subscribe to the same filter without a clause or with another one, and ends each by itself.
- A change takes effect at once. For a persistent session the answer waits for the disk. If the disk
  refuses, the broker restores the stored subscription, and the answer says so.
- In a cluster SUBACK also waits, for a limited time, until the other brokers know the subscription.
  Then a publication at any broker reaches this one.
- Retained messages follow the SUBACK (retained_delivery.py).
- A packet may have many filters, so the broker handles them in slices (slices.py), and some take
  effect before others. It takes the client's next packet only after the last filter. If the
  connection ends first, it skips the remaining filters: the client has no answer for them.
"""

from collections.abc import Generator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from dovetail.attributes.clauses import key_of, split_key
from dovetail.broker.auth.access import ClientAccess
from dovetail.broker.client_link import ClientLink
from dovetail.broker.limits import (
    CHANGES_PER_PIECE,
    CLAUSE_CHARACTERS_PER_FILTER,
    FILTERS_PER_PACKET_MAX,
    FILTERS_PER_PIECE,
    REVIEWED_PER_PIECE,
    SUBACK_WAIT_SECONDS,
)
from dovetail.broker.other_brokers import OtherBrokers
from dovetail.broker.retained_delivery import RetainedDeliveries
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import SubscriptionRow
from dovetail.broker.subscription import Subscription, SubscriptionKey, take_apart
from dovetail.codec.packets import (
    MQTT_3_1_1,
    PacketType,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    UserProperties,
)
from dovetail.errors import ClientError, ReasonCode
from dovetail.slices import SliceScheduler, Work

WHERE = "where"
"""The name of the user property that holds a where-clause."""


class _PendingChange(NamedTuple):
    """A change on its way to disk: its last packet's revision, and the row before it."""

    revision: int
    before: SubscriptionRow | None


class _FilterBudget:
    """Counts the filters that are handled in one piece."""

    __slots__ = ("_room",)

    def __init__(self) -> None:
        self._room = FILTERS_PER_PIECE

    def is_full(self, topic_filter: str, where: Sequence[str]) -> bool:
        """Does this filter belong to the next piece? A where-clause counts as several filters."""
        if self._room <= 0:
            self._room = FILTERS_PER_PIECE
            return True
        self._room -= 1
        if where or "?" in topic_filter:
            self._room -= (len(topic_filter) + sum(map(len, where))) // CLAUSE_CHARACTERS_PER_FILTER
        return False


class SubscribeHandler:
    """Handles SUBSCRIBE and UNSUBSCRIBE for all sessions of one broker."""

    def __init__(
        self,
        shared: SharedState,
        slices: SliceScheduler,
        router: Router,
        retained_deliveries: RetainedDeliveries,
        others: OtherBrokers,
    ) -> None:
        self._shared = shared
        self._slices = slices
        self._router = router
        self._retained_deliveries = retained_deliveries
        self._others = others
        self._changing: dict[int, dict[str, _PendingChange]] = {}
        self._revisions = count(1)

    # Requests -----------------------------------------------------------------------------------

    def subscribe(self, link: ClientLink, packet: Subscribe) -> Work:
        session = link.session
        assert session is not None
        session.note_use()
        reasons: list[int] = []
        changed: dict[str, SubscriptionRow] = {}
        retained_for: list[Subscription] = []
        why: dict[str, None] = {}
        revision = next(self._revisions)
        where = _where(packet.user_properties)
        budget = _FilterBudget()
        for position, request in enumerate(packet.requests):
            if budget.is_full(request.filter, where):
                self._router.place()
                yield
                if link.session is not session:
                    break
            try:
                parts = self._key(request.filter, where)
                key = parts.key
                is_new = key not in session.subscriptions
                self._check(link, session, parts, position, is_new=is_new)
            except ClientError as error:
                reasons.append(error.reason)
                why[str(error)] = None
                continue
            options = self._options(request)
            if session.persistent:
                self._begin_change(session, key, revision)
                changed[key] = row = SubscriptionRow(options, packet.identifier)
                self._shared.journal.save_subscription(session.number, key, row)
            subscription = self._router.put(session, parts, options, packet.identifier)
            reasons.append(subscription.qos)
            # section 4.8.2
            if parts.shared is None and _wants_retained(request, is_new=is_new):
                retained_for.append(subscription)
        self._router.place()

        def answer(stored: bool) -> Work:
            yield from self._end_changes(session, changed, revision, stored)
            if not stored:
                reasons[:] = [
                    reason if reason >= 0x80 else ReasonCode.QUOTA_EXCEEDED for reason in reasons
                ]
            to_deliver = retained_for if stored else []
            explanation = "\n".join(why) if why else None
            acknowledge = self._acknowledge(
                link, packet.packet_id, reasons, explanation, to_deliver
            )
            self._others.when_known(
                self._shared.now + SUBACK_WAIT_SECONDS, lambda: self._slices.begin(acknowledge)
            )

        if session.persistent:
            self._shared.journal.when_stored(answer)
        else:
            yield from answer(True)

    def _options(self, request: SubscriptionRequest) -> int:
        return (
            min(request.qos, self._shared.limits.maximum_qos)  # [MQTT-3.8.4-7]
            | request.no_local << 2
            | request.retain_as_published << 3
            | request.retain_handling << 4
        )

    def _acknowledge(
        self,
        link: ClientLink,
        packet_id: int,
        reasons: list[int],
        why: str | None,
        retained_for: list[Subscription],
    ) -> Work:
        if not link.is_connected:
            return
        link.answer_reasons(PacketType.SUBACK, packet_id, reasons, why)  # [MQTT-3.8.4-1]
        for place, subscription in enumerate(retained_for, 1):
            self._retained_deliveries.begin(link, subscription)
            if not place % CHANGES_PER_PIECE:
                yield
                if link.is_closed:
                    return
        self._retained_deliveries.resume(link)

    def unsubscribe(self, link: ClientLink, packet: Unsubscribe) -> Work:
        session = link.session
        assert session is not None
        reasons: list[int] = []
        keys: list[str] = []
        changed: dict[str, None] = {}
        revision = next(self._revisions)
        where = _where(packet.user_properties)
        budget = _FilterBudget()
        for topic_filter in packet.filters:
            if budget.is_full(topic_filter, where):
                yield
                if link.session is not session:
                    break
            key = self._router.spaces.key_to_drop(topic_filter, where[-1] if where else None)
            keys.append(key)
            is_known = key in session.subscriptions
            if is_known or key in self._changing.get(session.number, ()):
                self._begin_change(session, key, revision)
                changed[key] = None
            self._drop(session, key)
            reasons.append(ReasonCode.SUCCESS if is_known else ReasonCode.NO_SUBSCRIPTION_EXISTED)

        def answer(stored: bool) -> Work:
            yield from self._end_changes(session, changed, revision, stored)
            if not stored:
                # UNSUBACK has no reason code for a quota.
                reasons[:] = [
                    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR if key in changed else reason
                    for key, reason in zip(keys, reasons, strict=True)
                ]
            if not link.is_connected:
                return
            if changed and not stored and link.version == MQTT_3_1_1:  # without reason codes
                link.fail(ReasonCode.QUOTA_EXCEEDED, "what cannot be stored is not acknowledged")
            else:
                link.answer_reasons(PacketType.UNSUBACK, packet.packet_id, reasons)

        if session.persistent:
            self._shared.journal.when_stored(answer)
        else:
            yield from answer(True)

    def drop_forbidden(self, session: Session, access: ClientAccess) -> Generator[None, None, int]:
        """Remove the subscriptions that the rules now forbid. Return their number."""
        dropped = 0
        changing = self._changing.get(session.number, {})
        for place, key in enumerate(dict.fromkeys((*session.subscriptions, *changing)), 1):
            if not access.may_subscribe(split_key(key)[0]):
                self._forget_change(session, key)  # for good
                dropped += self._drop(session, key)
            if not place % REVIEWED_PER_PIECE:
                yield
        return dropped

    def _key(self, topic_filter: str, where: Sequence[str]) -> SubscriptionKey:
        """Return the key of the subscription that the client asks for."""
        if not where and "?" not in topic_filter:
            return take_apart(topic_filter)
        if len(where) > 1:
            raise ClientError(
                ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
                f"{len(where)} user properties `where` in one SUBSCRIBE; it takes one, and "
                "conditions are joined by `and` or `or`",
            )
        return take_apart(
            key_of(
                *self._router.spaces.parse_subscription(topic_filter, where[0] if where else None)
            )
        )

    def _check(
        self,
        link: ClientLink,
        session: Session,
        parts: SubscriptionKey,
        position: int,
        *,
        is_new: bool,
    ) -> None:
        """Raise ClientError if the session may not have this subscription."""
        limits = self._shared.limits
        _, topic_filter, clause, shared, inner, nbytes, _ = parts
        if position >= FILTERS_PER_PACKET_MAX:
            raise ClientError(
                ReasonCode.QUOTA_EXCEEDED,
                f"more than {FILTERS_PER_PACKET_MAX:,} topic filters in one SUBSCRIBE",
            )
        if inner.count("/") >= limits.topic_levels_max or (
            nbytes > limits.topic_bytes_max and len(inner.encode()) > limits.topic_bytes_max
        ):
            raise ClientError(
                ReasonCode.TOPIC_FILTER_INVALID,
                f"a topic filter may have {limits.topic_levels_max:,} levels and "
                f"{limits.topic_bytes_max:,} bytes here",
            )
        if not link.access.may_subscribe(topic_filter):
            raise ClientError(ReasonCode.NOT_AUTHORIZED, f"{topic_filter!r} is not allowed")
        if is_new:
            self._check_room(session, parts)
        if shared is not None and not self._others.has_room_for(
            (shared.group, key_of(inner, clause))
        ):
            raise ClientError(ReasonCode.QUOTA_EXCEEDED, "there is no room for more groups")

    def _check_room(self, session: Session, parts: SubscriptionKey) -> None:
        """Raise ClientError if there is no room. A where-clause counts once for each box."""
        limits = self._shared.limits
        boxes = parts.boxes
        if session.boxes + boxes > limits.subscriptions_per_session_max:
            why = f"a session may have {limits.subscriptions_per_session_max:,} here"
        elif session.filter_bytes + parts.nbytes > limits.subscriptions_bytes_per_session_max:
            why = (
                f"those of a session may have {limits.subscriptions_bytes_per_session_max:,} bytes"
            )
        elif self._router.boxes + boxes > limits.subscriptions_max:
            why = f"the broker takes {limits.subscriptions_max:,}"
        elif session.persistent and self._shared.journal.refuses_more:
            why = "the data folder does not take what has to be written"
        else:
            return
        counted = f", and this one counts as {boxes:,}: its boxes" if boxes > 1 else ""
        raise ClientError(
            ReasonCode.QUOTA_EXCEEDED,
            f"there is no room for more subscriptions: {why}{counted}",
        )

    def _drop(self, session: Session, key: str) -> bool:
        known = self._router.unsubscribe(session, key)
        if known and session.persistent:
            self._shared.journal.save_subscription(session.number, key, None)
        return known

    # Changes until stored -----------------------------------------------------------------------

    def _begin_change(self, session: Session, name: str, revision: int) -> None:
        """Remember the stored row of a subscription until its change is on disk."""
        if not session.persistent:
            return
        changing = self._changing.setdefault(session.number, {})
        if name in changing:
            before = changing[name].before
        else:
            known = session.subscriptions.get(name)
            before = None if known is None else known.row()
        changing[name] = _PendingChange(revision, before)

    def _forget_change(self, session: Session, name: str) -> None:
        changing = self._changing.get(session.number)
        if changing is not None and changing.pop(name, None) is not None and not changing:
            del self._changing[session.number]

    def _end_changes(
        self,
        session: Session,
        rows: Mapping[str, SubscriptionRow | None],
        revision: int,
        stored: bool,
    ) -> Work:
        """Settle the changes of one packet, in pieces."""
        for place, (key, row) in enumerate(rows.items(), 1):
            self._end_change(session, key, revision, row, stored)
            if not place % CHANGES_PER_PIECE:
                yield

    def _end_change(
        self,
        session: Session,
        name: str,
        revision: int,
        row: SubscriptionRow | None,
        stored: bool,
    ) -> None:
        """Settle one change; undo it if it was not stored and no later packet changed it."""
        changing = self._changing.get(session.number, {})
        change = changing.get(name)
        if change is None:
            return
        if change.revision == revision:
            self._forget_change(session, name)
            if not stored:
                self._restore(session, name, change.before)
        elif stored:
            changing[name] = _PendingChange(change.revision, row)

    def _restore(self, session: Session, name: str, before: SubscriptionRow | None) -> None:
        """Restore a subscription as it is on disk, unless its session has ended."""
        if before is None:
            self._drop(session, name)
        elif session.stored:
            self._shared.journal.save_subscription(session.number, name, before)
            self._router.subscribe(session, name, before.options, before.identifier)


def _where(user_properties: UserProperties) -> list[str]:
    """Return the where-clauses of a packet."""
    return [value for name, value in user_properties if name == WHERE]


def _wants_retained(request: SubscriptionRequest, *, is_new: bool) -> bool:
    # [MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]
    return request.retain_handling == 0 or (request.retain_handling == 1 and is_new)
