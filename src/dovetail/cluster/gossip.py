"""Gossip: spreads every node's records to every node, and detects failures. Pure.

Each interval a node raises its heartbeat and contacts about log N others (BlueDove III-C), drawn
anew each time:

    A                                         B
    | -- GossipSyn: digests of what I have --> |
    | <- GossipAck: records that you lack,     |
    |               digests of what I lack --- |
    | -- GossipAck2: records that you lack --> |

Rules:

- Any message may be lost, doubled or late. Each is valid by itself, and nothing waits for an
  answer.
- A node is alive while its history grows here, whichever node brings the records. Only this node's
  own clock counts.
- A node that announces its leave is gone at once. A node that was silent for too long is forgotten.
  Records from before that do not bring it back.
- A node that is disowned is ignored, whatever others gossip about it.
- Sometimes a dead node is contacted, too, so that a partitioned cluster merges again.
"""

import math
from collections.abc import Iterable
from enum import Enum, auto
from random import Random
from typing import NamedTuple

import msgspec
from msgspec import Struct

from dovetail.cluster.detector import FailureDetector
from dovetail.cluster.limits import (
    DETECTOR_WINDOW,
    GOSSIP_BYTES_MAX,
    GOSSIP_INTERVAL_SECONDS,
    PHI_DEAD,
)
from dovetail.cluster.membership import Delta, Digest, MembershipTable, NodeState
from dovetail.errors import PeerError
from dovetail.limits import CLUSTER_NODES_MAX, FORGET_SECONDS

LEFT = "left"
"""The key of the record of a node that has left."""

_KEEPS_NOTHING = b"0"
"""The value of that record if the node need not be remembered."""
_LAST_VERSION = (1 << 63) - 1


class GossipSyn(Struct, frozen=True, array_like=True, tag=1):
    digests: list[Digest]


class GossipAck(Struct, frozen=True, array_like=True, tag=2):
    deltas: list[Delta]
    wanted: list[Digest]


class GossipAck2(Struct, frozen=True, array_like=True, tag=3):
    deltas: list[Delta]


Message = GossipSyn | GossipAck | GossipAck2

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(data: bytes) -> Message:
    try:
        message: Message = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"gossip that cannot be read: {error}") from error
    lists = (
        (message.digests,)
        if isinstance(message, GossipSyn)
        else (message.deltas, message.wanted)
        if isinstance(message, GossipAck)
        else (message.deltas,)
    )
    if any(len(items) > CLUSTER_NODES_MAX for items in lists):
        raise PeerError(f"gossip about more than {CLUSTER_NODES_MAX:,} nodes")
    return message


class Presence(Enum):
    ALIVE = auto()
    DEAD = auto()
    LEFT = auto()


class PresenceEvent(NamedTuple):
    """A node came, fell silent, left or was forgotten, or has new records."""

    name: str
    presence: Presence | None
    """None: the node is forgotten."""
    is_new: bool = False
    """The node is new, or restarted: nothing that was known before is valid."""
    keys: tuple[str, ...] = ()


class _NodeHealth:
    """What this node thinks of another: alive, dead or left, and since when."""

    __slots__ = ("detector", "presence", "since")

    def __init__(self, detector: FailureDetector, now: float) -> None:
        self.detector = detector
        self.presence = Presence.ALIVE
        self.since = now


