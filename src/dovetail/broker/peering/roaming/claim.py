"""A claim: a CONNECT waits for what other brokers have of its client. Pure.

    here                                    all live brokers
      | -- CLAIM: client, stamp ----------> |
      | <- CLAIMED ------------------------ |   nothing here; it moves; it did before; you are late

Rules:

- The client's connection with the highest stamp counts. A broker with a session of an earlier one
  hands it over (handover_out.py). A broker with a later one says so.
- A broker that does not answer in time counts as down. A broker that was cut off is asked again if
  it returns in time. A broker that hangs, and cannot have the session, is not waited for.
- A broker's sketch says whether it may have a session, even when it is down (directory.py). If it
  may, the client begins anew. We let it in when all live brokers have written their Note
  (reconcile.py) behind what they owe that broker.
- After a start we do not know the sketch of a broker that is down, and after a cut it may have
  changed. We tell the others which brokers we miss, and they answer what they know. A broker that
  one of them reaches is not down: if it may have the session we refuse the client for now, unless
  it starts clean. It must not begin without its messages.
- We tell a broker that is down once where its client is, however often the client comes and goes.
  When it is back we tell it the client's last place. A first clean start is told at once.
- A broker that has handed a session over says where it went until it has arrived there. A broker
  that had the session and has it no more says so: nobody waits for a session that has ended. A
  broker that says neither may be waiting for it: we ask it again, and the broker that handed the
  session over. We also ask a broker again that says the session went to us.
- We wait for a session that is on its way. If it does not come we refuse the client for now: it
  must not begin without its messages. If a part has come, and its last broker is down, the client
  begins anew here. It gets that part now and the rest later.
- A publisher must not overtake itself. The other brokers acknowledge its QoS 2 publications before
  its session goes: it does not send those again elsewhere as new messages, as it would at QoS 1.
  But it does not wait long for a broker that hangs.
- A client that begins nothing anew (a handle) is refused then, and all stays as it is. So it is if
  several brokers cannot be asked: its session may have moved from one to the other, unseen here.
- A session belongs to its user (broker/auth/session_owner.py). A broker keeps the session of
  another user and says so: the client is refused, unless it finds a session of its own. Of two
  users who ask for a new session at the same time the first one gets it.
- A claim ends by itself, even if its client has gone meanwhile.
- A session may have arrived without its client. Then its broker asks where the client is (an
  inquiry: a claim for an earlier connection). The session goes there when it is settled there, if
  nobody has come for it before.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dovetail.broker.auth.session_owner import OTHER_OWNER
from dovetail.broker.limits import HOLD_SECONDS_MAX
from dovetail.broker.peering.peer_messages import CLAIM, ClaimBody, ClaimedBody, encode
from dovetail.broker.peering.roaming.directory import Traces
from dovetail.broker.peering.roaming.handover_out import Departing
from dovetail.broker.peering.roaming.limits import (
    CLAIM_WAIT_SECONDS,
    FRESH_SESSION_SECONDS,
    INQUIRE_AGAIN_SECONDS,
    INQUIRIES_MAX,
    MOVE_SECONDS_MAX,
    TOLD_CLIENTS_MAX,
)
from dovetail.broker.peering.roaming.reconcile import Settling
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN, Detours, Post, detour_of
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.stream_messages import Note, packed
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import Lifetimes
from dovetail.broker.session_sender import PACKET_ID_MAX
from dovetail.broker.shared_state import Shared
from dovetail.errors import ClientError, ReasonCode

_ON_ITS_WAY = (
    ReasonCode.SERVER_BUSY,
    "the client's session is on its way between brokers",
)
_CONTENDED = (
    ReasonCode.SERVER_BUSY,
    "another user is connecting with this client identifier: use another one",
)
_AWAY = (ReasonCode.SERVER_BUSY, "the session may be at a broker that is down")
_OUT_OF_REACH = (
    ReasonCode.SERVER_UNAVAILABLE,
    "the session may be at a broker that is up, and that this one does not reach",
)

NOTHING, MOVES, MOVED, NEWER = range(4)
"""Verdicts of CLAIMED: no session here, it moves to you, it has moved, a later claim exists."""

Act = Callable[[int | ClientError], None]
"""Called once, with the stamp of the connection or with the reason for a refusal."""


class _Place:
    """A broker that a session is on its way to, as another broker says."""

    __slots__ = ("has_come", "source", "stamp")

    def __init__(self, source: str, stamp: int) -> None:
        self.source = source
        """The broker that says so; empty for this one."""
        self.stamp = stamp
        """The stamp of the connection that it follows there."""
        self.has_come = False
        """Has it arrived there, as far as its last broker knows?"""


class Claim:
    """The claim of one client."""

    def __init__(
        self,
        client_id: str,
        user: str | None,
        stamp: int,
        *,
        is_clean: bool,
        begins: bool,
        now: float,
        act: Act,
    ) -> None:
        """`begins`: may it begin anew? A handle (mailbox.py) would lose its subscriptions."""
        self.client_id = client_id
        self.user = user
        self.stamp = stamp
        self.is_clean = is_clean
        self.begins = begins
        self.began_at = now
        self.deadline = now + CLAIM_WAIT_SECONDS
        self.act = act
        self.asked: set[str] = set()
        """Brokers that have not answered."""
        self.asked_at = now
        self.answers: dict[str, ClaimedBody] = {}
        """The last answer of each broker."""
        self.coming: set[str] = set()
        """Brokers from which a session is on its way here."""
        self.ready: set[str] = set()
        """Brokers from which it has come. Items and answers take different connections."""
        self.elsewhere: dict[str, _Place] = {}
        """Brokers that it may be on its way to."""
        self.innocent: set[str] = set()
        """Brokers that we do not reach and that have nothing, as another broker says."""
        self.suspects: set[str] = set()
        """Brokers that may have a session, as another broker says."""
        self.missed: set[str] = set()
        """Brokers that we do not reach, as we told the others."""
        self.reached: set[str] = set()
        """Those of them that another broker reaches."""
        self.cleared: set[str] = set()
        """Those of them that have nothing, as a broker that reaches them says."""
        self.settling = False
        """Does the client begin anew, and wait for Notes only?"""

    @property
    def is_waiting(self) -> bool:
        return bool(self.asked or self.coming or self.settling)

    @property
    def key(self) -> tuple[str, str | None]:
        return self.client_id, self.user

    @property
    def contender(self) -> int:
        """The stamp of another user who asked first, as others say; ours if there is none."""
        stamps = [said.contender for said in self.answers.values()]
        return min((stamp for stamp in stamps if stamp is not None), default=self.stamp)

    def forget_answers(self, names: Iterable[str]) -> None:
        for name in names:
            self.answers.pop(name, None)

    def heed(self, name: str, answer: ClaimedBody) -> None:
        """Take a broker's answer."""
        said = self.answers.get(name)
        if said is not None and (said.verdict, answer.verdict) == (MOVED, NOTHING):
            self.coming.discard(name)  # it came here before
        self.asked.discard(name)
        self.answers[name] = answer
        self.innocent.update(answer.innocent)
        self.suspects.update(answer.suspects)
        self.reached.update(answer.reached)
        self.cleared.update({*answer.innocent} & {*answer.reached})
        place = self.elsewhere.get(name)
        if place is not None and (place.has_come or _is_past(name, answer, place.stamp)):
            del self.elsewhere[name]

    def is_at(self, owner: str, source: str, stamp: int) -> None:
        """Note that the session is on its way to `owner`, unless the owner has had it already."""
        said = self.answers.get(owner)
        if said is None or not _is_past(owner, said, stamp):
            self.elsewhere[owner] = _Place(source, stamp)
            self.deadline = max(self.deadline, self.began_at + MOVE_SECONDS_MAX)

    def in_doubt(self) -> set[str]:
        """Return brokers that say it is on its way here, and may not know that it came."""
        said = self.answers
        return {name for name in self.coming if name in said and said[name].verdict == MOVED}

    def look_where(self, last_move: tuple[str, int] | None) -> set[str]:
        """Return brokers to ask again. `last_move` is our own last hand-over, if any."""
        for owner, place in self.elsewhere.items():
            said = self.answers.get(place.source)
            if not place.source:
                place.has_come = last_move is None or last_move[0] != owner
            elif said is not None:
                place.has_come = (said.verdict, said.owner) != (MOVED, owner)
        return {*self.elsewhere, *(place.source for place in self.elsewhere.values())} - {""}


