"""One broker's part in session moves: the other modules put together. Pure.

The package's docstring draws the protocol. Rules that hold for all of it:

- The session with the highest stamp belongs to the client. A broker with another one hands it over,
  whole and in one batch. From then on it is in the outbox to its new broker, or at that broker.
- Broker C's publications before its marker reach the client through A, the last broker. A keeps a
  ghost: the subscriptions without a client, which redirect what they get. B, the new broker, takes
  nothing for the client directly from C until then. So each publication arrives once and in order.
- A shared subscription may pick the ghost; the client gets that message, too. The ghost stays a
  member until all brokers know the members at B. B keeps a message that picks the session at B,
  whatever its origin.
- B sends messages that came directly when A has ended the redirect, or when A does not answer.
- A broker that is down may have a session; its sketch says so. Then the client begins anew. B lets
  it in when all live brokers have written their marker into their streams to that broker. When the
  broker returns it hands over the messages from before, and nothing else.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint

from dovetail.broker.peering.control_messages import (
    HandoverFilters,
    HandoverHeader,
    HandoverMessage,
    HandoverReady,
    MoveMessage,
    RerouteMarker,
    RerouteRequest,
)
from dovetail.broker.peering.peer_messages import ClaimReply, ClaimRequest
from dovetail.broker.peering.roaming.claim import ClaimDone
from dovetail.broker.peering.roaming.claim_responder import ClaimResponder, SendReply
from dovetail.broker.peering.roaming.claimant import Claimant
from dovetail.broker.peering.roaming.directory import SessionDirectory
from dovetail.broker.peering.roaming.handover_in import HandoverIn
from dovetail.broker.peering.roaming.handover_out import HandoverOut
from dovetail.broker.peering.roaming.inquiry import Inquiries
from dovetail.broker.peering.roaming.limits import ROUND_SECONDS, ROUND_SESSIONS
from dovetail.broker.peering.roaming.reconciliation import Reconciliation
from dovetail.broker.peering.roaming.redirect import Redirects
from dovetail.broker.peering.sketch_exchange import SketchExchange
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.tickets import Post
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.shared_state import SharedState


class SessionMoves:
    """Session moves of one broker."""

    def __init__(
        self,
        name: str,
        shared: SharedState,
        router: Router,
        lifetimes: SessionLifetimes,
        exchange: SketchExchange,
        stamps: Stamps,
        *,
        send: Callable[[str, int, bytes], bool],
        post: Post,
        when_known: Callable[[float, Callable[[], None]], None],
        members: Callable[[], Iterable[str]],
        is_up: Callable[[str], bool],
    ) -> None:
        self._stamps = stamps
        self._comparing: dict[str, Iterator[bool]] = {}
        self._round: Iterator[Session] = iter(())
        self._round_again_at = 0.0
        self._directory = SessionDirectory(exchange)
        self._redirects = Redirects(
            name,
            shared,
            lifetimes,
            post=post,
            members=members,
            is_live=exchange.is_live,
            trace=self._directory.set_trace,
        )
        handover_out = HandoverOut(name, lifetimes, self._redirects)
        self._reconciliation = Reconciliation(
            name,
            lifetimes,
            exchange,
            self._redirects,
            handover_out,
            newest=self._newest,
            is_up=is_up,
        )
        self._claimant = Claimant(
            name,
            shared,
            lifetimes,
            stamps,
            self._directory,
            self._redirects,
            self._reconciliation,
            send=send,
            post=post,
            is_up=is_up,
        )
        self._claim_responder = ClaimResponder(
            name,
            shared,
            lifetimes,
            stamps,
            self._directory,
            self._redirects,
            handover_out,
            self._claimant,
            is_up=is_up,
        )
        self._inquiries = Inquiries(
            shared,
            lifetimes,
            self._redirects,
            handover_out,
            newest=self._newest,
            send=send,
        )
        self._handover_in = HandoverIn(
            name,
            shared,
            router,
            lifetimes,
            self._redirects,
            handover_out,
            self._reconciliation,
            self._claimant,
            self._inquiries,
            when_known,
        )

    def _newest(self, client_id: str, user: str | None) -> int:
        return self._claimant.newest(client_id, user)

    @property
    def ghosts(self) -> dict[str, list[Session]]:
        """Sessions that have moved on, by client identifier, the latest last."""
        return self._redirects.ghosts

    def restore(self, session: Session, row: bytes) -> bool:
        """Restore a session's redirect from disk; return True if the session has moved on."""
        return self._redirects.restore(session, row)

    def restored(self) -> None:
        """Continue after a start, when all messages are restored."""
        self._redirects.restored()

    # Clients --------------------------------------------------------------------------------------

    def claim(
        self,
        client_id: str,
        user: str | None,
        is_clean: bool,
        act: ClaimDone,
        *,
        may_begin: bool = True,
    ) -> None:
        """Get the session of a client that connects here from wherever it is, then act."""
        self._claimant.claim(client_id, user, is_clean, act, may_begin=may_begin)

    def claimed(self, name: str, body: ClaimRequest, answer: SendReply) -> None:
        """Answer a peer to which a client has connected."""
        self._claim_responder.claimed(name, body, answer)

    def answered(self, name: str, answer: ClaimReply) -> None:
        """Take a peer's answer to a claim or an inquiry of ours."""
        if not self._claimant.answered(name, answer):
            self._inquiries.answered(name, answer)

    # Control messages -----------------------------------------------------------------------------

    def take(self, name: str, message: MoveMessage) -> None:
        """Take a control message from a peer's stream."""
        self._stamps.saw(message.stamp)
        if isinstance(message, RerouteRequest):
            self._reconciliation.take_request(name, message)
        elif isinstance(message, RerouteMarker):
            self._reconciliation.apply_marker(name, message)
        elif isinstance(message, HandoverHeader):
            self._handover_in.take_header(name, message)
        elif isinstance(message, HandoverFilters):
            self._handover_in.take_filters(message)
        elif isinstance(message, HandoverMessage):
            self._handover_in.take_message(name, message)
        elif isinstance(message, HandoverReady):
            self._handover_in.take_ready(name, message)
        else:
            self._handover_in.take_end(name, message)

    # Peers and time -------------------------------------------------------------------------------

    def compare(self, name: str) -> None:
        """Begin to look, turn by turn, for sessions of our clients in a peer's new sketch."""
        self._comparing[name] = self._reconciliation.compare(name, self._directory)

    def peer_is_up(self, name: str) -> None:
        self._claimant.peer_is_up(name)

    def liveness_changed(self) -> None:
        """Check ghosts when a broker has become live or dead."""
        self._redirects.liveness_changed()

    def peer_is_down(self, name: str) -> None:
        self._comparing.pop(name, None)
        self._claimant.peer_is_down(name)

    @property
    def has_ghosts(self) -> bool:
        """Are there sessions that have moved on and still redirect messages?"""
        return bool(self._redirects.ghosts)

    def forget(self, name: str) -> None:
        """Forget a broker that will not return."""
        self._comparing.pop(name, None)
        self._claimant.forget(name)
        self._reconciliation.forget(name)
        self._redirects.forget(name)

    def tick(self, now: float) -> None:
        self._claim_responder.tick(now)
        self._claimant.tick()
        self._inquiries.tick(now)
        self._handover_in.tick(now)
        self._reconciliation.tick()
        self._check_some(now)
        for name, comparison in list(self._comparing.items()):
            if next(comparison, None) is None:
                del self._comparing[name]

    def _check_some(self, now: float) -> None:
        """Check some moving sessions in each turn, with a pause between rounds."""
        if self._round_again_at <= now and not length_hint(self._round):
            self._round = iter([*self._redirects.arriving, *self._redirects.all_ghosts()])
            self._round_again_at = now + ROUND_SECONDS
        for session in islice(self._round, ROUND_SESSIONS):
            self._reconciliation.check(session, now)
            self._redirects.check(session, now)
