"""Redirects: the state of a session that is arriving, or that has moved on. Pure.

    arriving   the client is here or on its way here; some messages still come through the last
               broker
    ghost      the session has moved on; messages that still come here go on to its new broker

Rules:

- A redirect is part of its session's row, so that it survives a crash.
- A guard names brokers. While a session guards against a broker it takes nothing directly from it:
  that broker's publications come through the last broker, once and in order.
- A ghost is a session without a client; it has its subscriptions only. It redirects publications of
  the brokers for which it is open, and messages for which a group picked it. When it is open for no
  broker it ends the redirect. It is deleted when it is open for no broker and guards against none,
  at the latest after a day.
- The ghost of a session that was still arriving holds back direct messages, as the session did,
  until everything has come through the last broker.
- A client has at most GHOSTS_PER_CLIENT_MAX ghosts. There are more while a broker is down, because
  no ghost can be closed for it; then the two oldest become one. It takes what either would have: a
  broker leaves its guard by the marker that the older one waited for. A publication of that broker
  in the moment of its return may come twice then.
- Until the new broker has confirmed the session, other brokers find it here: our sketch keeps its
  trace (directory.py).
- A session may move on before it has arrived. Then its ghost has a guard, too.
- A session may end before all brokers have written their markers. Then it is over at the brokers
  that it came from, too: a clean marker tells them, and their ghosts stop redirecting. Until they
  have the marker we remember the end (`ended`), for brokers that still expect the session here.
- Two users may have sessions under one client identifier, if they began on both sides of a cut
  (broker/auth/session_owner.py). A marker about one of them does not concern the other.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct

from dovetail.broker.outgoing_message import ARRIVED_SEQUENCES, OutgoingMessage
from dovetail.broker.peering.control_messages import (
    HandoverMessage,
    MoveMessage,
    RedirectEnd,
    RerouteMarker,
    pack,
)
from dovetail.broker.peering.roaming.limits import GHOSTS_PER_CLIENT_MAX
from dovetail.broker.peering.tickets import Post, Ticket
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.session_observer import SessionObserver
from dovetail.broker.shared_state import GROUP_SOURCE, SharedState
from dovetail.limits import FORGET_SECONDS
from dovetail.messages import Message

NEVER_BEGUN = -1
"""The stamp of a session that is here before its client was ever let in."""


class _Row(Struct, array_like=True):
    """A redirect on disk."""

    guard: list[str]
    guard_stamp: int
    holders: list[str]
    owner: str
    moved_stamp: int
    open: list[str]
    last_holder: str
    last_stamp: int
    unready: list[str]
    is_fresh: bool
    since: float
    earlier: dict[str, int] = {}
    has_messages_only: bool = False


def has_moved_on(row: bytes) -> bool:
    """Return whether a session with this row has moved to another broker."""
    return bool(row) and bool(msgspec.msgpack.decode(row, type=_Row).owner)


class Redirect:
    """The redirect of one session."""

    def __init__(self, redirects: "Redirects", since: float) -> None:
        self._redirects = redirects
        self.since = since
        # Of one that arrives:
        self.guard: set[str] = set()
        """Brokers from which nothing is taken directly. Empty stands for this broker."""
        self.guard_stamp = 0
        """The stamp of the connection that the session follows."""
        self.earlier: dict[str, int] = {}
        """Brokers that leave the guard by a marker of an earlier connection, and its stamp: an
        older ghost waited for that, and was merged into this one."""
        self.holders: set[str] = set()
        """The last brokers. More than one if the cluster was cut, or if it has moved fast."""
        self.ending: set[str] = set()
        """Those of them that have not ended their redirect."""
        self.last_holder = ""
        """The client's last broker: the client remembers what was in flight there."""
        self.last_stamp = 0
        """The stamp of its connection there."""
        self.unready: set[str] = set()
        """Brokers from which not all of that has come."""
        self.is_fresh = False
        """The last broker was down: its client has begun anew, and has its own subscriptions."""
        self.holds = False
        """Are direct messages held back behind those still arriving?"""
        self.hold_until = 0.0
        self.next_arrival = 1
        self.requested_at = 0.0
        """When we last asked the brokers in the guard for their markers."""
        # Of a ghost:
        self.owner = ""
        """Where the session went."""
        self.moved_stamp = 0
        """The stamp of the connection that it followed there."""
        self.open: set[str] = set()
        """Brokers whose publications still go there through this broker."""
        self.asked_at = 0.0
        """When we last asked them for their markers."""
        self.has_ended = False
        self.has_messages_only = False
        """Were there only messages that had come without their session?"""
        self._encoded = b""
        """Its row as it was last encoded."""

    def takes(
        self,
        session: Session,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
    ) -> bool:
        """Return whether the session here takes a message. A ghost redirects it."""
        source = self._redirects.shared.source
        if source in self.guard:
            return False
        if not self.owner:
            return True
        if source in self.open or source == GROUP_SOURCE:
            if self.holds:
                session.offer_late(message, qos, retain, identifiers)
            else:
                entry = OutgoingMessage(message, qos, retain, identifiers, 0)
                self._redirects.hand_on(session, entry)
        return False

    def wrote_marker(self, source: str, stamp: int) -> None:
        """Take a broker out of the guard, if its marker is about our connection or a later one."""
        if self.earlier.get(source, self.guard_stamp) <= stamp:
            self.guard.discard(source)
            self.earlier.pop(source, None)

    @property
    def is_on_its_way(self) -> bool:
        """Has the new broker not confirmed yet that it has the session?"""
        return self.owner in self.open

    @property
    def is_over(self) -> bool:
        return not (self.guard or self.owner or self.holds or self.unready)

    @property
    def has_changed(self) -> bool:
        """Has it changed since its row was last encoded?"""
        return self._encoded != self._row()

    def row(self) -> bytes:
        self._encoded = self._row()
        return self._encoded

    def _row(self) -> bytes:
        return msgspec.msgpack.encode(
            _Row(
                sorted(self.guard),
                self.guard_stamp,
                sorted(self.holders),
                self.owner,
                self.moved_stamp,
                sorted(self.open),
                self.last_holder,
                self.last_stamp,
                sorted(self.unready),
                self.is_fresh,
                self.since,
                self.earlier,
                self.has_messages_only,
            )
        )

    def restore(self, row: _Row) -> None:
        self.guard = set(row.guard)
        self.guard_stamp = row.guard_stamp
        self.holders = set(row.holders)
        self.owner = row.owner
        self.moved_stamp = row.moved_stamp
        self.open = set(row.open)
        self.last_holder = row.last_holder
        self.last_stamp = row.last_stamp
        self.unready = set(row.unready)
        self.is_fresh = row.is_fresh
        self.earlier = dict(row.earlier)
        self.has_messages_only = row.has_messages_only


