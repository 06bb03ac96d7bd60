"""Answers other brokers that claim a client's session: it moves, it has moved, or nothing. Pure.

Rules:

- A broker with a later connection of the client says so. Otherwise it hands its session over
  (handover_out.py), refuses a client that waits here, or says where the session went.
- A session that never began (it holds messages that came without it) goes along. But if the real
  one is on its way elsewhere, the answer says so.
- The answer also says what our sketches tell of brokers that are down, or that the asking broker
  does not reach.
- A publisher must not overtake itself. The other brokers acknowledge its QoS 2 publications before
  its session goes: it does not send those again elsewhere as new messages, as it would at QoS 1.
  But it does not wait long for a broker that hangs.
"""

from collections.abc import Callable
from typing import NamedTuple

from dovetail.broker.limits import HOLD_SECONDS_MAX
from dovetail.broker.peering.peer_messages import ClaimReply, ClaimRequest
from dovetail.broker.peering.roaming.claim import MOVED, MOVES, NEWER, NOTHING
from dovetail.broker.peering.roaming.claimant import Claimant
from dovetail.broker.peering.roaming.directory import SessionDirectory
from dovetail.broker.peering.roaming.handover_out import HandoverOut
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN, Redirects, redirect_of
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.shared_state import SharedState

SendReply = Callable[[ClaimReply], None]


class _Postponed(NamedTuple):
    """A peer's claim that we answer when the session may go, or at the deadline."""

    name: str
    body: ClaimRequest
    answer: SendReply
    deadline: float


class ClaimResponder:
    """This broker's answers to the claims of others."""

    def __init__(
        self,
        name: str,
        shared: SharedState,
        lifetimes: SessionLifetimes,
        stamps: Stamps,
        directory: SessionDirectory,
        redirects: Redirects,
        handover_out: HandoverOut,
        claimant: Claimant,
        *,
        is_up: Callable[[str], bool],
    ) -> None:
        """`is_up` returns whether a peer accepts what it is sent."""
        self._name = name
        self._shared = shared
        self._lifetimes = lifetimes
        self._stamps = stamps
        self._directory = directory
        self._redirects = redirects
        self._handover_out = handover_out
        self._claimant = claimant
        self._is_up = is_up
        self._postponed: list[_Postponed] = []

    def claimed(self, name: str, body: ClaimRequest, answer: SendReply) -> None:
        """Answer a peer that claims the client's session for a connection there."""
        self._stamps.saw(body.stamp)
        client_id, user = body.client_id, body.user
        if self._has_other_owner(client_id, user):
            answer(self._reply(name, body, NOTHING, NEVER_BEGUN))
        elif self._is_forwarding(body):
            deadline = self._shared.now + HOLD_SECONDS_MAX
            self._postponed.append(_Postponed(name, body, answer, deadline))
        else:
            self._give_way(name, body, answer)

    def _is_forwarding(self, body: ClaimRequest) -> bool:
        """Return whether the client would overtake its own publications if its session went now."""
        session = self._lifetimes.sessions.get(body.client_id)
        if session is None or body.is_clean:
            return False
        return session.persistent and session.forwarding > 0

    def _give_way(self, name: str, body: ClaimRequest, answer: SendReply) -> None:
        client_id, user = body.client_id, body.user
        newest = self._claimant.newest(client_id, user)
        if newest > body.stamp:
            answer(self._newer_reply(name, body, newest))
            self._claimant.ask_again(client_id, user, name)
            return
        if body.stamp == NEVER_BEGUN:
            # Only an inquiry: both brokers hold messages for a client that neither has seen.
            answer(self._reply(name, body, NOTHING, NEVER_BEGUN))
            return
        self._claimant.give_way(client_id, user)
        if self._redirects.is_unready(client_id):
            answer(self._reply(name, body, MOVED, newest, self._name))
            return
        session = self._lifetimes.sessions.get(client_id)
        holds_messages_only = session is not None and session.stamp == NEVER_BEGUN
        last = self._redirects.last_move(client_id, user)
        moves = self._handover_out.give_way(
            client_id, user, name, body.stamp, is_clean=body.is_clean
        )
        if moves and not (holds_messages_only and last):
            answer(ClaimReply(client_id, body.stamp, MOVES))
        elif last:
            owner, stamp = last
            answer(self._reply(name, body, MOVED, stamp, owner))
        else:
            nothing = self._reply(name, body, NOTHING, self._redirects.last_end(client_id, user))
            if self._lifetimes.is_being_deleted(client_id):
                self._answer_when_gone(nothing, answer)
            else:
                answer(nothing)

    def _has_other_owner(self, client_id: str, user: str | None) -> bool:
        """Return whether only other users have a session of this identifier here or leaving."""
        owners = self._redirects.owners(client_id)
        may_connect = self._shared.ownership.may_connect
        return bool(owners) and not any(may_connect(owner, user) for owner in owners)

    def _contender(self, client_id: str, user: str | None) -> int | None:
        """Return the stamp of another user who asks for the identifier here; -1 if one has it."""
        if self._has_other_owner(client_id, user):
            return NEVER_BEGUN
        return self._claimant.first_of_others(client_id, user)

    def _reply(
        self, name: str, body: ClaimRequest, verdict: int, connection: int, owner: str = ""
    ) -> ClaimReply:
        """Return what is here, and what other brokers may have as their sketches say.

        Those are brokers that are down, or that the asking broker does not reach.
        """
        client_id = body.client_id
        members = {*self._redirects.members()} - {name}
        reached = {one for one in members.intersection(body.unreachable) if self._is_up(one)}
        away = reached | {one for one in members if not self._is_up(one)}
        possible_holders: set[str] = set()
        if away:
            possible_holders = away & self._redirects.possible_holders(client_id)
            away = {*self._directory.with_known_sketch(away)}
            possible_holders |= away & {*self._directory.possible_holders(client_id)}
        return ClaimReply(
            client_id,
            body.stamp,
            verdict,
            connection,
            owner,
            ruled_out=sorted(away - possible_holders),
            possible_holders=sorted(possible_holders),
            reached=sorted(reached),
            contender=self._contender(client_id, body.user),
        )

    def _newer_reply(self, name: str, body: ClaimRequest, newest: int) -> ClaimReply:
        client_id = body.client_id
        session = self._lifetimes.sessions.get(client_id)
        is_void = session is not None and 0 <= body.stamp < session.void_before
        is_settled = not self._claimant.is_waiting(client_id, body.user) and (
            session is None or session.redirect is None or name not in redirect_of(session).holders
        )
        return ClaimReply(
            client_id, body.stamp, NEWER, newest, is_void=is_void, is_settled=is_settled
        )

    def _answer_when_gone(self, nothing: ClaimReply, answer: SendReply) -> None:
        """Answer when the end of a session is on disk: a crash must not bring it back."""
        journal = self._shared.journal

        def act(stored: bool) -> None:
            if stored:
                answer(nothing)
            else:
                journal.wait_on(act)

        journal.when_stored(act)

    def tick(self, now: float) -> None:
        """Answer postponed claims whose time has come."""
        postponed, self._postponed = self._postponed, []
        for one in postponed:
            if one.deadline <= now or not self._is_forwarding(one.body):
                self._give_way(one.name, one.body, one.answer)
            else:
                self._postponed.append(one)
