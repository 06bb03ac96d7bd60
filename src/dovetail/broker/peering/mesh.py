"""All peers of a broker: its parts put together, and what the agent talks to. Pure.

    here                                            peer
      | -- RESUME: our stream --------------------> |   when a connection comes about
      | <- HEARD: the last number taken of it ----- |
      | -- PLAIN: QoS 0 packets of a client ------> |   as they came; lost with the connection
      | -- MESSAGE: number, and all of it --------> |
      | <- HEARD: up to this number --------------- |   when it is on disk for who needs it there
      | -- WANT, <- PAGE: retained messages ------- |   that one side lacks (retained_sync.py)

What goes out is in forwarding.py and waits in outbox.py; what comes in is counted in
stream_positions.py and delivered by receiver.py. Sketches are sketch_exchange.py's, groups
group_exchange.py's, sessions that follow their clients broker/peering/roaming/session_move.py's,
and wills will_copies.py's: here is only who hears of what, and in which order.
"""

from collections.abc import Callable, Iterable
from random import Random

from dovetail.broker import matcher_client
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.matcher_client import Narrowing
from dovetail.broker.peering.forwarding import Forwarding
from dovetail.broker.peering.group_exchange import Roster
from dovetail.broker.peering.groups import Groups
from dovetail.broker.peering.limits import WILLS_RESTORED_SECONDS
from dovetail.broker.peering.outbox import Outbox
from dovetail.broker.peering.peer_messages import (
    CLAIM,
    CLAIMED,
    DELTA,
    GROUPS,
    GROUPS_KNOWN,
    GROUPS_LOST,
    HEARD,
    KNOWN,
    LOST,
    MESSAGE,
    MORE,
    PAGE,
    PLAIN,
    RESUME,
    WANT,
    WHOLE,
    WILLS,
    ClaimBody,
    ClaimedBody,
    Page,
    Resume,
    claim_decoder,
    claimed_decoder,
    decoded,
    encode,
    heard_decoder,
    page_decoder,
    publication_decoder,
    resume_decoder,
    want_decoder,
    wills_decoder,
)
from dovetail.broker.peering.peers import Peers
from dovetail.broker.peering.receiver import Receiving
from dovetail.broker.peering.retained_sync import Walk
from dovetail.broker.peering.roaming.session_move import Moving
from dovetail.broker.peering.sketch_exchange import Exchange
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.stream_messages import Item, WillDone
from dovetail.broker.peering.stream_positions import Answer, Streams
from dovetail.broker.peering.will_copies import Wills
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.route import Key
from dovetail.broker.router import Router
from dovetail.broker.session_lifetime import Lifetimes
from dovetail.broker.shared_state import Shared
from dovetail.broker.store.journal import Left, MemberRow
from dovetail.errors import PeerError
from dovetail.messages import Message


