"""Holds what a session has to deliver: counted against the limits, and on disk. Pure.

Messages and runs wait here, in the order of their sequences, until session_sender.py gives them
packet identifiers.

- A message is counted, here and in the gauges of the broker, from `add` to `forget`: while it waits
  and while it is in flight. It has a row on disk as long, if its session is persistent.
- A run is counted and stored as one. Taking it apart puts single messages in its place, on disk
  too.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from dovetail.broker.limits import REVIEWED_PER_PIECE
from dovetail.broker.outgoing_message import OutgoingMessage
from dovetail.broker.outgoing_run import OutgoingRun
from dovetail.messages import Message
from dovetail.slices import Work

if TYPE_CHECKING:
    from dovetail.broker.shared_state import SharedState

Queued = OutgoingMessage | OutgoingRun


class OutgoingQueue:
    """The queue of one session."""

    __slots__ = ("_in_runs", "_number", "_runs", "_shared", "drops_rows", "nbytes", "waiting")

    def __init__(self, shared: "SharedState", number: int) -> None:
        self._shared = shared
        self._number = number  # of the session
        self._runs = 0
        self._in_runs = 0  # messages
        self.waiting: deque[Queued] = deque()
        self.nbytes = 0  # of all messages that wait or are in flight
        self.drops_rows = True
        """False once the session has ended: then all of its rows go at once."""

    @property
    def count(self) -> int:
        """The number of messages that wait."""
        return len(self.waiting) - self._runs + self._in_runs

    # Accounts and rows ----------------------------------------------------------------------------

    def add(self, entry: OutgoingMessage, *, persistent: bool) -> None:
        """Count a message that the session has accepted. The caller writes its row."""
        message = entry.message
        self.count_in(message.size)
        if persistent:
            entry.first_batch = self._shared.journal.open.number
            self._shared.journal.keep(message)

    def count_in(self, size: int, messages: int = 1) -> None:
        """Count messages that need no row, or have it already."""
        self.nbytes += size
        gauges = self._shared.gauges
        gauges.queued_bytes += size
        gauges.queued_messages += messages

    def _count_out(self, size: int, messages: int = 1) -> None:
        self.count_in(-size, -messages)

    def save(self, entry: OutgoingMessage) -> None:
        """Write the row of a message that is to be stored."""
        if entry.first_batch:
            self._shared.journal.save_delivery(self._number, entry.sequence, entry.row())

    def drop_row(self, entry: OutgoingMessage) -> None:
        """Delete the row of a message that another session has now."""
        if entry.first_batch:
            self._shared.journal.drop_delivery(self._number, entry.sequence, entry.first_batch)

    def keep_in_memory_only(self, entry: OutgoingMessage) -> None:
        """Delete the row of a message whose session now ends with its connection."""
        if entry.first_batch:
            self.drop_row(entry)
            self._shared.journal.release(entry.message)
            entry.first_batch = 0

    def forget(self, entry: OutgoingMessage) -> None:
        """Forget a message that is delivered, dropped or cancelled."""
        self._count_out(entry.message.size)
        if entry.first_batch:
            if self.drops_rows:
                self.drop_row(entry)
            self._shared.journal.release(entry.message)

    def add_run(self, run: OutgoingRun) -> None:
        """Count and store a run."""
        self.count_in(run.size, run.count)
        self.store_run(run)

    def store_run(self, run: OutgoingRun) -> None:
        run.first_batch = self._shared.journal.open.number
        self._shared.journal.keep_run(run.stored)
        self.save_run(run)

    def save_run(self, run: OutgoingRun) -> None:
        """Write the row of a run that is stored."""
        if run.first_batch:
            self._shared.journal.save_run_delivery(self._number, run.sequence, run.row())

    def forget_run(self, run: OutgoingRun) -> None:
        """Forget a run: what is left of it."""
        self._count_out(run.size, run.unacknowledged)
        if run.first_batch:
            journal = self._shared.journal
            if self.drops_rows:
                journal.drop_run_delivery(self._number, run.sequence, run.first_batch)
            journal.release_run(run.stored)

    def replace(self, run: OutgoingRun, entries: Iterable[OutgoingMessage]) -> None:
        """Keep messages in the place of their run."""
        run.entries = tuple(entries)
        self.forget_run(run)
        for entry in run.entries:
            self.add(entry, persistent=run.first_batch != 0)
            self.save(entry)

    # Waiting --------------------------------------------------------------------------------------

    def append(self, entry: OutgoingMessage) -> None:
        self.waiting.append(entry)
        self._note_expiry(entry)

    def insert(self, place: int, entry: OutgoingMessage) -> None:
        self.waiting.insert(place, entry)
        self._note_expiry(entry)

    def _note_expiry(self, entry: OutgoingMessage) -> None:
        if entry.message.expires_at is not None:
            self._shared.message_expiry.note(self, entry.message.expires_at)

    def append_run(self, run: OutgoingRun) -> None:
        self.waiting.append(run)
        self._count_waiting(run, 1)

    def pop_run(self) -> None:
        """Remove the run that is the first."""
        run = self.waiting.popleft()
        assert isinstance(run, OutgoingRun)
        self._count_waiting(run, -1)

    def put_back(self, rest: OutgoingRun) -> None:
        """Put what was split off from the first run into its place."""
        self.store_run(rest)
        self.waiting.appendleft(rest)
        self._count_waiting(rest, 1)

    def remove_run(self, run: OutgoingRun) -> None:
        """Remove a run that waits, and forget it."""
        self.waiting.remove(run)
        self._count_waiting(run, -1)
        self.forget_run(run)

    def _count_waiting(self, run: OutgoingRun, sign: int) -> None:
        self._runs += sign
        self._in_runs += sign * run.count

    def messages(self) -> deque[OutgoingMessage]:
        """Return the messages that wait. Runs are taken apart for it."""
        if self._runs:
            entries: list[OutgoingMessage] = []
            for one in self.waiting:
                entries += (one,) if isinstance(one, OutgoingMessage) else self._take_apart(one)
            self.waiting = deque(entries)
        return cast("deque[OutgoingMessage]", self.waiting)

    def _take_apart(self, run: OutgoingRun) -> list[OutgoingMessage]:
        """Return the messages that the caller puts into the place of a run."""
        self._count_waiting(run, -1)
        entries = [
            OutgoingMessage(message, 1, False, (), run.sequence + number)
            for number, message in enumerate(run.messages())
        ]
        self.replace(run, entries)
        return entries

    def take_first_apart(self) -> None:
        """Take the run apart that is the first."""
        run = self.waiting.popleft()
        assert isinstance(run, OutgoingRun)
        self.waiting.extendleft(reversed(self._take_apart(run)))

    def _take_one_apart(self, end: int) -> bool:
        """Take apart the first run whose sequence is below `end`, if there is one."""
        waiting = self.waiting
        for before, one in enumerate(waiting):
            if isinstance(one, OutgoingRun) and one.sequence < end:
                waiting.rotate(-before)
                self.take_first_apart()
                waiting.rotate(before)
                return True
        return False

    def forget_runs(self) -> None:
        """Forget all runs that wait, and do not take them apart first."""
        if self._runs:
            for one in self.waiting:
                if isinstance(one, OutgoingRun):
                    self.forget_run(one)
            self.waiting = deque(one for one in self.waiting if isinstance(one, OutgoingMessage))
            self._runs = self._in_runs = 0

    # Messages that nobody waits for ---------------------------------------------------------------

    def drop_expired(self, now: float) -> float | None:
        """Drop expired messages. Return the next expiry time, if any."""
        expires_next: float | None = None
        kept: deque[Queued] = deque()
        for entry in self.waiting:
            if isinstance(entry, OutgoingRun):  # nothing in it expires
                kept.append(entry)
                continue
            expires_at = entry.message.expires_at
            if expires_at is not None and expires_at <= now:
                self._shared.counters.publishes_expired += 1
                self.forget(entry)
                continue
            kept.append(entry)
            if expires_at is not None and (expires_next is None or expires_at < expires_next):
                expires_next = expires_at
        self.waiting = kept
        return expires_next

    def drop_unwanted(self, is_unwanted: Callable[[Message], bool], end: int) -> Work:
        """Drop unwanted messages, in pieces. Runs from the sequence `end` on have none."""
        while self._take_one_apart(end):
            yield
        found: set[Queued] = set()
        entries = [one for one in self.waiting if isinstance(one, OutgoingMessage)]
        for place, entry in enumerate(entries, 1):
            if is_unwanted(entry.message):
                found.add(entry)
            if not place % REVIEWED_PER_PIECE:
                yield
        # Some may have been sent meanwhile, and are in flight.
        waiting = self.waiting
        unwanted = [one for one in waiting if one in found and isinstance(one, OutgoingMessage)]
        if unwanted:
            self.waiting = deque(one for one in waiting if one not in found)
            self._shared.counters.publishes_dropped += len(unwanted)
        for place, entry in enumerate(unwanted, 1):
            self.forget(entry)
            if not place % REVIEWED_PER_PIECE:
                yield
