"""What the server remembers of a client. Pure.

- Messages to the client are sent as sending.py says, which is this object's outgoing half. Here is
  where else they come from: the disk, and another broker that had the session.
- Of the client's own QoS 2 publications the packet identifiers are held from PUBLISH to PUBREL: the
  same one again is the same message. Those that wait for matchers are on disk when they go on.
- A session with nothing to keep has no row.
"""

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

from dovetail.broker.journal import SessionRow
from dovetail.broker.outgoing import ARRIVED_SEQUENCES, Outgoing
from dovetail.broker.packets import SESSION_NEVER_EXPIRES, Will
from dovetail.broker.sending import PACKET_ID_MAX, Sending
from dovetail.broker.subscription import Subscription
from dovetail.config import HANDLE_PREFIX
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.access import AccessRules
    from dovetail.broker.narrowing import Asked
    from dovetail.broker.state import Shared


class Session(Sending):
    """Lives as long as section 4.1 says: beyond the connection if it has an expiry interval."""

    __slots__ = (
        "boxes",
        "client_id",
        "ended_at",
        "filter_bytes",
        "forwarding",
        "incoming",
        "is_handle",
        "is_news",
        "rules",
        "stamp",
        "stored",
        "subscriptions",
        "undecided",
        "user",
        "void_before",
        "was_kept",
        "will",
    )

    def __init__(self, shared: "Shared", number: int, client_id: str) -> None:
        super().__init__(shared, number)
        self.client_id = client_id
        self.is_handle = client_id.startswith(HANDLE_PREFIX)  # what has QoS 0 is kept too
        self.user: str | None = None
        self.rules: AccessRules | None = None  # which all that it has is allowed by
        self.ended_at: float | None = None
        self.will: Will | None = None
        self.stamp = 0  # of its last connection, among those of all brokers
        self.is_news = False  # its client may not have heard that it began without what there was
        self.void_before = 0  # if it began clean: the stamp of the connection that it did so with
        self.stored = False  # there is a row of it on disk
        self.was_kept = False  # and there was one that outlives the connection
        self.subscriptions: dict[str, Subscription] = {}  # by key
        self.filter_bytes = 0  # of their keys together
        self.boxes = 0  # of their clauses together; one for each that has none
        self.incoming: set[int] = set()
        self.undecided: dict[int, Asked] = {}
        """Of these the publications that wait for matchers, and are not on disk."""
        self.forwarding = 0
        """How many of its publications at QoS 2 other brokers have not acknowledged yet."""

    @property
    def persistent(self) -> bool:
        return self.expiry_seconds > 0

    @property
    def never_expires(self) -> bool:
        return self.expiry_seconds == SESSION_NEVER_EXPIRES

    # Out ---------------------------------------------------------------------------------------

    def offer(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> Outgoing | None:
        """A QoS 1 or 2 message for this session; None if it has expired, or its queue is full.

        Then it was dropped. What waits there and has expired gives way first.
        """
        detour = self.detour
        if detour is not None and not detour.takes(self, message, qos, retain, identifiers):
            return None
        if self.is_over:
            return None
        return self._offer(message, qos, retain, identifiers)

    def arrive_late(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """What another broker still had for it."""
        self._offer(message, qos, retain, identifiers)

    def restore(self, entry: Outgoing) -> None:
        """An entry that was found on disk; they come in the order of their sequence numbers."""
        if entry.packet_id:
            entry.sent = True
            self.inflight[entry.packet_id] = entry
            self.next_packet_id = entry.packet_id % PACKET_ID_MAX + 1
        else:
            self._enqueue(entry)
        self.next_sequence = entry.sequence + 1
        entry.message.references += 1
        size = entry.message.size
        self.queued_bytes += size
        self.shared.gauges.queued_messages += 1
        self.shared.gauges.queued_bytes += size

    def arrive(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        *,
        packet_id: int,
        released: bool,
        sequence: int,
    ) -> None:
        """What came with the session from another broker. No limit keeps it out: it was let in."""
        entry = Outgoing(message, qos, retain, identifiers, sequence)
        self.queued_bytes += message.size
        self.shared.gauges.queued_messages += 1
        self.shared.gauges.queued_bytes += message.size
        if packet_id:
            entry.packet_id = packet_id
            entry.sent = True
            entry.released = released
            self.inflight[packet_id] = entry
        else:
            at = len(self.queue)
            while at and self.queue[at - 1].sequence >= ARRIVED_SEQUENCES:
                at -= 1
            self.queue.insert(at, entry)
            if message.expires_at is not None:
                self.shared.expiring.note(self, message.expires_at)
        if self.persistent:
            entry.first_batch = self.shared.journal.open.number
            self.shared.journal.keep(message)
            self.shared.journal.save_delivery(self.number, sequence, entry.row())
        if self.link is not None:
            self.pump(self.shared.now)

    def requeue(self) -> None:
        """The client does not know of what was under way here: it is sent anew, or it has it."""
        for entry in reversed(list(self.inflight.values())):
            if entry.released:
                self._forget(entry)
                continue
            entry.packet_id = 0
            entry.sent = False
            self.queue.appendleft(entry)
            if entry.first_batch:
                self.shared.journal.save_delivery(self.number, entry.sequence, entry.row())
        self.inflight.clear()
        for packet_id in list(self.incoming):
            self.release_incoming(packet_id)

    # In ----------------------------------------------------------------------------------------

    def hold_incoming(self, packet_id: int) -> None:
        """A QoS 2 PUBLISH has come: the same identifier again is the same message."""
        self.is_used()
        self.incoming.add(packet_id)
        if self.expiry_seconds:
            self.shared.journal.save_incoming(self.number, packet_id, held=True)

    def hold(self, packet_id: int, asked: "Asked | None") -> None:
        """The same of one that may not have gone on yet: it is on disk when that is."""
        if asked is None:
            self.hold_incoming(packet_id)
            return
        self.incoming.add(packet_id)
        self.undecided[packet_id] = asked

        def before() -> None:
            if self.undecided.get(packet_id) is asked:
                self.hold_incoming(packet_id)

        def after(_taken: bool) -> None:
            if self.undecided.get(packet_id) is asked:
                del self.undecided[packet_id]

        asked.before = before
        asked.also(after)

    def release_incoming(self, packet_id: int) -> bool:
        """PUBREL; False if the identifier is not known."""
        if packet_id not in self.incoming:
            return False
        self.incoming.remove(packet_id)
        if self.expiry_seconds:
            self.shared.journal.save_incoming(self.number, packet_id, held=False)
        return True

    # On disk -----------------------------------------------------------------------------------

    def is_used(self) -> None:
        """Its client builds on it, so it knows of it."""
        if self.is_news:
            self.is_news = False
            if self.stored:
                self.save()

    def save(self) -> None:
        """A session with nothing to keep has no row."""
        if not self.persistent:
            self._keep_in_memory_only()
        if not (self.persistent or self.will):
            if self.stored:
                self.stored = False
                self.shared.journal.drop_session(self.number)
            return
        self.stored = True
        self.was_kept = self.was_kept or self.persistent
        self.shared.journal.save_session(
            self.number,
            SessionRow(
                self.client_id,
                self.expiry_seconds,
                self.ended_at,
                self.user,
                None if self.will is None else self.shared.encode_will(self.will),
                stamp_to_row(self.stamp, is_news=self.is_news),
                b"" if self.detour is None else self.detour.row(),
                self.void_before,
            ),
        )

    def _keep_in_memory_only(self) -> None:
        """A kept session that will end with its connection: nothing of it waits for the disk."""
        journal = self.shared.journal
        for entry in (*self.inflight.values(), *self.queue):
            if entry.first_batch:
                journal.drop_delivery(self.number, entry.sequence, entry.first_batch)
                journal.release(entry.message)
                entry.first_batch = 0

    def empty(self, but: Collection[Outgoing] = ()) -> None:
        """Everything that it held is given back, but some of what waits."""
        kept = set(but)
        for entry in (*self.inflight.values(), *self.queue):
            if entry not in kept:
                self._forget(entry)
        self.inflight.clear()
        self.light.clear()
        self.queue = deque(but)
        self.resending.clear()
        self.undecided.clear()
        for packet_id in list(self.incoming):
            self.release_incoming(packet_id)
        self.shared.expiring.forget(self)

    def end(self) -> deque[Outgoing]:
        """Its end: from now on nothing is for it. Returns what it has not got, to be forgotten.

        `leave_disk` has to follow, when what is owed to others too is theirs.
        """
        self.is_over = True
        left = deque((*self.inflight.values(), *self.queue))
        self.inflight.clear()
        self.queue.clear()
        self.light.clear()
        self.resending.clear()
        self.undecided.clear()
        self.incoming.clear()
        self.shared.expiring.forget(self)
        return left

    def give_up(self, entry: Outgoing) -> None:
        """One of those is another session's by now, on disk as well."""
        if entry.first_batch:
            self.shared.journal.drop_delivery(self.number, entry.sequence, entry.first_batch)

    def leave_disk(self) -> None:
        """With all that belongs to it."""
        if self.stored:
            self.stored = False
            self.shared.journal.drop_session(self.number)

    def forget(self, entry: Outgoing) -> None:
        """One of those."""
        self._forget(entry)


def stamp_to_row(stamp: int, *, is_news: bool) -> int:
    """Stamps are -1 at least; the rest of the numbers is for sessions that are news."""
    return -2 - stamp if is_news else stamp


def stamp_from_row(row: int) -> tuple[int, bool]:
    """The stamp, and whether the session is news to its client."""
    return (-2 - row, True) if row < -1 else (row, False)
