"""How every node comes to know what every node has to tell, and who is there. Pure.

Each interval a node beats its own heart and talks to about log N others (BlueDove III-C), drawn
anew each time:

    A                                   B
    | -- Ask: how much I have of each -> |
    | <- Tell: what you lack, and what   |
    |          I lack ------------------ |
    | -- Give: what you lack ----------> |

Rules:

- Any message may be lost, doubled or late: each is right by itself, and nothing waits for an
  answer.
- A node is alive while its history grows here, whoever brings the news. Whether it does is judged
  by this node's own clock alone.
- A node that says that it leaves is gone at once. One that was silent for too long is forgotten,
  and does not come back with news that are as old as that.
- A node that is disowned is not there: others may tell what they like.
- Now and then the dead are asked too, so that a cluster that was cut in two grows together.
"""

import math
from collections.abc import Iterable
from enum import Enum, auto
from random import Random
from typing import NamedTuple

import msgspec
from msgspec import Struct

from dovetail.cluster.detector import Detector
from dovetail.cluster.limits import (
    DETECTOR_WINDOW,
    GOSSIP_BYTES_MAX,
    GOSSIP_INTERVAL_SECONDS,
    PHI_DEAD,
)
from dovetail.cluster.membership import Delta, Digest, NodeState, Table
from dovetail.errors import PeerError
from dovetail.limits import CLUSTER_NODES_MAX, FORGET_SECONDS

LEFT = "left"
"""The record of a node that has said goodbye."""

_KEEPS_NOTHING = b"0"
"""Its value, of a node that need not be remembered."""
_LAST_VERSION = (1 << 63) - 1


class Ask(Struct, frozen=True, array_like=True, tag=1):
    digests: list[Digest]


class Tell(Struct, frozen=True, array_like=True, tag=2):
    deltas: list[Delta]
    wanted: list[Digest]


class Give(Struct, frozen=True, array_like=True, tag=3):
    deltas: list[Delta]


Message = Ask | Tell | Give

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
        if isinstance(message, Ask)
        else (message.deltas, message.wanted)
        if isinstance(message, Tell)
        else (message.deltas,)
    )
    if any(len(items) > CLUSTER_NODES_MAX for items in lists):
        raise PeerError(f"gossip about more than {CLUSTER_NODES_MAX:,} nodes")
    return message


class Presence(Enum):
    ALIVE = auto()
    DEAD = auto()
    LEFT = auto()


class Event(NamedTuple):
    """Somebody came, fell silent, left or was forgotten; or told something new."""

    name: str
    presence: Presence | None
    """None: it is forgotten."""
    is_new: bool = False
    """Another life of it: what was known of the last one is void."""
    keys: tuple[str, ...] = ()


class _Life:
    """What this node thinks of another."""

    __slots__ = ("detector", "presence", "since")

    def __init__(self, detector: Detector, now: float) -> None:
        self.detector = detector
        self.presence = Presence.ALIVE
        self.since = now


