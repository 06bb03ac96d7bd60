"""A client's session follows it from broker to broker, with all that it is owed. Pure.

A client of broker A connects to broker B:

    B -- CLAIM: client, stamp ------------------> all that are there
    B <- CLAIMED: nothing here / it moves / there is a newer one
    A == Header, Filters, Entry..., Ready ======> B     the session; B lets the client in
    A == Entry... ==============================> B     what waited, and what still comes to A
    B == Settle ================================> all   when all route by B's new sketch
    C == Note ==================================> A, B  from here on C's publications go to B
    A == End ===================================> B     A has a Note of everybody who is there

`==` are items: numbered, on disk, in one order with publications (items.py).

Rules:

- The session with the highest stamp is the client's. Whoever has another hands it over, whole and
  in one batch: from then on it is in the outbox to its new broker, or there.
- What a broker C publishes before its Note reaches the client by way of A, where the session lives
  on as a ghost: subscriptions without a client, which hand on what they get. B takes nothing for
  the client straight from C until then. So each publication comes once, and in order.
- A group that picks the ghost gets to the client, too: the ghost is a member until all know those
  of B. What picks the session at B is for it, wherever it came from.
- B sends what it has straight from others when End has come, or A does not answer.
- A broker that is down may have a session (its sketch tells). Then the client begins anew, and is
  let in when all who are there have written their Note behind what they owe that broker. When it is
  back it hands over what waited there from before, and nothing else: no publication comes twice.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from dovetail.broker.lifetimes import Lifetimes
from dovetail.broker.outlet import Outlet
from dovetail.broker.peering.bodies import CLAIM, ClaimBody, ClaimedBody, encode
from dovetail.broker.peering.exchange import Exchange
from dovetail.broker.peering.items import (
    End,
    Entry,
    Filters,
    Header,
    Move,
    Note,
    Ready,
    Settle,
    packed,
)
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.routing import Router
from dovetail.broker.session import ARRIVED_SEQUENCES, Outgoing, Session
from dovetail.broker.state import GROUP_SOURCE, Shared
from dovetail.config import (
    CLAIM_WAIT_SECONDS,
    FILTERS_ITEM_BYTES,
    FORGET_SECONDS,
    FRESH_SESSION_SECONDS,
    HOLD_SECONDS_MAX,
    MOVE_SECONDS_MAX,
    SETTLE_AGAIN_SECONDS,
    SUBACK_WAIT_SECONDS,
)
from dovetail.errors import ReasonCode
from dovetail.messages import Message

log = logging.getLogger("dovetail.cluster")

_COMPARED_AT_ONCE = 10_000

NEVER_BEGUN = -1
"""The stamp of a session that is here before its client was ever let in."""

NOTHING, MOVES, MOVED, NEWER = range(4)
"""What CLAIMED says: there is nothing, it moves to you now, it did before, you are not the last."""

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


class Detour:
    """What is special about a session that arrives, or that has moved on."""

    def __init__(self, moving: "Moving", since: float) -> None:
        self._moving = moving
        self.since = since
        self.guard: set[str] = set()
        """From whom nothing is taken straight: it comes by way of the last broker."""
        self.guard_stamp = 0
        self.holders: set[str] = set()
        """The last brokers. More than one if the cluster was cut."""
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
        self.owner = ""
        """Where the session went."""
        self.moved_stamp = 0
        self.asked_at = 0.0
        self.open: set[str] = set()
        """Whose publications still go there by way of here."""
        self.has_ended = False

    def takes(
        self,
        session: Session,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
    ) -> bool:
        source = self._moving.shared.source
        if source in self.guard:
            return False
        if not self.owner:
            return True
        if source in self.open or source == GROUP_SOURCE:
            self._moving.pass_on(session, self, message, qos, retain, identifiers)
        return False

    @property
    def is_over(self) -> bool:
        return not (self.guard or self.owner or self.holds or self.unready)

    def row(self) -> bytes:
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


class _Claim:
    """A CONNECT that waits for what other brokers have of its client."""

    def __init__(
        self,
        stamp: int,
        user: str | None,
        is_clean: bool,
        now: float,
        act: Callable[[int], None],
    ) -> None:
        self.stamp = stamp
        self.user = user
        self.is_clean = is_clean
        self.began_at = now
        self.deadline = now + CLAIM_WAIT_SECONDS
        self.act = act
        self.asked: set[str] = set()
        """Who has not answered."""
        self.heard: set[str] = set()
        """Who has."""
        self.coming: set[str] = set()
        """From whom a session is on its way."""
        self.ready: set[str] = set()
        """From whom it has come. Items and answers take different connections."""
        self.elsewhere: dict[str, str] = {}
        """To whom it is on its way, and from whom."""
        self.settling = False


class Moving:
    """One broker's part in it."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        router: Router,
        lifetimes: Lifetimes,
        exchange: Exchange,
        stamps: Stamps,
        *,
        send: Callable[[str, int, bytes], bool],
        post: Post,
        when_known: Callable[[float, Callable[[], None]], None],
        members: Callable[[], Iterable[str]],
    ) -> None:
        self.shared = shared
        self.ghosts: dict[str, list[Session]] = {}
        """Sessions that have moved on, by client identifier; the latest last."""
        self._name = name
        self._router = router
        self._lifetimes = lifetimes
        self._exchange = exchange
        self._stamps = stamps
        self._send = send
        self._post = post
        self._when_known = when_known
        self._members = members
        self._claims: dict[str, _Claim] = {}
        self._arriving: set[Session] = set()
        """Sessions with a detour that lead on here."""
        self._settles: list[tuple[str, Settle]] = []
        """Of which we do not have the sketch yet."""
        self._kept: set[str] = set()
        lifetimes.kept = self._keep

    # Whose sessions are here ----------------------------------------------------------------------

    def _keep(self, client_id: str, is_kept: bool) -> None:
        """Our sketch tells whose sessions we have, should we be down when they are asked for."""
        if is_kept != (client_id in self._kept):
            (self._kept.add if is_kept else self._kept.remove)(client_id)
            self._exchange.filter_changed(_trace(client_id), is_kept)

    def restore(self, session: Session, row: bytes) -> bool:
        """From disk; True for one that has moved on."""
        if not row:
            return False
        read = msgspec.msgpack.decode(row, type=_Row)
        detour = session.detour = Detour(self, read.since)
        detour.guard = set(read.guard)
        detour.guard_stamp = read.guard_stamp
        detour.holders = set(read.holders)
        detour.owner = read.owner
        detour.moved_stamp = read.moved_stamp
        detour.open = set(read.open)
        detour.last_holder = read.last_holder
        detour.last_stamp = read.last_stamp
        detour.unready = set(read.unready)
        detour.is_fresh = read.is_fresh
        if detour.owner:
            self.ghosts.setdefault(session.client_id, []).append(session)
            self.ghosts[session.client_id].sort(key=lambda ghost: _detour(ghost).moved_stamp)
        else:
            self._arriving.add(session)
        return bool(detour.owner)

    def restored(self) -> None:
        """With all that was on its way: where arrivals go on."""
        for session in self._arriving:
            arrived = [
                entry.sequence
                for entry in (*session.inflight.values(), *session.queue)
                if entry.sequence < ARRIVED_SEQUENCES
            ]
            _detour(session).next_arrival = max(arrived, default=0) + 1
            session.next_sequence = max(session.next_sequence, ARRIVED_SEQUENCES)

    # A client connects here -----------------------------------------------------------------------

    def claim(
        self, client_id: str, user: str | None, is_clean: bool, act: Callable[[int], None]
    ) -> None:
        """Get the client's session from wherever it is, then act.

        With the stamp of the connection, or with 0 if it cannot be let in now: it has connected
        elsewhere in the meantime, or its session is still on its way.
        """
        earlier = self._claims.pop(client_id, None)
        if earlier is not None:
            earlier.act(0)
        claim = _Claim(self._stamps.next(), user, is_clean, self.shared.now, act)
        self._claims[client_id] = claim
        session = self._lifetimes.sessions.get(client_id)
        if session is not None and isinstance(session.detour, Detour):
            self._await(claim, session.detour.unready)
        body = encode(ClaimBody(client_id, claim.stamp, user, is_clean))
        claim.asked = {name for name in self._members() if self._send(name, CLAIM, body)}
        self._look(client_id, claim)

    def answered(self, name: str, answer: ClaimedBody) -> None:
        claim = self._claims.get(answer.client_id)
        if claim is None or claim.stamp != answer.stamp:
            session = self._lifetimes.sessions.get(answer.client_id)
            if (
                answer.verdict == NEWER
                and session is not None
                and self._newest(answer.client_id) == answer.stamp
                and session.link is None
            ):
                # What is published now reaches the client there already.
                self._hand_over(session, name, answer.newer, sources=set())
            return
        claim.asked.discard(name)
        claim.heard.add(name)
        if answer.verdict == NEWER:
            del self._claims[answer.client_id]
            claim.act(0)
            return
        is_here = answer.client_id in self._lifetimes.sessions
        is_mine = answer.verdict == MOVED and answer.owner == self._name
        if answer.verdict == MOVES:
            claim.elsewhere.pop(name, None)
        if name not in claim.ready and (answer.verdict == MOVES or (is_mine and not is_here)):
            self._await(claim, (name,))
        elif answer.verdict == MOVED and not is_mine and not claim.settling:
            # Its new owner may say that it has nothing, because it has not come there yet.
            claim.elsewhere[answer.owner] = name
            claim.deadline = max(claim.deadline, claim.began_at + MOVE_SECONDS_MAX)
        self._look(answer.client_id, claim)

    def _await(self, claim: _Claim, names: Iterable[str]) -> None:
        """The session is on its way from there."""
        claim.coming.update(names)
        if claim.coming:
            claim.deadline = self.shared.now + MOVE_SECONDS_MAX

    def _look(self, client_id: str, claim: _Claim) -> None:
        """Is there anything left to wait for?"""
        if claim.asked or claim.coming or claim.settling:
            return
        silent = [name for name in self._members() if name not in claim.heard]
        if silent:
            may_have_it = self._exchange.search([_trace(client_id).encode()])[0]
            silent = [name for name in silent if name in may_have_it]
        if client_id not in self._lifetimes.sessions:
            if any(owner in claim.heard for owner in claim.elsewhere):
                return  # they are asked again
            silent = sorted({*silent, *claim.elsewhere, *claim.elsewhere.values()})
        if not silent:
            self._let_in(client_id, claim)
            return
        # They may have a session of it, and cannot be asked.
        claim.settling = True
        self._begin_anew(client_id, claim, silent)
        claim.deadline = self.shared.now + MOVE_SECONDS_MAX
        ticket = Ticket()
        settle = self._settle_item(
            client_id, claim.stamp, silent, is_clean=claim.is_clean, user=claim.user
        )
        for name in self._members():
            self._post(name, packed(settle), True, ticket)
        # What we publish ourselves has its place among what we owe them, too.
        note = Note(client_id, claim.stamp, self._name, claim.is_clean, claim.user)
        for name in silent:
            self._put(name, note)

        def settled(_taken: bool) -> None:
            if self._claims.get(client_id) is claim:
                self._let_in(client_id, claim)

        ticket.close(settled)

    def _begin_anew(self, client_id: str, claim: _Claim, silent: Iterable[str]) -> None:
        """A session for what they may still have. What was published before is not for it."""
        if claim.is_clean or client_id in self._lifetimes.sessions:
            return
        session = self._lifetimes.arrive(client_id, claim.user, FRESH_SESSION_SECONDS)
        session.stamp = NEVER_BEGUN
        detour = session.detour = Detour(self, self.shared.now)
        detour.is_fresh = True
        detour.guard = set(self._members())
        detour.guard_stamp = claim.stamp
        detour.holders = set(silent)
        detour.settled_at = self.shared.now
        self._arriving.add(session)
        session.save()

    def _let_in(self, client_id: str, claim: _Claim) -> None:
        del self._claims[client_id]
        claim.act(claim.stamp)

    def _give_up(self, client_id: str, claim: _Claim) -> None:
        """Not all have answered in time: as if they were down."""
        if not claim.coming and not claim.settling and (claim.asked or claim.elsewhere):
            claim.asked.clear()
            claim.heard -= set(claim.elsewhere)
            self._look(client_id, claim)
        elif claim.settling:
            self._let_in(client_id, claim)
        else:
            del self._claims[client_id]
            claim.act(0)

    # A client connects elsewhere ------------------------------------------------------------------

    def claimed(self, name: str, body: ClaimBody, answer: Callable[[ClaimedBody], None]) -> None:
        """A peer asks for the client's session, for a connection that it has."""
        self._stamps.saw(body.stamp)
        client_id = body.client_id
        claim = self._claims.get(client_id)
        session = self._lifetimes.sessions.get(client_id)
        newest = self._newest(client_id)
        if newest > body.stamp:
            answer(ClaimedBody(client_id, body.stamp, NEWER, newest))
            return
        if claim is not None:
            del self._claims[client_id]
            claim.act(0)
        if self._yield(client_id, body.user, name, body.stamp, is_clean=body.is_clean):
            answer(ClaimedBody(client_id, body.stamp, MOVES))
        elif owner := self._last_owner(client_id):
            answer(ClaimedBody(client_id, body.stamp, MOVED, owner=owner))
        elif session is None or not session.was_kept:
            answer(ClaimedBody(client_id, body.stamp, NOTHING))
        else:
            self._answer_when_gone(client_id, body.stamp, answer)

    def _newest(self, client_id: str) -> int:
        """The stamp of the last connection of a client that we know to be here, or to come."""
        newest = NEVER_BEGUN
        session = self._lifetimes.sessions.get(client_id)
        if session is not None:
            newest = session.stamp
            if isinstance(session.detour, Detour):
                newest = max(newest, session.detour.guard_stamp)
        claim = self._claims.get(client_id)
        return newest if claim is None else max(newest, claim.stamp)

    def _last_owner(self, client_id: str) -> str:
        """Where its session went from here, if it may still be on its way."""
        ghosts = self.ghosts.get(client_id)
        return _detour(ghosts[-1]).owner if ghosts else ""

    def _answer_when_gone(
        self, client_id: str, stamp: int, answer: Callable[[ClaimedBody], None]
    ) -> None:
        journal = self.shared.journal

        def act(stored: bool) -> None:
            if stored:
                answer(ClaimedBody(client_id, stamp, NOTHING))
            else:
                journal.wait_on(act)

        journal.when_stored(act)

    def _yield(
        self,
        client_id: str,
        user: str | None,
        owner: str,
        stamp: int,
        is_clean: bool,
        sources: set[str] | None = None,
    ) -> bool:
        """End what the client has here; True if there is something to hand over."""
        session = self._lifetimes.sessions.get(client_id)
        if session is not None and session.link is not None:
            assert isinstance(session.link, Outlet)
            session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
            session = self._lifetimes.sessions.get(client_id)
        if session is None:
            return False
        if is_clean or session.user != user:
            self._lifetimes.end(session)
            return False
        self._hand_over(session, owner, stamp, sources)
        return True

    def _hand_over(
        self, session: Session, owner: str, stamp: int, sources: set[str] | None = None
    ) -> None:
        """All of it in one batch."""
        client_id = session.client_id
        if sources is None:
            sources = {"", *self._members()}
        detour = _detour(session) if session.detour is not None else Detour(self, 0.0)
        self._arriving.discard(session)
        header = Header(
            client_id,
            stamp,
            session.stamp,
            session.user,
            session.expiry_seconds,
            session.next_packet_id,
            sorted(session.incoming),
            sorted(source or self._name for source in sources),
        )
        self._put(owner, header)
        for filters in _chunks(session):
            self._put(owner, Filters(client_id, stamp, filters))
        for entry in session.inflight.values():
            self._put(owner, _entry(client_id, stamp, entry))
        self._put(owner, Ready(client_id, stamp))
        for entry in session.queue:
            expires_at = entry.message.expires_at
            if expires_at is None or expires_at > self.shared.now:
                self._put(owner, _entry(client_id, stamp, entry))
        # Notes that are about the way to here leave the way from here open.
        session.stamp = max(session.stamp, detour.guard_stamp)
        detour.since = self.shared.now
        detour.holds = False
        detour.owner = owner
        detour.moved_stamp = stamp
        detour.open = sources
        detour.has_ended = False
        session.detour = detour
        self._lifetimes.depart(session)
        self.ghosts.setdefault(client_id, []).append(session)
        session.save()
        self._changed(session)

    def pass_on(
        self,
        session: Session,
        detour: Detour,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
    ) -> None:
        """What comes for a session that has moved on."""
        entry = Outgoing(message, qos, retain, identifiers, 0)
        item = packed(_entry(session.client_id, detour.moved_stamp, entry))
        self._post(detour.owner, item, False, None)

    # A session comes ------------------------------------------------------------------------------

    def take(self, name: str, item: Move) -> None:
        """An item from a peer's stream."""
        self._stamps.saw(item.stamp)
        if isinstance(item, Settle):
            self._take_settle(name, item)
        elif isinstance(item, Note):
            self._take_note(name, item)
        elif isinstance(item, Header):
            self._take_header(name, item)
        elif isinstance(item, Filters):
            self._take_filters(item)
        elif isinstance(item, Entry):
            self._take_entry(name, item)
        elif isinstance(item, Ready):
            self._take_ready(name, item)
        else:
            self._take_end(name, item)

    def _take_header(self, name: str, item: Header) -> None:
        session = self._lifetimes.sessions.get(item.client_id)
        if self._is_late(item, session):
            return  # The client was let in without: only messages count.
        if session is None:
            session = self._lifetimes.arrive(item.client_id, item.user, item.expiry_seconds)
            session.next_sequence = ARRIVED_SEQUENCES
            session.stamp = NEVER_BEGUN
        detour = _detour(session) if session.detour is not None else Detour(self, self.shared.now)
        session.detour = detour
        if item.stamp_before > session.stamp:
            # What was under way at the client's last broker is what the client remembers.
            session.requeue()
            session.next_packet_id = item.next_packet_id
            for packet_id in item.incoming:
                session.hold_incoming(packet_id)
            session.stamp = item.stamp_before
            detour.last_holder = name
            detour.last_stamp = item.stamp_before
        detour.unready.add(name)
        detour.guard |= {"" if source == self._name else source for source in item.sources}
        detour.guard_stamp = item.stamp
        detour.holders.add(name)
        detour.ending.add(name)
        detour.holds = True
        detour.settled_at = self.shared.now
        detour.hold_until = self.shared.now + HOLD_SECONDS_MAX
        self._arriving.add(session)
        session.save()

    def _is_late(self, item: Header, session: Session | None) -> bool:
        claim = self._claims.get(item.client_id)
        if claim is not None and claim.settling:
            return True
        if session is None:
            return False
        detour = session.detour
        is_fresh = isinstance(detour, Detour) and detour.is_fresh
        return is_fresh or session.stamp > item.stamp_before or session.stamp >= item.stamp

    def _take_filters(self, item: Filters) -> None:
        session = self._session_of_claim(item.client_id, item.stamp)
        if session is None:
            ghost = self._ghost_after(item.client_id, item.stamp)
            if ghost is not None and _detour(ghost).guard_stamp == item.stamp:
                moved = _detour(ghost)
                self._put(moved.owner, Filters(item.client_id, moved.moved_stamp, item.filters))
            return
        for topic_filter, options, identifier in item.filters:
            subscription = session.subscriptions.get(topic_filter)
            if subscription is None:
                subscription = self._router.subscribe(session, topic_filter, options, identifier)
            if session.persistent:
                self.shared.journal.save_subscription(
                    session.number, topic_filter, subscription.row()
                )

    def _session_of_claim(self, client_id: str, stamp: int) -> Session | None:
        """The session that arrives because of this claim, if it still does."""
        session = self._lifetimes.sessions.get(client_id)
        if session is None or session.detour is None:
            return None
        detour = _detour(session)
        return session if detour.guard_stamp == stamp and not detour.is_fresh else None

    def _take_entry(self, name: str, item: Entry) -> None:
        message = item.message()
        session = self._lifetimes.sessions.get(item.client_id)
        if session is None:
            self._follow(item, message)
            return
        detour = session.detour
        packet_id = 0
        if (
            isinstance(detour, Detour)
            and detour.guard_stamp == item.stamp
            and (detour.holds or name in detour.unready)
        ):
            if name == detour.last_holder and session.stamp == detour.last_stamp:
                packet_id = item.packet_id
            if packet_id or not item.released:
                session.arrive(
                    message,
                    item.qos,
                    item.retain,
                    item.identifiers,
                    packet_id=packet_id,
                    released=item.released,
                    sequence=detour.next_arrival,
                )
                detour.next_arrival += 1
        elif not item.released:
            # The client does not know of what was under way: it is sent anew, or it has it.
            session.arrive_late(message, item.qos, item.retain, item.identifiers)

    def _follow(self, item: Entry, message: Message) -> None:
        """The session has moved on, or is no more."""
        ghost = self._ghost_after(item.client_id, item.stamp)
        if ghost is None:
            self.shared.counters.publishes_dropped += 1
        elif not item.released:
            detour = _detour(ghost)
            self.pass_on(ghost, detour, message, item.qos, item.retain, item.identifiers)

    def _ghost_after(self, client_id: str, stamp: int) -> Session | None:
        """The session that has moved on from here since then; no item goes in circles."""
        for ghost in reversed(self.ghosts.get(client_id, ())):
            if _detour(ghost).moved_stamp > stamp:
                return ghost
        return None

    def _take_ready(self, name: str, item: Ready) -> None:
        session = self._session_of_claim(item.client_id, item.stamp)
        if session is not None:
            _detour(session).unready.discard(name)
            session.save()
            # Others route by our sketch as it is now, soon.
            self._when_known(self.shared.now + SUBACK_WAIT_SECONDS, lambda: self._settle(session))
        claim = self._claims.get(item.client_id)
        if claim is not None:
            claim.coming.discard(name)
            claim.ready.add(name)
            self._look(item.client_id, claim)
        elif session is not None:
            self._inquire(session)

    def _inquire(self, session: Session) -> None:
        """A session has come whose client has not: is it somewhere else by now?"""
        client_id = session.client_id
        stamp = self._newest(client_id)
        body = encode(ClaimBody(client_id, stamp, session.user, is_clean=False))
        for name in self._members():
            self._send(name, CLAIM, body)

    def _take_end(self, name: str, item: End) -> None:
        session = self._session_of_claim(item.client_id, item.stamp)
        if session is not None:
            detour = _detour(session)
            detour.ending.discard(name)
            if not detour.ending:
                self._release(session)

    def _release(self, session: Session) -> None:
        detour = _detour(session)
        detour.holds = False
        self._changed(session)
        session.pump(self.shared.now)

    # Publications change their way ----------------------------------------------------------------

    def _settle(self, session: Session) -> None:
        """From now on it takes what is published here, and soon what is published elsewhere."""
        detour = session.detour
        if not isinstance(detour, Detour) or not detour.guard:
            return
        detour.settled_at = self.shared.now
        if "" in detour.guard:
            detour.guard.discard("")
            note = Note(session.client_id, detour.guard_stamp, self._name, False, session.user)
            for holder in detour.holders:
                self._put(holder, note)
        item = self._settle_item(
            session.client_id,
            detour.guard_stamp,
            detour.holders,
            is_clean=False,
            user=session.user,
        )
        for name in sorted(detour.guard):
            self._put(name, item)
        self._changed(session)

    def _settle_item(
        self,
        client_id: str,
        stamp: int,
        holders: Iterable[str],
        *,
        is_clean: bool,
        user: str | None,
        is_late: bool = False,
    ) -> Settle:
        sketch = self._exchange.sketch
        return Settle(
            client_id,
            stamp,
            self._name,
            sorted(holders),
            is_clean,
            user,
            is_late,
            sketch.lineage,
            sketch.version,
        )

    def _take_settle(self, name: str, item: Settle) -> None:
        owner = item.owner
        if owner == self._name:
            # We did not know that the sender was one of the last.
            note = Note(item.client_id, item.stamp, owner, item.is_clean, item.user)
            self._put(name, note)
            return
        if not self._exchange.routes_by(owner, (item.lineage, item.version)):
            self._settles.append((name, item))
            return
        if item.is_late:
            if self._newest(item.client_id) < item.stamp:
                self._yield(item.client_id, item.user, owner, item.stamp, False, sources=set())
            return
        note = Note(item.client_id, item.stamp, owner, item.is_clean, item.user)
        for other in {*item.holders, owner} - {self._name}:
            self._put(other, note)
        self._heed(owner, "", note)

    def _take_note(self, name: str, note: Note) -> None:
        self._heed(note.owner, name, note)

    def _heed(self, owner: str, source: str, note: Note) -> None:
        """What is published by this source goes straight to the client's new broker."""
        if self._newest(note.client_id) < note.stamp and owner != self._name:
            # We were down, or cut off, when the client connected there.
            self._yield(note.client_id, note.user, owner, note.stamp, is_clean=note.is_clean)
        for ghost in list(self.ghosts.get(note.client_id, ())):
            detour = _detour(ghost)
            if ghost.stamp < note.stamp:
                detour.open.discard(source)
                self._changed(ghost)
        session = self._lifetimes.sessions.get(note.client_id)
        for arriving in (session, *self.ghosts.get(note.client_id, ())):
            if arriving is None or not isinstance(arriving.detour, Detour):
                continue
            if arriving.detour.guard_stamp <= note.stamp:
                arriving.detour.guard.discard(source)
                self._changed(arriving)

    def _changed(self, session: Session) -> None:
        """A step further on a session's detour."""
        detour = session.detour
        if not isinstance(detour, Detour):
            return
        if detour.owner:
            self._check_ghost(session, detour)
        elif detour.is_over and not (detour.is_fresh and session.stamp == NEVER_BEGUN):
            session.detour = None
            self._arriving.discard(session)
        if session.stored:
            session.save()

    def _check_ghost(self, session: Session, detour: Detour) -> None:
        waits_for = {name for name in detour.open if not name or self._exchange.is_live(name)}
        if not waits_for and not detour.has_ended:
            detour.has_ended = True
            self._put(detour.owner, End(session.client_id, detour.moved_stamp))
        if not detour.open and not detour.guard:
            self._bury(session)

    def _bury(self, ghost: Session) -> None:
        ghosts = self.ghosts[ghost.client_id]
        ghosts.remove(ghost)
        if not ghosts:
            del self.ghosts[ghost.client_id]
        self._lifetimes.bury(ghost)

    def compare(self, name: str) -> None:
        """A peer's sketch has come: does it have sessions of clients whose sessions we have?

        After a cut both may. The later one is the client's.
        """
        clients = list(self._kept)
        for at in range(0, len(clients), _COMPARED_AT_ONCE):
            some = clients[at : at + _COMPARED_AT_ONCE]
            found = self._exchange.search([_trace(client_id).encode() for client_id in some])
            for client_id, names in zip(some, found, strict=True):
                session = self._lifetimes.sessions.get(client_id)
                if name in names and session is not None and session.stamp != NEVER_BEGUN:
                    item = self._settle_item(
                        client_id,
                        session.stamp,
                        (name,),
                        is_clean=False,
                        user=session.user,
                        is_late=True,
                    )
                    self._put(name, item)

    # Peers and time -------------------------------------------------------------------------------

    def peer_is_down(self, name: str) -> None:
        for client_id, claim in list(self._claims.items()):
            claim.asked.discard(name)
            if name in claim.coming:
                self._give_up(client_id, claim)
            else:
                self._look(client_id, claim)
        for session in list(self._arriving):
            detour = _detour(session)
            if detour.holds and name in detour.holders:
                self._release(session)

    def forget(self, name: str) -> None:
        """It will not come back."""
        for session in [*self._arriving, *(g for ghosts in self.ghosts.values() for g in ghosts)]:
            detour = _detour(session)
            detour.guard.discard(name)
            detour.holders.discard(name)
            detour.ending.discard(name)
            detour.unready.discard(name)
            detour.open.discard(name)
            if detour.owner == name:
                detour.open.clear()
                detour.guard.clear()
            self._changed(session)

    def tick(self, now: float) -> None:
        for client_id, claim in list(self._claims.items()):
            if claim.deadline <= now:
                self._give_up(client_id, claim)
            else:
                self._ask_again(client_id, claim)
        settles, self._settles = self._settles, []
        for name, settle in settles:
            self._take_settle(name, settle)
        for session in list(self._arriving):
            self._tick_arriving(session, _detour(session), now)
        for ghost in [ghost for ghosts in self.ghosts.values() for ghost in ghosts]:
            self._tick_ghost(ghost, _detour(ghost), now)

    def _tick_arriving(self, session: Session, detour: Detour, now: float) -> None:
        if detour.holds and detour.hold_until <= now:
            self._release(session)
        if detour.is_over:
            self._changed(session)
        self._settle_again(session, now)

    def _tick_ghost(self, ghost: Session, detour: Detour, now: float) -> None:
        self._settle_again(ghost, now)
        self._ask_for_notes(ghost, detour, now)
        if ghost not in self.ghosts.get(ghost.client_id, ()):
            return
        if detour.since + FORGET_SECONDS <= now:
            self._bury(ghost)
        elif not detour.has_ended:
            self._check_ghost(ghost, detour)

    def _ask_again(self, client_id: str, claim: _Claim) -> None:
        if claim.asked or claim.coming or claim.settling:
            return
        body = encode(ClaimBody(client_id, claim.stamp, claim.user, claim.is_clean))
        for name in claim.elsewhere:
            claim.heard.discard(name)
            if self._send(name, CLAIM, body):
                claim.asked.add(name)
        self._look(client_id, claim)

    def _settle_again(self, session: Session, now: float) -> None:
        """One of the others may have been killed before it had written its Note."""
        detour = session.detour
        if (
            isinstance(detour, Detour)
            and detour.guard
            and detour.settled_at + SETTLE_AGAIN_SECONDS <= now
        ):
            self._settle(session)

    def _ask_for_notes(self, ghost: Session, detour: Detour, now: float) -> None:
        """The new owner may not have known that we were one of the last."""
        if not detour.open or max(detour.asked_at, detour.since) + SETTLE_AGAIN_SECONDS > now:
            return
        detour.asked_at = now
        state = self._exchange.state_of(detour.owner)
        item = Settle(
            ghost.client_id,
            detour.moved_stamp,
            detour.owner,
            [self._name],
            is_clean=False,
            user=ghost.user,
            is_late=False,
            lineage=state[0],
            version=state[1],
        )
        for name in sorted(detour.open - {""}):
            self._put(name, item)
        if "" in detour.open:
            note = Note(ghost.client_id, detour.moved_stamp, detour.owner, False, ghost.user)
            self._put(detour.owner, note)
            detour.open.discard("")
            self._changed(ghost)

    def next_deadline(self) -> float | None:
        return min((claim.deadline for claim in self._claims.values()), default=None)

    def _put(self, name: str, item: Move) -> None:
        self._post(name, packed(item), True, None)


def _detour(session: Session) -> Detour:
    assert isinstance(session.detour, Detour)
    return session.detour


def _trace(client_id: str) -> str:
    """What stands for a client's session in a sketch; nobody can subscribe to it."""
    digest = hashlib.blake2b(client_id.encode(), digest_size=12).hexdigest()
    return f"$dovetail\0/{digest}"


def _entry(client_id: str, stamp: int, entry: Outgoing) -> Entry:
    message = entry.message
    return Entry(
        client_id,
        stamp,
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


def _chunks(session: Session) -> Iterable[list[tuple[str, int, int]]]:
    chunk: list[tuple[str, int, int]] = []
    size = 0
    for topic_filter, subscription in session.subscriptions.items():
        chunk.append((topic_filter, subscription.options, subscription.identifier))
        size += len(topic_filter)
        if size >= FILTERS_ITEM_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