class Redirects(SessionObserver):
    """The redirects of all sessions of one broker."""

    def __init__(
        self,
        name: str,
        shared: SharedState,
        lifetimes: SessionLifetimes,
        *,
        post: Post,
        members: Callable[[], Iterable[str]],
        is_live: Callable[[str], bool],
        trace: Callable[[str, bool], None],
    ) -> None:
        """`trace` tells the peers whether a session of this client is here."""
        self.shared = shared
        self.members = members
        """All other known brokers, live or not."""
        self.ghosts: dict[str, list[Session]] = {}
        """By client identifier; the latest last."""
        self.arriving: dict[Session, None] = {}
        """In the order in which they began to, so that a simulated cluster replays exactly."""
        self.holding: dict[Session, None] = {}
        """Arriving sessions and ghosts that hold back direct messages, in this order, too."""
        self._ended: dict[tuple[str, str | None], int] = {}
        """By client identifier and user: the stamp of the last session that came here and ended.
        Kept until the brokers that it came from know."""
        self._name = name
        self._lifetimes = lifetimes
        self._post = post
        self._is_live = is_live
        self._set_own_trace = trace
        lifetimes.observe(self)

    def begin(self, session: Session) -> Redirect:
        """Return the session's redirect; a new one if it has none."""
        redirect = session.redirect
        if redirect is None:
            redirect = session.redirect = Redirect(self, self.shared.now)
            redirect.next_arrival = _next_arrival(session)
        assert isinstance(redirect, Redirect)
        return redirect

    # After a start --------------------------------------------------------------------------------

    def restore(self, session: Session, row: bytes) -> bool:
        """Restore a session's redirect from disk; return True for a ghost."""
        if not row:
            return False
        read = msgspec.msgpack.decode(row, type=_Row)
        # The day is counted from this start on: the clock may have jumped since the last one.
        redirect = session.redirect = Redirect(self, self.shared.now)
        redirect.restore(read)
        if not redirect.owner:
            self.arriving[session] = None
            return False
        ghosts = self.ghosts.setdefault(session.client_id, [])
        ghosts.append(session)
        ghosts.sort(key=lambda ghost: redirect_of(ghost).moved_stamp)
        return True

    def restored(self) -> None:
        """Continue after a start, when all messages are restored."""
        for session in self.arriving:
            redirect_of(session).next_arrival = _next_arrival(session)
            session.next_sequence = max(session.next_sequence, ARRIVED_SEQUENCES)
        for client_id in self.ghosts:
            self._update_trace(client_id)
        for ghost in self.all_ghosts():
            self._hand_on_held(ghost)  # by the last life

    # Whose, and where -----------------------------------------------------------------------------

    def newest(self, client_id: str, user: str | None) -> int:
        """Return the stamp of the last connection that the client's session here follows."""
        session = self._lifetimes.sessions.get(client_id)
        if session is None or session.user != user:
            return NEVER_BEGUN
        if session.redirect is None:
            return session.stamp
        return max(session.stamp, redirect_of(session).guard_stamp)

    def following(self, client_id: str, stamp: int) -> Session | None:
        """Return the session that follows this connection here, even if it has moved on since."""
        for session in self._with_redirects(client_id):
            redirect = redirect_of(session)
            if redirect.guard_stamp == stamp and not redirect.is_fresh:
                return session
        return None

    def arriving_with(self, client_id: str, stamp: int) -> Session | None:
        """Return the session that is arriving for this connection."""
        session = self._lifetimes.sessions.get(client_id)
        if session is None or session.redirect is None:
            return None
        redirect = redirect_of(session)
        return session if redirect.guard_stamp == stamp and not redirect.is_fresh else None

    def is_unready(self, client_id: str) -> bool:
        """Return whether a part of the client's session has not arrived yet."""
        session = self._lifetimes.sessions.get(client_id)
        return (
            session is not None
            and session.redirect is not None
            and bool(redirect_of(session).unready)
        )

    def begin_anew(self, session: Session) -> None:
        """Begin the session anew. Of the rest, which is late, only messages will count."""
        redirect = redirect_of(session)
        redirect.is_fresh = True
        redirect.unready.clear()
        session.requeue()
        session.stamp = NEVER_BEGUN
        session.save()

    def ghost_after(self, client_id: str, user: str | None, stamp: int) -> Session | None:
        """Return the session that has moved on from here since; so no message goes in circles."""
        for ghost in reversed(self._ghosts_of(client_id, user)):
            if redirect_of(ghost).moved_stamp > stamp:
                return ghost
        return None

    def ghost_with(self, client_id: str, stamp: int) -> Session | None:
        """Return the session that arrived for this connection and has moved on."""
        for ghost in self.ghosts.get(client_id, ()):
            if redirect_of(ghost).guard_stamp == stamp:
                return ghost
        return None

    def last_move(self, client_id: str, user: str | None) -> tuple[str, int] | None:
        """Return owner and stamp of the client's last move from here, until it is confirmed.

        Messages that have left without their session do not count.
        """
        redirects = map(redirect_of, reversed(self._ghosts_of(client_id, user)))
        last = next((redirect for redirect in redirects if not redirect.has_messages_only), None)
        return (last.owner, last.moved_stamp) if last and last.is_on_its_way else None

    def possible_holders(self, client_id: str) -> set[str]:
        """Return brokers that may have a session that left us, whatever our sketch of them says.

        A broker confirms a session by its marker. If we were silent then, we may still lack the
        sketch with the session's trace.
        """
        redirects = map(redirect_of, self.ghosts.get(client_id, ()))
        return {redirect.owner for redirect in redirects if "" in redirect.open}

    def owners(self, client_id: str) -> set[str | None]:
        """Return the users with a session of this identifier here, or on its way from here."""
        ghosts = self.ghosts.get(client_id, ())
        users = {ghost.user for ghost in ghosts if redirect_of(ghost).is_on_its_way}
        return users | self._lifetimes.owners(client_id)

    def of_client(self, client_id: str, user: str | None) -> list[Session]:
        """Return all sessions of the client that have a redirect."""
        return [session for session in self._with_redirects(client_id) if session.user == user]

    def has_settled(self, client_id: str, user: str | None) -> bool:
        """Return whether the client's session is here, and everything for it comes directly."""
        session = self._lifetimes.sessions.get(client_id)
        return (
            session is not None
            and session.user == user
            and session.redirect is None
            and session.stamp != NEVER_BEGUN
        )

    def takes_from(self, session: Session, source: str) -> bool:
        """Return whether a broker's publications come to this session, or came before it moved on.

        Nothing that is published comes to one that only holds messages.
        """
        redirect = redirect_of(session)
        has_messages_only = redirect.has_messages_only
        if not redirect.owner:
            has_messages_only = session.stamp == NEVER_BEGUN and not redirect.is_fresh
        return not has_messages_only and source not in redirect.guard

    def _ghosts_of(self, client_id: str, user: str | None) -> list[Session]:
        return [ghost for ghost in self.ghosts.get(client_id, ()) if ghost.user == user]

    def _with_redirects(self, client_id: str) -> list[Session]:
        sessions = list(self.ghosts.get(client_id, ()))
        session = self._lifetimes.sessions.get(client_id)
        if session is not None and session.redirect is not None:
            sessions.append(session)
        return sessions

    def all_ghosts(self) -> Iterator[Session]:
        for ghosts in self.ghosts.values():
            yield from ghosts

    # Traces ---------------------------------------------------------------------------------------

    def persistence_changed(self, client_id: str, is_persistent: bool) -> None:
        """Set the client's trace. A session on its way from here still counts as here."""
        ghosts = self.ghosts.get(client_id, ())
        self._set_own_trace(
            client_id, is_persistent or any(redirect_of(ghost).is_on_its_way for ghost in ghosts)
        )

    def _update_trace(self, client_id: str) -> None:
        session = self._lifetimes.sessions.get(client_id)
        self.persistence_changed(client_id, session is not None and session.persistent)

    # Control messages -----------------------------------------------------------------------------

    def put(self, name: str, message: MoveMessage) -> None:
        """Put a control message into a broker's outbox, even if there is no room."""
        self._post(name, pack(message), True, None)

    def put_for_each(self, names: Iterable[str], message: MoveMessage) -> None:
        """Put a control message into the outboxes of those brokers that are known here."""
        for name in self.known(names):
            self.put(name, message)

    def known(self, names: Iterable[str]) -> list[str]:
        """Return those names that are members here. A forgotten broker stays forgotten."""
        return sorted({*names} & {*self.members()})

    def hand_on(self, ghost: Session, entry: OutgoingMessage) -> None:
        """Redirect a message to the session's new broker, if its outbox has room."""
        redirect = redirect_of(ghost)
        message = handover_message(ghost, redirect.moved_stamp, entry)
        self._post(redirect.owner, pack(message), False, None)

    # The end --------------------------------------------------------------------------------------

    def session_ended(self, session: Session) -> None:
        """Tell the brokers that an ended session came from that it has ended."""
        if session.redirect is None:
            return
        client_id, user = key = session.client_id, session.user
        redirect = redirect_of(session)
        stamp = max(session.stamp, redirect.guard_stamp)
        self.void(client_id, user, stamp)
        if redirect.is_fresh:
            return  # it did not come from them: they were down
        marker = RerouteMarker(client_id, stamp, self._name, True, user)
        ticket = Ticket()
        for name in self.known(redirect.holders):
            self._post(name, pack(marker), True, ticket)
        self._ended[key] = stamp

        def informed(_taken: bool) -> None:
            if self._ended.get(key) == stamp:
                del self._ended[key]

        ticket.close(informed)

    def last_end(self, client_id: str, user: str | None) -> int:
        """Return the stamp of the last session that came here and ended, until others know."""
        return self._ended.get((client_id, user), NEVER_BEGUN)

    def was_here(self, client_id: str, user: str | None, stamp: int) -> bool:
        """Return whether the session of this connection came here, and ended or moved on."""
        return stamp <= self.last_end(client_id, user) or any(
            stamp <= ghost.stamp for ghost in self._ghosts_of(client_id, user)
        )

    def void(self, client_id: str, user: str | None, stamp: int) -> None:
        """Stop redirecting for a client whose session has ended at its new broker.

        A ghost stays while others may say that its session is on its way here.
        """
        for ghost in self._ghosts_of(client_id, user):
            redirect = redirect_of(ghost)
            if redirect.moved_stamp <= stamp:
                self._lifetimes.unsubscribe_all(ghost)
                ghost.clear_messages()
                redirect.open.clear()
                redirect.holds = False
                redirect.has_ended = True
                self.changed(ghost)

    # Step by step ---------------------------------------------------------------------------------

    def changed(self, session: Session) -> None:
        """Save a redirect that has changed, and end it if it is over."""
        if session.redirect is None:
            return
        redirect = redirect_of(session)
        if redirect.owner:
            self.check_ghost(session)
            self._update_trace(session.client_id)
        elif redirect.is_over and not (redirect.is_fresh and session.stamp == NEVER_BEGUN):
            session.redirect = None
            self.arriving.pop(session, None)
        if session.stored and (session.redirect is None or redirect.has_changed):
            session.save()

    def check_ghost(self, ghost: Session) -> None:
        """End the redirect when everything has come through here; delete a ghost that is done."""
        redirect = redirect_of(ghost)
        waits_for = {name for name in redirect.open if not name or self._is_live(name)}
        if redirect.holds:
            return
        if not waits_for and not redirect.has_ended:
            redirect.has_ended = True
            self.put(redirect.owner, RedirectEnd(ghost.client_id, redirect.moved_stamp))
        if not redirect.open and not redirect.guard:
            self.clear(ghost)

    def add_ghost(self, ghost: Session) -> None:
        """Add the latest ghost of its client."""
        self.ghosts.setdefault(ghost.client_id, []).append(ghost)
        ghosts = self._ghosts_of(ghost.client_id, ghost.user)
        if len(ghosts) > GHOSTS_PER_CLIENT_MAX:
            self._merge(*ghosts[:2])

    def _merge(self, older: Session, newer: Session) -> None:
        """Merge two ghosts: the newer one takes what both would have."""
        self.release(older)
        if self.has_ended(older):
            return
        before, redirect = redirect_of(older), redirect_of(newer)
        if not before.has_ended:
            self.put(before.owner, RedirectEnd(older.client_id, before.moved_stamp))
        redirect.guard -= before.open - before.guard
        for name in sorted(before.open & redirect.guard):
            redirect.earlier[name] = before.earlier.get(name, before.guard_stamp)
        redirect.open |= before.open
        redirect.has_messages_only &= before.has_messages_only
        newer.save()
        self.clear(older)

    def clear(self, ghost: Session) -> None:
        self.holding.pop(ghost, None)
        ghosts = self.ghosts[ghost.client_id]
        ghosts.remove(ghost)
        if not ghosts:
            del self.ghosts[ghost.client_id]
        self._lifetimes.clear(ghost)

    def release(self, session: Session) -> None:
        """Release direct messages: the rest has come, or is not waited for."""
        redirect = redirect_of(session)
        redirect.holds = False
        self.holding.pop(session, None)
        if redirect.owner:
            self._hand_on_held(session)
        self.changed(session)
        session.pump(self.shared.now)

    def _hand_on_held(self, ghost: Session) -> None:
        for entry in ghost.queue.messages():
            self.hand_on(ghost, entry)
        ghost.clear_messages()

    def has_ended(self, session: Session) -> bool:
        """Return whether a session is neither here nor a ghost any more."""
        client_id = session.client_id
        is_here = self._lifetimes.sessions.get(client_id) is session
        return not is_here and session not in self.ghosts.get(client_id, ())

    def check(self, session: Session, now: float) -> None:
        """Check one session; called from time to time."""
        if session.redirect is None or self.has_ended(session):
            self.arriving.pop(session, None)
            self.holding.pop(session, None)
            return
        redirect = redirect_of(session)
        if not redirect.owner:
            if redirect.is_over:
                self.changed(session)
        elif redirect.since + FORGET_SECONDS <= now:
            self.clear(session)
            self._update_trace(session.client_id)
        elif not redirect.has_ended:
            self.check_ghost(session)

    def liveness_changed(self) -> None:
        """Check all ghosts: they do not wait for brokers that are not live."""
        for ghost in list(self.all_ghosts()):
            if not redirect_of(ghost).has_ended:
                self.check_ghost(ghost)

    def forget(self, name: str) -> None:
        """Forget a broker that will not return."""
        for session in [*self.arriving, *self.all_ghosts()]:
            redirect = redirect_of(session)
            for names in (
                redirect.guard,
                redirect.holders,
                redirect.ending,
                redirect.unready,
                redirect.open,
            ):
                names.discard(name)
            if redirect.owner == name:
                redirect.open.clear()
                redirect.guard.clear()
            self.changed(session)


def _next_arrival(session: Session) -> int:
    """Return the next sequence of an arriving message: an earlier redirect may have used some."""
    arrived = [
        entry.sequence
        for entry in (*session.inflight.values(), *session.queue.messages())
        if entry.sequence < ARRIVED_SEQUENCES
    ]
    return max(arrived, default=0) + 1


def redirect_of(session: Session) -> Redirect:
    assert isinstance(session.redirect, Redirect)
    return session.redirect


def handover_message(session: Session, stamp: int, entry: OutgoingMessage) -> HandoverMessage:
    message = entry.message
    return HandoverMessage(
        session.client_id,
        stamp,
        session.user,
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        message.expires_at,
        message.origin,
        entry.qos,
        entry.retain,
        entry.packet_id,
        entry.released,
        entry.identifiers,
    )
