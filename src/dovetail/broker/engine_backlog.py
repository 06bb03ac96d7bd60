"""Publications whose where-clauses a stream evaluates, and the matches that it returns. Pure.

    publication -> row of the archive -> [the stream] -> take -> sessions

Rules:

- In a space with `engine = "spark"` a publication with attributes goes to the archive, and to the
  subscribers without a clause. No broker evaluates clauses then: a forwarded publication says so.
  If the archive has no room, the brokers evaluate the clauses themselves.
- An engine first decides which publications to match, and then fetches our clauses
  (clause_log.py). So it knows every subscription that was acknowledged before one of these was
  published.
- A match is delivered as if the broker had evaluated the clauses: once to a session, with the
  highest QoS and all identifiers of the matching subscriptions, and with respect to No Local.
- The broker takes each publication of one engine once. The progress is stored in the batch of the
  deliveries, so a restart on either side makes no duplicates. Each engine has its own progress.
- A session that got a publication without a clause does not get it again, unless the clause
  promises a higher QoS or an identifier. The notes about this are bounded, and not on disk.
- The broker counts the publications that wait, and logs when no engine has asked for a while.
"""

import hashlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from dovetail.api.engine import ClauseChanges, ClauseQuery, EngineMatch
from dovetail.attributes.clauses import Clause
from dovetail.broker.archive_queue import ArchiveQueue, DeliveryContext
from dovetail.broker.clause_log import AnySubscription, ClauseLog
from dovetail.broker.delivery import Delivery, by_session
from dovetail.broker.limits import ENGINE_HISTORIES_MAX, ENGINE_NOTES_MAX, ENGINE_SILENT_SECONDS
from dovetail.broker.local_delivery import LocalDelivery
from dovetail.broker.other_brokers import Forwarding
from dovetail.broker.route import Group
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import GROUP_SOURCE, SharedState
from dovetail.broker.subscription import Subscription
from dovetail.broker.subscription_observer import SubscriptionObserver
from dovetail.messages import Message

log = logging.getLogger("dovetail.engine")


class _ArchivedSecond(NamedTuple):
    """The publications that were archived within one second."""

    at: float
    last: int
    rows: int


class _SpaceBacklog:
    """The publications that wait for the engine of one space."""

    def __init__(self) -> None:
        self.served = 0
        """No publication up to this sequence waits; 0 if none was ever archived."""
        self.seconds: deque[_ArchivedSecond] = deque()

    def add(self, sequence: int, now: float) -> None:
        last = self.seconds[-1] if self.seconds else None
        if last is not None and now - last.at < 1:
            self.seconds[-1] = _ArchivedSecond(last.at, sequence, last.rows + 1)
        else:
            self.seconds.append(_ArchivedSecond(now, sequence, 1))

    def serve(self, sequence: int) -> None:
        self.served = max(self.served, sequence)
        while self.seconds and self.seconds[0].last <= self.served:
            self.seconds.popleft()


class Engine(Protocol):
    """What dispatch tells the engine of a broker."""

    def archive(self, space: str, message: Message) -> int:
        """Archive a publication. Return its sequence, or 0 if there is no room."""
        ...

    def note_delivered(self, delivery: Delivery, qos: int, broker: str, sequence: int) -> None:
        """Note that a session got this publication without a clause."""
        ...


class NoEngine:
    """Implements `Engine` for a broker without an archive."""

    def archive(self, space: str, message: Message) -> int:
        del space, message
        return 0

    def note_delivered(self, delivery: Delivery, qos: int, broker: str, sequence: int) -> None:
        """Do nothing."""


