"""Spools QoS 1 and 2 publications for one peer, in order, until it acknowledges them. Pure.

    put -> (QoS 2: on disk) -> sent -> acknowledged
             |                  |
             +-- peer is down --+--> on disk, until it is back

Rules:

- A publication has one sequence number for all peers, higher than those before it and never used
  again, not by a later life of this broker either. Each peer gets them in this order.
- A peer remembers the last number that it took. A number at or below it is not new.
- A QoS 2 publication is on disk before it is sent. If we die, it is sent again under its number,
  not as another publication. So is a retained one: all brokers come to have it, or none.
- Publications for a peer that is down are on disk. Then their publishers need not wait for the
  peer.
- A peer that is up but does not answer, as when its disk is full, is stalled after a while. It
  counts as down, but we still send to it. A peer that goes on answering is not stalled, however
  long its queue. But even then a publisher waits no longer than for a silent peer.
- If our disk refuses a publication, we drop it and tell its publisher. Three kinds stay, and we try
  until the disk is well: a retained message, which this broker has; a will, whose publisher is
  gone; a message that another broker relies on us to have.
- A retained publication at QoS 0 has its place among these. While it waits, as for our disk, later
  QoS 0 publications on its topic wait behind it, or they would overtake it. They do not wait behind
  a long queue: they are not worth the room.
- An expired publication is not sent [MQTT-3.3.2-5], and gives way when there is no room. A retained
  message is sent even then: the peer has to forget the one that it replaced. So is a control
  message.
- A publication that is too large for the peer is counted and not sent. It holds nothing up.
- A publication that finds no room is counted and dropped, and nobody waits for it. Control messages
  are exempt from the limits, and take no room from publications.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from math import inf

from dovetail.broker.outgoing_run import StoredRun
from dovetail.broker.peering.control_messages import CONTROL_TOPIC
from dovetail.broker.peering.limits import (
    COMPLAIN_SECONDS,
    OUTBOX_BYTES_MAX,
    OUTBOX_MESSAGES_MAX,
    OUTBOX_WAIT_SECONDS_MAX,
    OUTBOX_WINDOW_MESSAGES,
    PEER_FRAME_EXTRA_BYTES,
)
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import OwedRow
from dovetail.cluster.limits import PEER_FRAME_BYTES_MAX
from dovetail.messages import Message
from dovetail.process.logs import about

log = logging.getLogger("dovetail.cluster")

Done = Callable[[bool], None]
"""Called once: True when the peer or the disk has it, False if neither could take it."""

_RELEASE_SECONDS = 1.0
"""Seconds between two searches for publishers that wait behind a long queue."""


class OutboxEntry:
    """A publication, or a run of them, on its way to one peer."""

    __slots__ = (
        "done",
        "is_exempt",
        "is_gone",
        "is_on_disk",
        "is_spooled",
        "message",
        "must_stay",
        "scope",
        "sequence",
        "since",
    )

    def __init__(
        self,
        sequence: int,
        message: Message | StoredRun,
        scope: bytes,
        done: Done | None,
        since: float,
    ) -> None:
        self.since = since
        self.sequence = sequence
        self.message = message
        self.scope = scope
        self.done = done
        self.is_spooled = False  # its row is in the journal
        self.is_on_disk = False
        self.is_gone = False  # acknowledged or dropped
        self.is_exempt = False  # from the limits, and from expiry
        self.must_stay = message.retain  # even if the disk refuses it

    @property
    def expires_at(self) -> float:
        """The time after which it need not be sent."""
        expires_at = self.message.expires_at
        return inf if expires_at is None or self.is_exempt or self.message.retain else expires_at


class Outbox:
    """The outbox of one peer."""

    def __init__(
        self,
        peer: str,
        shared: SharedState,
        send: Callable[[int, Message | StoredRun, bytes], bool],
        behind: set[str] | None = None,
        *,
        messages_max: int = OUTBOX_MESSAGES_MAX,
        bytes_max: int = OUTBOX_BYTES_MAX,
    ) -> None:
        """`send` takes a sequence number, a message and its scope; it returns False if it cannot.

        `behind` has the names of peers with QoS 0 publications in their outboxes.
        """
        self.peer = peer
        self.count = 0
        self.nbytes = 0
        self._exempt_count = 0  # of these
        self._exempt_bytes = 0
        self.is_up = False
        self.is_stalled = False
        """It is up, but has not acknowledged for a long time."""
        self.message_bytes_max = PEER_FRAME_BYTES_MAX - PEER_FRAME_EXTRA_BYTES
        """The largest message that the peer takes, as far as it has said."""
        self.has_dropped = True
        """Messages may have been dropped since we last told the peer. True at first: an earlier
        life may have dropped some."""
        self._shared = shared
        self._send = send
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._entries: deque[OutboxEntry] = deque()
        self._unsent: deque[OutboxEntry] = deque()
        self._behind = set() if behind is None else behind
        self.waiting: dict[bytes, int] = {}
        """The number of unsent QoS 0 publications, by topic."""
        self._answered_at = 0.0  # or when it came up
        self._release_at = 0.0
        self._warn_at = 0.0
        self._expires_next = inf
        """No publication here expires before this time."""

    # In -------------------------------------------------------------------------------------------

    def put(
        self,
        sequence: int,
        message: Message | StoredRun,
        done: Done | None = None,
        *,
        scope: bytes = b"",
        must_spool: bool = False,
        is_exempt: bool = False,
    ) -> None:
        """Add a message. `done` is called when the peer or the disk has it.

        With `must_spool` it is on disk before it is sent, because its sender relies on our disk.
        With `is_exempt` it is added even if there is no room.
        """
        if not is_exempt and not self._has_room_for(message):
            self._drop_expired()
            if not self._has_room_for(message):
                self._drop(message, done)
                return
        entry = OutboxEntry(sequence, message, scope, done, self._shared.now)
        entry.is_exempt = is_exempt
        entry.must_stay = must_spool or is_exempt or message.retain or message.is_orphan
        self._append(entry)
        if must_spool or message.qos == 2 or message.retain or not self.is_up or self.is_stalled:
            self._spool(entry)
        self.flush()

    def _has_room_for(self, message: Message | StoredRun) -> bool:
        return (
            self.count - self._exempt_count + message.packets <= self._messages_max
            and self.nbytes - self._exempt_bytes + message.size <= self._bytes_max
        )

    def _drop(self, message: Message | StoredRun, done: Done | None) -> None:
        self._shared.counters.peer_messages_dropped += message.packets
        self.has_dropped = True
        now = self._shared.now
        if now >= self._warn_at:
            self._warn_at = now + COMPLAIN_SECONDS
            log.warning(
                "the outbox for %s is full (%d publications, %d bytes): new ones are dropped",
                self.peer,
                self.count - self._exempt_count,
                self.nbytes - self._exempt_bytes,
                extra=about(self.peer),
            )
        if done is not None:
            done(True)

    def restore(self, sequence: int, message: Message | StoredRun, scope: bytes = b"") -> None:
        """Restore a spooled message after a start; lowest numbers first."""
        entry = OutboxEntry(sequence, message, scope, None, self._shared.now)
        entry.is_spooled = entry.is_on_disk = True
        entry.is_exempt = message.topic == CONTROL_TOPIC
        self._append(entry)

    def _append(self, entry: OutboxEntry) -> None:
        self._entries.append(entry)
        self._unsent.append(entry)
        if not entry.message.qos:
            self._note_waiting(entry.message.topic, 1)
        self._expires_next = min(self._expires_next, entry.expires_at)
        self._count(entry, 1)

    @property
    def holds_back(self) -> bool:
        """Do QoS 0 publications on `waiting` topics have to wait here, too?"""
        return self.is_up and not self.is_stalled and len(self._unsent) <= OUTBOX_WINDOW_MESSAGES

    def _note_waiting(self, topic: bytes, change: int) -> None:
        count = self.waiting.get(topic, 0) + change
        if count:
            self.waiting[topic] = count
        else:
            del self.waiting[topic]
        self._note_behind()

    def _set_unsent(self, unsent: Iterable[OutboxEntry]) -> None:
        self._unsent = deque(unsent)
        topics = (entry.message.topic for entry in self._unsent if not entry.message.qos)
        self.waiting = dict(Counter(topics))
        self._note_behind()

    def _note_behind(self) -> None:
        if self.waiting:
            self._behind.add(self.peer)
        else:
            self._behind.discard(self.peer)

    def _pop_unsent(self) -> None:
        entry = self._unsent.popleft()
        if not entry.message.qos:
            self._note_waiting(entry.message.topic, -1)

    def _count(self, entry: OutboxEntry, sign: int) -> None:
        count = sign * entry.message.packets
        size = sign * entry.message.size
        self.count += count
        self.nbytes += size
        if entry.is_exempt:
            self._exempt_count += count
            self._exempt_bytes += size

    # Out ------------------------------------------------------------------------------------------

    def peer_is_up(self, acknowledged_sequence: int) -> None:
        """Begin to send over a new connection. The peer has everything up to this number."""
        self._set_unsent(self._entries)  # first what the last connection lost
        self.is_up = True
        self.is_stalled = False
        self._answered_at = self._shared.now
        self.acknowledged(acknowledged_sequence)

    def peer_is_down(self) -> None:
        self.is_up = self.is_stalled = False
        self._rely_on_disk()

    def tick(self) -> None:
        """Note that the peer is stalled if it was silent for too long; release publishers."""
        if not self.is_up or self.is_stalled or not self._entries:
            return
        now = self._shared.now
        oldest = self._entries[0].since
        if now - max(oldest, self._answered_at) > OUTBOX_WAIT_SECONDS_MAX:
            self.is_stalled = True
            log.warning(
                "%s does not acknowledge publications; they are spooled for it",
                self.peer,
                extra=about(self.peer),
            )
            self._rely_on_disk()
        elif now - oldest > OUTBOX_WAIT_SECONDS_MAX and now >= self._release_at:
            self._release_at = now + _RELEASE_SECONDS  # there may be many
            self._release_waiting()

    def _release_waiting(self) -> None:
        """Let publishers that wait behind a long queue rely on the disk."""
        for entry in self._entries:
            if not self._has_waited(entry):
                return
            if entry.done is not None and not entry.is_gone:
                self._wait_for_disk(entry)

    def _has_waited(self, entry: OutboxEntry) -> bool:
        return self._shared.now - entry.since > OUTBOX_WAIT_SECONDS_MAX

    def _rely_on_disk(self) -> None:
        """Let all publishers rely on the disk instead of the peer."""
        for entry in self._entries:
            self._wait_for_disk(entry)

    def _wait_for_disk(self, entry: OutboxEntry) -> None:
        if entry.is_on_disk:
            _finish(entry, True)
        elif not entry.is_spooled and not entry.is_gone:
            self._spool(entry)

    def flush(self) -> None:
        """Send as much as the window and the connection allow."""
        while self.is_up and self._unsent:
            entry = self._unsent[0]
            if entry.is_gone:
                self._entries.remove(entry)  # or it would count in the window
            else:
                if entry.is_spooled and not entry.is_on_disk:
                    return  # it goes when it is, and what came after it waits
                if len(self._entries) - len(self._unsent) >= OUTBOX_WINDOW_MESSAGES:
                    return
                if entry.message.size > self.message_bytes_max:
                    self._refuse(entry)
                    continue
                if entry.message.expires_at is not None and self._has_expired(entry):
                    self._pop_unsent()
                    self._entries.remove(entry)
                    self._expire(entry)
                    continue
                if not self._send(entry.sequence, entry.message, entry.scope):
                    return
            self._pop_unsent()

    def _refuse(self, entry: OutboxEntry) -> None:
        """Drop the message: the peer would refuse it, and end the connection."""
        log.warning(
            "dropped a publication of %d bytes, which is too large for %s",
            entry.message.size,
            self.peer,
            extra=about(self.peer),
        )
        self._shared.counters.peer_messages_dropped += entry.message.packets
        self._pop_unsent()
        self._entries.remove(entry)
        self._remove(entry)
        _finish(entry, True)

    def _has_expired(self, entry: OutboxEntry) -> bool:
        """Return whether it has expired. An expiry of 0 s: it is sent at once, or not at all."""
        return entry.expires_at < self._shared.now

    def _expire(self, entry: OutboxEntry) -> None:
        self._shared.counters.publishes_expired += 1
        self._remove(entry)
        _finish(entry, True)

    def _drop_expired(self) -> None:
        """Drop expired messages that were not sent yet."""
        if self._expires_next >= self._shared.now:
            return
        expired = [
            entry for entry in self._unsent if not entry.is_gone and self._has_expired(entry)
        ]
        for entry in expired:
            self._expire(entry)
        gone = set(expired)
        self._entries = deque(entry for entry in self._entries if entry not in gone)
        self._set_unsent(entry for entry in self._unsent if entry not in gone)
        self._expires_next = min((entry.expires_at for entry in self._unsent), default=inf)

    def acknowledged(self, sequence: int) -> None:
        """Remove everything up to this number: the peer has it."""
        if self._entries and self._entries[0].sequence <= sequence:
            self._answered_at = self._shared.now
        while self._entries and self._entries[0].sequence <= sequence:
            entry = self._entries.popleft()
            if self._unsent and self._unsent[0] is entry:
                self._pop_unsent()  # taken over an earlier connection
            if not entry.is_gone:
                self._remove(entry)
                _finish(entry, True)
        if self.is_stalled and not (self._entries and self._has_waited(self._entries[0])):
            self.is_stalled = False
        self.flush()

    @property
    def has_control_messages(self) -> bool:
        """Does it hold control messages?"""
        return any(
            entry.message.topic == CONTROL_TOPIC and not entry.is_gone for entry in self._entries
        )

    def clear(self) -> int:
        """Drop everything: the peer will not return. Return how many messages it never got."""
        lost = [entry for entry in self._entries if not entry.is_gone]
        self._entries.clear()
        self._set_unsent(())
        for entry in lost:
            self._remove(entry)
            _finish(entry, True)
        return sum(entry.message.packets for entry in lost)

    def _remove(self, entry: OutboxEntry) -> None:
        entry.is_gone = True
        self._count(entry, -1)
        if entry.is_spooled:
            self._shared.journal.drop_owed(self.peer, entry.sequence)
            if isinstance(entry.message, StoredRun):
                self._shared.journal.release_run(entry.message)
            else:
                self._shared.journal.release(entry.message)

    # The disk -------------------------------------------------------------------------------------

    def _spool(self, entry: OutboxEntry) -> None:
        journal = self._shared.journal
        entry.is_spooled = True
        message = entry.message
        if isinstance(message, StoredRun):
            number = journal.keep_run(message)
        else:
            number = journal.keep(message)
        journal.save_owed(self.peer, entry.sequence, OwedRow(number, entry.scope))

        def stored(is_stored: bool) -> None:
            if entry.is_gone:
                return  # it was acknowledged before the disk had it
            if is_stored:
                entry.is_on_disk = True
                if not self.is_up or self.is_stalled or self._has_waited(entry):
                    _finish(entry, True)
                self.flush()
            elif entry.must_stay:
                _finish(entry, False)
                journal.wait_on(stored)
            else:
                self._remove(entry)
                _finish(entry, False)
                self.flush()

        journal.when_stored(stored)


def _finish(entry: OutboxEntry, taken: bool) -> None:
    done, entry.done = entry.done, None
    if done is not None:
        done(taken)
