"""What is special about a session that arrives from another broker, or that has moved on. Pure.

    arriving   its client is here, or on its way here; some of what it is owed still comes by way of
               the last broker
    ghost      it has moved on; what still comes here for it is handed on to its new broker

Rules:

- A detour is in its session's row, so that it goes on after a crash.
- While a session has a guard, nothing is taken straight from the brokers in it: what they publish
  comes by way of the last broker, once and in order.
- A ghost is a session without a client that has its subscriptions only. It hands on what comes from
  brokers for which it is open, and what a group picked it for. When it is open for nobody it says
  End, and it is buried when nobody guards against it either; in any case after a day.
- A ghost of a session that was still arriving holds back what comes straight, as the session did,
  until all has come by way of the last broker.
- Where a client has more than GHOSTS_PER_CLIENT_MAX of them, because a broker is down and no ghost
  can be closed for it, the two oldest become one. What that broker publishes in the moment of its
  return may come twice then.
- Until its new broker has said that it has the session, whoever asks for it finds it here: a trace
  of it stays in our sketch (traces.py).
- A session may arrive and move on again before it has arrived: then its ghost has a guard, too.
- A session that ends before all have written their Notes is over at the brokers that it came from,
  too: a Note that is clean says so, and their ghosts hand on nothing more. Until they have it we
  remember the end (`ended`): who hears of them that the session is on its way here can ask us.
- Two users may have sessions under one client identifier, if they began them on both sides of a cut
  (ownership.py). What is said about one's session is not about the other's.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct

from dovetail.broker.lifetimes import Lifetimes
from dovetail.broker.outgoing import ARRIVED_SEQUENCES, Outgoing
from dovetail.broker.peering.items import End, Entry, Move, Note, packed
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.session import Session
from dovetail.broker.state import GROUP_SOURCE, Shared
from dovetail.config import FORGET_SECONDS, GHOSTS_PER_CLIENT_MAX
from dovetail.messages import Message

NEVER_BEGUN = -1
"""The stamp of a session that is here before its client was ever let in."""

Post = Callable[[str, Message, bool, "Ticket | None"], None]
"""An item to a peer's outbox; the flag: whether or not there is room."""


class _Row(Struct, array_like=True):
    """A detour on disk."""

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


def has_moved_on(row: bytes) -> bool:
    """Is a session with this detour on disk at another broker?"""
    return bool(row) and bool(msgspec.msgpack.decode(row, type=_Row).owner)


class Detour:
    """One session's."""

    def __init__(self, detours: "Detours", since: float) -> None:
        self._detours = detours
        self.since = since
        # Of one that arrives:
        self.guard: set[str] = set()
        """From whom nothing is taken straight. Empty stands for this broker."""
        self.guard_stamp = 0
        """Of the connection that it follows."""
        self.holders: set[str] = set()
        """The last brokers. More than one if the cluster was cut, or if it has moved fast."""
        self.ending: set[str] = set()
        """Those of them who have not said End."""
        self.last_holder = ""
        """With whom the client was last: what was under way there is what it remembers."""
        self.last_stamp = 0
        """Of its connection there."""
        self.unready: set[str] = set()
        """From whom not all of that has come."""
        self.is_fresh = False
        """The last broker was down: its client has begun anew, and has its own subscriptions."""
        self.holds = False
        """Is what comes straight kept behind what is still arriving?"""
        self.hold_until = 0.0
        self.next_arrival = 1
        self.settled_at = 0.0
        """When those in the guard were last asked for their Notes."""
        # Of a ghost:
        self.owner = ""
        """Where the session went."""
        self.moved_stamp = 0
        """Of the connection that it followed there."""
        self.open: set[str] = set()
        """Whose publications still go there by way of here."""
        self.asked_at = 0.0
        """When they were last asked for their Notes."""
        self.has_ended = False
        self._written = b""
        """As its row was last."""

    def takes(
        self,
        session: Session,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
    ) -> bool:
        """Is a message for the session here? A ghost hands it on."""
        source = self._detours.shared.source
        if source in self.guard:
            return False
        if not self.owner:
            return True
        if source in self.open or source == GROUP_SOURCE:
            if self.holds:
                session.arrive_late(message, qos, retain, identifiers)
            else:
                entry = Outgoing(message, qos, retain, identifiers, 0)
                self._detours.hand_on(session, entry)
        return False

    @property
    def is_on_its_way(self) -> bool:
        """Is the new broker still to say that it has the session?"""
        return self.owner in self.open

    @property
    def is_over(self) -> bool:
        return not (self.guard or self.owner or self.holds or self.unready)

    @property
    def has_changed(self) -> bool:
        """Since its row was last made."""
        return self._written != self._row()

    def row(self) -> bytes:
        self._written = self._row()
        return self._written

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