class Gossip:
    """One node's gossip. Messages go in and come out; `take_events` returns what changed."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        now: float,
        random: Random,
        *,
        interval_seconds: float = GOSSIP_INTERVAL_SECONDS,
        forget_seconds: float = FORGET_SECONDS,
    ) -> None:
        self.table = MembershipTable(name, incarnation)
        self.interval_seconds = interval_seconds
        self._forget_seconds = forget_seconds
        self._random = random
        self._health: dict[str, _NodeHealth] = {}
        self._forgotten: dict[str, tuple[int, int, float]] = {}
        self._events: list[PresenceEvent] = []
        self._ticked_at = now

    # What is known --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.table.name

    def live(self) -> list[str]:
        """Return all other nodes that are alive."""
        return [name for name, health in self._health.items() if health.presence is Presence.ALIVE]

    def presence(self, name: str) -> Presence | None:
        health = self._health.get(name)
        return None if health is None else health.presence

    def phi(self, name: str, now: float) -> float:
        return self._health[name].detector.phi(now)

    def state(self, name: str) -> NodeState | None:
        return self.table.nodes.get(name)

    def take_events(self) -> list[PresenceEvent]:
        events, self._events = self._events, []
        return events

    # What this node tells -------------------------------------------------------------------------

    def put(self, key: str, value: bytes) -> None:
        self.table.put(key, value)

    def leave(self, *, keeps: bool = True) -> list[tuple[str, Message]]:
        """Return the messages that announce our leave, to be sent before the end.

        `keeps`: others must remember us, as we keep something for them.
        """
        self.table.put(LEFT, b"1" if keeps else _KEEPS_NOTHING)
        own = [Digest(self.name, 0, 0)]
        farewell = GossipAck2(self.table.deltas(own, GOSSIP_BYTES_MAX))
        return [(name, farewell) for name in self.live()]

    def introduce(self, name: str, incarnation: int, now: float) -> None:
        """Add a node that has connected, and so is alive whatever others say."""
        if name != self.name and self.table.introduce(name, incarnation):
            self._forgotten.pop(name, None)
            self._begin(name, now)
            self._events.append(PresenceEvent(name, Presence.ALIVE, is_new=True))

    def keeps_nothing(self, name: str) -> bool:
        """Has the node left, and need it not be remembered?"""
        state = self.table.nodes.get(name)
        return state is not None and state.value(LEFT) == _KEEPS_NOTHING

    def remember(self, name: str, now: float, *, has_left: bool = False) -> None:
        """Add a node that we knew before our restart, as dead or, with `has_left`, as left.

        So it is forgotten in time if it never comes back. It is not gossiped: all others know more
        of it.
        """
        if name != self.name and name not in self._health:
            health = self._begin(name, now)
            health.presence = Presence.LEFT if has_left else Presence.DEAD

    def disown(self, name: str, now: float) -> None:
        """Exclude this life of a node: forget its records, and ignore gossip about it.

        A later life is welcome again.
        """
        state = self.table.nodes.get(name)
        if state is not None:
            self._forgotten[name] = (state.incarnation, _LAST_VERSION, now + self._forget_seconds)
            self.table.forget(name)
        self._health.pop(name, None)

    # Time and messages ----------------------------------------------------------------------------

    def tick(self, now: float) -> list[tuple[str, Message]]:
        """Run one interval: mark dead nodes, and return the messages to send."""
        if now - self._ticked_at > 2 * self.interval_seconds:
            # We were away (stopped, or a laptop that slept): the silence is not the others' fault.
            for health in self._health.values():
                if health.presence is Presence.ALIVE:
                    health.detector.excuse(now)
        self._ticked_at = now
        self.table.beat()
        self._judge(now)
        digests = self.table.digests()
        return [(name, GossipSyn(digests)) for name in self._draw()]

    def _draw(self) -> list[str]:
        live = self.live()
        count = min(len(live), max(1, round(math.log(len(live) + 1))))
        chosen = self._random.sample(live, count)
        dead = [
            name for name, health in self._health.items() if health.presence is not Presence.ALIVE
        ]
        if dead and self._random.random() < len(dead) / (len(live) + 1):
            chosen.append(self._random.choice(dead))
        return chosen

    def receive(self, message: Message, now: float) -> Message | None:
        """Handle a message. Return the answer to its sender, or None."""
        if isinstance(message, GossipSyn):
            they_lack, we_lack = self.table.compare(message.digests)
            self._random.shuffle(they_lack)
            return GossipAck(self.table.deltas(they_lack, GOSSIP_BYTES_MAX), we_lack)
        self._apply(message.deltas, now)
        if isinstance(message, GossipAck) and message.wanted:
            return GossipAck2(self.table.deltas(message.wanted, GOSSIP_BYTES_MAX))
        return None

    def _apply(self, deltas: Iterable[Delta], now: float) -> None:
        for delta in deltas:
            if self._is_old_news(delta.name, delta.incarnation, delta.version):
                continue
            change = self.table.apply(delta)
            if change is None:
                continue
            name = change.name
            self._forgotten.pop(name, None)
            health = self._health.get(name)
            if health is None or change.is_new:
                health = self._begin(name, now)
            elif health.presence is Presence.ALIVE:
                health.detector.heard(now)
            else:
                health.detector.excuse(now)
            came_back = health.presence is not Presence.ALIVE
            health.presence = (
                Presence.ALIVE if self.table.nodes[name].value(LEFT) is None else Presence.LEFT
            )
            if health.presence is Presence.LEFT:
                if not came_back:
                    health.since = now
                    self._events.append(PresenceEvent(name, Presence.LEFT))
            elif change.is_new or came_back or change.keys:
                self._events.append(PresenceEvent(name, Presence.ALIVE, change.is_new, change.keys))

    def _begin(self, name: str, now: float) -> _NodeHealth:
        detector = FailureDetector(
            now,
            self.interval_seconds,
            window=DETECTOR_WINDOW,
            deviation_min_seconds=self.interval_seconds * 0.25,
        )
        health = self._health[name] = _NodeHealth(detector, now)
        return health

    # Silence --------------------------------------------------------------------------------------

    def _judge(self, now: float) -> None:
        for name, health in list(self._health.items()):
            if health.presence is Presence.ALIVE:
                if health.detector.phi(now) > PHI_DEAD:
                    health.presence = Presence.DEAD
                    health.since = now
                    self._events.append(PresenceEvent(name, Presence.DEAD))
            elif now - health.since > self._forget_seconds:
                self.forget(name, now)
        for name, (_, _, until) in list(self._forgotten.items()):
            if now > until:
                del self._forgotten[name]

    def forget(self, name: str, now: float) -> None:
        """Forget a node. If it comes back, it is a new one."""
        state = self.table.nodes.get(name)
        if state is not None:
            # Others forget it at about this time. Their old records must not bring it back.
            until = now + self._forget_seconds
            self._forgotten[name] = (state.incarnation, state.version, until)
            self.table.forget(name)
        del self._health[name]
        self._events.append(PresenceEvent(name, None))

    def _is_old_news(self, name: str, incarnation: int, version: int) -> bool:
        known = self._forgotten.get(name)
        return known is not None and (incarnation, version) <= known[:2]