class Mesh:
    """This broker's place among the others."""

    def __init__(
        self,
        shared: Shared,
        router: Router,
        dispatch: Dispatch,
        retained: RetainedMessages,
        lifetimes: Lifetimes,
        expire_retained: Callable[[Message], None],
        publish: Callable[[Message], None],
        *,
        name: str,
        stream: int,
        incarnation: int,
        seed: int,
        send: Callable[[str, int, bytes], bool],
        random: Random,
        wake: Callable[[], None],
    ) -> None:
        self._retained = retained
        self._lifetimes = lifetimes
        self.narrowing = Narrowing(
            name,
            shared,
            router,
            life=incarnation,
            send=send,
            random=random,
            wake=wake,
            go_on=dispatch.go_on,
        )
        self.stamps = Stamps(stream, shared)
        self.walk = Walk(shared, self.stamps, retained, send=send)
        self.exchange = Exchange(
            seed=seed, lineage=incarnation, send=send, changed=router.peers_changed
        )
        self.groups = Groups(router.changed, random)
        self.roster = Roster(shared, self.groups, lineage=incarnation, send=send)
        self.peers = Peers(shared, send=send, expect=self.exchange.expect)
        self.forwarding = Forwarding(
            shared,
            dispatch,
            self.peers,
            self.groups,
            self.stamps,
            stream=stream,
            incarnation=incarnation,
            send=send,
        )
        lifetimes.wills_restored_seconds = WILLS_RESTORED_SECONDS
        self.wills = Wills(
            name,
            shared,
            lifetimes,
            send=send,
            post=self.forwarding.post,
            publish=publish,
            peers_up=self.peers.up,
        )
        self.moving = Moving(
            name,
            shared,
            router,
            lifetimes,
            self.exchange,
            self.stamps,
            send=send,
            post=self.forwarding.post,
            when_known=self.when_known,
            members=self.peers.names,
            is_up=self.peers.is_up,
        )
        self._receiving = Receiving(
            shared,
            router,
            dispatch,
            self.forwarding,
            self.stamps,
            expire_retained=expire_retained,
            take_item=self._take_item,
        )
        self._streams = Streams(
            stream,
            shared,
            self.peers,
            is_live=self.exchange.is_live,
            take=self._receiving.take,
        )

    def restore(
        self,
        members: dict[str, MemberRow],
        heard: dict[int, int],
        seen: Iterable[int],
        removals: dict[bytes, int],
    ) -> None:
        """Those who were known may be owed what nobody else can tell them."""
        for topic, stamp in sorted(removals.items(), key=lambda item: item[1]):
            self.stamps.restore_removal(topic, stamp)
        for message in self._retained:
            self.stamps.restore(message.stamp)
            self.stamps.put(message)
        self.peers.restore(members)
        self._streams.restore(heard)
        self.walk.restore(seen)

    # Who is there ---------------------------------------------------------------------------------

    def peer_is_live(self, name: str, is_live: bool) -> None:
        """What gossip says."""
        self.peer_is_at(name, self.peers.addresses.get(name, ""))
        if is_live:
            self.peers.has_left(name, Left.NO)
        was_live = self.exchange.is_live(name)
        self.exchange.peer_is_live(name, is_live)
        self.roster.peer_is_live(name, is_live)
        self.narrowing.peer_is_live(name, is_live)
        self.wills.peer_is_live(name, is_live)
        if was_live and not is_live:
            self.moving.liveness_changed()

    def peer_is_at(self, name: str, address: str) -> None:
        self.peers.is_at(name, address)

    def peer_is_up(self, name: str) -> None:
        """There is a connection to it, which is a sign of life, too."""
        self.peer_is_live(name, True)
        self.forwarding.resume(name)
        self.exchange.peer_is_up(name, True)
        self.roster.peer_is_up(name, True)
        self.narrowing.peer_is_up(name, True)
        self.moving.peer_is_up(name)
        self.wills.peer_is_up(name)

    def peer_is_down(self, name: str) -> None:
        self.walk.break_off(name)
        self.owed(name).peer_is_down()
        self.exchange.peer_is_up(name, False)
        self.roster.peer_is_up(name, False)
        self.narrowing.peer_is_up(name, False)
        self.moving.peer_is_down(name)
        self.wills.peer_is_down(name)

    def needs_nothing(self, name: str) -> bool:
        """It has left and keeps nothing, so publications are of no use to it when it is back.

        What it lacks of retained messages it will ask for.
        """
        return (
            self.peers.left.get(name) is Left.WITH_NOTHING
            and not self.peers.know(name).outbox.has_items
        )

    def peer_has_left(self, name: str, left: Left) -> None:
        """It has said goodbye, which is remembered through a restart of ours."""
        self.peers.has_left(name, left)

    def leaves(self) -> Left:
        """We go: would anybody miss what comes for us meanwhile, or what we owe?"""
        keeps = (
            any(
                session.persistent or session.will is not None
                for session in self._lifetimes.sessions.values()
            )
            or self.moving.has_ghosts
            or any(peer.outbox.count for peer in self.peers.known.values())
        )
        return Left.WITH_SESSIONS if keeps else Left.WITH_NOTHING

    def forget(self, name: str) -> int:
        """It will not come back; how many publications it never got."""
        peer = self.peers.forget(name)
        self.forwarding.counts.pop(name, None)
        self.walk.break_off(name)
        self.walk.begin(name)
        if peer is not None:
            self.walk.see_again(peer.stream)
        self.exchange.forget(name)
        self.roster.forget(name)
        self.narrowing.forget(name)
        self.moving.forget(name)
        self.wills.forget(name)
        return 0 if peer is None else peer.outbox.clear()

    def names(self) -> tuple[str, ...]:
        return self.peers.names()

    def owed(self, name: str) -> Outbox:
        return self.peers.know(name).outbox

    # What they know of each other -----------------------------------------------------------------

    def tell(self) -> None:
        """At the end of a turn: what changed here."""
        self.exchange.flush()
        self.roster.flush()
        self.wills.flush()
        self.narrowing.turn()

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Act when all live peers know what is subscribed to here, or it is this late."""

        def boxes() -> None:
            self.narrowing.when_known(deadline, act)

        self.exchange.when_known(deadline, lambda: self.roster.when_known(deadline, boxes))

    def has_room_for(self, key: Key) -> bool:
        """May a client here be in this group?"""
        return self.roster.has_room_for(key)

    @property
    def is_synchronous(self) -> bool:
        """Do we know what is subscribed to at all live peers?"""
        return self.exchange.is_synchronous and self.roster.is_synchronous

    @property
    def is_complete(self) -> bool:
        """Have we seen what all who are there retain?"""
        return all(
            self.walk.has_seen(peer.stream)
            for name, peer in self.peers.known.items()
            if self.exchange.is_live(name) or peer.outbox.is_up
        )

    # Time -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> int:
        """How many subscriptions were acknowledged before all peers knew of them."""
        for peer in self.peers.known.values():
            peer.outbox.tick()
        self.walk.tick()
        self._ask()
        self.moving.tick(now)
        self.wills.tick(now)
        late = self.exchange.tick(now)
        return max(late, self.roster.tick(now))  # who was late in the one may be in the other

    def flush(self) -> None:
        """What could not go before, because a peer did not keep up, may go now."""
        self.tell()
        self._ask()
        for peer in self.peers.known.values():
            peer.outbox.flush()

    def _ask(self) -> None:
        """For retained messages that we do not have yet."""
        self.walk.ask(
            (name, peer.stream)
            for name, peer in self.peers.known.items()
            if peer.outbox.is_up and peer.stream
        )

    # Frames ---------------------------------------------------------------------------------------

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """What a peer says to what we sent it."""
        if kind in (KNOWN, LOST, MORE):
            self.exchange.answered(name, kind, body)
        elif kind in (GROUPS_KNOWN, GROUPS_LOST):
            self.roster.answered(name, kind, body)
        elif kind == HEARD:
            if self.forwarding.heard(name, decoded(heard_decoder, body)):
                self._ask()
        elif kind == CLAIMED:
            self.moving.answered(name, decoded(claimed_decoder, body))
        elif kind in matcher_client.ANSWERS:
            self.narrowing.matcher_answered(name, kind, body)
        elif kind == PAGE:
            self._take_page(name, decoded(page_decoder, body))
        else:
            raise PeerError(f"an answer of kind {kind}, which there is not")

    def receive(self, name: str, kind: int, body: bytes, answer: Answer) -> None:
        """A frame from a peer, over a connection that it has opened."""
        if kind == PLAIN:
            self._receiving.take_plain(body)
        elif kind == MESSAGE:
            self._streams.take(name, decoded(publication_decoder, body), answer)
        elif kind in (WHOLE, DELTA):
            self._take_sketch(name, kind, body, answer)
        elif kind in matcher_client.FRAMES:
            self.narrowing.receive(name, kind, body, answer)
        elif kind == GROUPS:
            self.peers.know(name)
            self.roster.receive(name, body, answer)
        elif kind == RESUME:
            self._resume(name, decoded(resume_decoder, body), answer)
        elif kind == CLAIM:
            self._take_claim(name, decoded(claim_decoder, body), answer)
        elif kind == WILLS:
            self.wills.receive(name, decoded(wills_decoder, body))
        elif kind == WANT:
            limit = self.owed(name).message_bytes_max
            answer(PAGE, encode(self.walk.page(name, decoded(want_decoder, body), limit)))
        else:
            raise PeerError(f"a frame of kind {kind}, which there is not")

    def _resume(self, name: str, resume: Resume, answer: Answer) -> None:
        self._streams.begin(name, resume.stream)
        if resume.is_incomplete:
            self.walk.see_again(resume.stream)
        self.walk.begin(name)
        self._ask()
        self.peer_is_live(name, True)  # from now on who subscribes waits for it
        self._streams.say(name, answer)

    def _take_sketch(self, name: str, kind: int, body: bytes, answer: Answer) -> None:
        kind_back, body_back = self.exchange.receive(name, kind, body)
        answer(kind_back, body_back)
        if kind == WHOLE and kind_back == KNOWN:
            self.moving.compare(name)

    def _take_claim(self, name: str, claim: ClaimBody, answer: Answer) -> None:
        def reply(claimed: ClaimedBody) -> None:
            answer(CLAIMED, encode(claimed))

        self.peers.know(name)
        self.narrowing.drain(claim.client_id)  # what it published here goes before its session
        self.wills.came(claim.client_id, claim.user, claim.stamp, name)
        self.moving.claimed(name, claim, reply)

    def _take_item(self, name: str, item: Item) -> None:
        if isinstance(item, WillDone):
            self.wills.take(item)
        else:
            self.moving.take(name, item)

    def _take_page(self, name: str, page: Page) -> None:
        if self.walk.is_asked(name):
            self._receiving.take_retained(page.publications)
            self.walk.go_on(name, self.peers.know(name).stream, page)
            self._ask()
