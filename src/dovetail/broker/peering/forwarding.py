"""Publications go out to the brokers that may need them. Pure.

Rules:

- QoS 0 is dropped and counted where a peer is down or does not keep up. QoS 1 and 2 wait in the
  peer's outbox (outbox.py), under a number of our stream. So does what is retained, and for a
  moment what follows it at QoS 0.
- What is retained goes to all brokers; of two words on a topic the later one stays (stamps.py).
- A group (groups.py) is served by one broker. If that is a peer, a mark goes with the publication
  and says for which groups the peer was picked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from dovetail.broker.dispatch import Dispatch, packets_of
from dovetail.broker.peering.groups import HERE, Groups, Pool
from dovetail.broker.peering.limits import GROUP_HOPS_MAX, MARK_BYTES_MAX, PEER_FRAME_EXTRA_BYTES
from dovetail.broker.peering.peer_messages import (
    MESSAGE,
    PLAIN,
    RESUME,
    Heard,
    Mark,
    Resume,
    encode,
    publication_of,
)
from dovetail.broker.peering.peers import Peers
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.route import Group, Key, Route
from dovetail.broker.shared_state import Shared
from dovetail.cluster.limits import PEER_FRAME_BYTES_MAX
from dovetail.messages import Message

_UTF_8_BYTES_MAX = 4  # of a character
_NO_MARKS: Mapping[str, Sequence[Key]] = {}


class Forwarding:
    """The way from this broker's dispatch to the others."""

    def __init__(
        self,
        shared: Shared,
        dispatch: Dispatch,
        peers: Peers,
        groups: Groups,
        stamps: Stamps,
        *,
        stream: int,
        incarnation: int,
        send: Callable[[str, int, bytes], bool],
    ) -> None:
        self.counts: dict[str, int] = {}
        """Publications sent or owed to peers, by name."""
        self._shared = shared
        self._dispatch = dispatch
        self._peers = peers
        self._groups = groups
        self._stamps = stamps
        self._stream = stream
        self._send = send
        # No life of this broker takes a million of them in a millisecond.
        self._next_sequence = (incarnation << 20) + 1
        self._message_bytes_max = PEER_FRAME_BYTES_MAX - PEER_FRAME_EXTRA_BYTES
        """What all peers take in one piece."""

    # To all who may need it -----------------------------------------------------------------------

    def forward(
        self, names: Iterable[str], data: bytes, version: int, count: int, client_id: str
    ) -> None:
        """Plain QoS 0 packets, as they came from this client."""
        counters = self._shared.counters
        if len(data) > self._message_bytes_max:
            for topic, payload in packets_of(data, version):
                self.publish(names, Message(topic, payload, origin=client_id))
            return
        counts = self.counts
        origin = client_id.encode()
        body = (version << 16 | len(origin)).to_bytes(3) + origin + data
        behind = self._peers.behind
        for name in names:
            if name in behind and self._may_wait(name, data, count):
                for topic, payload in packets_of(data, version):
                    self._send_or_drop(name, Message(topic, payload, origin=client_id))
            elif self._send(name, PLAIN, body):
                counters.publishes_forwarded += count
                counts[name] = counts.get(name, 0) + count
            else:
                counters.peer_messages_dropped += count

    def _may_wait(self, name: str, data: bytes, count: int) -> bool:
        """Is one of these packets on a topic of which something waits? A yes may be wrong."""
        outbox = self._peers.know(name).outbox
        topics = outbox.waiting
        return outbox.holds_back and (len(topics) > count or any(topic in data for topic in topics))

    def publish(
        self,
        names: Iterable[str],
        message: Message,
        marks: Mapping[str, Sequence[Key]] = _NO_MARKS,
        *,
        archived: int = 0,
    ) -> Ticket | None:
        """Anything else. At QoS 1 and 2 the ticket tells when all of them have it.

        `marks`: the groups that a peer was picked for, which need not be among `names`.
        `archived`: its sequence in the archive, where a stream looks at clauses.
        """
        usual = encode(Mark((), 0, is_only=False, archived=archived)) if archived else b""
        if not message.qos and not message.retain:
            plain = b""
            for name in names:
                if name not in marks:
                    plain = plain or self._encoded(message, usual)
                    self._send_or_drop(name, message, plain, mark=usual)
            for name, keys in marks.items():
                for mark in _marks(keys, archived):
                    self._send_or_drop(name, message, mark=mark)
            return None
        ticket = Ticket()
        sequence = self._new_sequence()
        for name in names:
            if name not in marks:
                self._count(name)
                outbox = self._peers.know(name).outbox
                outbox.put(sequence, message, ticket.expect(), mark=usual)
        for name, keys in marks.items():
            self._count(name)
            outbox = self._peers.know(name).outbox
            first, *more = _marks(keys, archived)
            outbox.put(sequence, message, ticket.expect(), mark=first)
            for mark in more:
                outbox.put(self._new_sequence(), message, ticket.expect(), mark=mark)
        return ticket

    def everywhere(self, message: Message) -> tuple[str, ...]:
        """Who gets a retained message of ours, which is the last word on its topic now."""
        message.stamp = self._stamps.next()
        return self._peers.names()

    def needs_disk(self, route: Route, qos: int) -> bool:
        """Would what goes to peers have to be on our disk first?"""
        peers = {*route.peers, *(name for pool in route.pools for name in pool.peers)}
        return bool(peers) and (qos == 2 or not all(map(self._peers.is_up, peers)))

    # To one member of a group ---------------------------------------------------------------------

    def pick(
        self, pools: Iterable[Pool], qos: int
    ) -> tuple[list[Group], Mapping[str, Sequence[Key]]]:
        """Who serves these groups, this time: we, and by peer which it does."""
        return self._groups.pick(pools, qos, self._peers.is_up)

    def share(self, key: Key, message: Message, *, elsewhere: bool = False, hops: int = 0) -> None:
        """To one member of a group, wherever it is: who was picked before has not got it.

        It is on our disk before another broker has it, at QoS 1 and 2: who gave it to us may
        forget it.
        """
        pool = self._groups.pools.get(key)
        name = None
        if pool is not None and hops <= GROUP_HOPS_MAX:
            name = pool.pick(message.qos, self._peers.is_up, elsewhere=elsewhere)
        if name is None:
            self._shared.counters.publishes_dropped += 1  # nobody is left
        elif name == HERE:
            assert pool is not None
            assert pool.here is not None
            self._dispatch.share(pool.here, message, [])
        else:
            self._shared.counters.group_messages_passed_on += 1
            self._pass_on(name, message, encode(Mark((key,), hops, is_only=True)))

    def _pass_on(self, name: str, message: Message, mark: bytes) -> None:
        """To one peer, and nobody waits for it."""
        if message.qos:
            sequence = self._new_sequence()
            self._count(name)
            self._peers.know(name).outbox.put(sequence, message, mark=mark, keep=True)
        else:
            self._send_or_drop(name, message, mark=mark)

    # Our stream -----------------------------------------------------------------------------------

    def post(self, name: str, item: Message, must: bool, ticket: Ticket | None) -> None:
        """What is no publication, in its place among them."""
        done = None if ticket is None else ticket.expect()
        self._peers.know(name).outbox.put(self._new_sequence(), item, done, must=must)

    def resume(self, name: str) -> bool:
        """Over a new connection, or when all that was left is taken: what did not fit?"""
        has_dropped = self._peers.know(name).outbox.has_dropped
        return self._send(name, RESUME, encode(Resume(self._stream, has_dropped)))

    def heard(self, name: str, heard: Heard) -> bool:
        """What the peer has taken. Is it the first word of a new connection?"""
        outbox = self._peers.know(name).outbox
        if heard.message_bytes_max:
            outbox.message_bytes_max = heard.message_bytes_max
            self._message_bytes_max = min(
                peer.outbox.message_bytes_max for peer in self._peers.known.values()
            )
        if not outbox.is_up:
            outbox.has_dropped = False  # it has been told
            outbox.peer_is_up(heard.sequence)
            return True
        outbox.acknowledged(heard.sequence)
        if outbox.has_dropped and not outbox.count:
            outbox.has_dropped = not self.resume(name)
        return False

    def _new_sequence(self) -> int:
        sequence = self._next_sequence
        self._next_sequence += 1
        return sequence

    def _count(self, name: str) -> None:
        self._shared.counters.publishes_forwarded += 1
        self.counts[name] = self.counts.get(name, 0) + 1

    def _send_or_drop(
        self, name: str, message: Message, body: bytes = b"", *, mark: bytes = b""
    ) -> None:
        """At QoS 0; `body`: if it is encoded already."""
        outbox = self._peers.know(name).outbox
        if message.topic in outbox.waiting and outbox.holds_back:
            self._count(name)
            outbox.put(self._new_sequence(), message, mark=mark)
            return
        fits = message.size <= outbox.message_bytes_max
        if fits and self._send(name, MESSAGE, body or self._encoded(message, mark)):
            self._count(name)
        else:
            self._shared.counters.peer_messages_dropped += 1

    def _encoded(self, message: Message, mark: bytes = b"") -> bytes:
        """Without a number: nobody will ask for it again."""
        return encode(publication_of(message, self._shared.now, mark=mark))


def _marks(keys: Sequence[Key], archived: int = 0) -> list[bytes]:
    """One frame's groups, or those of several: after the first for these groups only."""
    marks: list[bytes] = []
    some: list[Key] = []
    size = 0
    for key in keys:
        size += len(key[0]) + len(key[1])
        if some and size > MARK_BYTES_MAX // _UTF_8_BYTES_MAX:
            marks.append(encode(Mark(tuple(some), 0, bool(marks), archived)))
            some, size = [], len(key[0]) + len(key[1])
        some.append(key)
    marks.append(encode(Mark(tuple(some), 0, bool(marks), archived)))
    return marks
