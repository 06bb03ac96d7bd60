"""The life of sessions (section 4.1): from a client's first CONNECT to their end. Pure.

    begin --> connected --close--> waiting --expiry--> end
                  ^                   |
                  +---- CONNECT ------+

- A client identifier has one session, which belongs to one user (broker/auth/session_owner.py). A
  new connection takes over from the old one.
- A session without an expiry interval ends with its connection. A persistent session ends when its
  expiry interval is over.
- An ended session is gone only when the disk has forgotten it (`is_being_deleted`). A client that
  comes back waits for that, because a crash could still restore the session.
- Undelivered group messages of an ended session go to other members. Each moves from row to row in
  one batch, and the session's own row goes last. So after a crash every message has a session.
- An ended session may leave many subscriptions and messages. It stops receiving at once, and is
  cleared in slices.
- The broker publishes a will once: when its delay after a lost connection is over, or when the
  session ends, if that is earlier.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from dovetail.broker.dispatch import Dispatch
from dovetail.broker.limits import ENTRIES_PER_PIECE
from dovetail.broker.outgoing_message import OutgoingMessage
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.session_observer import SessionObserver
from dovetail.broker.shared_state import SharedState
from dovetail.broker.timers import Timers
from dovetail.codec.packets import Connect, Will
from dovetail.errors import ReasonCode
from dovetail.messages import Message
from dovetail.slices import SliceScheduler, Work, run_slice

log = logging.getLogger("dovetail.broker")


class _WaitingClient(NamedTuple):
    """A client that waits until its last session is deleted on disk."""

    user: str | None
    act: Callable[[bool], None]


class SessionLifetimes:
    """The sessions of one broker. It publishes their wills with `publish`."""

    def __init__(
        self,
        shared: SharedState,
        slices: SliceScheduler,
        router: Router,
        timers: Timers,
        dispatch: Dispatch,
        publish: Callable[[Message], None],
        *,
        wills_restored_seconds: float = 0.0,
    ) -> None:
        """Restored wills wait `wills_restored_seconds`: other brokers may have published them."""
        self.sessions: dict[str, Session] = {}
        """By client identifier."""
        self._being_deleted: dict[str, _WaitingClient | None] = {}
        """Clients whose ended session is still on disk, and the connection that waits for it."""
        self._ends: Counter[str] = Counter()
        """The number of ended sessions of each of these clients."""
        self._observers: list[SessionObserver] = []
        self._wills_restored_seconds = wills_restored_seconds
        self._waiting_wills: dict[str, Session] = {}
        """Restored sessions that have ended but whose will still waits."""
        self._shared = shared
        self._slices = slices
        self._router = router
        self._timers = timers
        self._dispatch = dispatch
        self._publish = publish

    def observe(self, observer: SessionObserver) -> None:
        """Tell this observer of every later change."""
        self._observers.append(observer)

    # A client comes -----------------------------------------------------------------------------

    def end_previous(self, packet: Connect, user: str | None) -> None:
        """Close the client's other connection, and end its session on a clean start.

        The session also ends if this user may not resume it: its messages are not for them.
        """
        session = self.sessions.get(packet.client_id)
        if session is not None and session.link is not None:
            # [MQTT-3.1.4-3]; a session that is not persistent ends here.
            session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
            session = self.sessions.get(packet.client_id)
        if session is None:
            return
        may_resume = self._shared.ownership.may_resume(session.user, user)
        if packet.clean_start or not may_resume:  # [MQTT-3.1.2-4]
            self.end(session)

    def has_room_for(self, client_id: str) -> bool:
        """Does the client have a session, or is there room for one more?"""
        is_known = client_id in self.sessions
        return is_known or len(self.sessions) < self._shared.limits.sessions_max

    def session_for(self, client_id: str, user: str | None) -> tuple[Session, bool]:
        """Return the client's session, and whether it existed [MQTT-3.2.2-2], [MQTT-3.2.2-3]."""
        session = self.sessions.get(client_id)
        if session is not None:  # [MQTT-3.1.2-5]
            self._timers.cancel(("expiry", session.number))
            self._timers.cancel(("will", session.number))  # [MQTT-3.1.3-9]
            return session, True
        return self._new(client_id, user), False

    def _new(self, client_id: str, user: str | None) -> Session:
        last = self._waiting_wills.get(client_id)
        if last is not None and self._shared.ownership.may_resume(last.user, user):
            self._drop_waiting_will(client_id)  # its client is back
        elif last is not None:
            self._publish_will(last)
        number = self._shared.journal.new_session_number()
        session = self.sessions[client_id] = Session(self._shared, number, client_id)
        return session

    def begin(
        self,
        session: Session,
        user: str | None,
        expiry_seconds: int,
        will: Will | None,
        stamp: int = 0,
    ) -> None:
        """Give a session the user, expiry, will and stamp of its new connection."""
        session.stamp = stamp
        session.user = user
        session.expiry_seconds = expiry_seconds
        session.ended_at = None
        session.will = will
        if session.persistent or session.stored or will is not None:
            session.save()
        self._report_persistence(session)
        self._report_will(session)

    def _report_will(self, session: Session) -> None:
        for observer in self._observers:
            observer.will_changed(session)

    def _report_persistence(self, session: Session) -> None:
        for observer in self._observers:
            observer.persistence_changed(session.client_id, session.persistent)

    # From and to other brokers --------------------------------------------------------------------

    def begin_handed_over(self, client_id: str, user: str | None, expiry_seconds: int) -> Session:
        """Begin and return a session for the hand-over from another broker.

        Its client connects later.
        """
        session = self._new(client_id, user)
        session.user = user
        session.expiry_seconds = expiry_seconds
        session.ended_at = self._shared.now
        self._expire_later(session)
        self._report_persistence(session)
        return session

    def hand_over(self, session: Session, held: Collection[OutgoingMessage]) -> None:
        """Give up a session that another broker has taken over, except the entries in `held`.

        Its subscriptions stay for a while.
        """
        self._timers.cancel(("expiry", session.number))
        self._timers.cancel(("will", session.number))  # [MQTT-3.1.3-9]
        del self.sessions[session.client_id]
        session.will = None
        session.clear_messages(held)
        self._report_will(session)

    def unsubscribe_all(self, session: Session) -> None:
        """Remove all subscriptions of a session that continues."""
        for topic_filter in list(session.subscriptions):
            self._router.unsubscribe(session, topic_filter)
            if session.stored:
                self._shared.journal.save_subscription(session.number, topic_filter, None)

    def clear(self, session: Session) -> None:
        """Clear a session that is no longer in `sessions`."""
        self._end_and_clear(session)

    # A client goes ------------------------------------------------------------------------------

    def disconnected(self, session: Session, *, with_will: bool) -> None:
        """Detach a session from its closed connection; end it if it is not persistent."""
        session.link = None
        session.take_apart()
        now = self._shared.now
        log.debug("%r disconnected", session.client_id)
        if not with_will:
            session.will = None  # [MQTT-3.1.2-10]
        if not session.persistent:
            self.end(session)
            return
        self._report_will(session)
        if self._router.is_in_groups(session):
            self._slices.begin(self._router.presence_changed(session))
        if session.will is not None:
            delay = session.will.delay_seconds
            if delay:
                self._publish_will_at(session, now + delay)
            else:
                self._publish_will(session)
        session.ended_at = now
        session.save()
        self._expire_later(session)

    def suspend(self, session: Session) -> None:
        """Store a session when the broker stops.

        Its will stays in the row, to be published if the client does not come back.
        """
        session.link = None
        session.take_apart()
        session.ended_at = self._shared.now
        session.save()

    def restore(self, session: Session) -> None:
        """Take a session from disk, as if its connection had just been lost."""
        if session.ended_at is None:
            session.ended_at = self._shared.now
            session.save()
        not_before = self._shared.now + self._wills_restored_seconds
        if not session.persistent:
            if session.will is None or not self._wills_restored_seconds:
                self.end(session)
                return
            del self.sessions[session.client_id]
            self._waiting_wills[session.client_id] = session
            self._publish_will_at(session, not_before)
            return
        self._report_persistence(session)
        if session.will is not None:
            due = session.ended_at + session.will.delay_seconds
            self._publish_will_at(session, max(due, not_before))
        self._expire_later(session)

    # The end ------------------------------------------------------------------------------------

    def _expire_later(self, session: Session) -> None:
        if not session.never_expires and session.ended_at is not None:
            when = session.ended_at + session.expiry_seconds
            self._timers.set(("expiry", session.number), when, partial(self._expire, session))

    def _expire(self, session: Session) -> None:
        if session.link is None and self.sessions.get(session.client_id) is session:
            self._shared.counters.sessions_expired += 1
            self.end(session)  # [MQTT-4.1.0-2]

    def end(self, session: Session) -> None:
        """End a session, and publish its will if one still waits [MQTT-3.1.2-8]."""
        if session.ended_at is not None:  # otherwise it has no timers
            self._timers.cancel(("expiry", session.number))
            self._timers.cancel(("will", session.number))
        del self.sessions[session.client_id]
        will, session.will = session.will, None
        if session.was_persistent:
            self._being_deleted.setdefault(session.client_id, None)
            self._ends[session.client_id] += 1
        self._end_and_clear(session, is_awaited=session.was_persistent)
        for observer in self._observers:
            observer.persistence_changed(session.client_id, False)
            observer.session_ended(session)
        if will is not None:
            self._publish(will_message(will, session.client_id, self._shared.now))
        self._report_will(session)

    def _end_and_clear(self, session: Session, *, is_awaited: bool = False) -> None:
        """End a session at once, and clear its subscriptions and entries in slices.

        With `is_awaited` its client may wait until the disk has forgotten it.
        """
        left = session.end()
        if left or session.subscriptions or session.stored or is_awaited:
            self._slices.begin(self._clear(session, left, is_awaited=is_awaited))

    def _clear(self, session: Session, left: deque[OutgoingMessage], *, is_awaited: bool) -> Work:
        retiring = self._router.retire(session)
        run_slice(retiring)
        shared = [entry for entry in left if entry.may_be_shared]
        for place, entry in enumerate(shared, 1):
            self._dispatch.redistribute(entry)
            session.queue.drop_row(entry)
            if not place % ENTRIES_PER_PIECE:
                yield
        session.delete_rows()
        if is_awaited:
            self._note_when_deleted(session.client_id)
        while left:
            for _ in range(min(len(left), ENTRIES_PER_PIECE)):
                session.queue.forget(left.popleft())
            if left:
                yield
        yield from retiring

    def is_being_deleted(self, client_id: str) -> bool:
        """Is an ended session of this client still on disk?"""
        return client_id in self._being_deleted

    def when_deleted(self, client_id: str, user: str | None, act: Callable[[bool], None]) -> None:
        """Call `act` with True when the disk has forgotten the session, with False if that fails.

        If another connection of this client waits already, it gets False at once.
        """
        before = self._being_deleted[client_id]
        self._being_deleted[client_id] = _WaitingClient(user, act)
        if before is not None:
            before.act(False)

    def may_connect(self, client_id: str, user: str | None) -> bool:
        """May this user connect, as far as the owners of the client's sessions are concerned?"""
        if client_id not in self.sessions and client_id not in self._being_deleted:
            return True
        may_connect = self._shared.ownership.may_connect
        return all(may_connect(owner, user) for owner in self.owners(client_id))

    def owners(self, client_id: str) -> set[str | None]:
        """Return the users that have a session under this identifier, or wait for one."""
        session, waiter = self.sessions.get(client_id), self._being_deleted.get(client_id)
        return {one.user for one in (session, waiter) if one is not None}

    def _note_when_deleted(self, client_id: str) -> None:
        """Call the waiter when everything written so far is on disk."""

        def settle(stored: bool) -> None:
            waiter = self._being_deleted[client_id]
            if not stored:
                self._being_deleted[client_id] = None
                self._shared.journal.wait_on(settle)
            else:
                self._ends[client_id] -= 1
                if self._ends[client_id]:
                    return  # another of its sessions has ended since
                del self._ends[client_id], self._being_deleted[client_id]
            if waiter is not None:
                waiter.act(stored)

        self._shared.journal.when_stored(settle)

    # Wills --------------------------------------------------------------------------------------

    def _publish_will_at(self, session: Session, when: float) -> None:
        self._timers.set(("will", session.number), when, partial(self._publish_will, session))

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        if will is None:
            return
        if self._waiting_wills.get(session.client_id) is session:
            self._drop_waiting_will(session.client_id)
        elif session.stored:
            session.save()
        self._publish(will_message(will, session.client_id, self._shared.now))
        self._report_will(session)

    def drop_will(self, session: Session) -> None:
        """Discard a will without publishing it."""
        session.will = None
        if session.stored:
            session.save()
        self._report_will(session)

    def will_is_done(self, client_id: str, stamp: int) -> None:
        """Discard a will that another broker has published, or whose client is back there."""
        last = self._waiting_wills.get(client_id)
        if last is not None and last.stamp == stamp:
            self._drop_waiting_will(client_id)
        session = self.sessions.get(client_id)
        if session is not None and session.stamp == stamp and session.link is None:
            self._timers.cancel(("will", session.number))
            session.will = None
            if session.stored:
                session.save()

    def _drop_waiting_will(self, client_id: str) -> None:
        session = self._waiting_wills.pop(client_id, None)
        if session is not None:
            self._timers.cancel(("will", session.number))
            self.clear(session)


def will_message(will: Will, client_id: str, now: float) -> Message:
    expiry = will.expiry_seconds
    return Message(
        will.topic,
        will.payload,
        will.qos,
        will.retain,
        will.properties,
        None if expiry is None else now + expiry,
        client_id,
        is_orphan=True,
    )
