"""The session of a client: the state that the broker keeps for it. Pure.

- session_sender.py is the outgoing half of this object, and sends messages to the client. This
  module restores messages from disk, and takes those that come with the session from a broker.
- The session holds the packet identifiers of the client's QoS 2 publications from PUBLISH to
  PUBREL, to recognise duplicates. If a publication waits for matchers, its identifier goes to disk
  when the publication continues.
- A session without anything to store has no row.
"""

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

from dovetail.broker.limits import HANDLE_PREFIX
from dovetail.broker.outgoing_message import ARRIVED_SEQUENCES, OutgoingMessage
from dovetail.broker.session_sender import PACKET_ID_MAX, SessionSender
from dovetail.broker.store.journal import SessionRow
from dovetail.broker.subscription import Subscription
from dovetail.codec.packets import SESSION_NEVER_EXPIRES, Will
from dovetail.messages import Message

if TYPE_CHECKING:
    from dovetail.broker.auth.access import AccessRules
    from dovetail.broker.pending_publication import PendingPublication
    from dovetail.broker.shared_state import SharedState


class Session(SessionSender):
    """A session (section 4.1). It outlives its connection if it has an expiry interval."""

    __slots__ = (
        "awaiting_matchers",
        "boxes",
        "client_id",
        "ended_at",
        "filter_bytes",
        "forwarding",
        "incoming",
        "is_loss_unconfirmed",
        "rules",
        "stamp",
        "stored",
        "subscriptions",
        "user",
        "void_before",
        "was_persistent",
        "will",
    )

    def __init__(self, shared: "SharedState", number: int, client_id: str) -> None:
        super().__init__(shared, number)
        self.client_id = client_id
        self.is_handle = client_id.startswith(HANDLE_PREFIX)
        self.user: str | None = None
        self.rules: AccessRules | None = None  # the rules it was checked against last
        self.ended_at: float | None = None
        self.will: Will | None = None
        self.stamp = 0  # of its last connection, among those of all brokers
        self.is_loss_unconfirmed = False  # its client may not know that the earlier session is lost
        self.void_before = 0  # the stamp of its last clean start, if any
        self.stored = False  # it has a row on disk
        self.was_persistent = False  # it had a row as a persistent session
        self.subscriptions: dict[str, Subscription] = {}  # by key
        self.filter_bytes = 0  # of all keys
        self.boxes = 0  # of all clauses; a subscription without a clause counts as one
        self.incoming: set[int] = set()
        self.awaiting_matchers: dict[int, PendingPublication] = {}
        """By packet identifier, the QoS 2 publications that wait for matchers."""
        self.forwarding = 0
        """The number of its QoS 2 publications that other brokers have not acknowledged."""

    @property
    def persistent(self) -> bool:
        return self.expiry_seconds > 0

    @property
    def never_expires(self) -> bool:
        return self.expiry_seconds == SESSION_NEVER_EXPIRES

    # Out ---------------------------------------------------------------------------------------

    def offer(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> OutgoingMessage | None:
        """Send or queue a QoS 1 or 2 message. Return its entry, or None if it is not queued here.

        The session drops the message if it has expired or the queue is full. Expired messages in
        the queue make room first. A redirect may send the message to another broker instead.
        """
        redirect = self.redirect
        if redirect is not None and not redirect.takes(self, message, qos, retain, identifiers):
            return None
        if self.has_ended:
            return None
        return self._offer(message, qos, retain, identifiers)

    def offer_late(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """Send or queue a message that another broker still had for this session."""
        self._offer(message, qos, retain, identifiers)

    def restore(self, entry: OutgoingMessage) -> None:
        """Take back an entry from disk. Entries come in the order of their sequences."""
        if entry.packet_id:
            entry.sent = True
            self._inflight[entry.packet_id] = entry
            self.next_packet_id = entry.packet_id % PACKET_ID_MAX + 1
        else:
            self.queue.append(entry)
        self.next_sequence = entry.sequence + 1
        entry.message.references += 1
        self.queue.count_in(entry.message.size)

    def add_handed_over(
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
        """Take an entry that came with the session from another broker.

        Limits do not apply: the other broker has accepted it.
        """
        entry = OutgoingMessage(message, qos, retain, identifiers, sequence)
        self.queue.add(entry, persistent=self.persistent)
        if packet_id:
            entry.packet_id = packet_id
            entry.sent = True
            entry.released = released
            self.inflight[packet_id] = entry
        else:
            waiting = self.queue.messages()
            at = len(waiting)
            while at and waiting[at - 1].sequence >= ARRIVED_SEQUENCES:
                at -= 1
            self.queue.insert(at, entry)
        self.queue.save(entry)
        if self.link is not None:
            self.pump(self.shared.now)

    def requeue(self) -> None:
        """Put messages in flight back into the queue, for a client that does not know of them.

        Released QoS 2 messages are forgotten, because the client has them.
        """
        for entry in reversed(list(self.inflight.values())):
            if entry.released:
                self.queue.forget(entry)
                continue
            entry.packet_id = 0
            entry.sent = False
            self.queue.waiting.appendleft(entry)
            self.queue.save(entry)
        self.inflight.clear()
        for packet_id in list(self.incoming):
            self.release_incoming(packet_id)

    # In ----------------------------------------------------------------------------------------

    def hold_incoming(self, packet_id: int) -> None:
        """Hold the identifier of a QoS 2 PUBLISH, so that its repetition is a duplicate."""
        self.note_use()
        self.incoming.add(packet_id)
        if self.expiry_seconds:
            self.shared.journal.save_incoming(self.number, packet_id, held=True)

    def hold_later(self, packet_id: int, publication: "PendingPublication | None") -> None:
        """Hold the identifier like `hold_incoming`, but store it when `asked` continues."""
        if publication is None:
            self.hold_incoming(packet_id)
            return
        self.incoming.add(packet_id)
        self.awaiting_matchers[packet_id] = publication

        def before() -> None:
            if self.awaiting_matchers.get(packet_id) is publication:
                self.hold_incoming(packet_id)

        def after(_taken: bool) -> None:
            if self.awaiting_matchers.get(packet_id) is publication:
                del self.awaiting_matchers[packet_id]

        publication.before_dispatch = before
        publication.when_settled(after)

    def release_incoming(self, packet_id: int) -> bool:
        """Release the identifier after PUBREL. Return False if it is unknown."""
        if packet_id not in self.incoming:
            return False
        self.incoming.remove(packet_id)
        if self.expiry_seconds:
            self.shared.journal.save_incoming(self.number, packet_id, held=False)
        return True

    # On disk -----------------------------------------------------------------------------------

    def note_use(self) -> None:
        """Note that the client uses this session, and so knows that it is new."""
        if self.is_loss_unconfirmed:
            self.is_loss_unconfirmed = False
            if self.stored:
                self.save()

    def save(self) -> None:
        """Write the session's row, or delete it if there is nothing to store."""
        if not self.persistent:
            self._keep_in_memory_only()
        if not (self.persistent or self.will):
            if self.stored:
                self.stored = False
                self.shared.journal.drop_session(self.number)
            return
        self.stored = True
        self.was_persistent = self.was_persistent or self.persistent
        self.shared.journal.save_session(
            self.number,
            SessionRow(
                self.client_id,
                self.expiry_seconds,
                self.ended_at,
                self.user,
                None if self.will is None else self.shared.encode_will(self.will),
                stamp_to_row(self.stamp, is_loss_unconfirmed=self.is_loss_unconfirmed),
                b"" if self.redirect is None else self.redirect.row(),
                self.void_before,
            ),
        )

    def _keep_in_memory_only(self) -> None:
        """Delete the stored entries of a session that now ends with its connection."""
        for entry in (*self.inflight.values(), *self.queue.messages()):
            self.queue.keep_in_memory_only(entry)

    def clear_messages(self, but: Collection[OutgoingMessage] = ()) -> None:
        """Forget all messages and held identifiers, except the entries in `but`."""
        kept = set(but)
        self._forget_runs()
        for entry in (*self.inflight.values(), *self.queue.messages()):
            if entry not in kept:
                self.queue.forget(entry)
        self.inflight.clear()
        self.light.clear()
        self.queue.waiting = deque(but)
        self.resending.clear()
        self.awaiting_matchers.clear()
        for packet_id in list(self.incoming):
            self.release_incoming(packet_id)
        self.shared.message_expiry.forget(self.queue)

    def end(self) -> deque[OutgoingMessage]:
        """End the session, and return its undelivered entries for the caller to forget.

        The caller calls `delete_rows` after it has given entries of groups to other members.
        """
        self.has_ended = True
        self.queue.drops_rows = False
        self._forget_runs()
        left = deque((*self.inflight.values(), *self.queue.messages()))
        self.inflight.clear()
        self.queue.waiting.clear()
        self.light.clear()
        self.resending.clear()
        self.awaiting_matchers.clear()
        self.incoming.clear()
        self.shared.message_expiry.forget(self.queue)
        return left

    def delete_rows(self) -> None:
        """Delete the session's row, and all that belongs to it."""
        if self.stored:
            self.stored = False
            self.shared.journal.drop_session(self.number)


def stamp_to_row(stamp: int, *, is_loss_unconfirmed: bool) -> int:
    """Encode both in one number. Stamps are at least -1; lower numbers mean an unconfirmed loss."""
    return -2 - stamp if is_loss_unconfirmed else stamp


def stamp_from_row(row: int) -> tuple[int, bool]:
    """Return the stamp and `is_loss_unconfirmed`."""
    return (-2 - row, True) if row < -1 else (row, False)
