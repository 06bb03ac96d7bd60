"""Deliveries: how a session gets a publication that matches its subscriptions. Pure.

A hundred where-clauses of one client may hold for a publication, and the client still gets it once.
So each box has its owner and its options in columns, and a kernel merges the boxes found into one
delivery per session. Single subscriptions are read only where one of them has a subscription
identifier or compares a text.
"""

from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.box_index import BoxIndex, Slots
from dovetail.attributes.clauses import Clause, ClauseSet
from dovetail.attributes.kernels.matching import match_few
from dovetail.attributes.space import Box, Dimension, Point, Space
from dovetail.broker.kernels.owners import MARKS, NO_LOCAL, collect, collect_rows
from dovetail.broker.limits import RECEIVERS_PER_PIECE
from dovetail.broker.publication_point import RunPoints, points_of
from dovetail.broker.session import Session
from dovetail.broker.subscription import Subscription
from dovetail.codec.kernels.scan import QOS_0
from dovetail.codec.packets import MQTT_5
from dovetail.codec.run import Run

_QOS_1, _QOS_2, _RETAIN_AS_PUBLISHED, _ONE_BY_ONE = 1, 2, 4, 8
_PLAIN = _QOS_1 | _QOS_2 | _RETAIN_AS_PUBLISHED
_OWNERS_MIN = 64


class Delivery:
    """How one session gets a matching publication (section 3.3.4).

    It gets one copy, at the highest QoS and with all identifiers of its matching subscriptions.
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
        """Return this delivery merged with another one of the same session."""
        return Delivery(
            self.session,
            max(self.qos, other.qos),
            self.retain_as_published or other.retain_as_published,
            self.identifiers + other.identifiers,
        )


Receivers = tuple[tuple[Delivery, ...], dict[str, Delivery | None]]
"""Deliveries to sessions. And by client identifier: what a session with No Local gets of its own
client's publications [MQTT-3.8.3-3]. These may come from the broker where the client was before."""


def receivers_of(
    found: Mapping[Session, Sequence[Subscription]],
) -> Generator[None, None, Receivers]:
    """Return the receivers by these subscriptions, in pieces: there may be many."""
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
    return tuple(one for one in deliveries if not one.session.has_ended), own


def by_session(subscriptions: Iterable[Subscription]) -> dict[Session, list[Subscription]]:
    found: dict[Session, list[Subscription]] = {}
    for one in subscriptions:
        found.setdefault(one.session, []).append(one)
    return found


class Share(NamedTuple):
    """The publications of a run that one session gets, and their QoS."""

    session: Session
    qos: int
    rows: Slots | None = None
    """None: all of them."""
    identifiers: tuple[int, ...] = ()


class _Columns(NamedTuple):
    """Boxes and their owners, as kernels read them."""

    owners: npt.NDArray[np.int32]
    marks: npt.NDArray[np.uint8]
    seen: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.int32]
    sessions: list[Session]
    client_ids: Container[str]


