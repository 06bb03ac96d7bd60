"""Sends publications to the brokers that may need them. Pure.

Rules:

- A QoS 0 publication is dropped and counted if a peer is down or does not keep up. QoS 1 and 2 wait
  in the peer's outbox (outbox.py), under a number of our stream. So do retained messages, and for a
  moment QoS 0 publications that follow one on its topic.
- A run at QoS 1 is one entry of the outbox, under one number.
- Retained messages go to all brokers. Of two on a topic the later one stays (stamps.py).
- One broker serves a group (groups.py). If that is a peer, a DeliveryScope goes with the
  publication. It says for which groups the peer was picked.
"""

from collections.abc import Iterable, Mapping, Sequence

from dovetail.attributes.space import Point
from dovetail.broker.local_delivery import LocalDelivery
from dovetail.broker.outgoing_run import StoredRun
from dovetail.broker.peering.groups import HERE
from dovetail.broker.peering.limits import GROUP_HOPS_MAX, PEER_FRAME_EXTRA_BYTES, SCOPE_BYTES_MAX
from dovetail.broker.peering.peer_messages import (
    MESSAGE,
    RESUME,
    RUN,
    DeliveryScope,
    ForwardedRun,
    StreamAck,
    StreamResume,
    encode,
    to_publication,
)
from dovetail.broker.peering.peer_tables import ClusterMembership, PeerTables
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.route import Group, GroupKey, Route
from dovetail.broker.shared_state import SharedState
from dovetail.cluster.limits import PEER_FRAME_BYTES_MAX
from dovetail.messages import Message

_UTF_8_BYTES_MAX = 4  # of a character
_NO_SCOPES: Mapping[str, Sequence[GroupKey]] = {}


