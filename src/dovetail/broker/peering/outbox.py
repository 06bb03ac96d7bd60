"""What one peer is owed: QoS 1 and 2 publications, in order, until it says that it has them. Pure.

    put -> (QoS 2: on disk) -> sent -> acknowledged
             |                  |
             +-- peer is down --+--> on disk, until it is back

Rules:

- A publication has one sequence number for all peers, higher than those before it and never used
  again, not by a later life of this broker either. Each peer gets them in this order.
- A peer remembers the last number that it took; what comes again with it or below is not new.
- A QoS 2 publication is on disk before it is sent: if we die, it is sent again under its number,
  and not as another one. So is a retained one: all brokers come to have it, or none.
- What a peer that is down is owed is on disk. Then whoever published it need not wait for the peer.
  So with a peer that is up and does not answer, as when its disk is full: after a while it counts
  as down, but for being sent what it is owed. A peer that goes on answering is not late, however
  long the queue before it is; but nobody waits longer for it than for one that is silent.
- What a disk refuses is not owed, and its publisher is told so. But a retained message stays, since
  this broker has it, and a will, since its publisher is gone, and what another broker counts on:
  that is tried until the disk is well.
- A retained publication at QoS 0 has its place among these. While it waits, as for our disk, later
  ones at QoS 0 on its topic wait behind it, or they would overtake it. But not behind a long queue:
  they are not worth the room.
- What has expired is not sent [MQTT-3.3.2-5], and gives way when there is no room. But a retained
  message is: the peer has to forget the one that it replaced. So is what has to go in any case.
- What is too large for the peer is not sent. It is counted, and holds nothing up.
- What does not fit any more is counted and not kept, and nobody waits for it either. What has to
  go in any case takes no room from publications.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from math import inf

from dovetail.broker.peering.limits import (
    COMPLAIN_SECONDS,
    OUTBOX_BYTES_MAX,
    OUTBOX_MESSAGES_MAX,
    OUTBOX_WAIT_SECONDS_MAX,
    OUTBOX_WINDOW_MESSAGES,
    PEER_FRAME_EXTRA_BYTES,
)
from dovetail.broker.peering.stream_messages import ITEM_TOPIC
from dovetail.broker.shared_state import Shared
from dovetail.broker.store.journal import OwedRow
from dovetail.cluster.limits import PEER_FRAME_BYTES_MAX
from dovetail.messages import Message
from dovetail.process.logs import about

log = logging.getLogger("dovetail.cluster")

Done = Callable[[bool], None]
"""Called once: True when the peer or the disk has it, False if neither could take it."""

_SPARE_SECONDS = 1.0
"""Between two looks at who waits behind much else."""


class Owed:
    """A publication on its way to one peer."""

    __slots__ = (
        "done",
        "is_gone",
        "is_kept",
        "is_on_disk",
        "mark",
        "message",
        "must_go",
        "must_stay",
        "sequence",
        "since",
    )

    def __init__(
        self, sequence: int, message: Message, mark: bytes, done: Done | None, since: float
    ) -> None:
        self.since = since
        self.sequence = sequence
        self.message = message
        self.mark = mark
        self.done = done
        self.is_kept = False  # its row is written
        self.is_on_disk = False  # and has arrived there
        self.is_gone = False  # owed no more
        self.must_go = False  # and takes no room
        self.must_stay = message.retain  # though the disk refuses it

    @property
    def expires_at(self) -> float:
        """After this it is not worth sending."""
        expires_at = self.message.expires_at
        return inf if expires_at is None or self.must_go or self.message.retain else expires_at


class Outbox:
    """One peer's."""

    def __init__(
        self,
        peer: str,
        shared: Shared,
        send: Callable[[int, Message, bytes], bool],
        behind: set[str] | None = None,
        *,
        messages_max: int = OUTBOX_MESSAGES_MAX,
        bytes_max: int = OUTBOX_BYTES_MAX,
    ) -> None:
        """`send` takes a sequence number, its message, and its mark; False: not now.

        In `behind` are the names of peers for which something at QoS 0 waits.
        """
        self.peer = peer
        self.count = 0
        self.nbytes = 0
        self._must_go_count = 0  # of these
        self._must_go_bytes = 0
        self.is_up = False
        self.is_late = False
        """It is up, and has not said for long that it took what it was sent."""
        self.message_bytes_max = PEER_FRAME_BYTES_MAX - PEER_FRAME_EXTRA_BYTES
        """What the peer takes in one piece, as far as it has said."""
        self.has_dropped = True
        """Something may not have fitted since this was last told to the peer: of an earlier life
        it is not known."""
        self._shared = shared
        self._send = send
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._owed: deque[Owed] = deque()
        self._unsent: deque[Owed] = deque()
        self._behind = set() if behind is None else behind
        self.waiting: dict[bytes, int] = {}
        """Topics of what is unsent at QoS 0, and how much that is."""
        self._answered_at = 0.0  # or since when it is up
        self._spare_at = 0.0
        self._complain_at = 0.0
        self._expires_next = inf
        """Nothing here expires before this time."""

    # In -------------------------------------------------------------------------------------------

    def put(
        self,
        sequence: int,
        message: Message,
        done: Done | None = None,
        *,
        mark: bytes = b"",
        keep: bool = False,
        must: bool = False,
    ) -> None:
        """`mark`: for which groups it is. `keep`: have it on disk in any case, before it is sent.

        Then nobody waits for the peer: who gave it to us counts on our disk. `must`: whether or
        not there is room.
        """
        if not must and not self._has_room_for(message):
            self._drop_expired()
            if not self._has_room_for(message):
                self._drop(done)
                return
        owed = Owed(sequence, message, mark, done, self._shared.now)
        owed.must_go = must
        owed.must_stay = keep or must or message.retain or message.is_orphan
        self._append(owed)
        if keep or message.qos == 2 or message.retain or not self.is_up or self.is_late:
            self._keep(owed)
        self.flush()

    def _has_room_for(self, message: Message) -> bool:
        return (
            self.count - self._must_go_count < self._messages_max
            and self.nbytes - self._must_go_bytes + message.size <= self._bytes_max
        )

    def _drop(self, done: Done | None) -> None:
        self._shared.counters.peer_messages_dropped += 1
        self.has_dropped = True
        now = self._shared.now
        if now >= self._complain_at:
            self._complain_at = now + COMPLAIN_SECONDS
            log.warning(
                "%s is owed %d publications (%d bytes), which is as much as is kept; new ones are "
                "dropped for it",
                self.peer,
                self.count - self._must_go_count,
                self.nbytes - self._must_go_bytes,
                extra=about(self.peer),
            )
        if done is not None:
            done(True)

    def restore(self, sequence: int, message: Message, mark: bytes = b"") -> None:
        """From the disk, after a start; lowest numbers first."""
        owed = Owed(sequence, message, mark, None, self._shared.now)
        owed.is_kept = owed.is_on_disk = True
        owed.must_go = message.topic == ITEM_TOPIC
        self._append(owed)

    def _append(self, owed: Owed) -> None:
        self._owed.append(owed)
        self._unsent.append(owed)
        if not owed.message.qos:
            self._note_waiting(owed.message.topic, 1)
        self._expires_next = min(self._expires_next, owed.expires_at)
        self._count(owed, 1)

    @property
    def holds_back(self) -> bool:
        """Does what is published at QoS 0 on `waiting` topics have to wait in here, too?"""
        return self.is_up and not self.is_late and len(self._unsent) <= OUTBOX_WINDOW_MESSAGES

    def _note_waiting(self, topic: bytes, change: int) -> None:
        count = self.waiting.get(topic, 0) + change
        if count:
            self.waiting[topic] = count
        else:
            del self.waiting[topic]
        self._note_behind()

    def _set_unsent(self, unsent: Iterable[Owed]) -> None:
        self._unsent = deque(unsent)
        topics = (owed.message.topic for owed in self._unsent if not owed.message.qos)
        self.waiting = dict(Counter(topics))
        self._note_behind()

    def _note_behind(self) -> None:
        if self.waiting:
            self._behind.add(self.peer)
        else:
            self._behind.discard(self.peer)

    def _pop_unsent(self) -> None:
        owed = self._unsent.popleft()
        if not owed.message.qos:
            self._note_waiting(owed.message.topic, -1)

    def _count(self, owed: Owed, sign: int) -> None:
        size = sign * owed.message.size
        self.count += sign
        self.nbytes += size
        if owed.must_go:
            self._must_go_count += sign
            self._must_go_bytes += size

    # Out ------------------------------------------------------------------------------------------

    def peer_is_up(self, heard: int) -> None:
        """A new connection; the peer has taken everything up to this number."""
        self._set_unsent(self._owed)  # what the last connection took with it comes first
        self.is_up = True
        self.is_late = False
        self._answered_at = self._shared.now
        self.acknowledged(heard)

    def peer_is_down(self) -> None:
        self.is_up = self.is_late = False
        self._count_on_disk()

    def tick(self) -> None:
        """Has the peer been silent for too long, or has somebody waited too long for it?"""
        if not self.is_up or self.is_late or not self._owed:
            return
        now = self._shared.now
        oldest = self._owed[0].since
        if now - max(oldest, self._answered_at) > OUTBOX_WAIT_SECONDS_MAX:
            self.is_late = True
            log.warning(
                "%s does not take what it is sent; it is kept for it",
                self.peer,
                extra=about(self.peer),
            )
            self._count_on_disk()
        elif now - oldest > OUTBOX_WAIT_SECONDS_MAX and now >= self._spare_at:
            self._spare_at = now + _SPARE_SECONDS  # there may be many
            self._spare()

    def _spare(self) -> None:
        """Who waits behind much else is told when it is on disk."""
        for owed in self._owed:
            if not self._has_waited(owed):
                return
            if owed.done is not None and not owed.is_gone:
                self._wait_for_disk(owed)

    def _has_waited(self, owed: Owed) -> bool:
        return self._shared.now - owed.since > OUTBOX_WAIT_SECONDS_MAX

    def _count_on_disk(self) -> None:
        """Nobody waits for the peer any more."""
        for owed in self._owed:
            self._wait_for_disk(owed)

    def _wait_for_disk(self, owed: Owed) -> None:
        if owed.is_on_disk:
            _finish(owed, True)
        elif not owed.is_kept and not owed.is_gone:
            self._keep(owed)

    def flush(self) -> None:
        """Send on, as far as the window and the connection go."""
        while self.is_up and self._unsent:
            owed = self._unsent[0]
            if owed.is_gone:
                self._owed.remove(owed)  # or it would count in the window
            else:
                if owed.is_kept and not owed.is_on_disk:
                    return  # it goes when it is, and what came after it waits
                if len(self._owed) - len(self._unsent) >= OUTBOX_WINDOW_MESSAGES:
                    return
                if owed.message.size > self.message_bytes_max:
                    self._refuse(owed)
                    continue
                if owed.message.expires_at is not None and self._has_expired(owed):
                    self._pop_unsent()
                    self._owed.remove(owed)
                    self._expire(owed)
                    continue
                if not self._send(owed.sequence, owed.message, owed.mark):
                    return
            self._pop_unsent()

    def _refuse(self, owed: Owed) -> None:
        """The peer would not take it, and would end the connection."""
        log.warning(
            "dropped a publication of %d bytes, which is too large for %s",
            owed.message.size,
            self.peer,
            extra=about(self.peer),
        )
        self._shared.counters.peer_messages_dropped += 1
        self._pop_unsent()
        self._owed.remove(owed)
        self._remove(owed)
        _finish(owed, True)

    def _has_expired(self, owed: Owed) -> bool:
        """Who says 0 s has it sent at once, or not at all."""
        return owed.expires_at < self._shared.now

    def _expire(self, owed: Owed) -> None:
        self._shared.counters.publishes_expired += 1
        self._remove(owed)
        _finish(owed, True)

    def _drop_expired(self) -> None:
        """Of what the peer was not sent."""
        if self._expires_next >= self._shared.now:
            return
        expired = [owed for owed in self._unsent if not owed.is_gone and self._has_expired(owed)]
        for owed in expired:
            self._expire(owed)
        gone = set(expired)
        self._owed = deque(owed for owed in self._owed if owed not in gone)
        self._set_unsent(owed for owed in self._unsent if owed not in gone)
        self._expires_next = min((owed.expires_at for owed in self._unsent), default=inf)

    def acknowledged(self, sequence: int) -> None:
        """The peer has everything up to here."""
        if self._owed and self._owed[0].sequence <= sequence:
            self._answered_at = self._shared.now
        while self._owed and self._owed[0].sequence <= sequence:
            owed = self._owed.popleft()
            if self._unsent and self._unsent[0] is owed:
                self._pop_unsent()  # taken over a connection that is no more
            if not owed.is_gone:
                self._remove(owed)
                _finish(owed, True)
        if self.is_late and not (self._owed and self._has_waited(self._owed[0])):
            self.is_late = False
        self.flush()

    @property
    def has_items(self) -> bool:
        """Is something else than publications owed to it?"""
        return any(owed.message.topic == ITEM_TOPIC and not owed.is_gone for owed in self._owed)

    def clear(self) -> int:
        """The peer will not come back. How many publications it never got."""
        lost = [owed for owed in self._owed if not owed.is_gone]
        self._owed.clear()
        self._set_unsent(())
        for owed in lost:
            self._remove(owed)
            _finish(owed, True)
        return len(lost)

    def _remove(self, owed: Owed) -> None:
        owed.is_gone = True
        self._count(owed, -1)
        if owed.is_kept:
            self._shared.journal.drop_owed(self.peer, owed.sequence)
            self._shared.journal.release(owed.message)

    # The disk -------------------------------------------------------------------------------------

    def _keep(self, owed: Owed) -> None:
        journal = self._shared.journal
        owed.is_kept = True
        row = OwedRow(journal.keep(owed.message), owed.mark)
        journal.save_owed(self.peer, owed.sequence, row)

        def stored(is_stored: bool) -> None:
            if owed.is_gone:
                return  # it was acknowledged before the disk had it
            if is_stored:
                owed.is_on_disk = True
                if not self.is_up or self.is_late or self._has_waited(owed):
                    _finish(owed, True)
                self.flush()
            elif owed.must_stay:
                _finish(owed, False)
                journal.wait_on(stored)
            else:
                self._remove(owed)
                _finish(owed, False)
                self.flush()

        journal.when_stored(stored)


def _finish(owed: Owed, taken: bool) -> None:
    done, owed.done = owed.done, None
    if done is not None:
        done(taken)
