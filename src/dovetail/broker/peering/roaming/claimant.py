"""Claims sessions for clients that connect here: a CONNECT waits for the other brokers. Pure.

    here                                    all live brokers
      | -- CLAIM: client, stamp ----------> |
      | <- CLAIMED ------------------------ |   nothing here; it moves; it did before; you are late

Rules:

- The client's connection with the highest stamp counts. A broker with a session of an earlier one
  hands it over (handover_out.py). A broker with a later one says so.
- A broker that does not answer in time counts as down. A broker that was cut off is asked again if
  it returns in time. A broker that hangs, and cannot have the session, is not waited for.
- A broker's sketch says whether it may have a session, even when it is down (directory.py). If it
  may, the client begins anew. We let it in when all live brokers have written their marker
  (reconciliation.py) into their streams to that broker.
- After a start we do not know the sketch of a broker that is down, and after a cut it may have
  changed. We tell the others which brokers we miss, and they answer what they know. A broker that
  one of them reaches is not down: if it may have the session we refuse the client for now, unless
  it starts clean. It must not begin without its messages. If our sketch says that it may, theirs
  may only be older: it may hang, and have told us and not yet them.
- We tell a broker that is down once where its client is, however often the client comes and goes.
  When it is back we tell it the client's last place. A first clean start is told at once.
- A broker that has handed a session over says where it went until it has arrived there. A broker
  that had the session and has it no more says so: nobody waits for a session that has ended. A
  broker that says neither may be waiting for it: we ask it again, and the broker that handed the
  session over. We also ask a broker again that says the session went to us.
- We wait for a session that is on its way. If it does not come we refuse the client for now: it
  must not begin without its messages. If a part has come, and its last broker is down, the client
  begins anew here. It gets that part now and the rest later.
- A handle may not begin anew. It is refused then, and nothing changes. It is also refused if
  several brokers cannot be asked: its session may have moved from one to the other, unseen here.
  If one cannot be asked, all others must know its sketch and find nothing in it. Our own sketch of
  it may be an old one, and the broker that the session came from may have restarted.
- A session belongs to its user (broker/auth/session_owner.py). A broker keeps the session of
  another user and says so: the client is refused, unless it finds a session of its own. Of two
  users who ask for a new session at the same time the first one gets it.
- A claim ends by itself, even if its client has gone meanwhile.
"""

from collections.abc import Callable, Iterable

from dovetail.broker.auth.session_owner import OTHER_OWNER
from dovetail.broker.peering.control_messages import RerouteMarker, pack
from dovetail.broker.peering.peer_messages import CLAIM, ClaimReply, ClaimRequest, encode
from dovetail.broker.peering.roaming.claim import MOVED, MOVES, NEWER, Claim, ClaimDone
from dovetail.broker.peering.roaming.directory import SessionDirectory
from dovetail.broker.peering.roaming.limits import (
    CLAIM_WAIT_SECONDS,
    FRESH_SESSION_SECONDS,
    MOVE_SECONDS_MAX,
    NOTICES_PER_BROKER_MAX,
)
from dovetail.broker.peering.roaming.reconciliation import Reconciliation
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN, Redirects, redirect_of
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.tickets import Post, Ticket
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.session_sender import PACKET_ID_MAX
from dovetail.broker.shared_state import SharedState
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


class _Notice:
    """Says where a client is now, to a broker that is down, when it returns."""

    __slots__ = ("is_clean", "last_stamp", "stamp")

    def __init__(self, claim: Claim) -> None:
        self.stamp = claim.stamp
        self.is_clean = claim.is_clean
        self.update(claim)

    def update(self, claim: Claim) -> None:
        """Note that the client has connected again."""
        self.last_stamp = claim.stamp