class Forwarder:
    """Takes publications from this broker's dispatch to the peers. Implements `Forwarding`."""

    def __init__(
        self,
        shared: SharedState,
        local: LocalDelivery,
        tables: PeerTables,
        membership: ClusterMembership,
    ) -> None:
        self.counts: dict[str, int] = {}
        """Publications sent to each peer or put into its outbox, by name."""
        self._shared = shared
        self._local = local
        self._peers = tables.peers
        self._groups = tables.groups
        self._stamps = tables.stamps
        self._stream = membership.stream
        self._send = membership.send
        # No life of this broker uses a million numbers in a millisecond.
        self._next_sequence = (membership.incarnation << 20) + 1
        self._message_bytes_max = PEER_FRAME_BYTES_MAX - PEER_FRAME_EXTRA_BYTES
        """The largest message that all peers take."""

    # To all who may need it -----------------------------------------------------------------------

    def forward(self, names: Iterable[str], stored: StoredRun) -> Ticket | None:
        """Forward a run of a client. At QoS 1 the ticket says when all have it."""
        if stored.size > self._message_bytes_max:
            return self._forward_each(names, stored)
        if not stored.qos:
            self._send_run(names, stored)
            return None
        ticket = Ticket()
        sequence = self._new_sequence()
        for name in names:
            self._count(name, stored.packets)
            self._peers.get_or_add(name).outbox.put(sequence, stored, ticket.expect())
        return ticket

    def _forward_each(self, names: Iterable[str], stored: StoredRun) -> Ticket:
        joined = Ticket()
        for row in range(stored.packets):
            ticket = self.publish(names, stored.message(row))
            if ticket is not None:
                ticket.close(joined.expect())
        return joined

    def _send_run(self, names: Iterable[str], stored: StoredRun) -> None:
        """Send a run at QoS 0 to the peers that keep up."""
        run = stored.run
        body = ForwardedRun(0, run.version, stored.origin, run.data).encoded()
        behind = self._peers.behind
        for name in names:
            if name in behind and self._may_wait(name, run.data, run.packets):
                for row in range(run.packets):
                    self._send_or_drop(name, stored.message(row))
            elif self._send(name, RUN, body):
                self._count(name, run.packets)
            else:
                self._shared.counters.peer_messages_dropped += run.packets

    def _may_wait(self, name: str, data: bytes, count: int) -> bool:
        """Return whether a packet may be on a topic for which messages wait. May err to True."""
        outbox = self._peers.get_or_add(name).outbox
        topics = outbox.waiting
        return outbox.holds_back and (len(topics) > count or any(topic in data for topic in topics))

    def publish(
        self,
        names: Iterable[str],
        message: Message,
        scopes: Mapping[str, Sequence[GroupKey]] = _NO_SCOPES,
        *,
        archived: int = 0,
    ) -> Ticket | None:
        """Forward a message to these peers. At QoS 1 and 2 the ticket says when all have it.

        `scopes` has the groups that a peer was picked for. Such a peer need not be in `names`.
        `archived` is its sequence in the archive, if a stream evaluates the clauses.
        """
        usual_scope = (
            encode(DeliveryScope((), 0, is_only=False, archived=archived)) if archived else b""
        )
        if not message.qos and not message.retain:
            plain = b""
            for name in names:
                if name not in scopes:
                    plain = plain or self._encoded(message, usual_scope)
                    self._send_or_drop(name, message, plain, scope=usual_scope)
            for name, keys in scopes.items():
                for scope in _scopes(keys, archived):
                    self._send_or_drop(name, message, scope=scope)
            return None
        ticket = Ticket()
        sequence = self._new_sequence()
        for name in names:
            if name not in scopes:
                self._count(name)
                outbox = self._peers.get_or_add(name).outbox
                outbox.put(sequence, message, ticket.expect(), scope=usual_scope)
        for name, keys in scopes.items():
            self._count(name)
            outbox = self._peers.get_or_add(name).outbox
            first, *more = _scopes(keys, archived)
            outbox.put(sequence, message, ticket.expect(), scope=first)
            for scope in more:
                outbox.put(self._new_sequence(), message, ticket.expect(), scope=scope)
        return ticket

    def everywhere(self, message: Message) -> tuple[str, ...]:
        """Stamp a retained message of ours, the latest of its topic; return all peers."""
        message.stamp = self._stamps.next()
        return self._peers.names()

    def needs_disk(self, route: Route, qos: int) -> bool:
        """Return whether this route's peers need the message on our disk first."""
        peers = {*route.peers, *(name for pool in route.pools for name in pool.peers)}
        return bool(peers) and (qos == 2 or not all(map(self._peers.is_up, peers)))

    # To one member of a group ---------------------------------------------------------------------

    def pick(
        self, route: Route, point: Point | None, qos: int
    ) -> tuple[Iterable[Group], Mapping[str, Sequence[GroupKey]]]:
        """Pick a broker for each group: return the groups that we serve, and those of each peer."""
        pools = route.pools
        if point is not None and route.clause_pools:
            pools = route.pools_for(point)
        if not pools:
            return (), _NO_SCOPES
        return self._groups.pick(pools, qos, self._peers.is_up)

    def redistribute(self, group: Group, message: Message) -> None:
        """Send to one member of a group anywhere: the member picked before has not got it."""
        self.share(group.key, message)

    def share_elsewhere(self, group: Group, message: Message) -> bool:
        """Send to a member at another broker."""
        self.share(group.key, message, elsewhere=True)
        return True

    def share(
        self, key: GroupKey, message: Message, *, elsewhere: bool = False, hops: int = 0
    ) -> None:
        """Send to one member of a group anywhere: the member picked before has not got it.

        At QoS 1 and 2 it is on our disk before another broker has it: its sender may forget it.
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
            self._local.share(pool.here, message, [])
        else:
            self._shared.counters.group_messages_passed_on += 1
            self._pass_on(name, message, encode(DeliveryScope((key,), hops, is_only=True)))

    def _pass_on(self, name: str, message: Message, scope: bytes) -> None:
        """Send to one peer. Nobody waits for the acknowledgement."""
        if message.qos:
            sequence = self._new_sequence()
            self._count(name)
            self._peers.get_or_add(name).outbox.put(sequence, message, scope=scope, must_spool=True)
        else:
            self._send_or_drop(name, message, scope=scope)

    # Our stream -----------------------------------------------------------------------------------

    def post(self, name: str, message: Message, is_exempt: bool, ticket: Ticket | None) -> None:
        """Put a packed control message into a peer's stream, in its place among publications."""
        done = None if ticket is None else ticket.expect()
        self._peers.get_or_add(name).outbox.put(
            self._new_sequence(), message, done, is_exempt=is_exempt
        )

    def resume(self, name: str) -> bool:
        """Name our stream, and say whether the outbox has dropped messages."""
        has_dropped = self._peers.get_or_add(name).outbox.has_dropped
        return self._send(name, RESUME, encode(StreamResume(self._stream, has_dropped)))

    def acknowledged(self, name: str, ack: StreamAck) -> bool:
        """Take a peer's acknowledgement. Return True if it is the first of a new connection."""
        outbox = self._peers.get_or_add(name).outbox
        if ack.message_bytes_max:
            outbox.message_bytes_max = ack.message_bytes_max
            self._message_bytes_max = min(
                peer.outbox.message_bytes_max for peer in self._peers.known.values()
            )
        if not outbox.is_up:
            outbox.has_dropped = False  # the peer has been told
            outbox.peer_is_up(ack.sequence)
            return True
        outbox.acknowledged(ack.sequence)
        if outbox.has_dropped and not outbox.count:
            outbox.has_dropped = not self.resume(name)
        return False

    def _new_sequence(self) -> int:
        sequence = self._next_sequence
        self._next_sequence += 1
        return sequence

    def _count(self, name: str, messages: int = 1) -> None:
        self._shared.counters.publishes_forwarded += messages
        self.counts[name] = self.counts.get(name, 0) + messages

    def _send_or_drop(
        self, name: str, message: Message, body: bytes = b"", *, scope: bytes = b""
    ) -> None:
        """Send at QoS 0. `body` is the encoded message, if there is one."""
        outbox = self._peers.get_or_add(name).outbox
        if message.topic in outbox.waiting and outbox.holds_back:
            self._count(name)
            outbox.put(self._new_sequence(), message, scope=scope)
            return
        fits = message.size <= outbox.message_bytes_max
        if fits and self._send(name, MESSAGE, body or self._encoded(message, scope)):
            self._count(name)
        else:
            self._shared.counters.peer_messages_dropped += 1

    def _encoded(self, message: Message, scope: bytes = b"") -> bytes:
        """Encode a message without a number: it is not sent again."""
        return encode(to_publication(message, self._shared.now, scope=scope))


def _scopes(keys: Sequence[GroupKey], archived: int = 0) -> list[bytes]:
    """Return an encoded scope for each frame. Those after the first are for the groups only."""
    scopes: list[bytes] = []
    some: list[GroupKey] = []
    size = 0
    for key in keys:
        size += len(key[0]) + len(key[1])
        if some and size > SCOPE_BYTES_MAX // _UTF_8_BYTES_MAX:
            scopes.append(encode(DeliveryScope(tuple(some), 0, bool(scopes), archived)))
            some, size = [], len(key[0]) + len(key[1])
        some.append(key)
    scopes.append(encode(DeliveryScope(tuple(some), 0, bool(scopes), archived)))
    return scopes
