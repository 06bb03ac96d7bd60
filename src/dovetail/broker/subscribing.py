"""SUBSCRIBE and UNSUBSCRIBE: what is granted, and what the answer promises. Pure.

- Every filter has its reason code, in its place; one that is refused does not hold up others. What
  is wrong with a where-clause is said in a sentence besides.
- A filter with a where-clause (spaces.py) is a subscription of its own: who subscribes to it alone
  too, or with another clause, has both, and ends them one by one, each as it was named.
- A change counts at once. The answer to a kept session waits until it is on disk; if the disk
  refuses, the subscription is again what is there, and the answer says so.
- In a cluster SUBACK also waits, for a while, until the other brokers know: what is published
  anywhere after it comes here.
- Retained messages follow the SUBACK (greeting.py).
- A packet may have many filters, so they are gone through in slices (slices.py). Some of them count
  before others meanwhile. The answer is of all of them, and nothing else that the client has sent
  is taken before they are gone through. If its connection ends first, the rest is left out: nobody
  was told that it holds.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from dovetail.broker.access import ClientAccess
from dovetail.broker.clauses import boxes_of, key_of, split_key
from dovetail.broker.greeting import Greetings
from dovetail.broker.journal import SubscriptionRow
from dovetail.broker.link import Link
from dovetail.broker.packets import (
    MQTT_3_1_1,
    PacketType,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    UserProperties,
)
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.routing import Router
from dovetail.broker.session import Session
from dovetail.broker.slices import Slices, Work
from dovetail.broker.state import Shared
from dovetail.broker.subscription import Subscription
from dovetail.config import (
    CHANGES_PER_PIECE,
    CLAUSE_CHARACTERS_PER_FILTER,
    FILTERS_PER_PACKET_MAX,
    FILTERS_PER_PIECE,
    REVIEWED_PER_PIECE,
    SUBACK_WAIT_SECONDS,
)
from dovetail.errors import ClientError, ReasonCode
from dovetail.topics.names import split_shared

WHERE = "where"
"""The user property of SUBSCRIBE and UNSUBSCRIBE that is a where-clause."""


class _Change(NamedTuple):
    """A subscription on its way to disk: by which packet last, and what the disk has of it."""

    revision: int
    before: SubscriptionRow | None


class _Piece:
    """How many of a packet's filters are gone through before others have their turn."""

    __slots__ = ("_room",)

    def __init__(self) -> None:
        self._room = FILTERS_PER_PIECE

    def is_full(self, topic_filter: str, where: Sequence[str]) -> bool:
        """Is this filter for the next piece? A where-clause counts as several filters."""
        if self._room <= 0:
            self._room = FILTERS_PER_PIECE
            return True
        self._room -= 1
        if where or "?" in topic_filter:
            self._room -= (len(topic_filter) + sum(map(len, where))) // CLAUSE_CHARACTERS_PER_FILTER
        return False