class EngineBacklog(SubscriptionObserver):
    """The publications of one broker that wait for engines, and their matches."""

    def __init__(
        self,
        shared: SharedState,
        router: Router,
        local: LocalDelivery,
        forwarding: Forwarding,
        queue: ArchiveQueue,
    ) -> None:
        self._shared = shared
        self._router = router
        self._local = local
        self._forwarding = forwarding
        self._queue = queue
        self._life = queue.next_sequence
        self._clause_logs: dict[str, ClauseLog] = {}
        self._backlogs: dict[str, _SpaceBacklog] = {}
        self._progress: dict[int, int] = {}  # by engine and broker, the last sequence taken
        self._delivered: dict[tuple[str, int], dict[Session, int]] = {}
        self._delivered_count = 0
        self._asked_at = shared.now
        self._is_silent = False
        router.observe(self)

    def restore(self, progress: Mapping[int, int]) -> None:
        """Take back the progress that an earlier process stored."""
        self._asked_at = self._shared.now
        self._progress.update((key, last) for key, last in progress.items() if key < 0)
        for space in self._router.spaces.all:
            served = self._progress.pop(_key("served", space.name), 0)
            last = self._progress.pop(_key("last", space.name), 0)
            if served:
                self._backlog(space.name).serve(served)
            if last > served:
                # Their number is not known. A sequence starts as a time in microseconds.
                self._backlog(space.name).seconds.append(_ArchivedSecond(last / 1e6, last, 1))

    # Publications out -----------------------------------------------------------------------------

    def archive(self, space: str, message: Message) -> int:
        """Archive a publication for the engine. Return its sequence, or 0 if there is no room."""
        self._clause_log(space)  # from now on clauses that come and go are logged
        sequence = self._queue.add(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
            DeliveryContext(message.origin, message.expires_at),
        )
        if sequence:
            self._shared.counters.engine_rows += 1
            backlog = self._backlog(space)
            journal = self._shared.journal
            if not backlog.served:
                backlog.served = sequence - 1
                journal.save_heard(_key("served", space), backlog.served)
            backlog.add(sequence, self._shared.now)
            journal.save_heard(_key("last", space), sequence)
        return sequence

    def note_delivered(self, delivery: Delivery, qos: int, broker: str, sequence: int) -> None:
        """Note that a session got this publication without a clause."""
        if self._delivered_count < ENGINE_NOTES_MAX:
            known = self._delivered.setdefault((broker or self._queue.name, sequence), {})
            known[delivery.session] = min(qos, delivery.qos)
            self._delivered_count += 1

    # Clauses out ----------------------------------------------------------------------------------

    def clauses_since(self, question: ClauseQuery) -> ClauseChanges:
        backlog = self._backlog(question.space)
        self._asked_at = self._shared.now
        if question.served > backlog.served:
            backlog.serve(question.served)
            self._shared.journal.save_heard(_key("served", question.space), question.served)
        return self._clause_log(question.space).changes_since(
            self._queue.name, question.life, question.version, backlog.served
        )

    def _clause_log(self, space: str) -> ClauseLog:
        found = self._clause_logs.get(space)
        if found is None:
            entries = self._router.with_clauses(space)
            found = self._clause_logs[space] = ClauseLog(self._life, entries)
        return found

    def clause_changed(self, entry: AnySubscription, clause: Clause, is_there: bool) -> None:
        clauses = self._clause_logs.get(clause.space.name)
        if clauses is None:
            return  # no engine has asked for this space yet
        if is_there:
            clauses.add(entry)
        else:
            clauses.remove(entry)

    # Deliveries in --------------------------------------------------------------------------------

    def deliver(
        self, engine: str, space: str, matched: EngineMatch, *, is_moved: bool
    ) -> list[int]:
        """Deliver a match to its subscriptions. Return the ids that are unknown here."""
        shared = self._shared
        self._asked_at = shared.now
        key = _key("taken", engine, matched.broker)
        if not is_moved and matched.sequence <= self._progress.get(key, 0):
            shared.counters.engine_repeats += 1
            return []
        rows_before = shared.journal.rows_written
        clauses = self._clause_log(space)
        found = {number: clauses.find(number) for number in matched.ids}
        self._deliver(matched, [one for one in found.values() if one is not None])
        if not is_moved:
            # Moved to the end: `_forget_some` drops the one unused for longest.
            self._progress.pop(key, None)
            self._progress[key] = matched.sequence
            if shared.journal.rows_written != rows_before:
                shared.journal.save_heard(key, matched.sequence)
            self._forget_some()
        return [number for number, one in found.items() if one is None]

    def _deliver(self, matched: EngineMatch, receivers: Iterable[AnySubscription]) -> None:
        shared = self._shared
        if matched.expires_at is not None and matched.expires_at <= shared.now:
            shared.counters.publishes_expired += 1
            return
        message = Message(
            matched.topic,
            matched.payload,
            matched.qos,
            matched.retain,
            matched.properties,
            matched.expires_at,
            matched.client,
        )
        have = self._delivered.get((matched.broker, matched.sequence), {})
        groups = [one for one in receivers if isinstance(one, Group)]
        subscriptions = [
            one
            for one in receivers
            if isinstance(one, Subscription)
            and not (one.no_local and one.session.client_id == matched.client)  # [MQTT-3.8.3-3]
        ]
        # The session gets it only from here, whichever broker it was published at.
        source, shared.source = shared.source, GROUP_SOURCE
        try:
            for session, own in by_session(subscriptions).items():
                delivery = Delivery.of(session, own)
                promised = min(message.qos, delivery.qos)
                if not delivery.identifiers and have.get(session, -1) >= promised:
                    continue
                shared.counters.engine_deliveries += 1
                retain = message.retain and delivery.retain_as_published
                self._local.deliver(delivery, message, retain, [])
        finally:
            shared.source = source
        for group in groups:
            shared.counters.engine_deliveries += 1
            self._forwarding.redistribute(group, message)

    def forget_notes(self, ends: Mapping[str, int]) -> None:
        """Forget notes up to these sequences: the engine has finished them, by broker."""
        for key in [key for key in self._delivered if key[1] <= ends.get(key[0], 0)]:
            self._delivered_count -= len(self._delivered.pop(key))

    def _forget_some(self) -> None:
        """Forget the progress of engines that have handed over nothing for longest."""
        while len(self._progress) > ENGINE_HISTORIES_MAX:
            key = next(iter(self._progress))
            del self._progress[key]
            self._shared.journal.save_heard(key, None)

    # The backlog ----------------------------------------------------------------------------------

    def _backlog(self, space: str) -> _SpaceBacklog:
        found = self._backlogs.get(space)
        if found is None:
            found = self._backlogs[space] = _SpaceBacklog()
        return found

    def tick(self) -> None:
        """Update gauges, and log if publications wait and no engine asks."""
        gauges, now = self._shared.gauges, self._shared.now
        waiting = [second for one in self._backlogs.values() for second in one.seconds]
        gauges.engine_rows_waiting = sum(second.rows for second in waiting)
        oldest = min((second.at for second in waiting), default=now)
        gauges.engine_wait_seconds = round(max(now - oldest, 0))
        is_silent = min(now - oldest, now - self._asked_at) >= ENGINE_SILENT_SECONDS
        if is_silent and not self._is_silent:
            log.warning(
                "no engine has asked for %d seconds, and publications wait for one: %s",
                round(now - self._asked_at),
                f"{gauges.engine_rows_waiting:,}",
            )
        elif self._is_silent and not is_silent:
            log.warning("an engine asks for publications again")
        self._is_silent = is_silent
        gauges.engine_silent = int(is_silent)


def _key(*names: str) -> int:
    """Return a key below zero: keys from 0 are broker streams (peering/stream_positions.py)."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return -1 - (int.from_bytes(digest) >> 1)