def _is_past(name: str, answer: ClaimedBody, stamp: int) -> bool:
    """Return whether a broker no longer has the session that followed this connection."""
    if answer.verdict == MOVES:
        return True
    is_gone = answer.verdict == NOTHING or (answer.verdict == MOVED and answer.owner != name)
    return is_gone and stamp <= answer.connection


class _Told:
    """A broker that is down will be told where its client is now."""

    __slots__ = ("is_clean", "last_stamp", "stamp")

    def __init__(self, claim: Claim) -> None:
        self.stamp = claim.stamp
        self.is_clean = claim.is_clean
        self.heed(claim)

    def heed(self, claim: Claim) -> None:
        """Note that the client has connected again."""
        self.last_stamp = claim.stamp


class _Postponed(NamedTuple):
    """A peer's claim that we answer when the session may go, or at the deadline."""

    name: str
    body: ClaimBody
    answer: Callable[[ClaimedBody], None]
    deadline: float


class Claims:
    """The claims of one broker's clients."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        lifetimes: Lifetimes,
        stamps: Stamps,
        traces: Traces,
        detours: Detours,
        departing: Departing,
        settling: Settling,
        *,
        send: Callable[[str, int, bytes], bool],
        post: Post,
        is_up: Callable[[str], bool],
    ) -> None:
        """`is_up` returns whether a peer accepts what it is sent."""
        self._name = name
        self._shared = shared
        self._lifetimes = lifetimes
        self._stamps = stamps
        self._traces = traces
        self._detours = detours
        self._departing = departing
        self._settling = settling
        self._send = send
        self._post = post
        self._is_up = is_up
        self._claims: dict[str, dict[str | None, Claim]] = {}
        """By client identifier and user."""
        self._postponed: list[_Postponed] = []
        self._inquiries: dict[str, tuple[float, int]] = {}
        """By client identifier: when to ask again where the client is, and how often we have."""
        self._told: dict[str, dict[tuple[str, str | None], _Told]] = {}
        """By broker, then by client identifier and user."""

    def newest(self, client_id: str, user: str | None) -> int:
        """Return the stamp of the client's last connection here, admitted or waiting."""
        newest = self._detours.newest(client_id, user)
        claim = self._claim_of(client_id, user)
        return newest if claim is None else max(newest, claim.stamp)

    def _claim_of(self, client_id: str, user: str | None) -> Claim | None:
        return self._claims.get(client_id, {}).get(user)

    def _all(self) -> list[Claim]:
        return [claim for claims in self._claims.values() for claim in claims.values()]

    def _session_of(self, claim: Claim) -> Session | None:
        """Return the client's session here, whole or in part; never another user's."""
        session = self._lifetimes.sessions.get(claim.client_id)
        if session is None:
            return None
        may_resume = self._shared.ownership.may_resume(session.user, claim.user)
        return session if may_resume else None

    # A client connects here -----------------------------------------------------------------------

    def claim(
        self, client_id: str, user: str | None, is_clean: bool, act: Act, *, begins: bool = True
    ) -> None:
        """Get the client's session from wherever it is, then act.

        The client is refused if it has connected elsewhere meanwhile, or if its session is still on
        its way. If it does not `begin` anew, it is also refused while a broker is down that may
        have the session.
        """
        self._refuse(self._claim_of(client_id, user))  # of the same client, that waits already
        claim = Claim(
            client_id,
            user,
            self._stamps.next(),
            is_clean=is_clean,
            begins=begins,
            now=self._shared.now,
            act=act,
        )
        self._claims.setdefault(client_id, {})[user] = claim
        if client_id in self._lifetimes.sessions:
            self._await_rest(claim)
        elif last := self._detours.last_move(client_id, user):
            owner, stamp = last
            claim.is_at(owner, "", stamp)
        claim.asked = self._ask(claim, self._detours.members())
        self._look(claim)

    def _ask(self, claim: Claim, names: Iterable[str]) -> set[str]:
        """Send the claim to these brokers; return those that were reached."""
        claim.asked_at = self._shared.now
        claim.missed = {name for name in self._detours.members() if not self._is_up(name)}
        missed = sorted(claim.missed)
        body = encode(ClaimBody(claim.client_id, claim.stamp, claim.user, claim.is_clean, missed))
        return {name for name in names if self._send(name, CLAIM, body)}

    def answered(self, name: str, answer: ClaimedBody) -> None:
        """Take a peer's CLAIMED."""
        claims = self._claims.get(answer.client_id, {}).values()
        claim = next((one for one in claims if one.stamp == answer.stamp), None)
        if claim is None:
            self._heed_newer(name, answer)
            return
        claim.heed(name, answer)
        if answer.verdict == NEWER:
            self._refuse(claim)
            return
        if answer.verdict == MOVES or (answer.verdict == MOVED and answer.owner == self._name):
            if name not in claim.ready and not self._has_come(claim, answer):
                self._await(claim, (name,))
        elif answer.verdict == MOVED and not claim.settling:
            claim.is_at(answer.owner, name, answer.connection)
        self._look(claim)

    def _has_come(self, claim: Claim, answer: ClaimedBody) -> bool:
        """Return whether a session that a peer says to have handed over to us has come."""
        return answer.verdict == MOVED and (
            self._session_of(claim) is not None
            or self._detours.was_here(claim.client_id, claim.user, answer.connection)
        )

    def _heed_newer(self, name: str, answer: ClaimedBody) -> None:
        """Follow the client, if this answers an inquiry and the client is at that broker."""
        client_id = answer.client_id
        session = self._lifetimes.sessions.get(client_id)
        if (
            answer.verdict != NEWER
            or session is None
            or session.link is not None
            or self.newest(client_id, session.user) != answer.stamp
        ):
            return
        _, times = self._inquiries.pop(client_id, (0.0, 0))
        if answer.is_void:
            self._lifetimes.end(session)
        elif not answer.is_settled and times < INQUIRIES_MAX:
            again_at = self._shared.now + INQUIRE_AGAIN_SECONDS
            self._inquiries[client_id] = (again_at, times + 1)
        else:
            # What is published now reaches the client there already.
            self._departing.hand_over(session, name, answer.connection, sources=set())

    def _await(self, claim: Claim, names: Iterable[str]) -> None:
        """Wait for a session that is on its way from these brokers."""
        claim.coming.update(names)
        if claim.coming:
            claim.deadline = self._shared.now + MOVE_SECONDS_MAX

    def _await_rest(self, claim: Claim) -> None:
        """Wait for the rest of a session of which a part has come."""
        rest = self._unready(claim) - claim.ready
        self._await(claim, {name for name in rest if self._is_up(name)})

    def _unready(self, claim: Claim) -> set[str]:
        """Return the brokers from which only a part of the session has come."""
        session = self._session_of(claim)
        if session is None or session.detour is None:
            return set()
        return {*self._detours.known(detour_of(session).unready)}

    def is_settling(self, client_id: str, user: str | None) -> bool:
        """Return whether the client begins anew, whatever arrives now."""
        claim = self._claim_of(client_id, user)
        return claim is not None and claim.settling

    def ready(self, client_id: str, name: str, session: Session | None) -> bool:
        """Note that a session has come from there; return whether a claim waits for it.

        Without a session it came too late.
        """
        waiting = [
            claim
            for user, claim in self._claims.get(client_id, {}).items()
            if session is None or session.user == user
        ]
        for claim in waiting:
            claim.coming.discard(name)
            claim.ready.add(name)
            self._look(claim)
        return bool(waiting)

    def _look(self, claim: Claim) -> None:
        """Decide the claim if nothing is left to wait for."""
        if not claim.is_waiting and not claim.is_clean:
            self._await_rest(claim)
        if claim.is_waiting:
            return
        session = self._session_of(claim)
        if (session is None or session.stamp == NEVER_BEGUN) and claim.contender < claim.stamp:
            self._refuse(claim, OTHER_OWNER if claim.contender == NEVER_BEGUN else _CONTENDED)
            return
        silent = self._silent(claim)
        if session is None:
            if any(owner in claim.answers for owner in claim.elsewhere):
                return  # they are asked again
            sources = {place.source for place in claim.elsewhere.values()}
            silent |= {*claim.elsewhere, *sources} - {""}
        if self._would_begin(claim, silent):
            silent |= self._unready(claim)
            if not self._may_begin(claim, silent):
                return
        elif session is None and not claim.begins and self._may_be_unseen(claim):
            self._refuse(claim, _AWAY)
            return
        silent = {name for name in silent if not self._knows(name, claim)}
        if silent:
            self._begin_anew(claim, silent)
        else:
            self._let_in(claim)

    def _silent(self, claim: Claim) -> set[str]:
        """Return brokers that have not answered and may have a session."""
        silent = {name for name in self._detours.members() if name not in claim.answers}
        if not silent:
            return silent
        suspects = silent & claim.suspects
        silent &= {*self._traces.who_may_have(claim.client_id)}
        silent -= claim.innocent - {*self._traces.known(silent)}
        return suspects | silent - claim.cleared

    def _may_be_unseen(self, claim: Claim) -> bool:
        """Return whether a silent broker may have the session although its sketch denies it.

        The sketch of one that is down is its last, unless the session came there from another
        that cannot be asked either. The sketch of one that is up, and slow, may be an old one. So
        may that of one which we lost since we asked the others: they were not asked about it.
        """
        unheard = {*self._detours.members()} - {*claim.answers} - claim.cleared
        return len(unheard) > 1 or any(
            self._is_up(name) or name not in claim.missed for name in unheard
        )

    def _may_begin(self, claim: Claim, silent: set[str]) -> bool:
        """Return whether the client may begin without the silent brokers.

        If not, it is refused or waits.
        """
        if claim.is_clean:
            return True
        missed = {name for name in silent if not self._is_up(name)}
        are_back = silent & claim.missed - missed
        is_late = self._shared.now >= claim.began_at + MOVE_SECONDS_MAX
        if not is_late and (missed - claim.missed or are_back):
            # Others were asked before these went down, or were cut off from here only.
            claim.deadline = max(claim.deadline, self._shared.now + CLAIM_WAIT_SECONDS)
            claim.asked = self._ask(claim, {*claim.answers, *are_back})
            if claim.asked:
                return False
        if missed & claim.reached:
            self._refuse(claim, _OUT_OF_REACH)
        elif not claim.begins:
            self._refuse(claim, _AWAY)
        else:
            self._begin_without_rest(claim)
            return True
        return False

    def _begin_without_rest(self, claim: Claim) -> None:
        """Begin anew with a part of a session: the broker that has the rest is down."""
        session = self._session_of(claim)
        if session is not None and self._unready(claim) and not claim.ready:
            self._lifetimes.unsubscribe_all(session)
            self._detours.begin_anew(session)

    def _would_begin(self, claim: Claim, silent: set[str]) -> bool:
        """Return whether the client would now begin without what brokers that are down may have."""
        session = self._session_of(claim)
        if session is None or session.stamp == NEVER_BEGUN:
            return bool(silent)
        return session.detour is not None and bool(detour_of(session).unready)

    def _knows(self, name: str, claim: Claim) -> bool:
        """Return whether a broker that is down will learn of its client without another item."""
        told = self._told.setdefault(name, {})
        before = told.get(claim.key)
        if before is None and len(told) >= TOLD_CLIENTS_MAX:
            return True
        if before is not None and before.is_clean >= claim.is_clean:
            before.heed(claim)
            return True
        session = self._session_of(claim)
        if session is None or session.detour is None or claim.is_clean:
            return False
        detour = detour_of(session)
        return detour.is_fresh and name in detour.holders and session.user == claim.user

    def _begin_anew(self, claim: Claim, silent: set[str]) -> None:
        """Begin anew: silent brokers may have a session, and cannot be asked."""
        claim.settling = True
        client_id = claim.client_id
        for name in silent:
            if not self._is_up(name):
                self._told.setdefault(name, {})[claim.key] = _Told(claim)
        if not claim.is_clean and client_id not in self._lifetimes.sessions:
            self._make_session(claim, silent)
        claim.deadline = self._shared.now + MOVE_SECONDS_MAX
        ticket = Ticket()
        settle = self._settling.item(
            client_id, claim.stamp, silent, user=claim.user, is_clean=claim.is_clean
        )
        for name in self._detours.members():
            self._post(name, packed(settle), True, ticket)
        # What we publish ourselves has its place among what we owe them, too.
        note = Note(client_id, claim.stamp, self._name, claim.is_clean, claim.user)
        self._detours.tell(silent | self._holders(claim), note)
        self._settling.heed("", note)

        def settled(_taken: bool) -> None:
            self._let_in(claim)

        ticket.close(settled)

    def _holders(self, claim: Claim) -> set[str]:
        """Return the brokers that still redirect to a session that has just come."""
        session = self._session_of(claim)
        return set() if session is None or session.detour is None else detour_of(session).holders

    def _make_session(self, claim: Claim, silent: Iterable[str]) -> None:
        """Create a session for what silent brokers may still have."""
        detours = self._detours
        session = self._lifetimes.arrive(claim.client_id, claim.user, FRESH_SESSION_SECONDS)
        session.stamp = NEVER_BEGUN
        # Not as in another session of its client, which it may remember when it comes to this one.
        session.next_packet_id = claim.stamp % PACKET_ID_MAX + 1
        detour = detours.begin(session)
        detour.is_fresh = True
        detour.guard = set(detours.members())
        detour.guard_stamp = claim.stamp
        detour.holders = set(silent)
        detour.settled_at = self._shared.now
        detours.arriving.add(session)
        session.save()

    def _let_in(self, claim: Claim) -> None:
        if self._ends(claim):
            claim.act(claim.stamp)

    def _refuse(self, claim: Claim | None, why: tuple[ReasonCode, str] = _ON_ITS_WAY) -> None:
        if claim is not None and self._ends(claim):
            claim.act(ClientError(*why))

    def _ends(self, claim: Claim) -> bool:
        """End the claim; return False if it had ended before."""
        claims = self._claims.get(claim.client_id, {})
        if claims.get(claim.user) is not claim:
            return False
        del claims[claim.user]
        if not claims:
            del self._claims[claim.client_id]
        return True

    def _give_up(self, claim: Claim) -> None:
        """Treat brokers that have not answered in time as down.

        A connected broker that may have the session is slow rather than down, and worth the wait.
        """
        longest = claim.began_at + MOVE_SECONDS_MAX
        slow = {name for name in claim.asked if self._is_up(name)}
        if slow:
            slow &= {*self._traces.who_may_have(claim.client_id)}
        if claim.settling:
            self._let_in(claim)
        elif slow and not claim.coming and self._shared.now < longest:
            claim.asked = slow
            claim.deadline = longest
        elif not claim.coming and (claim.asked or claim.elsewhere):
            claim.asked.clear()
            claim.forget_answers(claim.elsewhere)
            self._look(claim)
        else:
            self._refuse(claim)

    def _drops_slow(self, claim: Claim) -> bool:
        """Stop waiting for brokers that have nothing as far as is known; were there any?"""
        if not claim.asked or self._shared.now < claim.asked_at + CLAIM_WAIT_SECONDS:
            return False
        sources = {place.source for place in claim.elsewhere.values()}
        slow = claim.asked - {*claim.coming, *claim.elsewhere, *sources, *claim.suspects}
        slow.difference_update(self._traces.who_may_have(claim.client_id))
        claim.asked -= slow
        return bool(slow)

    # A client connects elsewhere ------------------------------------------------------------------

    def claimed(self, name: str, body: ClaimBody, answer: Callable[[ClaimedBody], None]) -> None:
        """Answer a peer that claims the client's session for a connection there."""
        self._stamps.saw(body.stamp)
        client_id, user = body.client_id, body.user
        if self._has_other_owner(client_id, user):
            answer(self._answer(name, body, NOTHING, NEVER_BEGUN))
        elif self._is_forwarding(body):
            deadline = self._shared.now + HOLD_SECONDS_MAX
            self._postponed.append(_Postponed(name, body, answer, deadline))
        else:
            self._give_way(name, body, answer)

    def _is_forwarding(self, body: ClaimBody) -> bool:
        """Return whether the client would overtake its own publications if its session went now."""
        session = self._lifetimes.sessions.get(body.client_id)
        if session is None or body.is_clean:
            return False
        return session.persistent and session.forwarding > 0

    def _give_way(self, name: str, body: ClaimBody, answer: Callable[[ClaimedBody], None]) -> None:
        client_id, user = body.client_id, body.user
        newest = self.newest(client_id, user)
        claim = self._claim_of(client_id, user)
        if newest > body.stamp:
            answer(self._newer(name, body, newest))
            if claim is not None and not claim.settling:
                # It may have the session since it was asked.
                claim.asked |= self._ask(claim, (name,))
            return
        self._refuse(claim)
        if self._detours.is_unready(client_id):
            answer(self._answer(name, body, MOVED, newest, self._name))
        elif self._departing.give_way(client_id, user, name, body.stamp, is_clean=body.is_clean):
            answer(ClaimedBody(client_id, body.stamp, MOVES))
        elif last := self._detours.last_move(client_id, user):
            owner, stamp = last
            answer(self._answer(name, body, MOVED, stamp, owner))
        else:
            nothing = self._answer(name, body, NOTHING, self._detours.last_end(client_id, user))
            if self._lifetimes.is_leaving(client_id):
                self._answer_when_gone(nothing, answer)
            else:
                answer(nothing)

    def _has_other_owner(self, client_id: str, user: str | None) -> bool:
        """Return whether only other users have a session of this identifier here or leaving."""
        owners = self._detours.owners(client_id)
        may_come = self._shared.ownership.may_come
        return bool(owners) and not any(may_come(owner, user) for owner in owners)

    def _contender(self, client_id: str, user: str | None) -> int | None:
        """Return the stamp of another user who asks for the identifier here; -1 if one has it."""
        if self._has_other_owner(client_id, user):
            return NEVER_BEGUN
        claims = self._claims.get(client_id, {})
        return min((one.stamp for one in claims.values() if one.user != user), default=None)

    def _answer(
        self, name: str, body: ClaimBody, verdict: int, connection: int, owner: str = ""
    ) -> ClaimedBody:
        """Return what is here, and what other brokers may have as their sketches say.

        Those are brokers that are down, or that the asking broker does not reach.
        """
        client_id = body.client_id
        members = {*self._detours.members()} - {name}
        reached = {one for one in members.intersection(body.missed) if self._is_up(one)}
        away = reached | {one for one in members if not self._is_up(one)}
        suspects: set[str] = set()
        if away:
            away = {*self._traces.known(away)}
            suspects = away & {*self._traces.who_may_have(client_id)}
        return ClaimedBody(
            client_id,
            body.stamp,
            verdict,
            connection,
            owner,
            innocent=sorted(away - suspects),
            suspects=sorted(suspects),
            reached=sorted(reached),
            contender=self._contender(client_id, body.user),
        )

    def _newer(self, name: str, body: ClaimBody, newest: int) -> ClaimedBody:
        client_id = body.client_id
        session = self._lifetimes.sessions.get(client_id)
        is_void = session is not None and 0 <= body.stamp < session.void_before
        is_settled = self._claim_of(client_id, body.user) is None and (
            session is None or session.detour is None or name not in detour_of(session).holders
        )
        return ClaimedBody(
            client_id, body.stamp, NEWER, newest, is_void=is_void, is_settled=is_settled
        )

    def _answer_when_gone(
        self, nothing: ClaimedBody, answer: Callable[[ClaimedBody], None]
    ) -> None:
        """Answer when the end of a session is on disk: a crash must not bring it back."""
        journal = self._shared.journal

        def act(stored: bool) -> None:
            if stored:
                answer(nothing)
            else:
                journal.wait_on(act)

        journal.when_stored(act)

    def inquire(self, session: Session) -> None:
        """Ask where the client of a session is that has arrived without it."""
        self._inquiries.pop(session.client_id, None)
        self._inquire(session)

    def _inquire(self, session: Session) -> None:
        client_id = session.client_id
        newest = self.newest(client_id, session.user)
        body = encode(ClaimBody(client_id, newest, session.user, is_clean=False))
        for name in self._detours.members():
            self._send(name, CLAIM, body)

    # Peers and time -------------------------------------------------------------------------------

    def peer_is_up(self, name: str) -> None:
        """Ask again: the last connection may have lost the question or the answer."""
        for (client_id, user), told in self._told.pop(name, {}).items():
            if told.last_stamp > told.stamp:
                settle = self._settling.item(
                    client_id, told.last_stamp, (name,), user=user, is_clean=told.is_clean
                )
                self._post(name, packed(settle), True, None)
        for claim in self._all():
            if name in claim.asked:
                self._ask(claim, (name,))

    def forget(self, name: str) -> None:
        """Forget a broker that will not return."""
        self._told.pop(name, None)

    def peer_is_down(self, name: str) -> None:
        for claim in self._all():
            if name in claim.coming:
                claim.asked.discard(name)
                self._give_up(claim)
            elif name in claim.asked and name in self._traces.who_may_have(claim.client_id):
                continue  # a connection may break though nobody is down: it is asked again soon
            else:
                claim.asked.discard(name)
                self._look(claim)

    def tick(self, now: float) -> None:
        postponed, self._postponed = self._postponed, []
        for one in postponed:
            if one.deadline <= now or not self._is_forwarding(one.body):
                self._give_way(one.name, one.body, one.answer)
            else:
                self._postponed.append(one)
        for claim in self._all():
            self._look_again(claim)
        for client_id, (again_at, times) in list(self._inquiries.items()):
            session = self._lifetimes.sessions.get(client_id)
            if session is None or session.link is not None:
                del self._inquiries[client_id]
            elif again_at <= now:
                self._inquiries[client_id] = (now + INQUIRE_AGAIN_SECONDS, times)
                self._inquire(session)

    def _look_again(self, claim: Claim) -> None:
        if claim.deadline <= self._shared.now:
            self._give_up(claim)
        elif self._drops_slow(claim):
            self._look(claim)
        elif not claim.is_waiting:
            names = claim.look_where(self._detours.last_move(*claim.key))
            claim.forget_answers(names)
            claim.asked = self._ask(claim, names)
            self._look(claim)
        elif not claim.asked:
            claim.asked = self._ask(claim, claim.in_doubt())