class Claimant:
    """The claims of the clients that connect to this broker."""

    def __init__(
        self,
        name: str,
        shared: SharedState,
        lifetimes: SessionLifetimes,
        stamps: Stamps,
        directory: SessionDirectory,
        redirects: Redirects,
        reconciliation: Reconciliation,
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
        self._directory = directory
        self._redirects = redirects
        self._reconciliation = reconciliation
        self._send = send
        self._post = post
        self._is_up = is_up
        self._claims: dict[str, dict[str | None, Claim]] = {}
        """By client identifier and user."""
        self._notices: dict[str, dict[tuple[str, str | None], _Notice]] = {}
        """By broker, then by client identifier and user."""

    def newest(self, client_id: str, user: str | None) -> int:
        """Return the stamp of the client's last connection here, admitted or waiting."""
        newest = self._redirects.newest(client_id, user)
        claim = self._claim_of(client_id, user)
        return newest if claim is None else max(newest, claim.stamp)

    def _claim_of(self, client_id: str, user: str | None) -> Claim | None:
        return self._claims.get(client_id, {}).get(user)

    def _all(self) -> list[Claim]:
        return [claim for claims in self._claims.values() for claim in claims.values()]

    def _session_of(self, claim: Claim) -> Session | None:
        """Return the client's session here, whole or in part; never another user's.

        One that only holds messages is none to a handle, which cannot begin it.
        """
        session = self._lifetimes.sessions.get(claim.client_id)
        if session is None or (session.stamp == NEVER_BEGUN and not claim.may_begin):
            return None
        may_resume = self._shared.ownership.may_resume(session.user, claim.user)
        return session if may_resume else None

    # A client connects here -----------------------------------------------------------------------

    def claim(
        self,
        client_id: str,
        user: str | None,
        is_clean: bool,
        act: ClaimDone,
        *,
        may_begin: bool = True,
    ) -> None:
        """Get the client's session from wherever it is, then act.

        The client is refused if it has connected elsewhere meanwhile, or if its session is still on
        its way. Without `may_begin` it is also refused while a broker is down that may have the
        session.
        """
        self._refuse(self._claim_of(client_id, user))  # an earlier claim of the same client
        claim = Claim(
            client_id,
            user,
            self._stamps.next(),
            is_clean=is_clean,
            may_begin=may_begin,
            now=self._shared.now,
            act=act,
        )
        self._claims.setdefault(client_id, {})[user] = claim
        if self._session_of(claim) is not None:
            self._await_rest(claim)
        elif last := self._redirects.last_move(client_id, user):
            owner, stamp = last
            claim.add_destination(owner, "", stamp)
        claim.asked = self._ask(claim, self._redirects.members())
        self._decide(claim)

    def _ask(self, claim: Claim, names: Iterable[str]) -> set[str]:
        """Send the claim to these brokers; return those that were reached."""
        claim.asked_at = self._shared.now
        claim.unreachable = {name for name in self._redirects.members() if not self._is_up(name)}
        unreachable = sorted(claim.unreachable)
        body = encode(
            ClaimRequest(claim.client_id, claim.stamp, claim.user, claim.is_clean, unreachable)
        )
        return {name for name in sorted(names) if self._send(name, CLAIM, body)}

    def answered(self, name: str, answer: ClaimReply) -> bool:
        """Take a peer's CLAIMED. Return False if no claim waits for it."""
        claims = self._claims.get(answer.client_id, {}).values()
        claim = next((one for one in claims if one.stamp == answer.stamp), None)
        if claim is None:
            return False
        claim.record(name, answer)
        if answer.verdict == NEWER:
            self._refuse(claim)
            return True
        if answer.verdict == MOVES or (answer.verdict == MOVED and answer.owner == self._name):
            if name not in claim.arrived_from and not self._has_come(claim, answer):
                self._await(claim, (name,))
        elif answer.verdict == MOVED and not claim.begins_anew:
            claim.add_destination(answer.owner, name, answer.connection)
        self._decide(claim)
        return True

    def _has_come(self, claim: Claim, answer: ClaimReply) -> bool:
        """Return whether a session that a peer says to have handed over to us has come."""
        return answer.verdict == MOVED and (
            self._session_of(claim) is not None
            or self._redirects.was_here(claim.client_id, claim.user, answer.connection)
        )

    def _await(self, claim: Claim, names: Iterable[str]) -> None:
        """Wait for a session that is on its way from these brokers."""
        claim.senders.update(names)
        if claim.senders:
            claim.deadline = self._shared.now + MOVE_SECONDS_MAX

    def _await_rest(self, claim: Claim) -> None:
        """Wait for the rest of a session of which a part has come."""
        rest = self._unready(claim) - claim.arrived_from
        self._await(claim, {name for name in rest if self._is_up(name)})

    def _unready(self, claim: Claim) -> set[str]:
        """Return the brokers from which only a part of the session has come."""
        session = self._session_of(claim)
        if session is None or session.redirect is None:
            return set()
        return {*self._redirects.known(redirect_of(session).unready)}

    def begins_anew(self, client_id: str, user: str | None) -> bool:
        """Return whether the client begins anew, whatever arrives now."""
        claim = self._claim_of(client_id, user)
        return claim is not None and claim.begins_anew

    def session_arrived(self, client_id: str, name: str, session: Session | None) -> bool:
        """Note that a session has come from there; return whether a claim waits for it.

        Without a session it came too late.
        """
        waiting = [
            claim
            for user, claim in self._claims.get(client_id, {}).items()
            if session is None or session.user == user
        ]
        for claim in waiting:
            claim.senders.discard(name)
            claim.arrived_from.add(name)
            self._decide(claim)
        return bool(waiting)

    def _decide(self, claim: Claim) -> None:
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
            if any(owner in claim.answers for owner in claim.destinations):
                return  # they are asked again
            sources = {destination.source for destination in claim.destinations.values()}
            silent |= {*claim.destinations, *sources} - {""}
        if self._would_begin(claim, silent):
            silent |= self._unready(claim)
            if not self._may_begin(claim, silent):
                return
        elif session is None and not claim.may_begin and self._may_be_unseen(claim):
            self._refuse(claim, _AWAY)
            return
        silent = {name for name in silent if not self._is_informed(name, claim)}
        if silent:
            self._begin_anew(claim, silent)
        else:
            self._let_in(claim)

    def _silent(self, claim: Claim) -> set[str]:
        """Return brokers that have not answered and may have a session."""
        silent = {name for name in self._redirects.members() if name not in claim.answers}
        if not silent:
            return silent
        went_to = self._redirects.possible_holders(claim.client_id)
        possible_holders = silent & (claim.possible_holders | went_to)
        silent &= {*self._directory.possible_holders(claim.client_id)}
        silent -= claim.ruled_out - {*self._directory.with_known_sketch(silent)}
        return possible_holders | silent

    def _may_be_unseen(self, claim: Claim) -> bool:
        """Return whether a silent broker may have the session although its sketch denies it.

        We may have an old sketch of it: we were silent when the session came there. The broker
        that it came from has the new one, or has restarted and has none. So the silent broker is
        ruled out only if all others have answered and know its sketch, too. One that is up, and
        slow, cannot be ruled out. Nor can one that we lost since we asked: they were not asked
        about it.
        """
        unheard = {*self._redirects.members()} - {*claim.answers} - claim.cleared
        away = {name for name in unheard & claim.unreachable if not self._is_up(name)}
        ruled_out = {*self._directory.with_known_sketch(away)}
        ruled_out.intersection_update(*(answer.ruled_out for answer in claim.answers.values()))
        return len(unheard) > 1 or unheard != ruled_out

    def _may_begin(self, claim: Claim, silent: set[str]) -> bool:
        """Return whether the client may begin without the silent brokers.

        If not, it is refused or waits.
        """
        if claim.is_clean:
            return True
        unreachable = {name for name in silent if not self._is_up(name)}
        are_back = silent & claim.unreachable - unreachable
        is_late = self._shared.now >= claim.began_at + MOVE_SECONDS_MAX
        if not is_late and (unreachable - claim.unreachable or are_back):
            # These went down after we asked, or were only cut off from here.
            claim.deadline = max(claim.deadline, self._shared.now + CLAIM_WAIT_SECONDS)
            claim.asked = self._ask(claim, {*claim.answers, *are_back})
            if claim.asked:
                return False
        if unreachable & claim.reached:
            self._refuse(claim, _OUT_OF_REACH)
        elif not claim.may_begin:
            self._refuse(claim, _AWAY)
        else:
            self._begin_without_rest(claim)
            return True
        return False

    def _begin_without_rest(self, claim: Claim) -> None:
        """Begin anew with a part of a session: the broker that has the rest is down."""
        session = self._session_of(claim)
        if session is not None and self._unready(claim) and not claim.arrived_from:
            self._lifetimes.unsubscribe_all(session)
            self._redirects.begin_anew(session)

    def _would_begin(self, claim: Claim, silent: set[str]) -> bool:
        """Return whether the client would begin without what silent brokers may have."""
        session = self._session_of(claim)
        if session is None or session.stamp == NEVER_BEGUN:
            return bool(silent)
        return session.redirect is not None and bool(redirect_of(session).unready)

    def _is_informed(self, name: str, claim: Claim) -> bool:
        """Return whether a broker that is down will learn of its client without a new request."""
        notices = self._notices.setdefault(name, {})
        before = notices.get(claim.key)
        if before is None and len(notices) >= NOTICES_PER_BROKER_MAX:
            return True
        if before is not None and before.is_clean >= claim.is_clean:
            before.update(claim)
            return True
        session = self._session_of(claim)
        if session is None or session.redirect is None or claim.is_clean:
            return False
        redirect = redirect_of(session)
        return redirect.is_fresh and name in redirect.holders and session.user == claim.user

    def _begin_anew(self, claim: Claim, silent: set[str]) -> None:
        """Begin anew: silent brokers may have a session, and cannot be asked."""
        claim.begins_anew = True
        client_id = claim.client_id
        for name in silent:
            if not self._is_up(name):
                self._notices.setdefault(name, {})[claim.key] = _Notice(claim)
        if not claim.is_clean and client_id not in self._lifetimes.sessions:
            self._make_session(claim, silent)
        claim.deadline = self._shared.now + MOVE_SECONDS_MAX
        ticket = Ticket()
        request = self._reconciliation.reroute_request(
            client_id, claim.stamp, silent, user=claim.user, is_clean=claim.is_clean
        )
        for name in self._redirects.members():
            self._post(name, pack(request), True, ticket)
        # Our own publications have their place in our streams to them, too.
        marker = RerouteMarker(client_id, claim.stamp, self._name, claim.is_clean, claim.user)
        self._redirects.put_for_each(silent | self._holders(claim), marker)
        self._reconciliation.apply_marker("", marker)

        def settled(_taken: bool) -> None:
            self._let_in(claim)

        ticket.close(settled)

    def _holders(self, claim: Claim) -> set[str]:
        """Return the brokers that still redirect to a session that has just come."""
        session = self._session_of(claim)
        return (
            set() if session is None or session.redirect is None else redirect_of(session).holders
        )

    def _make_session(self, claim: Claim, silent: Iterable[str]) -> None:
        """Create a session for what silent brokers may still have."""
        redirects = self._redirects
        session = self._lifetimes.begin_handed_over(
            claim.client_id, claim.user, FRESH_SESSION_SECONDS
        )
        session.stamp = NEVER_BEGUN
        # Not as in another session of its client, which it may remember when it comes to this one.
        session.next_packet_id = claim.stamp % PACKET_ID_MAX + 1
        redirect = redirects.begin(session)
        redirect.is_fresh = True
        redirect.guard = set(redirects.members())
        redirect.guard_stamp = claim.stamp
        redirect.holders = set(silent)
        redirect.requested_at = self._shared.now
        redirects.arriving[session] = None
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
            slow &= {*self._directory.possible_holders(claim.client_id)}
        if claim.begins_anew:
            self._let_in(claim)
        elif slow and not claim.senders and self._shared.now < longest:
            claim.asked = slow
            claim.deadline = longest
        elif not claim.senders and (claim.asked or claim.destinations):
            claim.asked.clear()
            claim.forget_answers(claim.destinations)
            self._decide(claim)
        else:
            self._refuse(claim)

    def _drop_slow(self, claim: Claim) -> bool:
        """Stop waiting for slow brokers that seem to have no session; return whether any were."""
        if not claim.asked or self._shared.now < claim.asked_at + CLAIM_WAIT_SECONDS:
            return False
        sources = {destination.source for destination in claim.destinations.values()}
        slow = claim.asked - {
            *claim.senders,
            *claim.destinations,
            *sources,
            *claim.possible_holders,
        }
        slow.difference_update(self._directory.possible_holders(claim.client_id))
        claim.asked -= slow
        return bool(slow)

    # A client connects elsewhere ------------------------------------------------------------------

    def give_way(self, client_id: str, user: str | None) -> None:
        """Refuse the client that waits here: it has connected to another broker since."""
        self._refuse(self._claim_of(client_id, user))

    def is_waiting(self, client_id: str, user: str | None) -> bool:
        """Return whether a claim of this client waits."""
        return self._claim_of(client_id, user) is not None

    def ask_again(self, client_id: str, user: str | None, name: str) -> None:
        """Ask a broker again: it may have the session since it was asked."""
        claim = self._claim_of(client_id, user)
        if claim is not None and not claim.begins_anew:
            claim.asked |= self._ask(claim, (name,))

    def first_of_others(self, client_id: str, user: str | None) -> int | None:
        """Return the lowest stamp of other users' claims for this identifier; None without any."""
        claims = self._claims.get(client_id, {})
        return min((one.stamp for one in claims.values() if one.user != user), default=None)

    # Peers and time -------------------------------------------------------------------------------

    def peer_is_up(self, name: str) -> None:
        """Ask again: the last connection may have lost the question or the answer."""
        for (client_id, user), notices in self._notices.pop(name, {}).items():
            if notices.last_stamp > notices.stamp:
                request = self._reconciliation.reroute_request(
                    client_id, notices.last_stamp, (name,), user=user, is_clean=notices.is_clean
                )
                self._post(name, pack(request), True, None)
        for claim in self._all():
            if name in claim.asked:
                self._ask(claim, (name,))

    def forget(self, name: str) -> None:
        """Forget a broker that will not return."""
        self._notices.pop(name, None)

    def peer_is_down(self, name: str) -> None:
        for claim in self._all():
            if name in claim.senders:
                claim.asked.discard(name)
                self._give_up(claim)
            elif name in claim.asked and name in self._directory.possible_holders(claim.client_id):
                continue  # the connection may break while the broker is up: it is asked again soon
            else:
                claim.asked.discard(name)
                self._decide(claim)

    def tick(self) -> None:
        for claim in self._all():
            self._check(claim)

    def _check(self, claim: Claim) -> None:
        if claim.deadline <= self._shared.now:
            self._give_up(claim)
        elif self._drop_slow(claim):
            self._decide(claim)
        elif not claim.is_waiting:
            names = claim.update_destinations(self._redirects.last_move(*claim.key))
            claim.forget_answers(names)
            claim.asked = self._ask(claim, names)
            self._decide(claim)
        elif not claim.asked:
            claim.asked = self._ask(claim, claim.uncertain_senders())
