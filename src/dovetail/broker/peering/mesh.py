"""All peers of a broker: the other modules put together, driven by broker_agent.py. Pure.

    here                                            peer
      | -- RESUME: our stream --------------------> |   when a connection opens
      | <- ACK: the last number taken of it ------- |
      | -- RUN: packets of a client --------------> |   as they came; without a number (QoS 0) they
      |                                             |   are lost with the connection
      | -- MESSAGE: number, and all of it --------> |
      | <- ACK: up to this number ----------------- |   when it is on disk for its receivers there
      | -- WANT, <- PAGE: retained messages ------- |   that one side lacks (retained_sync.py)

forwarder.py sends publications, and outbox.py spools them. stream_positions.py counts incoming
publications, and receiver.py delivers them. This module only decides which of the others hears of
an event, and in which order.
"""

from collections.abc import Callable, Iterable
from itertools import chain

from dovetail.broker import matcher_client
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.local_delivery import LocalDelivery
from dovetail.broker.matcher_client import MatcherClient
from dovetail.broker.peering.control_messages import ControlMessage, WillDone
from dovetail.broker.peering.forwarder import Forwarder
from dovetail.broker.peering.outbox import Outbox
from dovetail.broker.peering.peer_messages import (
    ACK,
    CLAIM,
    CLAIMED,
    DELTA,
    GROUPS,
    GROUPS_KNOWN,
    GROUPS_LOST,
    KNOWN,
    LOST,
    MESSAGE,
    MORE,
    PAGE,
    RESUME,
    RUN,
    WANT,
    WHOLE,
    WILLS,
    ClaimReply,
    ClaimRequest,
    ForwardedRun,
    RetainedPage,
    StreamResume,
    ack_decoder,
    claim_decoder,
    claimed_decoder,
    decoded,
    encode,
    publication_decoder,
    resume_decoder,
    retained_page_decoder,
    retained_request_decoder,
    wills_update_decoder,
)
from dovetail.broker.peering.peer_tables import ClusterMembership, PeerTables
from dovetail.broker.peering.receiver import Receiver
from dovetail.broker.peering.retained_sync import RetainedSync
from dovetail.broker.peering.roaming.claim import ClaimDone
from dovetail.broker.peering.roaming.session_move import SessionMoves
from dovetail.broker.peering.stream_positions import Answer, StreamPositions
from dovetail.broker.peering.will_copies import WillCopies
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.route import GroupKey
from dovetail.broker.router import Router
from dovetail.broker.run_dispatch import RunDispatch
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import LeaveState, MemberRow
from dovetail.errors import PeerError
from dovetail.messages import Message