class Subscribing:
    """The subscriptions of all sessions, as their clients ask for them."""

    def __init__(
        self, shared: Shared, slices: Slices, router: Router, greetings: Greetings
    ) -> None:
        self._shared = shared
        self._slices = slices
        self._router = router
        self._greetings = greetings
        self.mesh: Mesh | None = None
        """The other brokers, if there are some."""
        self._changing: dict[int, dict[str, _Change]] = {}
        self._revisions = count(1)

    # A client asks ------------------------------------------------------------------------------

    def subscribe(self, link: Link, packet: Subscribe) -> Work:
        session = link.session
        assert session is not None
        session.is_used()
        reasons: list[int] = []
        changed: dict[str, SubscriptionRow] = {}
        greet: list[Subscription] = []
        why: dict[str, None] = {}
        revision = next(self._revisions)
        where = _where(packet.user_properties)
        piece = _Piece()
        for position, request in enumerate(packet.requests):
            if piece.is_full(request.filter, where):
                yield
                if link.session is not session:
                    break
            try:
                key = self._key(request.filter, where)
                self._check(link, session, key, position)
            except ClientError as error:
                reasons.append(error.reason)
                why[str(error)] = None
                continue
            is_new = key not in session.subscriptions
            self._begin_change(session, key, revision)
            subscription = self._subscribe(session, key, request, packet.identifier)
            changed[key] = subscription.row()
            reasons.append(subscription.qos)
            if _wants_retained(request, is_new=is_new):
                greet.append(subscription)

        def answer(stored: bool) -> Work:
            yield from self._end_changes(session, changed, revision, stored)
            if not stored:
                reasons[:] = [
                    reason if reason >= 0x80 else ReasonCode.QUOTA_EXCEEDED for reason in reasons
                ]
            to_greet = greet if stored else []
            said = "\n".join(why) if why else None
            acknowledge = self._acknowledge(link, packet.packet_id, reasons, said, to_greet)
            self._when_known(lambda: self._slices.begin(acknowledge))

        if session.persistent:
            self._shared.journal.when_stored(answer)
        else:
            yield from answer(True)

    def _acknowledge(
        self,
        link: Link,
        packet_id: int,
        reasons: list[int],
        why: str | None,
        greet: list[Subscription],
    ) -> Work:
        if not link.is_connected:
            return
        link.answer_reasons(PacketType.SUBACK, packet_id, reasons, why)  # [MQTT-3.8.4-1]
        for place, subscription in enumerate(greet, 1):
            self._greetings.begin(link, subscription)
            if not place % CHANGES_PER_PIECE:
                yield
                if link.is_closed:
                    return
        self._greetings.go_on(link)

    def _when_known(self, act: Callable[[], None]) -> None:
        """When the other brokers know of all that is subscribed to here."""
        if self.mesh is None:
            act()
        else:
            self.mesh.when_known(self._shared.now + SUBACK_WAIT_SECONDS, act)

    def unsubscribe(self, link: Link, packet: Unsubscribe) -> Work:
        session = link.session
        assert session is not None
        reasons: list[int] = []
        keys: list[str] = []
        changed: dict[str, None] = {}
        revision = next(self._revisions)
        where = _where(packet.user_properties)
        piece = _Piece()
        for topic_filter in packet.filters:
            if piece.is_full(topic_filter, where):
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
                # UNSUBACK has no word for a quota.
                reasons[:] = [
                    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR if key in changed else reason
                    for key, reason in zip(keys, reasons, strict=True)
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
            yield from answer(True)

    def drop_forbidden(self, session: Session, access: ClientAccess) -> Generator[None, None, int]:
        """Rules may have changed since the session's subscriptions were made.

        Returns how many had to go.
        """
        dropped = 0
        changing = self._changing.get(session.number, {})
        for place, key in enumerate(dict.fromkeys((*session.subscriptions, *changing)), 1):
            if not access.may_subscribe(split_key(key)[0]):
                self._forget_change(session, key)  # for good
                dropped += self._drop(session, key)
            if not place % REVIEWED_PER_PIECE:
                yield
        return dropped

    def _key(self, topic_filter: str, where: Sequence[str]) -> str:
        """Of a subscription as the client asks for it."""
        if len(where) > 1:
            raise ClientError(
                ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
                f"{len(where)} user properties `where` in one SUBSCRIBE; it takes one, and "
                "conditions are joined by `and` or `or`",
            )
        return key_of(*self._router.spaces.read(topic_filter, where[0] if where else None))

    def _check(self, link: Link, session: Session, key: str, position: int) -> None:
        """A ClientError if there shall not be such a subscription."""
        limits = self._shared.limits
        topic_filter, _ = split_key(key)
        shared = split_shared(topic_filter)
        inner = topic_filter if shared is None else shared.filter
        if position >= FILTERS_PER_PACKET_MAX:
            raise ClientError(
                ReasonCode.QUOTA_EXCEEDED,
                f"more than {FILTERS_PER_PACKET_MAX:,} topic filters in one SUBSCRIBE",
            )
        if (
            inner.count("/") >= limits.topic_levels_max
            or len(inner.encode()) > limits.topic_bytes_max
        ):
            raise ClientError(
                ReasonCode.TOPIC_FILTER_INVALID,
                f"a topic filter may have {limits.topic_levels_max:,} levels and "
                f"{limits.topic_bytes_max:,} bytes here",
            )
        if not link.access.may_subscribe(topic_filter):
            raise ClientError(ReasonCode.NOT_AUTHORIZED, f"{topic_filter!r} is not allowed")
        if key not in session.subscriptions:
            self._check_room(session, key)
        if (
            shared is not None
            and self.mesh is not None
            and not self.mesh.has_room_for((shared.group, key_of(inner, split_key(key)[1])))
        ):
            raise ClientError(ReasonCode.QUOTA_EXCEEDED, "there is no room for more groups")

    def _check_room(self, session: Session, key: str) -> None:
        """A ClientError if one more does not fit. A where-clause counts as many as it has boxes."""
        limits = self._shared.limits
        boxes = boxes_of(key)
        if session.boxes + boxes > limits.subscriptions_per_session_max:
            why = f"a session may have {limits.subscriptions_per_session_max:,} here"
        elif session.filter_bytes + len(key.encode()) > limits.subscriptions_bytes_per_session_max:
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

    def _subscribe(
        self, session: Session, key: str, request: SubscriptionRequest, identifier: int
    ) -> Subscription:
        options = (
            min(request.qos, self._shared.limits.maximum_qos)  # [MQTT-3.8.4-7]
            | request.no_local << 2
            | request.retain_as_published << 3
            | request.retain_handling << 4
        )
        if session.persistent:
            self._shared.journal.save_subscription(
                session.number, key, SubscriptionRow(options, identifier)
            )
        return self._router.subscribe(session, key, options, identifier)

    def _drop(self, session: Session, key: str) -> bool:
        known = self._router.unsubscribe(session, key)
        if known and session.persistent:
            self._shared.journal.save_subscription(session.number, key, None)
        return known

    # Until it is on disk ------------------------------------------------------------------------

    def _begin_change(self, session: Session, name: str, revision: int) -> None:
        """Remember what is on disk of a subscription until its change is there too."""
        if not session.persistent:
            return
        changing = self._changing.setdefault(session.number, {})
        if name in changing:
            before = changing[name].before
        else:
            known = session.subscriptions.get(name)
            before = None if known is None else known.row()
        changing[name] = _Change(revision, before)

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
        """Those of one packet."""
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
        """What could not be stored has not been, unless a later packet says otherwise."""
        changing = self._changing.get(session.number, {})
        change = changing.get(name)
        if change is None:
            return
        if change.revision == revision:
            self._forget_change(session, name)
            if not stored:
                self._restore(session, name, change.before)
        elif stored:
            changing[name] = _Change(change.revision, row)

    def _restore(self, session: Session, name: str, before: SubscriptionRow | None) -> None:
        """As it is on disk; a session that has ended is not there any more."""
        if before is None:
            self._drop(session, name)
        elif session.stored:
            self._shared.journal.save_subscription(session.number, name, before)
            self._router.subscribe(session, name, before.options, before.identifier)


def _where(user_properties: UserProperties) -> list[str]:
    """The where-clauses of a packet."""
    return [value for name, value in user_properties if name == WHERE]


def _wants_retained(request: SubscriptionRequest, *, is_new: bool) -> bool:
    # [MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]
    wanted = request.retain_handling == 0 or (request.retain_handling == 1 and is_new)
    return wanted and split_shared(request.filter) is None  # section 4.8.2