class Gossip:
    """One node's part in it. Messages go in and come out; `events` is what changed."""

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
        self.table = Table(name, incarnation)
        self.interval_seconds = interval_seconds
        self._forget_seconds = forget_seconds
        self._random = random
        self._lives: dict[str, _Life] = {}
        self._forgotten: dict[str, tuple[int, int, float]] = {}
        self._events: list[Event] = []
        self._ticked_at = now

    # What is known --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.table.name

    def live(self) -> list[str]:
        """Everybody else who is there."""
        return [name for name, life in self._lives.items() if life.presence is Presence.ALIVE]

    def presence(self, name: str) -> Presence | None:
        life = self._lives.get(name)
        return None if life is None else life.presence

    def phi(self, name: str, now: float) -> float:
        return self._lives[name].detector.phi(now)

    def state(self, name: str) -> NodeState | None:
        return self.table.nodes.get(name)

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # What this node tells -------------------------------------------------------------------------

    def put(self, key: str, value: bytes) -> None:
        self.table.put(key, value)

    def leave(self, *, keeps: bool = True) -> list[tuple[str, Message]]:
        """Goodbye: nobody has to find out by our silence. To be sent before the end.

        `keeps`: there is something here that we have to be remembered for.
        """
        self.table.put(LEFT, b"1" if keeps else _KEEPS_NOTHING)
        own = [Digest(self.name, 0, 0)]
        farewell = Give(self.table.deltas(own, GOSSIP_BYTES_MAX))
        return [(name, farewell) for name in self.live()]

    def introduce(self, name: str, incarnation: int, now: float) -> None:
        """The transport has met somebody, who is there whatever others say."""
        if name != self.name and self.table.introduce(name, incarnation):
            self._forgotten.pop(name, None)
            self._begin(name, now)
            self._events.append(Event(name, Presence.ALIVE, is_new=True))

    def keeps_nothing(self, name: str) -> bool:
        """Has it left, and said that it need not be remembered?"""
        state = self.table.nodes.get(name)
        return state is not None and state.value(LEFT) == _KEEPS_NOTHING

    def remember(self, name: str, now: float, *, has_left: bool = False) -> None:
        """A node of an earlier life of ours. Nothing is heard of it yet: it counts as dead.

        Or as one that has left, if it had.

        So it is forgotten in time if it never comes back. Others are not told: what is known of it
        is less than anybody else could know.
        """
        if name != self.name and name not in self._lives:
            life = self._begin(name, now)
            life.presence = Presence.LEFT if has_left else Presence.DEAD

    def disown(self, name: str, now: float) -> None:
        """This life of it is none of us: nothing is kept of it, told of it, or heard of it again.

        A later life may be.
        """
        state = self.table.nodes.get(name)
        if state is not None:
            self._forgotten[name] = (state.incarnation, _LAST_VERSION, now + self._forget_seconds)
            self.table.forget(name)
        self._lives.pop(name, None)

    # Time and messages ----------------------------------------------------------------------------

    def tick(self, now: float) -> list[tuple[str, Message]]:
        """Once an interval: who is to be asked, and who is thought to be dead by now."""
        if now - self._ticked_at > 2 * self.interval_seconds:
            # It was we who were away (stopped, or a laptop that slept): nobody else is to blame.
            for life in self._lives.values():
                if life.presence is Presence.ALIVE:
                    life.detector.excuse(now)
        self._ticked_at = now
        self.table.beat()
        self._judge(now)
        digests = self.table.digests()
        return [(name, Ask(digests)) for name in self._draw()]

    def _draw(self) -> list[str]:
        live = self.live()
        count = min(len(live), max(1, round(math.log(len(live) + 1))))
        chosen = self._random.sample(live, count)
        dead = [name for name, life in self._lives.items() if life.presence is not Presence.ALIVE]
        if dead and self._random.random() < len(dead) / (len(live) + 1):
            chosen.append(self._random.choice(dead))
        return chosen

    def receive(self, message: Message, now: float) -> Message | None:
        """The answer to whoever sent it."""
        if isinstance(message, Ask):
            they_lack, we_lack = self.table.compare(message.digests)
            self._random.shuffle(they_lack)
            return Tell(self.table.deltas(they_lack, GOSSIP_BYTES_MAX), we_lack)
        self._apply(message.deltas, now)
        if isinstance(message, Tell) and message.wanted:
            return Give(self.table.deltas(message.wanted, GOSSIP_BYTES_MAX))
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
            life = self._lives.get(name)
            if life is None or change.is_new:
                life = self._begin(name, now)
            elif life.presence is Presence.ALIVE:
                life.detector.heard(now)
            else:
                life.detector.excuse(now)
            came_back = life.presence is not Presence.ALIVE
            life.presence = (
                Presence.ALIVE if self.table.nodes[name].value(LEFT) is None else Presence.LEFT
            )
            if life.presence is Presence.LEFT:
                if not came_back:
                    life.since = now
                    self._events.append(Event(name, Presence.LEFT))
            elif change.is_new or came_back or change.keys:
                self._events.append(Event(name, Presence.ALIVE, change.is_new, change.keys))

    def _begin(self, name: str, now: float) -> _Life:
        detector = Detector(
            now,
            self.interval_seconds,
            window=DETECTOR_WINDOW,
            deviation_min_seconds=self.interval_seconds * 0.25,
        )
        life = self._lives[name] = _Life(detector, now)
        return life

    # Silence --------------------------------------------------------------------------------------

    def _judge(self, now: float) -> None:
        for name, life in list(self._lives.items()):
            if life.presence is Presence.ALIVE:
                if life.detector.phi(now) > PHI_DEAD:
                    life.presence = Presence.DEAD
                    life.since = now
                    self._events.append(Event(name, Presence.DEAD))
            elif now - life.since > self._forget_seconds:
                self.forget(name, now)
        for name, (_, _, until) in list(self._forgotten.items()):
            if now > until:
                del self._forgotten[name]

    def forget(self, name: str, now: float) -> None:
        """It will not come back; or if it does, as a new one."""
        state = self.table.nodes.get(name)
        if state is not None:
            # Others forget it about now; until they have, their old news must not bring it back.
            until = now + self._forget_seconds
            self._forgotten[name] = (state.incarnation, state.version, until)
            self.table.forget(name)
        del self._lives[name]
        self._events.append(Event(name, None))

    def _is_old_news(self, name: str, incarnation: int, version: int) -> bool:
        known = self._forgotten.get(name)
        return known is not None and (incarnation, version) <= known[:2]
