"""What a session gets of a publication, by those of its subscriptions that match. Pure.

A client with many where-clauses may have a hundred that hold for one publication, and still gets it
once. So of each box there is, in columns, whose it is and with which options; a kernel makes a
session's delivery of the boxes that were found, and no subscription is looked at. Only where one of
them has an identifier, or asks for a text, the session's are gone through one by one.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

import numpy as np

from dovetail.attributes.index import BoxIndex, Slots
from dovetail.attributes.space import Box, Point, Space
from dovetail.broker.clauses import ClauseSet
from dovetail.broker.kernels.owners import MARKS, NO_LOCAL, collect
from dovetail.broker.session import Session
from dovetail.broker.subscription import Subscription
from dovetail.config import RECEIVERS_PER_PIECE

_QOS_1, _QOS_2, _RETAIN_AS_PUBLISHED, _ONE_BY_ONE = 1, 2, 4, 8
_PLAIN = _QOS_1 | _QOS_2 | _RETAIN_AS_PUBLISHED
_OWNERS_MIN = 64


class Delivery:
    """What one session gets of a matching publication (section 3.3.4).

    Once, at the highest QoS of its subscriptions, and with all their identifiers.
    """

    __slots__ = ("identifiers", "plain", "qos", "retain_as_published", "session")

    def __init__(
        self,
        session: Session,
        qos: int,
        retain_as_published: bool,
        identifiers: tuple[int, ...] = (),
    ) -> None:
        self.session = session
        self.qos = qos  # [MQTT-3.3.4-2]
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers  # [MQTT-3.3.4-3], [MQTT-3.3.4-4]
        self.plain = not identifiers

    @classmethod
    def of(cls, session: Session, subscriptions: Sequence[Subscription]) -> "Delivery":
        return cls(
            session,
            max((one.qos for one in subscriptions), default=0),
            any(one.retain_as_published for one in subscriptions),
            tuple([one.identifier for one in subscriptions if one.identifier]),
        )

    def joined(self, other: "Delivery") -> "Delivery":
        """By more subscriptions of the same session."""
        return Delivery(
            self.session,
            max(self.qos, other.qos),
            self.retain_as_published or other.retain_as_published,
            self.identifiers + other.identifiers,
        )


Receivers = tuple[tuple[Delivery, ...], dict[str, Delivery | None]]
"""What sessions get of a publication; and, by client identifier, what sessions with No Local get of
their client's own ones [MQTT-3.8.3-3]. Those may come from another broker, where the client was
before."""


def receivers_of(
    found: Mapping[Session, Sequence[Subscription]],
) -> Generator[None, None, Receivers]:
    """By these subscriptions, in pieces: a session may have many that match."""
    deliveries: list[Delivery] = []
    own: dict[str, Delivery | None] = {}
    for place, (session, subscriptions) in enumerate(found.items(), 1):
        whole = others = None
        are_all = True
        for at in range(0, len(subscriptions), RECEIVERS_PER_PIECE):
            some = subscriptions[at : at + RECEIVERS_PER_PIECE]
            delivery = Delivery.of(session, some)
            whole = delivery if whole is None else whole.joined(delivery)
            rest = [one for one in some if not one.no_local]
            if len(rest) < len(some):
                are_all = False
                delivery = Delivery.of(session, rest)
            if rest:
                others = delivery if others is None else others.joined(delivery)
            if at:
                yield
        assert whole is not None
        deliveries.append(whole)
        if not are_all:
            own[session.client_id] = others
        if not place % RECEIVERS_PER_PIECE:
            yield
    return tuple(one for one in deliveries if not one.session.is_over), own


def by_session(subscriptions: Iterable[Subscription]) -> dict[Session, list[Subscription]]:
    found: dict[Session, list[Subscription]] = {}
    for one in subscriptions:
        found.setdefault(one.session, []).append(one)
    return found


class WantedBySubscriptions(ClauseSet[Subscription]):
    """Clauses on one filter, of subscriptions without a group."""

    def __init__(self, topic_filter: str, space: Space) -> None:
        super().__init__(topic_filter, space)
        # Of each slot of the index:
        self._owners = np.zeros(0, np.int32)
        self._marks = np.zeros(0, np.uint8)
        # Of each owner:
        self._sessions: list[Session] = []
        self._boxes_of: list[int] = []
        self._seen = np.zeros(_OWNERS_MIN, np.uint16)
        self._owner_of: dict[Session, int] = {}
        self._owner_named: dict[str, int] = {}
        self._free_owners: list[int] = []
        self._made: dict[int, Delivery] = {}  # by owner and marks

    def options_changed(self, subscription: Subscription) -> None:
        """Those of one that is here, or its identifier."""
        for slot in self._slots.get(subscription, ()):
            self._marks[slot] = _marks_of(subscription, has_texts=slot in self._texts)

    def deliveries(self, point: Point, client_id: str) -> Iterator[Delivery]:
        """To whose clauses hold, one for each session, of what this client published."""
        slots = self._search(point)
        if slots is None:
            yield from self._one_by_one(self.find(point), client_id)
            return
        found = np.empty(len(slots), np.int64)
        sender = self._owner_named.get(client_id, -1)
        count = collect(slots, self._owners, self._marks, self._seen, sender, found)
        made = self._made
        for code in found[:count].tolist():
            owner, marks = code >> MARKS, code & 0xFF
            if marks & _ONE_BY_ONE:
                own = slots[self._owners[slots] == owner].tolist()
                subscriptions = dict.fromkeys(self._entries(own, point))
                yield from self._one_by_one(subscriptions, client_id)
                continue
            if self._sessions[owner].is_over:
                continue
            key = owner << MARKS | marks & _PLAIN
            delivery = made.get(key)
            if delivery is None:
                qos = 2 if marks & _QOS_2 else marks & _QOS_1
                delivery = made[key] = Delivery(
                    self._sessions[owner], qos, bool(marks & _RETAIN_AS_PUBLISHED)
                )
            yield delivery

    def _one_by_one(
        self, subscriptions: Iterable[Subscription], client_id: str
    ) -> Iterator[Delivery]:
        wanted = (
            one
            for one in subscriptions
            if not (one.no_local and one.session.client_id == client_id)  # [MQTT-3.8.3-3]
        )
        for session, found in by_session(wanted).items():
            if not session.is_over:
                yield Delivery.of(session, found)

    # Columns --------------------------------------------------------------------------------------

    def _placed(self, slots: list[int], entries: Sequence[tuple[Subscription, Box]]) -> None:
        super()._placed(slots, entries)
        room = len(self._at)
        if room > len(self._owners):
            more = room + room // 4 - len(self._owners)
            self._owners = np.append(self._owners, np.zeros(more, np.int32))
            self._marks = np.append(self._marks, np.zeros(more, np.uint8))
        self._owners[slots] = [self._own(one.session) for one, _ in entries]
        self._marks[slots] = [_marks_of(one, has_texts=bool(box.texts)) for one, box in entries]

    def _own(self, session: Session) -> int:
        """The number of the session, which has one more box."""
        owner = self._owner_of.get(session)
        if owner is None:
            if self._free_owners:
                owner = self._free_owners.pop()
                self._sessions[owner] = session
            else:
                owner = len(self._sessions)
                self._sessions.append(session)
                self._boxes_of.append(0)
                if owner == len(self._seen):
                    self._seen = np.zeros(2 * owner, np.uint16)
            self._owner_of[session] = owner
            self._owner_named[session.client_id] = owner
        self._boxes_of[owner] += 1
        return owner

    def _removed(self, entry: Subscription, slots: list[int]) -> None:
        super()._removed(entry, slots)
        session = entry.session
        owner = self._owner_of[session]
        self._boxes_of[owner] -= len(slots)
        if not self._boxes_of[owner]:
            del self._owner_of[session]
            if self._owner_named.get(session.client_id) == owner:
                del self._owner_named[session.client_id]
            for marks in range(_PLAIN + 1):
                self._made.pop(owner << MARKS | marks, None)
            self._free_owners.append(owner)


def _marks_of(subscription: Subscription, *, has_texts: bool) -> int:
    return (
        subscription.qos  # 1 and 2 are bits of their own
        | _RETAIN_AS_PUBLISHED * subscription.retain_as_published
        | _ONE_BY_ONE * (has_texts or bool(subscription.identifier))
        | NO_LOCAL * subscription.no_local
    )


def load_kernels() -> None:
    """Compiled at set-up: loaded by a call of each rather than with the first publication."""
    index = BoxIndex([0.0], [1.0])
    boxes = index.insert([[0.0], [0.0]], [[1.0], [1.0]])
    _, slots = index.match([[0.5]])
    index.discard(boxes)
    owners, marks = np.zeros(len(index) + 2, np.int32), np.zeros(len(index) + 2, np.uint8)
    found: Slots = np.empty(2, np.int64)
    collect(slots, owners, marks, np.zeros(1, np.uint16), -1, found)
