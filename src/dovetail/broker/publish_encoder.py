"""Encodes a PUBLISH once for each kind of receiver, not once for each receiver.

A fan-out sends the same message to many receivers, and only the packet identifier differs. So the
encoder keeps the last packet, and replaces the identifier in it for the next receiver.
"""

import math

from dovetail.codec import encode_publish
from dovetail.codec.packets import MQTT_5
from dovetail.messages import Message

_EXPIRY_MAX = 0xFFFF_FFFF
_NO_MESSAGE = Message(b"", b"")


class PublishEncoder:
    """An encoder that keeps the last packet."""

    __slots__ = ("_frame", "_message", "_qos", "_retain", "_tail", "_version")

    def __init__(self) -> None:
        self._message = _NO_MESSAGE
        self._version = self._qos = self._tail = 0
        self._retain = False
        self._frame = b""

    def encode(
        self,
        version: int,
        message: Message,
        qos: int,
        retain: bool,
        packet_id: int,
        now: float,
        identifiers: tuple[int, ...] = (),
        duplicate: bool = False,
    ) -> bytes:
        if (
            message is self._message
            and version == self._version
            and qos == self._qos
            and retain == self._retain
            and not (identifiers or duplicate)
        ):
            frame = self._frame
            if not qos:
                return frame
            tail = self._tail
            if not tail:
                tail = self._tail = len(frame) - tail_bytes(version, message)
            return frame[: tail - 2] + packet_id.to_bytes(2) + frame[tail:]
        frame = encode_publish(
            version,
            message.topic,
            message.payload,
            qos,
            retain,
            duplicate,
            packet_id,
            message.properties,
            None if message.expires_at is None else remaining_seconds(message, now),
            identifiers,
        )
        if not (identifiers or duplicate) and message.expires_at is None:
            self._message = message
            self._version = version
            self._qos = qos
            self._retain = retain
            self._frame = frame
            self._tail = 0
        return frame


def tail_bytes(version: int, message: Message) -> int:
    """Return the number of bytes behind the packet identifier: properties and payload."""
    if version != MQTT_5:
        return len(message.payload)
    properties = len(message.properties)
    # The size of the property length itself (section 1.5.5).
    length = (
        1 if properties < 128 else 2 if properties < 16_384 else 3 if properties < 1 << 21 else 4
    )
    return length + properties + len(message.payload)


def remaining_seconds(message: Message, now: float) -> int | None:
    """Return what is left of the expiry interval, rounded up [MQTT-3.3.2-6].

    It is 0 only for an expired message, because a receiver may discard such a message.
    """
    if message.expires_at is None:
        return None
    # A clock may have been set back since.
    return min(max(math.ceil(message.expires_at - now), 0), _EXPIRY_MAX)
