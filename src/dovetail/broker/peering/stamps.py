"""Stamps say which of two retained messages, or of two connections, is later. Pure.

All brokers compare stamps alike. Rules:

- A retained message, or a connection, gets a stamp from the broker that took it: milliseconds, a
  counter, and some bits of the broker's own. It is higher than every stamp that this broker has
  given or seen. So an effect is later than its cause, whatever the clocks say (a hybrid logical
  clock). A stamp absurdly far ahead is refused, or no stamps would be left for us.
- When a broker sees a stamp from a faster clock, its own stamps continue above it.
  So an event that is later by seconds has a higher stamp, also at a broker that is cut off.
- The higher stamp stays. A message without one (0) is from before there was a cluster, and gives
  way to any other. Of two with the same, the one whose contents come later in the order of bytes
  stays: any order does, if it is the same at all brokers.
- A removed message leaves its stamp behind for a while, so that an older copy that comes late does
  not bring it back.
"""

import hashlib

from dovetail.broker.peering.limits import (
    REMOVALS_MAX,
    REMOVALS_SECONDS,
    STAMP_JUMP_MAX,
    STAMP_MAX,
    STAMP_STEP_MAX,
)
from dovetail.broker.shared_state import SharedState
from dovetail.errors import PeerError
from dovetail.messages import Message

_BROKER_BITS = 10
_COUNTER_BITS = 10


class Stamps:
    """The stamps of one broker, and its removals of retained messages."""

    def __init__(self, stream: int, shared: SharedState) -> None:
        self._shared = shared
        self._broker = stream & ((1 << _BROKER_BITS) - 1)
        self._last = 0
        self._ahead_ms = 0.0
        """The lead of the clock that is farthest ahead, as far as we know."""
        self.removals: dict[bytes, int] = {}
        self.digest = 0
        """A hash of all retained messages and removals: equal at two brokers that have the same."""

    def _now_ms(self) -> float:
        """Return the time of the clock that is farthest ahead, late by a message's way."""
        return self._shared.now * 1_000 + self._ahead_ms

    def next(self) -> int:
        milliseconds = int(self._now_ms())
        later = (self._last >> _BROKER_BITS) + 1
        self._last = max(milliseconds << _COUNTER_BITS, later) << _BROKER_BITS | self._broker
        self._last = min(self._last, STAMP_MAX - 1)
        return self._last

    def saw(self, stamp: int) -> None:
        """Note another broker's stamp."""
        if stamp > max(self._last, STAMP_JUMP_MAX) + STAMP_STEP_MAX:
            raise PeerError("a stamp of the far future")
        self.restore(stamp)

    def restore(self, stamp: int) -> None:
        """Note a stamp that an earlier life has given or seen."""
        self._last = max(self._last, stamp)
        seen_ms = min(stamp, STAMP_JUMP_MAX) >> _COUNTER_BITS + _BROKER_BITS
        self._ahead_ms = max(self._ahead_ms, seen_ms - self._shared.now * 1_000)

    def is_late(self, message: Message, known: Message | None) -> bool:
        """Return whether a later message or removal is known for its topic."""
        if message.stamp <= self.removals.get(message.topic, -1):
            return True
        if known is None or message.stamp != known.stamp:
            return known is not None and message.stamp < known.stamp
        return _content(message) <= _content(known)

    def remove(self, topic: bytes, stamp: int) -> None:
        self._forget_removal(topic)  # they stand in the order in which they came
        self.restore_removal(topic, stamp)
        self._shared.journal.save_removal(topic, stamp)

    def restore_removal(self, topic: bytes, stamp: int) -> None:
        self.restore(stamp)
        self.removals[topic] = stamp
        self.digest ^= _hash(topic, -stamp)

    def removed(self) -> list[Message]:
        """Return the remembered removals, as empty retained messages."""
        return [
            Message(topic, b"", retain=True, stamp=stamp) for topic, stamp in self.removals.items()
        ]

    def put(self, message: Message) -> None:
        """Note that the message is retained."""
        self.digest ^= _hash_message(message)
        self._forget_removal(message.topic)

    def taken(self, message: Message) -> None:
        """Note that the message is not retained any more."""
        self.digest ^= _hash_message(message)

    def _forget_removal(self, topic: bytes) -> None:
        stamp = self.removals.pop(topic, None)
        if stamp is not None:
            self.digest ^= _hash(topic, -stamp)
            self._shared.journal.save_removal(topic, None)

    def tick(self) -> None:
        """Forget old removals, and those beyond the limit."""
        milliseconds = int(self._now_ms() - REMOVALS_SECONDS * 1_000)
        oldest = max(milliseconds, 0) << _COUNTER_BITS + _BROKER_BITS
        while self.removals:
            topic, stamp = next(iter(self.removals.items()))
            if stamp > oldest and len(self.removals) <= REMOVALS_MAX:
                return
            self._forget_removal(topic)


def _content(message: Message) -> tuple[bytes, bytes, int]:
    return message.payload, message.properties, message.qos


def _hash_message(message: Message) -> int:
    """Hash topic and stamp; without a stamp the contents, which may differ at two brokers."""
    if message.stamp:
        return _hash(message.topic, message.stamp)
    payload, properties, qos = _content(message)
    content = len(payload).to_bytes(8) + payload + properties + bytes([qos])
    return _hash(hashlib.blake2b(content, digest_size=8).digest() + message.topic, 0)


def _hash(topic: bytes, stamp: int) -> int:
    """Hash a topic and its stamp; a removal passes its stamp negated."""
    stamped = stamp.to_bytes(8, signed=True) + topic
    return int.from_bytes(hashlib.blake2b(stamped, digest_size=8).digest())
