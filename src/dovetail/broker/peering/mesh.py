"""All peers of a broker: publications go out to those that may need them, and come in. Pure.

    here                                            peer
      | -- RESUME: our stream --------------------> |   when a connection comes about
      | <- HEARD: the last number taken of it ----- |
      | -- PLAIN: QoS 0 packets of a client ------> |   as they came; lost with the connection
      | -- MESSAGE: number, and all of it --------> |
      | <- HEARD: up to this number --------------- |   when it is on disk for who needs it there
      | -- WANT, <- PAGE: retained messages ------- |   that one of them does not have yet (walk.py)

Rules:

- What comes from a peer is delivered here and goes nowhere else, so nothing can go in circles. But
  for one case: it came for a group (groups.py) that has no members here any more, and is passed on
  to a broker that has some, so often and no more.
- QoS 0 is dropped and counted where a peer is down or does not keep up. QoS 1 and 2 wait in the
  peer's outbox (outbox.py).
- A number is taken once: deliveries to kept sessions, what is passed on, and the number are written
  in one batch.
- What is retained is retained at all brokers; of two words on a topic the later one stays
  (stamps.py).
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from dovetail.broker.dispatch import Dispatch, packets_of
from dovetail.broker.lifetimes import Lifetimes
from dovetail.broker.packets import MQTT_3_1_1, MQTT_5
from dovetail.broker.peering.bodies import (
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
    ClaimedBody,
    CopiedFolderError,
    Heard,
    Mark,
    Page,
    Publication,
    Resume,
    claim_decoder,
    claimed_decoder,
    decoded,
    encode,
    heard_decoder,
    mark_decoder,
    page_decoder,
    publication_decoder,
    resume_decoder,
    want_decoder,
    wills_decoder,
)
from dovetail.broker.peering.exchange import Exchange
from dovetail.broker.peering.groups import HERE, Groups, Pool
from dovetail.broker.peering.items import ITEM_TOPIC, WillDone, unpacked
from dovetail.broker.peering.moving import Moving
from dovetail.broker.peering.outbox import Outbox
from dovetail.broker.peering.roster import Roster
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.peering.walk import Walk
from dovetail.broker.peering.wills import Wills
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.routing import Group, Key, Route, Router
from dovetail.broker.scanning import Scanner
from dovetail.broker.state import Shared
from dovetail.config import (
    GROUP_HOPS_MAX,
    HEARD_STREAMS_MAX,
    MARK_BYTES_MAX,
    PEER_FRAME_BYTES_MAX,
    PEER_FRAME_EXTRA_BYTES,
    WILLS_RESTORED_SECONDS,
)
from dovetail.errors import ClientError, PeerError
from dovetail.messages import Message
from dovetail.topics.names import SharedFilter, check_name, matches

log = logging.getLogger("dovetail.cluster")

Answer = Callable[[int, bytes], object]
"""A frame back over the connection that a question came by."""

_VERSIONS = (MQTT_3_1_1, MQTT_5)
_UTF_8_BYTES_MAX = 4  # of a character
_NO_MARKS: Mapping[str, Sequence[Key]] = {}


class _Peer:
    """Another broker."""

    __slots__ = ("acks_waiting", "outbox", "stream")

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.stream = 0  # whose publications come over its connection; 0: it has not said
        self.acks_waiting = 0


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
    ) -> None:
        self.stream = stream
        self.stamps = Stamps(stream, shared)
        self._walk = Walk(shared, self.stamps, retained, publication=self._publication, send=send)
        self._retained = retained
        self._expire_retained = expire_retained
        self.exchange = Exchange(
            seed=seed, lineage=incarnation, send=send, changed=router.peers_changed
        )
        self.groups = Groups(router.changed, random)
        self.roster = Roster(shared, self.groups, lineage=incarnation, send=send)
        self.heard: dict[int, int] = {}
        self.addresses: dict[str, str] = {}
        """Where peers were last, by name."""
        self.forwarded: dict[str, int] = {}
        """Publications sent or owed to peers, by name."""
        self._shared = shared
        self._router = router
        self._dispatch = dispatch
        self._send = send
        self._scan = Scanner()
        self._peers: dict[str, _Peer] = {}
        # No life of this broker takes a million of them in a millisecond.
        self._next_sequence = (incarnation << 20) + 1
        self._takes_bytes_max = max(
            PEER_FRAME_BYTES_MAX - PEER_FRAME_EXTRA_BYTES, shared.limits.packet_bytes_max
        )
        self._message_bytes_max = PEER_FRAME_BYTES_MAX - PEER_FRAME_EXTRA_BYTES
        """What all peers take in one piece."""
        lifetimes.wills_restored_seconds = WILLS_RESTORED_SECONDS
        self.wills = Wills(
            name,
            shared,
            lifetimes,
            send=send,
            post=self._post,
            publish=publish,
            peers_up=lambda: filter(self._is_up, self._peers),
        )
        self.moving = Moving(
            name,
            shared,
            router,
            lifetimes,
            self.exchange,
            self.stamps,
            send=send,
            post=self._post,
            when_known=self.when_known,
            members=self.names,
            is_up=self._is_up,
        )

    def restore(
        self,
        members: dict[str, str],
        heard: dict[int, int],
        seen: Iterable[int],
        removals: dict[bytes, int],
    ) -> None:
        """Those who were known may be owed what nobody else can tell them."""
        for topic, stamp in sorted(removals.items(), key=lambda item: item[1]):
            self.stamps.restore_removal(topic, stamp)
        for message in self._retained:
            self.stamps.saw(message.stamp)
            self.stamps.put(message)
        self.addresses.update(members)
        for name in members:
            self._peer(name)
        self.heard.update(heard)
        self._walk.restore(seen)

    # Who is there ---------------------------------------------------------------------------------

    def peer_is_live(self, name: str, is_live: bool) -> None:
        """What gossip says."""
        self.peer_is_at(name, self.addresses.get(name, ""))
        self.exchange.peer_is_live(name, is_live)
        self.roster.peer_is_live(name, is_live)
        self.wills.peer_is_live(name, is_live)

    def peer_is_at(self, name: str, address: str) -> None:
        self._peer(name)
        if self.addresses.get(name) != address:
            self.addresses[name] = address
            self._shared.journal.save_member(name, address)

    def peer_is_up(self, name: str) -> None:
        """There is a connection to it, which is a sign of life, too."""
        self.peer_is_live(name, True)
        outbox = self._peer(name).outbox
        self._send(name, RESUME, encode(Resume(self.stream, outbox.has_dropped)))
        self.exchange.peer_is_up(name, True)
        self.roster.peer_is_up(name, True)

    def peer_is_down(self, name: str) -> None:
        self._walk.break_off(name)
        self._peer(name).outbox.peer_is_down()
        self.exchange.peer_is_up(name, False)
        self.roster.peer_is_up(name, False)
        self.moving.peer_is_down(name)
        self.wills.peer_is_down(name)

    def forget(self, name: str) -> int:
        """It will not come back; how many publications it never got."""
        peer = self._peers.pop(name, None)
        self.addresses.pop(name, None)
        self.forwarded.pop(name, None)
        self._walk.break_off(name)
        self._walk.begin(name)
        # How far its stream was taken stays: it may come back after all, with what it owed us.
        if peer is not None:
            self._walk.see_again(peer.stream)
        self.exchange.forget(name)
        self.roster.forget(name)
        self._shared.journal.save_member(name, None)
        self.moving.forget(name)
        self.wills.forget(name)
        return 0 if peer is None else peer.outbox.clear()

    def names(self) -> tuple[str, ...]:
        return tuple(self._peers)

    def owed(self, name: str) -> Outbox:
        return self._peer(name).outbox

    def _peer(self, name: str) -> _Peer:
        peer = self._peers.get(name)
        if peer is None:

            def send(sequence: int, message: Message, mark: bytes) -> bool:
                return self._send(name, MESSAGE, self._encoded(sequence, message, mark))

            peer = self._peers[name] = _Peer(Outbox(name, self._shared, send))
            self.exchange.expect(name)
        return peer

    # What they know of each other's subscriptions -------------------------------------------------

    def tell(self) -> None:
        """At the end of a turn: what changed here."""
        self.exchange.flush()
        self.roster.flush()
        self.wills.flush()

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Act when all live peers know what is subscribed to here, or it is this late."""
        self.exchange.when_known(deadline, lambda: self.roster.when_known(deadline, act))

    def has_room_for(self, shared: SharedFilter) -> bool:
        """May a client here subscribe to this?"""
        return self.roster.has_room_for((shared.group, shared.filter))

    @property
    def is_synchronous(self) -> bool:
        """Do we know what is subscribed to at all live peers?"""
        return self.exchange.is_synchronous and self.roster.is_synchronous

    def tick(self, now: float) -> int:
        """How many subscriptions were acknowledged before all peers knew of them."""
        for peer in self._peers.values():
            peer.outbox.tick()
        self._walk.tick()
        self._ask()
        self.moving.tick(now)
        self.wills.tick(now)
        late = self.exchange.tick(now)
        return max(late, self.roster.tick(now))  # who was late in the one may be in the other

    # Groups ---------------------------------------------------------------------------------------

    def pick(
        self, pools: Iterable[Pool], qos: int
    ) -> tuple[list[Group], Mapping[str, Sequence[Key]]]:
        """Who serves these groups, this time: we, and by peer which it does."""
        return self.groups.pick(pools, qos, self._is_up)

    def _is_up(self, name: str) -> bool:
        outbox = self._peer(name).outbox
        return outbox.is_up and not outbox.is_late

    def share(self, key: Key, message: Message, *, elsewhere: bool = False, hops: int = 0) -> None:
        """To one member of a group, wherever it is: who was picked before has not got it.

        It is on our disk before another broker has it, at QoS 1 and 2: who gave it to us may
        forget it.
        """
        pool = self.groups.pools.get(key)
        name = None
        if pool is not None and hops <= GROUP_HOPS_MAX:
            name = pool.pick(message.qos, self._is_up, elsewhere=elsewhere)
        if name is None:
            self._shared.counters.publishes_dropped += 1  # nobody is left
        elif name == HERE:
            assert pool is not None
            assert pool.here is not None
            self._dispatch.share(pool.here, message, [])
        else:
            self._shared.counters.group_messages_passed_on += 1
            mark = Mark((key,), hops, is_only=True)
            self._publish_marked(name, message, encode(mark), keep=True)

    def _publish_marked(self, name: str, message: Message, mark: bytes, *, keep: bool) -> None:
        """To one peer, and nobody waits for it."""
        if message.qos:
            sequence = self._new_sequence()
            self._count_forwarded(name)
            self._peer(name).outbox.put(sequence, message, mark=mark, keep=keep)
        else:
            self._send_or_drop(name, message, self._encoded(0, message, mark))

    def needs_disk(self, route: Route, qos: int) -> bool:
        """Would what goes to peers have to be on our disk first?"""
        peers = {*route.peers, *(name for pool in route.pools for name in pool.peers)}
        return bool(peers) and (qos == 2 or not all(map(self._is_up, peers)))

    # Out ------------------------------------------------------------------------------------------

    def forward(
        self, names: Iterable[str], data: bytes, version: int, count: int, client_id: str
    ) -> None:
        """Plain QoS 0 packets, as they came from this client."""
        counters = self._shared.counters
        if len(data) > self._message_bytes_max:
            for topic, payload in packets_of(data, version):
                self.publish(names, Message(topic, payload, origin=client_id))
            return
        forwarded = self.forwarded
        origin = client_id.encode()
        body = (version << 16 | len(origin)).to_bytes(3) + origin + data
        for name in names:
            if self._send(name, PLAIN, body):
                counters.publishes_forwarded += count
                forwarded[name] = forwarded.get(name, 0) + count
            else:
                counters.peer_messages_dropped += count

    def publish(
        self,
        names: Iterable[str],
        message: Message,
        marks: Mapping[str, Sequence[Key]] = _NO_MARKS,
    ) -> Ticket | None:
        """Anything else. At QoS 1 and 2 the ticket tells when all of them have it.

        `marks`: the groups that a peer was picked for, which need not be among `names`.
        """
        if not message.qos and not message.retain:
            plain = b""
            for name in names:
                if name not in marks:
                    plain = plain or self._encoded(0, message)
                    self._send_or_drop(name, message, plain)
            for name, keys in marks.items():
                for mark in _marks(keys):
                    self._send_or_drop(name, message, self._encoded(0, message, mark))
            return None
        ticket = Ticket()
        sequence = self._new_sequence()
        for name in names:
            if name not in marks:
                self._count_forwarded(name)
                self._peer(name).outbox.put(sequence, message, ticket.expect())
        for name, keys in marks.items():
            self._count_forwarded(name)
            outbox = self._peer(name).outbox
            first, *more = _marks(keys)
            outbox.put(sequence, message, ticket.expect(), mark=first)
            for mark in more:
                outbox.put(self._new_sequence(), message, ticket.expect(), mark=mark)
        return ticket

    def _post(self, name: str, item: Message, must: bool, ticket: Ticket | None) -> None:
        """What is no publication, in its place among them."""
        done = None if ticket is None else ticket.expect()
        self._peer(name).outbox.put(self._new_sequence(), item, done, must=must)

    def _new_sequence(self) -> int:
        sequence = self._next_sequence
        self._next_sequence += 1
        return sequence

    def _count_forwarded(self, name: str) -> None:
        self._shared.counters.publishes_forwarded += 1
        self.forwarded[name] = self.forwarded.get(name, 0) + 1

    def _send_or_drop(self, name: str, message: Message, body: bytes) -> None:
        fits = message.size <= self._peer(name).outbox.message_bytes_max
        if fits and self._send(name, MESSAGE, body):
            self._count_forwarded(name)
        else:
            self._shared.counters.peer_messages_dropped += 1

    def _encoded(self, sequence: int, message: Message, mark: bytes = b"") -> bytes:
        return encode(self._publication(sequence, message, mark))

    def _publication(self, sequence: int, message: Message, mark: bytes = b"") -> Publication:
        left = None
        if message.expires_at is not None:
            left = max(message.expires_at - self._shared.now, 0.0)
        return Publication(
            sequence,
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
            left,
            message.origin,
            message.stamp,
            mark,
        )

    def flush(self) -> None:
        """What could not go before, because a peer did not keep up, may go now."""
        self.tell()
        self._ask()
        for peer in self._peers.values():
            peer.outbox.flush()

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """What a peer says to what we sent it."""
        if kind in (KNOWN, LOST, MORE):
            self.exchange.answered(name, kind, body)
        elif kind in (GROUPS_KNOWN, GROUPS_LOST):
            self.roster.answered(name, kind, body)
        elif kind == HEARD:
            heard = decoded(heard_decoder, body)
            outbox = self._peer(name).outbox
            if heard.message_bytes_max:
                outbox.message_bytes_max = heard.message_bytes_max
                self._message_bytes_max = min(
                    peer.outbox.message_bytes_max for peer in self._peers.values()
                )
            if outbox.is_up:
                outbox.acknowledged(heard.sequence)
                if outbox.has_dropped and not outbox.count:
                    again = encode(Resume(self.stream, True))
                    outbox.has_dropped = not self._send(name, RESUME, again)
            else:
                outbox.has_dropped = False  # it has been told
                outbox.peer_is_up(heard.sequence)
                self._ask()
        elif kind == CLAIMED:
            self.moving.answered(name, decoded(claimed_decoder, body))
        elif kind == PAGE:
            self._take_page(name, decoded(page_decoder, body))
        else:
            raise PeerError(f"an answer of kind {kind}, which there is not")

    # In -------------------------------------------------------------------------------------------

    def receive(  # noqa: C901
        self, name: str, kind: int, body: bytes, answer: Answer
    ) -> None:
        """A frame from a peer, over a connection that it has opened."""
        if kind == PLAIN:
            self._take_plain(body)
        elif kind == MESSAGE:
            self._take_publication(name, decoded(publication_decoder, body), answer)
        elif kind in (WHOLE, DELTA):
            kind_back, body_back = self.exchange.receive(name, kind, body)
            answer(kind_back, body_back)
            if kind == WHOLE and kind_back == KNOWN:
                self.moving.compare(name)
        elif kind == GROUPS:
            self._peer(name)
            self.roster.receive(name, body, answer)
        elif kind == RESUME:
            peer = self._peer(name)
            resume = decoded(resume_decoder, body)
            self._check_stream(name, resume.stream)
            peer.stream = resume.stream
            if resume.is_incomplete:
                self._walk.see_again(peer.stream)
            self._walk.begin(name)
            self._ask()
            self.peer_is_live(name, True)  # from now on who subscribes waits for it
            # Not before it is on disk: what is heard is not sent again.
            self._forget_streams()
            heard = Heard(self.heard.get(peer.stream, 0), self._takes_bytes_max)
            self._confirm(peer, heard, answer, wait=bool(peer.acks_waiting))
        elif kind == CLAIM:
            self._peer(name)

            def reply(claimed: ClaimedBody) -> None:
                answer(CLAIMED, encode(claimed))

            claim = decoded(claim_decoder, body)
            self.wills.came(claim.client_id, claim.stamp, name)
            self.moving.claimed(name, claim, reply)
        elif kind == WILLS:
            self.wills.receive(name, decoded(wills_decoder, body))
        elif kind == WANT:
            limit = self._peer(name).outbox.message_bytes_max
            answer(PAGE, encode(self._walk.page(name, decoded(want_decoder, body), limit)))
        else:
            raise PeerError(f"a frame of kind {kind}, which there is not")

    def _check_stream(self, name: str, stream: int) -> None:
        """Who numbers as another does would have its publications taken for that one's."""
        for other, peer in self._peers.items():
            if peer.stream == stream and other != name and self.exchange.is_live(other):
                raise CopiedFolderError(f"the data folder of {name} is a copy of that of {other}")
        if stream == self.stream:
            raise CopiedFolderError(f"the data folder of {name} is a copy of ours, or ours of it")

    def _take_plain(self, body: bytes) -> None:
        if not body or body[0] not in _VERSIONS:
            raise PeerError("publications of no MQTT version")
        version = body[0]
        origin_end = 3 + int.from_bytes(body[1:3])
        try:
            client_id = body[3:origin_end].decode()
        except UnicodeDecodeError as error:
            raise PeerError("publications of a client without a name") from error
        data = body[origin_end:]
        while data:
            runs, at, _, _ = self._scan(data, version, len(data))
            if not runs:
                raise PeerError("publications that are cut short")
            self._take_runs(data, version, runs, client_id)
            data = data[at:]

    def _take_runs(self, data: bytes, version: int, runs: list[list[int]], client_id: str) -> None:
        """Neighbouring runs of one route go on as one slice, as in link.py."""
        route: Route | None = None
        first = last = packets = 0
        for start, body, end, count, topic_end in runs:
            if not topic_end:
                raise PeerError("a packet among publications that is none")
            found = self._route(data[body + 2 : topic_end])
            if found is not None and found is route:
                last = end
                packets += count
                continue
            self._take_slice(route, data[first:last], version, packets, client_id)
            route, first, last, packets = found, start, end, count
        self._take_slice(route, data[first:last], version, packets, client_id)

    def _take_slice(
        self, route: Route | None, data: bytes, version: int, count: int, client_id: str
    ) -> None:
        counters = self._shared.counters
        counters.publishes_from_peers += count
        if route is None:
            return
        if route.deliveries:
            self._dispatch.forward(route, data, version, count, None, client_id)
        else:
            counters.publishes_in_vain += count

    def _route(self, topic: bytes) -> Route | None:
        """None for what is no topic name. A peer's limits may be others than ours."""
        route = self._router.routes.get(topic)
        if route is not None:
            return route
        try:
            check_name(topic)
        except ClientError as error:
            # Refused it would come again, and what is behind it would not come at all.
            log.warning("dropped a publication of another broker: %s", error)
            self._shared.counters.publishes_dropped += 1
            return None
        return self._router.route(topic)

    def _take_publication(self, name: str, publication: Publication, answer: Answer) -> None:
        shared = self._shared
        peer = self._peer(name)
        sequence = publication.sequence
        if sequence and not peer.stream:
            raise PeerError("a numbered publication before its stream was named")
        if sequence and sequence <= self.heard.get(peer.stream, 0):
            self._confirm(peer, Heard(sequence), answer, wait=bool(peer.acks_waiting))
            return
        rows_before = shared.journal.rows_written
        if publication.topic == ITEM_TOPIC:
            item = unpacked(publication.payload)
            if isinstance(item, WillDone):
                self.wills.take(item)
            else:
                self.moving.take(name, item)
        else:
            shared.counters.publishes_from_peers += 1
            mark = decoded(mark_decoder, publication.mark) if publication.mark else None
            shared.source = name
            self._publish_here(self._message(publication), mark)
            shared.source = ""
        if not sequence:
            return
        self.heard[peer.stream] = sequence
        has_rows = shared.journal.rows_written != rows_before
        if has_rows:
            shared.journal.save_heard(peer.stream, sequence)
        self._confirm(peer, Heard(sequence), answer, wait=has_rows or bool(peer.acks_waiting))

    def _publish_here(self, message: Message, mark: Mark | None) -> None:
        route = self._route(message.topic)
        if route is None:
            return
        if mark is None or not mark.is_only:
            if mark is None and not route.deliveries and not message.retain:
                self._shared.counters.publishes_in_vain += 1
            self._dispatch.publish_here(route, message)
            if message.retain:
                self._expire_retained(message)
        if mark is not None:
            for key in mark.groups:
                self._serve(key, message, mark.hops)

    def _serve(self, key: Key, message: Message, hops: int) -> None:
        """We were picked for a group. Its members may have left meanwhile."""
        if not matches(key[1], message.topic.decode()):
            raise PeerError("a publication for a group that does not get it")
        group = self._router.groups.get(key)
        if group is None or not self._dispatch.share(group, message, []):
            self.share(key, message, elsewhere=True, hops=hops + 1)

    def _message(self, publication: Publication) -> Message:
        expiry = publication.expiry_seconds
        self.stamps.saw(publication.stamp)
        return Message(
            publication.topic,
            publication.payload,
            publication.qos,
            publication.retain,
            publication.properties,
            None if expiry is None else self._shared.now + expiry,
            publication.origin,
            publication.stamp,
        )

    def _forget_streams(self) -> None:
        """Those that began longest ago, of brokers that are not known any more."""
        if len(self.heard) <= HEARD_STREAMS_MAX:
            return
        known = {peer.stream for peer in self._peers.values()}
        old = sorted(self.heard.keys() - known, key=self.heard.__getitem__)
        for stream in old[: len(self.heard) - HEARD_STREAMS_MAX]:
            del self.heard[stream]
            self._shared.journal.save_heard(stream, None)

    def _confirm(self, peer: _Peer, heard: Heard, answer: Answer, *, wait: bool) -> None:
        """In order: a number stands for all before it."""
        body = encode(heard)
        if not wait:
            answer(HEARD, body)
            return
        peer.acks_waiting += 1
        journal = self._shared.journal

        def act(stored: bool) -> None:
            if not stored:
                journal.wait_on(act)  # the sender keeps it until our disk is well
                return
            peer.acks_waiting -= 1
            answer(HEARD, body)

        journal.when_stored(act)

    # Retained messages that we do not have yet ----------------------------------------------------

    def lacks_room_for(self, message: Message) -> None:
        """It is retained elsewhere, and not here."""
        self._walk.lacks_room_for(message)

    @property
    def is_complete(self) -> bool:
        """Have we seen what all who are there retain?"""
        return all(
            self._walk.has_seen(peer.stream)
            for name, peer in self._peers.items()
            if self.exchange.is_live(name) or peer.outbox.is_up
        )

    def _ask(self) -> None:
        self._walk.ask(
            (name, peer.stream)
            for name, peer in self._peers.items()
            if peer.outbox.is_up and peer.stream
        )

    def _take_page(self, name: str, page: Page) -> None:
        if not self._walk.is_asked(name):
            return
        for publication in page.publications:
            message = self._message(publication)
            if self._route(message.topic) is not None:
                self._dispatch.retain(message)
                self._expire_retained(message)
        self._walk.go_on(name, self._peer(name).stream, page)
        self._ask()


def _marks(keys: Sequence[Key]) -> list[bytes]:
    """One frame's groups, or those of several: after the first for these groups only."""
    marks: list[bytes] = []
    some: list[Key] = []
    size = 0
    for key in keys:
        size += len(key[0]) + len(key[1])
        if some and size > MARK_BYTES_MAX // _UTF_8_BYTES_MAX:
            marks.append(encode(Mark(tuple(some), 0, is_only=bool(marks))))
            some, size = [], len(key[0]) + len(key[1])
        some.append(key)
    marks.append(encode(Mark(tuple(some), 0, is_only=bool(marks))))
    return marks