class SubscriptionClauses(ClauseSet[Subscription]):
    """Clauses on one filter, of subscriptions without a group."""

    def __init__(self, topic_filter: str, space: Space) -> None:
        super().__init__(topic_filter, space)
        self.deliveries_likely = 0.0
        """An estimate of the sessions that get a publication."""
        self._few: tuple[_Columns, npt.NDArray[np.float64]] | None = None
        # Of each slot of the index:
        self._owners = np.zeros(0, np.int32)
        self._marks = np.zeros(0, np.uint8)
        # Of each owner:
        self._sessions: list[Session] = []
        self._boxes_of: list[int] = []
        self._seen = np.zeros(_OWNERS_MIN, np.uint16)
        self._counts = np.zeros(_OWNERS_MIN, np.int32)
        self._owner_of: dict[Session, int] = {}
        self._owner_named: dict[str, int] = {}
        self._free_owners: list[int] = []
        self._made: dict[int, Delivery] = {}  # by owner and marks

    def options_changed(self, subscription: Subscription) -> None:
        """Note the new options or identifier of a subscription in this set."""
        self._few = None
        for slot in self._slots.get(subscription, ()):
            self._marks[slot] = _marks_of(subscription, has_texts=slot in self._texts)

    def add(self, entry: Subscription, clause: Clause) -> None:
        self._few = None
        self.deliveries_likely += 1.0  # until the next publications say more
        super().add(entry, clause)

    def remove(self, entry: Subscription) -> None:
        self._few = None
        super().remove(entry)

    def is_owner(self, client_id: str) -> bool:
        """Has this client a clause here?"""
        self.update_index()
        if self._index is not None:
            return client_id in self._owner_named
        return client_id in self._compared()[0].client_ids

    def sessions(self) -> Iterable[Session]:
        """Return the sessions that have a clause in this set."""
        self.update_index()
        return self._compared()[0].sessions if self._index is None else self._owner_of

    def shares(self, points: RunPoints, client_id: str, qos: int) -> list[Share] | None:
        """Return what each session gets of a run that `client_id` published at this QoS.

        Return None if its publications have to be looked at one by one.
        """
        values = points.values
        columns, offsets, slots = self._search_run(values)
        refused = _ONE_BY_ONE
        if client_id in columns.client_ids:
            refused |= NO_LOCAL
        pairs, rows = np.empty((2, len(slots)), np.int64)
        found = np.empty((min(len(slots), len(columns.sessions)), 3), np.int64)
        count = collect_rows(
            offsets, slots, columns.owners, columns.marks, points.known, refused, qos,
            columns.seen, columns.counts, pairs, found.reshape(-1), rows,
        )  # fmt: skip
        if count < 0:
            return None
        shares = []
        first = 0
        mean = float(found[count - 1, 2]) / len(values) if count else 0.0
        self.deliveries_likely = (min(self.deliveries_likely, len(columns.sessions)) + mean) / 2
        for owner, qos_of_owner, end in found[:count].tolist():
            session = columns.sessions[owner]
            if not session.has_ended:
                are_all = end - first == len(values)
                shares.append(Share(session, qos_of_owner, None if are_all else rows[first:end]))
            first = end
        return shares

    def _search_run(self, values: npt.NDArray[np.float64]) -> tuple[_Columns, Slots, Slots]:
        """Return columns, and the boxes of each publication like `BoxIndex.match`."""
        self.update_index()
        if self._index is not None:
            columns = _Columns(
                self._owners, self._marks, self._seen, self._counts, self._sessions,
                self._owner_named,
            )  # fmt: skip
            return columns, *self._index.match(values)
        columns, edges = self._compared()
        offsets = np.zeros(len(values) + 1, np.int64)
        slots = np.empty(len(values) * len(columns.owners), np.int64)
        match_few(edges, values.reshape(-1), values.shape[1], offsets, slots)
        return columns, offsets, slots[: offsets[-1]]

    def _compared(self) -> tuple[_Columns, npt.NDArray[np.float64]]:
        """Return columns of boxes that are too few for an index, and their edges."""
        if self._few is None:
            self._few = self._make_few()
        return self._few

    def _make_few(self) -> tuple[_Columns, npt.NDArray[np.float64]]:
        boxes = self.boxes_one_by_one()
        owner_of: dict[Session, int] = {}
        for subscription, _ in boxes:
            owner_of.setdefault(subscription.session, len(owner_of))
        columns = _Columns(
            np.array([owner_of[one.session] for one, _ in boxes], np.int32),
            np.array([_marks_of(one, has_texts=bool(box.texts)) for one, box in boxes], np.uint8),
            np.zeros(len(owner_of), np.uint16),
            np.zeros(len(owner_of), np.int32),
            list(owner_of),
            {session.client_id for session in owner_of},
        )
        return columns, np.array([(*box.lows, *box.highs) for _, box in boxes]).reshape(-1)

    def deliveries(self, point: Point, client_id: str) -> Iterator[Delivery]:
        """Yield one delivery per session whose clauses hold. `client_id` published the point."""
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
            if self._sessions[owner].has_ended:
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
            if not session.has_ended:
                yield Delivery.of(session, found)

    # Columns --------------------------------------------------------------------------------------

    def _note_inserted(self, slots: list[int], entries: Sequence[tuple[Subscription, Box]]) -> None:
        super()._note_inserted(slots, entries)
        room = len(self._entry_of_slot)
        if room > len(self._owners):
            more = room + room // 4 - len(self._owners)
            self._owners = np.append(self._owners, np.zeros(more, np.int32))
            self._marks = np.append(self._marks, np.zeros(more, np.uint8))
        self._owners[slots] = [self._own(one.session) for one, _ in entries]
        self._marks[slots] = [_marks_of(one, has_texts=bool(box.texts)) for one, box in entries]

    def _own(self, session: Session) -> int:
        """Return the owner number of the session, and count one more box for it."""
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
                    self._counts = np.zeros(2 * owner, np.int32)
            self._owner_of[session] = owner
            self._owner_named[session.client_id] = owner
        self._boxes_of[owner] += 1
        return owner

    def _note_removed(self, entry: Subscription, slots: list[int]) -> None:
        super()._note_removed(entry, slots)
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
    """Call each kernel once, so that the first publication does not wait for loading."""
    index = BoxIndex([0.0], [1.0])
    boxes = index.insert([[0.0], [0.0]], [[1.0], [1.0]])
    _, slots = index.match([[0.5]])
    index.discard(boxes)
    owners, marks = np.zeros(len(index) + 2, np.int32), np.zeros(len(index) + 2, np.uint8)
    found: Slots = np.empty(2, np.int64)
    seen = np.zeros(1, np.uint16)
    collect(slots, owners, marks, seen, -1, found)
    space = Space("s", "#", (Dimension("x", 0.0, 1.0),))
    packet = b"\x30\x0d\x00\x01a\x09\x26\x00\x01x\x00\x030.5"
    points = points_of(space, Run(packet, MQTT_5, QOS_0, 1, 1))
    assert points is not None
    offsets = np.zeros(2, np.int64)
    edges = np.array([0.0, 1.0])
    match_few(edges, points.values.reshape(-1), 1, offsets, found)
    pairs, rows = np.empty((2, 2), np.int64)
    collect_rows(
        offsets, found[:1], owners, marks, points.known, 0, 0,
        seen, np.zeros(1, np.int32), pairs, np.empty(3, np.int64), rows,
    )  # fmt: skip
