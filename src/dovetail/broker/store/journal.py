"""The journal: rows that have to be on disk, and the callbacks that wait for them. Pure.

Session logic writes rows here as its state changes. The shell hands a closed batch to the store and
calls `finished`. Rules:

- The store writes a batch whole or not at all, and batches in the order in which they were closed.
- Within a batch the last state of a key counts; None deletes the row. A message that comes and goes
  within one batch never touches the disk.
- An acknowledgement waits (`when_stored`) for the batch that holds its rows. Callbacks run in the
  order in which they were added.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from dovetail.broker.limits import CALLBACKS_PER_PIECE
from dovetail.messages import Message
from dovetail.slices import Work, run_to_end

if TYPE_CHECKING:
    from dovetail.broker.outgoing_run import StoredRun

Act = Callable[[bool], Work | None]
"""A callback that waits for the disk: called with True when its batch is stored, with False if that
failed. It may return long work, which is done before the next callback."""


class SessionRow(NamedTuple):
    """A persistent session. A session that is connected has no `ended_at`."""

    client_id: str
    expiry_seconds: int
    ended_at: float | None
    user: str | None
    will: bytes | None  # encoded by SharedState
    """The will, to be published if the client does not come back."""
    stamp: int = 0
    """The stamp of its last connection, among those of all brokers."""
    detour: bytes = b""
    """The redirect of an unfinished session move (broker/peering/roaming/redirect.py)."""
    void_before: int = 0
    """The stamp of its last clean start, if any."""


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
    retained: bool = False
    """Is it the retained message of its topic?"""


class DeliveryRow(NamedTuple):
    """A pending message of a session. `packet_id` 0: not sent yet; `released`: PUBREC has come."""

    message: int
    qos: int
    retain: bool
    packet_id: int
    released: bool
    identifiers: tuple[int, ...]


class RunRow(NamedTuple):
    """Neighbouring publications at QoS 1, as the packets that brought them (codec/run.py)."""

    data: bytes
    version: int
    packets: int
    has_properties: bool
    origin: str


class RunDeliveryRow(NamedTuple):
    """Pending messages of a session: neighbouring ones among those of a run that it gets.

    `packet_id` is the identifier of the first; the others follow. 0: they are not sent yet.
    """

    run: int
    first: int
    """The position of the first among the rows that the session gets."""
    messages: int
    packet_id: int
    rows: bytes
    """The packets of the run that the session gets, as 16-bit numbers; empty: all of them."""


class LeaveState(IntEnum):
    """Has another broker left the cluster, and what does it keep?"""

    NO = 0
    WITH_SESSIONS = 1
    """It keeps sessions or other state, for which others may have to spool messages."""
    WITH_NOTHING = 2


class MemberRow(NamedTuple):
    """A broker that belongs to the cluster; the address is empty where it is not known."""

    address: str
    left: LeaveState = LeaveState.NO


class OwedRow(NamedTuple):
    """A message spooled for a peer. `mark` has its groups there (peer_messages.py)."""

    message: int
    """Or the number of a run."""
    mark: bytes


class ArchiveRow(NamedTuple):
    """A publication that waits for the archive. `broker` stays if the broker is renamed."""

    broker: str
    time_microseconds: int
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    stream: bytes = b""
    """What the stream needs to deliver it, as archive_queue.py encodes it. Empty if no stream
    evaluates its clauses."""


@dataclass(slots=True)
class Batch:
    """Rows by key; None deletes a row.

    Numbers of sessions and messages are never reused, except that a retained message takes over the
    number of the one that it replaces.
    """

    number: int
    sessions: dict[int, SessionRow | None] = field(default_factory=dict)
    subscriptions: dict[tuple[int, str], SubscriptionRow | None] = field(default_factory=dict)
    messages: dict[int, MessageRow | None] = field(default_factory=dict)
    deliveries: dict[tuple[int, int], DeliveryRow | None] = field(default_factory=dict)
    """By session and sequence: they are sent in this order."""
    runs: dict[int, RunRow | None] = field(default_factory=dict)
    """Runs share their numbers with messages."""
    run_deliveries: dict[tuple[int, int], RunDeliveryRow | None] = field(default_factory=dict)
    """By session and the first sequence. Each message has a sequence of its own."""
    incoming: dict[tuple[int, int], bool | None] = field(default_factory=dict)
    """Packet identifiers of QoS 2 publications received and not released, by session."""
    owed: dict[tuple[str, int], OwedRow | None] = field(default_factory=dict)
    """By peer and position in our stream to it."""
    heard: dict[int, int | None] = field(default_factory=dict)
    """The last sequence taken from each stream of a peer; keys below 0 are engines."""
    seen: dict[int, bool | None] = field(default_factory=dict)
    """Streams of peers that have sent us their retained messages."""
    removals: dict[bytes, int | None] = field(default_factory=dict)
    """Stamps of removed retained messages, by topic."""
    members: dict[str, MemberRow | None] = field(default_factory=dict)
    """The brokers that belong to the cluster, by name."""
    peer_groups: dict[tuple[str, str, str], int | None] = field(default_factory=dict)
    """1 if a peer has group members with persistent sessions; by peer, name and filter."""
    archive: dict[int, ArchiveRow | None] = field(default_factory=dict)
    """Publications that are in no file of the archive yet, by their sequence."""
    waiting: list[Act] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (
            self.deliveries
            or self.messages
            or self.runs
            or self.run_deliveries
            or self.waiting
            or self.incoming
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
    runs: dict[int, RunRow]
    run_deliveries: dict[tuple[int, int], RunDeliveryRow]
    incoming: dict[tuple[int, int], bool]
    owed: dict[tuple[str, int], OwedRow]
    heard: dict[int, int]
    seen: dict[int, bool]
    members: dict[str, MemberRow]
    removals: dict[bytes, int]
    peer_groups: dict[tuple[str, str, str], int]
    archive: dict[int, ArchiveRow]


class Journal:
    """The open batch, and the one that is being written.

    At most one batch is being written. If it fails, its rows go into the open batch again.
    """

    def __init__(self, next_session: int = 1, next_message: int = 1) -> None:
        self.open = Batch(1)
        self.outstanding: Batch | None = None
        self.failing = False
        """Did the last batch fail?"""
        self.is_low = False
        """Is there space only for writes that free space? The shell sets this."""
        self.rows_written = 0
        """Rises with every row and callback, so that callers can tell whether any were added."""
        self.bytes_open = 0
        """Bytes of messages and archive rows in the open batch, for back-pressure."""
        self._waiting_again: list[Act] = []
        self._stored_callbacks: deque[Act] = deque()
        self._callback_work: Work | None = None
        self._next_session = next_session
        self._next_message = next_message
        self._first_message = next_message
        """Messages from this number on are not on disk: their rows are in the open batch."""

    @property
    def refuses_more(self) -> bool:
        """Must the broker refuse new messages that have to be stored?"""
        return self.failing or self.is_low

    def new_session_number(self) -> int:
        number = self._next_session
        self._next_session += 1
        return number

    def save_session(self, number: int, row: SessionRow) -> None:
        self.open.sessions[number] = row
        self.rows_written += 1

    def drop_session(self, number: int) -> None:
        """Delete a session with all its rows, except messages: they have reference counts."""
        self.open.sessions[number] = None
        self.rows_written += 1

    def save_subscription(
        self, session: int, topic_filter: str, row: SubscriptionRow | None
    ) -> None:
        self.open.subscriptions[session, topic_filter] = row
        self.rows_written += 1

    def keep(self, message: Message) -> int:
        """Add a reference to a message, store it if it is the first, and return its number."""
        if not message.references:
            self._write(message, retained=False)
        message.references += 1
        return message.number

    def keep_retained(self, message: Message, before: Message | None = None) -> None:
        """Add a reference to a message, and store it as the retained one of its topic.

        It replaces `before`, and takes over its row if nothing else refers to that one.
        """
        if before is not None and before.references == 1 and not message.number:
            message.number, before.number, before.references = before.number, 0, 0
        elif before is not None:
            self.release_retained(before)
        self._write(message, retained=True)
        message.references += 1

    def _write(self, message: Message, *, retained: bool) -> None:
        number = message.number
        if not number:
            number = message.number = self._next_message
            self._next_message += 1
        self.open.messages[number] = MessageRow(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
            message.expires_at,
            message.origin,
            message.stamp,
            retained,
        )
        self.bytes_open += message.size
        self.rows_written += 1

    def release(self, message: Message) -> None:
        message.references -= 1
        if message.references:
            return
        if message.number >= self._first_message:
            del self.open.messages[message.number]
        else:
            self.open.messages[message.number] = None
            self.rows_written += 1
        message.number = 0

    def release_retained(self, message: Message) -> None:
        """Release a message that is not the retained one of its topic any more."""
        if message.references > 1:
            self._write(message, retained=False)
        self.release(message)

    def keep_run(self, stored: "StoredRun") -> int:
        """Add a reference to a run, store it if it is the first, and return its number."""
        if not stored.references:
            stored.number = self._next_message
            self._next_message += 1
            self.open.runs[stored.number] = stored.row()
            self.bytes_open += len(stored.run.data)
            self.rows_written += 1
        stored.references += 1
        return stored.number

    def release_run(self, stored: "StoredRun") -> None:
        stored.references -= 1
        if stored.references:
            return
        # A run's row is written once, so one in the open batch is not on disk.
        if self.open.runs.pop(stored.number, None) is None:
            self.open.runs[stored.number] = None
            self.rows_written += 1
        stored.number = 0

    def save_run_delivery(self, session: int, sequence: int, row: RunDeliveryRow) -> None:
        self.open.run_deliveries[session, sequence] = row
        self.rows_written += 1

    def drop_run_delivery(self, session: int, sequence: int, first_batch: int) -> None:
        if first_batch == self.open.number:
            del self.open.run_deliveries[session, sequence]
        else:
            self.open.run_deliveries[session, sequence] = None
        self.rows_written += 1

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
        """Delete an archive row that is on disk."""
        self.open.archive[sequence] = None
        self.rows_written += 1

    def when_stored(self, act: Act) -> None:
        """Call `act` with True when everything written so far is on disk, with False on failure."""
        self.open.waiting.append(act)
        self.rows_written += 1

    def wait_on(self, act: Act) -> None:
        """Let a callback that just got False wait again, before all later ones."""
        self._waiting_again.append(act)

    def close(self, *, probe: bool = False) -> Batch | None:
        """Close and return the open batch; None if it is empty or another is being written.

        After a failure, or with `probe`, it returns even an empty batch, to test the disk.
        """
        batch = self.open
        if self.outstanding is not None or (batch.is_empty and not (self.failing or probe)):
            return None
        self.outstanding = batch
        self.open = Batch(batch.number + 1)
        self.bytes_open = 0
        self._first_message = self._next_message
        return batch

    def finished(self, stored: bool, begin: Callable[[Work], None] = run_to_end) -> None:
        """Note that the batch was stored or failed, and run its callbacks.

        `begin` gets the work of running them. After a failure they run at once, because the next
        batch has to hold those that wait again.
        """
        batch = self.outstanding
        assert batch is not None
        self.outstanding = None
        self.failing = not stored
        waiting, batch.waiting = batch.waiting, []
        if stored:
            self._stored_callbacks.extend(waiting)
            if self._callback_work is None:
                self._callback_work = self._run_callbacks()
                begin(self._callback_work)
            return
        self._put_back(batch)
        if self._callback_work is not None:
            run_to_end(self._callback_work)
        for act in waiting:
            work = act(False)
            if work is not None:
                run_to_end(work)
        if self._waiting_again:
            self.open.waiting[:0] = self._waiting_again
            self._waiting_again = []

    def _run_callbacks(self) -> Work:
        """Run the callbacks of stored batches, with those that are added meanwhile."""
        try:
            done = 0
            while self._stored_callbacks:
                yield from self._stored_callbacks.popleft()(True) or ()
                done += 1
                if not done % CALLBACKS_PER_PIECE:
                    yield
        finally:
            self._callback_work = None

    def _put_back(self, failed: Batch) -> None:
        now = self.open
        # Rows written since are newer.
        now.sessions = failed.sessions | now.sessions
        now.subscriptions = failed.subscriptions | now.subscriptions
        now.messages = failed.messages | now.messages
        now.archive = failed.archive | now.archive
        now.runs = failed.runs | now.runs
        now.run_deliveries = failed.run_deliveries | now.run_deliveries
        self.bytes_open = sum(
            len(row.topic) + len(row.payload) + len(row.properties)
            for rows in (now.messages, now.archive)
            for row in rows.values()
            if row is not None
        ) + sum(len(row.data) for row in now.runs.values() if row is not None)
        now.deliveries = failed.deliveries | now.deliveries
        now.incoming = failed.incoming | now.incoming
        now.owed = failed.owed | now.owed
        now.heard = failed.heard | now.heard
        now.seen = failed.seen | now.seen
        now.members = failed.members | now.members
        now.removals = failed.removals | now.removals
        now.peer_groups = failed.peer_groups | now.peer_groups