class Detours:
    """Those of all sessions of one broker."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        lifetimes: Lifetimes,
        *,
        post: Post,
        members: Callable[[], Iterable[str]],
        is_live: Callable[[str], bool],
        trace: Callable[[str, bool], None],
    ) -> None:
        """`trace`: tell the peers that a session of this client is here, or is not."""
        self.shared = shared
        self.members = members
        """All other brokers that are known, there or not."""
        self.ghosts: dict[str, list[Session]] = {}
        """By client identifier; the latest last."""
        self.arriving: set[Session] = set()
        self.holding: set[Session] = set()
        """Those, and ghosts, that hold back what comes straight."""
        self._ended: dict[tuple[str, str | None], int] = {}
        """By client identifier and user the last connection whose session came here and has ended,
        until the brokers that it came from know."""
        self._name = name
        self._lifetimes = lifetimes
        self._post = post
        self._is_live = is_live
        self._trace = trace
        lifetimes.kept = self._kept
        lifetimes.ended = self._end

    def begin(self, session: Session) -> Detour:
        """The session's; a new one if it has none."""
        detour = session.detour
        if detour is None:
            detour = session.detour = Detour(self, self.shared.now)
        assert isinstance(detour, Detour)
        return detour

    # After a start --------------------------------------------------------------------------------

    def restore(self, session: Session, row: bytes) -> bool:
        """From disk; True for a ghost."""
        if not row:
            return False
        read = msgspec.msgpack.decode(row, type=_Row)
        # The day is counted from this start on: the clock may have jumped since the last one.
        detour = session.detour = Detour(self, self.shared.now)
        detour.restore(read)
        if not detour.owner:
            self.arriving.add(session)
            return False
        ghosts = self.ghosts.setdefault(session.client_id, [])
        ghosts.append(session)
        ghosts.sort(key=lambda ghost: detour_of(ghost).moved_stamp)
        return True

    def restored(self) -> None:
        """With all that was on its way: where arrivals go on."""
        for session in self.arriving:
            arrived = [
                entry.sequence
                for entry in (*session.inflight.values(), *session.queue)
                if entry.sequence < ARRIVED_SEQUENCES
            ]
            detour_of(session).next_arrival = max(arrived, default=0) + 1
            session.next_sequence = max(session.next_sequence, ARRIVED_SEQUENCES)
        for client_id in self.ghosts:
            self._trace_again(client_id)
        for ghost in self.all_ghosts():
            self._hand_on_held(ghost)  # by the last life

    # Whose, and where -----------------------------------------------------------------------------

    def newest(self, client_id: str, user: str | None) -> int:
        """The stamp of the client's last connection that its session here is of, or follows."""
        session = self._lifetimes.sessions.get(client_id)
        if session is None or session.user != user:
            return NEVER_BEGUN
        if session.detour is None:
            return session.stamp
        return max(session.stamp, detour_of(session).guard_stamp)

    def following(self, client_id: str, stamp: int) -> Session | None:
        """The session that arrives for this connection, or arrived and has moved on since."""
        for session in self._with_detours(client_id):
            detour = detour_of(session)
            if detour.guard_stamp == stamp and not detour.is_fresh:
                return session
        return None

    def arriving_with(self, client_id: str, stamp: int) -> Session | None:
        """The session that arrives for this connection, if it still does."""
        session = self._lifetimes.sessions.get(client_id)
        if session is None or session.detour is None:
            return None
        detour = detour_of(session)
        return session if detour.guard_stamp == stamp and not detour.is_fresh else None

    def is_unready(self, client_id: str) -> bool:
        """Is it not whole yet?"""
        session = self._lifetimes.sessions.get(client_id)
        return (
            session is not None and session.detour is not None and bool(detour_of(session).unready)
        )

    def begin_anew(self, session: Session) -> None:
        """Its client is told so, and the rest of it will be late, but for messages."""
        detour = detour_of(session)
        detour.is_fresh = True
        detour.unready.clear()
        session.requeue()
        session.stamp = NEVER_BEGUN
        session.save()

    def ghost_after(self, client_id: str, user: str | None, stamp: int) -> Session | None:
        """The session that has moved on from here since then; no item goes in circles."""
        for ghost in reversed(self._ghosts_of(client_id, user)):
            if detour_of(ghost).moved_stamp > stamp:
                return ghost
        return None

    def ghost_with(self, client_id: str, stamp: int) -> Session | None:
        """The session that arrived for this connection, and has moved on."""
        for ghost in self.ghosts.get(client_id, ()):
            if detour_of(ghost).guard_stamp == stamp:
                return ghost
        return None

    def last_move(self, client_id: str, user: str | None) -> tuple[str, int] | None:
        """Where its session went from here, and behind which connection, if it may not be there."""
        ghosts = self._ghosts_of(client_id, user)
        if not ghosts:
            return None
        last = detour_of(ghosts[-1])
        return (last.owner, last.moved_stamp) if last.is_on_its_way else None

    def owners(self, client_id: str) -> set[str | None]:
        """The users whose session under this identifier is here, or on its way from here."""
        ghosts = self.ghosts.get(client_id, ())
        users = {ghost.user for ghost in ghosts if detour_of(ghost).is_on_its_way}
        return users | self._lifetimes.owners(client_id)

    def of_client(self, client_id: str, user: str | None) -> list[Session]:
        """All sessions of the client that have one."""
        return [session for session in self._with_detours(client_id) if session.user == user]

    def _ghosts_of(self, client_id: str, user: str | None) -> list[Session]:
        return [ghost for ghost in self.ghosts.get(client_id, ()) if ghost.user == user]

    def _with_detours(self, client_id: str) -> list[Session]:
        sessions = list(self.ghosts.get(client_id, ()))
        session = self._lifetimes.sessions.get(client_id)
        if session is not None and session.detour is not None:
            sessions.append(session)
        return sessions

    def all_ghosts(self) -> Iterator[Session]:
        for ghosts in self.ghosts.values():
            yield from ghosts

    # Traces ---------------------------------------------------------------------------------------

    def _kept(self, client_id: str, is_kept: bool) -> None:
        """Does its session here outlive its connection? One on its way from here is here, too."""
        ghosts = self.ghosts.get(client_id, ())
        self._trace(client_id, is_kept or any(detour_of(ghost).is_on_its_way for ghost in ghosts))

    def _trace_again(self, client_id: str) -> None:
        session = self._lifetimes.sessions.get(client_id)
        self._kept(client_id, session is not None and session.persistent)

    # Items ----------------------------------------------------------------------------------------

    def put(self, name: str, item: Move) -> None:
        """What has to come there."""
        self._post(name, packed(item), True, None)

    def tell(self, names: Iterable[str], item: Move) -> None:
        """Those of them that are known here."""
        for name in self.known(names):
            self.put(name, item)

    def known(self, names: Iterable[str]) -> list[str]:
        """A broker that was forgotten here, and not yet elsewhere, stays so."""
        return sorted({*names} & {*self.members()})

    def hand_on(self, ghost: Session, entry: Outgoing) -> None:
        """To its new broker, if there is room in its outbox."""
        detour = detour_of(ghost)
        item = entry_item(ghost, detour.moved_stamp, entry)
        self._post(detour.owner, packed(item), False, None)

    # The end --------------------------------------------------------------------------------------

    def _end(self, session: Session) -> None:
        """The brokers that it came from need not hand on to it, nor look for it here."""
        if session.detour is None:
            return
        client_id, user = key = session.client_id, session.user
        detour = detour_of(session)
        stamp = max(session.stamp, detour.guard_stamp)
        self.void(client_id, user, stamp)
        if detour.is_fresh:
            return  # it did not come from them: they were down
        note = Note(client_id, stamp, self._name, True, user)
        ticket = Ticket()
        for name in self.known(detour.holders):
            self._post(name, packed(note), True, ticket)
        self._ended[key] = stamp

        def told(_taken: bool) -> None:
            if self._ended.get(key) == stamp:
                del self._ended[key]

        ticket.close(told)

    def last_end(self, client_id: str, user: str | None) -> int:
        """Of the last connection whose session came here and ended, while others may not know."""
        return self._ended.get((client_id, user), NEVER_BEGUN)

    def was_here(self, client_id: str, user: str | None, stamp: int) -> bool:
        """Did the session come that followed this connection, and end or move on since?"""
        return stamp <= self.last_end(client_id, user) or any(
            stamp <= ghost.stamp for ghost in self._ghosts_of(client_id, user)
        )

    def void(self, client_id: str, user: str | None, stamp: int) -> None:
        """The session that followed its client there has ended: nothing is handed on any more.

        A ghost stays while others may say that its session is on its way here.
        """
        for ghost in self._ghosts_of(client_id, user):
            detour = detour_of(ghost)
            if detour.moved_stamp <= stamp:
                self._lifetimes.unsubscribe_all(ghost)
                ghost.empty()
                detour.open.clear()
                detour.holds = False
                detour.has_ended = True
                self.changed(ghost)

    # Step by step ---------------------------------------------------------------------------------

    def changed(self, session: Session) -> None:
        """A step further: it may be over."""
        if session.detour is None:
            return
        detour = detour_of(session)
        if detour.owner:
            self.check_ghost(session)
            self._trace_again(session.client_id)
        elif detour.is_over and not (detour.is_fresh and session.stamp == NEVER_BEGUN):
            session.detour = None
            self.arriving.discard(session)
        if session.stored and (session.detour is None or detour.has_changed):
            session.save()

    def check_ghost(self, ghost: Session) -> None:
        """Has all that comes by way of here come?"""
        detour = detour_of(ghost)
        waits_for = {name for name in detour.open if not name or self._is_live(name)}
        if detour.holds:
            return
        if not waits_for and not detour.has_ended:
            detour.has_ended = True
            self.put(detour.owner, End(ghost.client_id, detour.moved_stamp))
        if not detour.open and not detour.guard:
            self.bury(ghost)

    def add_ghost(self, ghost: Session) -> None:
        """The latest of its client."""
        self.ghosts.setdefault(ghost.client_id, []).append(ghost)
        ghosts = self._ghosts_of(ghost.client_id, ghost.user)
        if len(ghosts) > GHOSTS_PER_CLIENT_MAX:
            self._become_one(*ghosts[:2])

    def _become_one(self, older: Session, newer: Session) -> None:
        """The newer one takes what both would have."""
        self.release(older)
        if self.has_ended(older):
            return
        before, detour = detour_of(older), detour_of(newer)
        if not before.has_ended:
            self.put(before.owner, End(older.client_id, before.moved_stamp))
        detour.guard -= before.open - before.guard
        detour.open |= before.open
        newer.save()
        self.bury(older)

    def bury(self, ghost: Session) -> None:
        self.holding.discard(ghost)
        ghosts = self.ghosts[ghost.client_id]
        ghosts.remove(ghost)
        if not ghosts:
            del self.ghosts[ghost.client_id]
        self._lifetimes.bury(ghost)

    def release(self, session: Session) -> None:
        """What came straight may go to the client: the rest has come, or is not waited for."""
        detour = detour_of(session)
        detour.holds = False
        self.holding.discard(session)
        if detour.owner:
            self._hand_on_held(session)
        self.changed(session)
        session.pump(self.shared.now)

    def _hand_on_held(self, ghost: Session) -> None:
        for entry in ghost.queue:
            self.hand_on(ghost, entry)
        ghost.empty()

    def has_ended(self, session: Session) -> bool:
        """Is it neither here nor a ghost any more? Its ghosts elsewhere ask for their Notes."""
        client_id = session.client_id
        is_here = self._lifetimes.sessions.get(client_id) is session
        return not is_here and session not in self.ghosts.get(client_id, ())

    def look(self, session: Session, now: float) -> None:
        """From time to time."""
        if session.detour is None or self.has_ended(session):
            self.arriving.discard(session)
            self.holding.discard(session)
            return
        detour = detour_of(session)
        if not detour.owner:
            if detour.is_over:
                self.changed(session)
        elif detour.since + FORGET_SECONDS <= now:
            self.bury(session)
            self._trace_again(session.client_id)
        elif not detour.has_ended:
            self.check_ghost(session)

    def liveness_changed(self) -> None:
        """A ghost does not wait for who is not there."""
        for ghost in list(self.all_ghosts()):
            if not detour_of(ghost).has_ended:
                self.check_ghost(ghost)

    def forget(self, name: str) -> None:
        """This broker will not come back."""
        for session in [*self.arriving, *self.all_ghosts()]:
            detour = detour_of(session)
            for names in (
                detour.guard,
                detour.holders,
                detour.ending,
                detour.unready,
                detour.open,
            ):
                names.discard(name)
            if detour.owner == name:
                detour.open.clear()
                detour.guard.clear()
            self.changed(session)


def detour_of(session: Session) -> Detour:
    assert isinstance(session.detour, Detour)
    return session.detour


def entry_item(session: Session, stamp: int, entry: Outgoing) -> Entry:
    message = entry.message
    return Entry(
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