class Mesh:
    """The peers of one broker. Implements `OtherBrokers`."""

    have_sessions = True

    def __init__(
        self,
        shared: SharedState,
        router: Router,
        dispatch: Dispatch,
        runs: RunDispatch,
        local: LocalDelivery,
        retained: RetainedMessages,
        lifetimes: SessionLifetimes,
        tables: PeerTables,
        forwarder: Forwarder,
        matchers: MatcherClient,
        membership: ClusterMembership,
        *,
        expire_retained: Callable[[Message], None],
        publish: Callable[[Message], None],
    ) -> None:
        name, stream, send = membership.name, membership.stream, membership.send
        self._router = router
        self._retained = retained
        self._lifetimes = lifetimes
        self.matcher_client = matchers
        self.stamps = tables.stamps
        self.retained_sync = RetainedSync(shared, self.stamps, retained, send=send)
        self.sketch_exchange = tables.sketch_exchange
        self.group_exchange = tables.group_exchange
        self.peers = tables.peers
        self.forwarder = forwarder
        self.will_copies = WillCopies(
            name,
            shared,
            lifetimes,
            send=send,
            post=self.forwarder.post,
            publish=publish,
            peers_up=self.peers.up,
        )
        self.session_moves = SessionMoves(
            name,
            shared,
            router,
            lifetimes,
            self.sketch_exchange,
            self.stamps,
            send=send,
            post=self.forwarder.post,
            when_known=self.when_known,
            members=self.peers.names,
            is_up=self.peers.is_up,
        )
        self._receiver = Receiver(
            shared,
            router,
            dispatch,
            runs,
            local,
            self.forwarder,
            self.stamps,
            expire_retained=expire_retained,
            take_control=self._take_control,
        )
        self._stream_positions = StreamPositions(
            stream,
            shared,
            self.peers,
            is_live=self.sketch_exchange.is_live,
            take=self._receiver.take,
        )

    def restore(
        self,
        members: dict[str, MemberRow],
        heard: dict[int, int],
        seen: Iterable[int],
        removals: dict[bytes, int],
    ) -> None:
        """Restore the known peers: we may have spooled messages for them."""
        for topic, stamp in sorted(removals.items(), key=lambda removal: removal[1]):
            self.stamps.restore_removal(topic, stamp)
        for message in self._retained:
            self.stamps.restore(message.stamp)
            self.stamps.put(message)
        self.peers.restore(members)
        self._stream_positions.restore(heard)
        self.retained_sync.restore(seen)

    # Who is there ---------------------------------------------------------------------------------

    def peer_is_live(self, name: str, is_live: bool) -> None:
        """Note that gossip says that a broker lives, or not."""
        self.peer_is_at(name, self.peers.addresses.get(name, ""))
        if is_live:
            self.peers.has_left(name, LeaveState.NO)
        was_live = self.sketch_exchange.is_live(name)
        self.sketch_exchange.peer_is_live(name, is_live)
        self.group_exchange.peer_is_live(name, is_live)
        self.matcher_client.peer_is_live(name, is_live)
        self.will_copies.peer_is_live(name, is_live)
        if was_live and not is_live:
            self.session_moves.liveness_changed()

    def peer_is_at(self, name: str, address: str) -> None:
        self.peers.is_at(name, address)

    def peer_is_up(self, name: str) -> None:
        """Note that there is a connection to the peer. This is a sign of life, too."""
        self.peer_is_live(name, True)
        self.forwarder.resume(name)
        self.sketch_exchange.peer_is_up(name, True)
        self.group_exchange.peer_is_up(name, True)
        self.matcher_client.peer_is_up(name, True)
        self.session_moves.peer_is_up(name)
        self.will_copies.peer_is_up(name)

    def peer_is_down(self, name: str) -> None:
        self.retained_sync.cancel(name)
        self.outbox(name).peer_is_down()
        self.sketch_exchange.peer_is_up(name, False)
        self.group_exchange.peer_is_up(name, False)
        self.matcher_client.peer_is_up(name, False)
        self.session_moves.peer_is_down(name)
        self.will_copies.peer_is_down(name)

    def needs_nothing(self, name: str) -> bool:
        """Return whether a peer has left without sessions, so that we need not spool for it.

        If it returns it will ask for the retained messages that it lacks.
        """
        return (
            self.peers.left.get(name) is LeaveState.WITH_NOTHING
            and not self.peers.get_or_add(name).outbox.has_control_messages
        )

    def peer_has_left(self, name: str, left: LeaveState) -> None:
        """Note that a peer has left the cluster, also through a restart of ours."""
        self.peers.has_left(name, left)

    def leave_state(self) -> LeaveState:
        """Return what we keep if we leave now: sessions, wills and full outboxes need us back."""
        keeps = (
            any(
                session.persistent or session.will is not None
                for session in self._lifetimes.sessions.values()
            )
            or self.session_moves.has_ghosts
            or any(peer.outbox.count for peer in self.peers.known.values())
        )
        return LeaveState.WITH_SESSIONS if keeps else LeaveState.WITH_NOTHING

    def forget(self, name: str) -> int:
        """Forget a peer that will not return; return how many publications it never got."""
        peer = self.peers.forget(name)
        self.forwarder.counts.pop(name, None)
        self.retained_sync.cancel(name)
        self.retained_sync.peer_begins(name)
        if peer is not None:
            self.retained_sync.forget_seen(peer.stream)
        self.sketch_exchange.forget(name)
        self.group_exchange.forget(name)
        self.matcher_client.forget(name)
        self.session_moves.forget(name)
        self.will_copies.forget(name)
        return 0 if peer is None else peer.outbox.clear()

    def names(self) -> tuple[str, ...]:
        return self.peers.names()

    def outbox(self, name: str) -> Outbox:
        return self.peers.get_or_add(name).outbox

    # What peers know of each other ----------------------------------------------------------------

    def send_changes(self) -> None:
        """Send what changed here to the peers. For the end of a turn."""
        self.sketch_exchange.flush()
        self.group_exchange.flush()
        self.will_copies.flush()
        self.matcher_client.turn()

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Act when all live peers know our subscriptions, but at `deadline` at the latest."""

        def boxes() -> None:
            self.matcher_client.when_known(deadline, act)

        self.sketch_exchange.when_known(
            deadline, lambda: self.group_exchange.when_known(deadline, boxes)
        )

    def has_room_for(self, key: GroupKey) -> bool:
        """Return whether a client here may join this group."""
        return self.group_exchange.has_room_for(key)

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
        self.session_moves.claim(client_id, user, is_clean, act, may_begin=may_begin)

    def moved_sessions(self) -> Iterable[Session]:
        return chain.from_iterable(self.session_moves.ghosts.values())

    def resume_all(self) -> None:
        self.matcher_client.drain()

    def spaces_changed(self) -> None:
        self.matcher_client.spaces_changed(self._router.spaces, self._router.clauses.values())

    @property
    def is_synchronous(self) -> bool:
        """Do we know the subscriptions of all live peers?"""
        return self.sketch_exchange.is_synchronous and self.group_exchange.is_synchronous

    @property
    def is_complete(self) -> bool:
        """Have we got the retained messages of all brokers that are there?"""
        return all(
            self.retained_sync.has_seen(peer.stream)
            for name, peer in self.peers.known.items()
            if self.sketch_exchange.is_live(name) or peer.outbox.is_up
        )

    # Time -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> int:
        """Return how many subscriptions were acknowledged before all peers knew of them."""
        for peer in self.peers.known.values():
            peer.outbox.tick()
        self.stamps.tick()
        self.retained_sync.tick()
        self._ask()
        self.session_moves.tick(now)
        self.will_copies.tick(now)
        self.matcher_client.tick()
        late = self.sketch_exchange.tick(now)
        return max(late, self.group_exchange.tick(now))  # both may count the same ones

    def flush(self) -> None:
        """Try again to send what a peer was too slow for."""
        self.send_changes()
        self._ask()
        for peer in self.peers.known.values():
            peer.outbox.flush()

    def _ask(self) -> None:
        """Ask the next peer for retained messages that we lack."""
        self.retained_sync.ask(
            (name, peer.stream)
            for name, peer in self.peers.known.items()
            if peer.outbox.is_up and peer.stream
        )

    # Frames ---------------------------------------------------------------------------------------

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """Take a peer's answer, over a connection that we have opened."""
        if kind in (KNOWN, LOST, MORE):
            self.sketch_exchange.answered(name, kind, body)
        elif kind in (GROUPS_KNOWN, GROUPS_LOST):
            self.group_exchange.answered(name, kind, body)
        elif kind == ACK:
            if self.forwarder.acknowledged(name, decoded(ack_decoder, body)):
                self._ask()
        elif kind == CLAIMED:
            self.session_moves.answered(name, decoded(claimed_decoder, body))
        elif kind in matcher_client.ANSWERS:
            self.matcher_client.matcher_answered(name, kind, body)
        elif kind == PAGE:
            self._take_page(name, decoded(retained_page_decoder, body))
        else:
            raise PeerError(f"an answer of unknown kind {kind}")

    def receive(self, name: str, kind: int, body: bytes, answer: Answer) -> None:
        """Take a frame from a peer, over a connection that it has opened."""
        if kind == RUN:
            self._stream_positions.take(name, ForwardedRun.decoded(body), answer)
        elif kind == MESSAGE:
            self._stream_positions.take(name, decoded(publication_decoder, body), answer)
        elif kind in (WHOLE, DELTA):
            self._take_sketch(name, kind, body, answer)
        elif kind in matcher_client.FRAMES:
            self.matcher_client.receive(name, kind, body, answer)
        elif kind == GROUPS:
            self.peers.get_or_add(name)
            self.group_exchange.receive(name, body, answer)
        elif kind == RESUME:
            self._resume(name, decoded(resume_decoder, body), answer)
        elif kind == CLAIM:
            self._take_claim(name, decoded(claim_decoder, body), answer)
        elif kind == WILLS:
            self.will_copies.receive(name, decoded(wills_update_decoder, body))
        elif kind == WANT:
            limit = self.outbox(name).message_bytes_max
            answer(
                PAGE,
                encode(
                    self.retained_sync.page(name, decoded(retained_request_decoder, body), limit)
                ),
            )
        else:
            raise PeerError(f"a frame of unknown kind {kind}")

    def _resume(self, name: str, resume: StreamResume, answer: Answer) -> None:
        self._stream_positions.begin(name, resume.stream)
        if resume.is_incomplete:
            self.retained_sync.forget_seen(resume.stream)
        self.retained_sync.peer_begins(name)
        self._ask()
        self.peer_is_live(name, True)  # from now on SUBACKs wait for it
        self._stream_positions.send_position(name, answer)

    def _take_sketch(self, name: str, kind: int, body: bytes, answer: Answer) -> None:
        kind_back, body_back = self.sketch_exchange.receive(name, kind, body)
        answer(kind_back, body_back)
        if kind == WHOLE and kind_back == KNOWN:
            self.session_moves.compare(name)

    def _take_claim(self, name: str, claim: ClaimRequest, answer: Answer) -> None:
        def reply(claimed: ClaimReply) -> None:
            answer(CLAIMED, encode(claimed))

        self.peers.get_or_add(name)
        self.matcher_client.drain(claim.client_id)  # its publications go before its session
        self.will_copies.came(claim.client_id, claim.user, claim.stamp, name)
        self.session_moves.claimed(name, claim, reply)

    def _take_control(self, name: str, message: ControlMessage) -> None:
        if isinstance(message, WillDone):
            self.will_copies.take(message)
        else:
            self.session_moves.take(name, message)

    def _take_page(self, name: str, page: RetainedPage) -> None:
        if self.retained_sync.is_asked(name):
            self._receiver.take_retained(page.publications)
            self.retained_sync.page_taken(name, self.peers.get_or_add(name).stream, page)
            self._ask()
