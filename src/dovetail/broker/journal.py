"""What has to be on disk, as a map from keys to last states, and who waits for it.

Pure: session logic writes rows here as it changes its state, the shell hands a closed batch to
the store, and tells us when it is there. Rules:

- A batch is written whole or not at all, and batches in the order they were closed.
- Within a batch the last state of a key counts: None means that the row goes. A row that came and
  went within one batch never touches the disk.
- Whoever acknowledges something waits (`when_stored`) for the batch that holds it. All who wait are
  told in the order in which they began to.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from dovetail.broker.slices import Work, in_one_go
from dovetail.config import TOLD_PER_PIECE
from dovetail.messages import Message

Act = Callable[[bool], Work | None]
"""Of who waits for the disk: told True when a batch is there, False when it could not be written.
What takes longer is a work, done before the next is told."""


class SessionRow(NamedTuple):
    """A persistent session. A session that is connected has no `ended_at`."""

    client_id: str
    expiry_seconds: int
    ended_at: float | None
    user: str | None
    will: bytes | None  # as state.Shared encodes it
    """The will that is owed if the client does not come back."""
    stamp: int = 0
    """Of its last connection, among those of all brokers."""
    detour: bytes = b""
    """Where it came from or went to, if that is not over (peering/detours.py)."""
    void_before: int = 0
    """The stamp of the connection that it began clean with, if it did."""


class SubscriptionRow(NamedTuple):
    """Options as on the wire of SUBSCRIBE; identifier 0 is none."""

    options: int
    identifier: int


class MessageRow(NamedTuple):
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    expires_at: float | None
    origin: str
    stamp: int = 0


class DeliveryRow(NamedTuple):
    """A message owed to a session. `packet_id` 0: not sent yet; `released`: PUBREC has come."""

    message: int
    qos: int
    retain: bool
    packet_id: int
    released: bool
    identifiers: tuple[int, ...]


class Left(IntEnum):
    """Has another broker said goodbye?"""

    NO = 0
    WITH_SESSIONS = 1
    """Or with anything else that it keeps, and that something may be owed for."""
    WITH_NOTHING = 2


class MemberRow(NamedTuple):
    """A broker that belongs to the cluster; the address is empty where it is not known."""

    address: str
    left: Left = Left.NO


class OwedRow(NamedTuple):
    """A message owed to a peer. `mark`: the groups that it is for there (peering/bodies.py)."""

    message: int
    mark: bytes


class ArchiveRow(NamedTuple):
    """A publication that the archive has to have. Whose it is stays, should the name change."""

    broker: str
    time_microseconds: int
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    stream: bytes = b""
    """What else whoever matches it later needs to know, as archiving.py encodes it; empty: its
    clauses were looked at when it was published."""


@dataclass(slots=True)
class Batch:
    """Rows by key; None where a row goes. Numbers of sessions and messages are never reused."""

    number: int
    sessions: dict[int, SessionRow | None] = field(default_factory=dict)
    subscriptions: dict[tuple[int, str], SubscriptionRow | None] = field(default_factory=dict)
    messages: dict[int, MessageRow | None] = field(default_factory=dict)
    deliveries: dict[tuple[int, int], DeliveryRow | None] = field(default_factory=dict)
    """By session and sequence number: in this order they are owed."""
    incoming: dict[tuple[int, int], bool | None] = field(default_factory=dict)
    """Packet identifiers of QoS 2 publications received and not released, by session."""
    retained: dict[bytes, int | None] = field(default_factory=dict)
    """The number of the retained message, by topic."""
    owed: dict[tuple[str, int], OwedRow | None] = field(default_factory=dict)
    """By the peer that has not got it and its place in our stream."""
    heard: dict[int, int | None] = field(default_factory=dict)
    """How far we have taken the streams of peers."""
    seen: dict[int, bool | None] = field(default_factory=dict)
    """Streams of peers that have shown us what they retain."""
    removals: dict[bytes, int | None] = field(default_factory=dict)
    """Stamps of retained messages that were taken away, by topic."""
    members: dict[str, MemberRow | None] = field(default_factory=dict)
    """The brokers that belong to the cluster, by name."""
    peer_groups: dict[tuple[str, str, str], int | None] = field(default_factory=dict)
    """1 where a peer has members of a group whose sessions are kept; by peer, name and filter."""
    archive: dict[int, ArchiveRow | None] = field(default_factory=dict)
    """Publications that are in no file of the archive yet, by their sequence."""
    waiting: list[Act] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (
            self.deliveries
            or self.messages
            or self.waiting
            or self.incoming
            or self.retained
            or self.subscriptions
            or self.sessions
            or self.owed
            or self.heard
            or self.seen
            or self.members
            or self.removals
            or self.peer_groups
            or self.archive
        )


class StoredState(NamedTuple):
    """Everything on disk, as the store finds it at start."""

    sessions: dict[int, SessionRow]
    subscriptions: dict[tuple[int, str], SubscriptionRow]
    messages: dict[int, MessageRow]
    deliveries: dict[tuple[int, int], DeliveryRow]
    incoming: dict[tuple[int, int], bool]
    retained: dict[bytes, int]
    owed: dict[tuple[str, int], OwedRow]
    heard: dict[int, int]
    seen: dict[int, bool]
    members: dict[str, MemberRow]
    removals: dict[bytes, int]
    peer_groups: dict[tuple[str, str, str], int]
    archive: dict[int, ArchiveRow]


class Journal:
    """The open batch, and the one that is on its way to disk.

    There is never more than one on its way: a batch that fails is put back under the open one, and
    its rows go with the next.
    """

    def __init__(self, next_session: int = 1, next_message: int = 1) -> None:
        self.open = Batch(1)
        self.outstanding: Batch | None = None
        self.failing = False
        """Did the last batch not get to the disk?"""
        self.is_low = False
        """Is there room only for what frees room? The shell says so."""
        self.rows_written = 0
        """Rises with every row, and all who wait: compared, it tells whether there is something."""
        self.bytes_open = 0
        """Payload in the open batch: what a publisher faster than the disk would pile up."""
        self._waiting_on: list[Act] = []
        self._telling: deque[Act] = deque()
        self._teller: Work | None = None
        self._next_session = next_session
        self._next_message = next_message

    @property
    def refuses_more(self) -> bool:
        """Shall nothing new be taken that has to be stored?"""
        return self.failing or self.is_low

    def new_session_number(self) -> int:
        number = self._next_session
        self._next_session += 1
        return number

    def save_session(self, number: int, row: SessionRow) -> None:
        self.open.sessions[number] = row
        self.rows_written += 1

    def drop_session(self, number: int) -> None:
        """With all that belongs to it but the messages, which are counted."""
        self.open.sessions[number] = None
        self.rows_written += 1

    def save_subscription(
        self, session: int, topic_filter: str, row: SubscriptionRow | None
    ) -> None:
        self.open.subscriptions[session, topic_filter] = row
        self.rows_written += 1

    def keep(self, message: Message) -> int:
        """One more that needs the message on disk; returns its number."""
        if not message.references:
            message.number = self._next_message
            self._next_message += 1
            self.open.messages[message.number] = MessageRow(
                message.topic,
                message.payload,
                message.qos,
                message.retain,
                message.properties,
                message.expires_at,
                message.origin,
                message.stamp,
            )
            self.bytes_open += message.size
            self.rows_written += 1
        message.references += 1
        return message.number

    def release(self, message: Message) -> None:
        message.references -= 1
        if message.references:
            return
        messages = self.open.messages
        # A message's row is written once, so one in the open batch is not on disk.
        if messages.pop(message.number, None) is None:
            messages[message.number] = None
            self.rows_written += 1
        message.number = 0

    def save_delivery(self, session: int, sequence: int, row: DeliveryRow) -> None:
        self.open.deliveries[session, sequence] = row
        self.rows_written += 1

    def drop_delivery(self, session: int, sequence: int, first_batch: int) -> None:
        if first_batch == self.open.number:
            del self.open.deliveries[session, sequence]
        else:
            self.open.deliveries[session, sequence] = None
        self.rows_written += 1

    def save_incoming(self, session: int, packet_id: int, held: bool) -> None:
        self.open.incoming[session, packet_id] = held or None
        self.rows_written += 1

    def save_retained(self, topic: bytes, message_number: int | None) -> None:
        self.open.retained[topic] = message_number
        self.rows_written += 1

    def save_owed(self, peer: str, sequence: int, row: OwedRow) -> None:
        self.open.owed[peer, sequence] = row
        self.rows_written += 1

    def drop_owed(self, peer: str, sequence: int) -> None:
        # Its row is written once, so one in the open batch is not on disk.
        if self.open.owed.pop((peer, sequence), None) is None:
            self.open.owed[peer, sequence] = None
        self.rows_written += 1

    def save_removal(self, topic: bytes, stamp: int | None) -> None:
        self.open.removals[topic] = stamp
        self.rows_written += 1

    def save_seen(self, stream: int, seen: bool | None) -> None:
        self.open.seen[stream] = seen
        self.rows_written += 1

    def save_heard(self, stream: int, sequence: int | None) -> None:
        self.open.heard[stream] = sequence
        self.rows_written += 1

    def save_member(self, name: str, row: MemberRow | None) -> None:
        self.open.members[name] = row
        self.rows_written += 1

    def save_peer_group(self, peer: str, name: str, topic_filter: str, kept: int | None) -> None:
        self.open.peer_groups[peer, name, topic_filter] = kept
        self.rows_written += 1

    def save_archived(self, sequence: int, row: ArchiveRow) -> None:
        self.open.archive[sequence] = row
        self.bytes_open += len(row.topic) + len(row.payload) + len(row.properties)
        self.rows_written += 1

    def drop_archived(self, sequence: int) -> None:
        """One that is on disk."""
        self.open.archive[sequence] = None
        self.rows_written += 1

    def when_stored(self, act: Act) -> None:
        """Act when everything written so far is on disk (True), or could not be put there."""
        self.open.waiting.append(act)
        self.rows_written += 1

    def wait_on(self, act: Act) -> None:
        """For who was told just now that it could not be: wait again, before all who came later."""
        self._waiting_on.append(act)

    def close(self, *, probe: bool = False) -> Batch | None:
        """The open batch, to be written; None while there is nothing, or one is on its way.

        After a failure, and as a `probe`, even one with nothing in it, or nobody would learn that
        the disk is well.
        """
        batch = self.open
        if self.outstanding is not None or (batch.is_empty and not (self.failing or probe)):
            return None
        self.outstanding = batch
        self.open = Batch(batch.number + 1)
        self.bytes_open = 0
        return batch

    def finished(self, stored: bool, begin: Callable[[Work], None] = in_one_go) -> None:
        """The batch on its way is on disk, or did not get there. Who waits for it is told.

        `begin` decides when: it gets the work of telling them. If the disk has refused, they are
        told at once: the next batch has to hold what waits on.
        """
        batch = self.outstanding
        assert batch is not None
        self.outstanding = None
        self.failing = not stored
        waiting, batch.waiting = batch.waiting, []
        if stored:
            self._telling.extend(waiting)
            if self._teller is None:
                self._teller = self._tell_stored()
                begin(self._teller)
            return
        self._put_back(batch)
        if self._teller is not None:
            in_one_go(self._teller)
        for act in waiting:
            work = act(False)
            if work is not None:
                in_one_go(work)
        if self._waiting_on:
            self.open.waiting[:0] = self._waiting_on
            self._waiting_on = []

    def _tell_stored(self) -> Work:
        """All who wait for what is on disk, and those who come to be among them meanwhile."""
        try:
            told = 0
            while self._telling:
                yield from self._telling.popleft()(True) or ()
                told += 1
                if not told % TOLD_PER_PIECE:
                    yield
        finally:
            self._teller = None

    def _put_back(self, failed: Batch) -> None:
        now = self.open
        # What was written since is newer.
        now.sessions = failed.sessions | now.sessions
        now.subscriptions = failed.subscriptions | now.subscriptions
        now.messages = failed.messages | now.messages
        now.archive = failed.archive | now.archive
        self.bytes_open = sum(
            len(row.topic) + len(row.payload) + len(row.properties)
            for rows in (now.messages, now.archive)
            for row in rows.values()
            if row is not None
        )
        now.deliveries = failed.deliveries | now.deliveries
        now.incoming = failed.incoming | now.incoming
        now.retained = failed.retained | now.retained
        now.owed = failed.owed | now.owed
        now.heard = failed.heard | now.heard
        now.seen = failed.seen | now.seen
        now.members = failed.members | now.members
        now.removals = failed.removals | now.removals
        now.peer_groups = failed.peer_groups | now.peer_groups
