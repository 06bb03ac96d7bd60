"""MQTT 3.1.1 and 5.0 as bytes, as far as this tool's clients need it. Pure.

Written for this tool, so that a fault in the broker's own codec cannot hide itself. Section numbers
are those of the MQTT 5.0 specification.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = range(8, 15)

PACKET_BYTES_MAX = 16 << 20
DISCONNECT_WITH_WILL = 0x04

_SESSION_EXPIRY, _WILL_DELAY, _USER_PROPERTY = 0x11, 0x18, 0x26
_REFUSED = 0x80

# Section 2.2.2.2: the bytes of each property's value. Other values carry their length.
_FIXED_BYTES = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
_VARIABLE, _PAIR = 0x0B, 0x26

Pairs = Sequence[tuple[str, str]]


class PacketError(Exception):
    """The broker sent invalid MQTT."""


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes
    qos: int
    delay_seconds: int = 0


@dataclass(frozen=True)
class Packet:
    """A packet from the broker. Fields that its kind lacks are empty."""

    kind: int
    packet_id: int = 0
    reason: int = 0
    reasons: tuple[int, ...] = ()
    session_present: bool = False
    topic: str = ""
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    duplicate: bool = False

    @property
    def is_refusal(self) -> bool:
        return self.reason >= _REFUSED or any(one >= _REFUSED for one in self.reasons)


# To bytes -----------------------------------------------------------------------------------------


def connect(
    version: int,
    client_id: str,
    *,
    clean_start: bool,
    expiry_seconds: int = 0,
    keep_alive_seconds: int = 0,
    will: Will | None = None,
) -> bytes:
    """Encode CONNECT (section 3.1). In 3.1.1 a session lasts for ever, or for the connection."""
    flags = 0x02 if clean_start else 0
    body = _text(client_id)
    if will is not None:
        flags |= 0x04 | will.qos << 3
        if version == 5:
            body += _properties(struct.pack(">BI", _WILL_DELAY, will.delay_seconds))
        body += _text(will.topic) + _bytes(will.payload)
    head = _text("MQTT") + struct.pack(">BBH", version, flags, keep_alive_seconds)
    if version == 5:
        head += _properties(struct.pack(">BI", _SESSION_EXPIRY, expiry_seconds))
    return _packet(CONNECT, 0, head + body)


def publish(
    version: int,
    topic: str,
    payload: bytes,
    qos: int = 0,
    *,
    packet_id: int = 0,
    retain: bool = False,
    duplicate: bool = False,
    user_properties: Pairs = (),
) -> bytes:
    body = _text(topic)
    if qos:
        body += struct.pack(">H", packet_id)
    if version == 5:
        body += _properties(_pairs(user_properties))
    return _packet(PUBLISH, duplicate << 3 | qos << 1 | retain, body + payload)


def acknowledgement(kind: int, packet_id: int) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP."""
    return _packet(kind, 2 if kind == PUBREL else 0, struct.pack(">H", packet_id))


def subscribe(
    version: int,
    packet_id: int,
    topic_filter: str,
    qos: int,
    *,
    no_local: bool = False,
    user_properties: Pairs = (),
) -> bytes:
    head = struct.pack(">H", packet_id)
    if version == 5:
        head += _properties(_pairs(user_properties))
    return _packet(SUBSCRIBE, 2, head + _text(topic_filter) + bytes([no_local << 2 | qos]))


def unsubscribe(version: int, packet_id: int, topic_filter: str) -> bytes:
    head = struct.pack(">H", packet_id)
    if version == 5:
        head += _properties(b"")
    return _packet(UNSUBSCRIBE, 2, head + _text(topic_filter))


def ping() -> bytes:
    return _packet(PINGREQ, 0, b"")


def disconnect(version: int, reason: int = 0) -> bytes:
    return _packet(DISCONNECT, 0, bytes([reason]) if version == 5 and reason else b"")


def _packet(kind: int, flags: int, body: bytes) -> bytes:
    return bytes([kind << 4 | flags]) + _length(len(body)) + body


def _length(number: int) -> bytes:
    """Encode a variable byte integer (section 1.5.5)."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _bytes(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def _properties(encoded: bytes) -> bytes:
    return _length(len(encoded)) + encoded


def _pairs(pairs: Pairs) -> bytes:
    return b"".join(bytes([_USER_PROPERTY]) + _text(name) + _text(value) for name, value in pairs)


# From bytes ---------------------------------------------------------------------------------------


class Decoder:
    """Decodes packets from bytes that arrive in pieces of any size."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        self._buffer += data
        start = 0
        try:
            while (found := _read_length(self._buffer, start + 1)) is not None:
                length, body = found
                if len(self._buffer) < body + length:
                    break
                end = body + length
                yield _decode(self._version, self._buffer[start], bytes(self._buffer[body:end]))
                start = end
        except (IndexError, UnicodeDecodeError, struct.error) as error:
            raise PacketError(f"a packet is not as it should be: {error}") from None
        finally:
            del self._buffer[:start]


def _read_length(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """Return a variable byte integer and its end, or None if bytes are missing."""
    number = 0
    for shift in range(0, 28, 7):
        if at >= len(data):
            return None
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number, at
    raise PacketError("a length has more than four bytes")


def _decode(version: int, first: int, body: bytes) -> Packet:
    kind, flags = first >> 4, first & 0x0F
    match kind:
        case 3:
            return _decode_publish(version, flags, body)
        case 2:
            return Packet(kind, reason=body[1], session_present=bool(body[0] & 1))
        case 4 | 5 | 6 | 7:
            (packet_id,) = struct.unpack_from(">H", body)
            return Packet(kind, packet_id, body[2] if len(body) > 2 else 0)
        case 9 | 11:
            (packet_id,) = struct.unpack_from(">H", body)
            at = _skip_properties(body, 2) if version == 5 else 2
            return Packet(kind, packet_id, reasons=tuple(body[at:]))
        case 13:
            return Packet(kind)
        case 14 if version == 5:
            return Packet(kind, reason=body[0] if body else 0)
    raise PacketError(f"the broker sent a packet of type {kind}")


def _decode_publish(version: int, flags: int, body: bytes) -> Packet:
    (length,) = struct.unpack_from(">H", body)
    at = 2 + length
    topic = body[2:at].decode()
    if len(body) < at or flags & 0x06 == 0x06:
        raise PacketError("a PUBLISH is not as it should be")
    qos, packet_id = flags >> 1 & 3, 0
    if qos:
        (packet_id,) = struct.unpack_from(">H", body, at)
        at += 2
    if version == 5:
        at = _skip_properties(body, at)
    return Packet(
        PUBLISH,
        packet_id,
        topic=topic,
        payload=body[at:],
        qos=qos,
        retain=bool(flags & 1),
        duplicate=bool(flags & 8),
    )


def _skip_properties(body: bytes, at: int) -> int:
    """Return the end of the properties. It parses them to detect invalid ones."""
    found = _read_length(body, at)
    if found is None or len(body) < sum(found):
        raise PacketError("properties end too early")
    length, at = found
    end = at + length
    while at < end:
        kind = body[at]
        at += 1
        if kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        elif kind == _VARIABLE:
            number = _read_length(body, at)
            at = end + 1 if number is None else number[1]
        else:
            for _ in range(2 if kind == _PAIR else 1):
                (size,) = struct.unpack_from(">H", body, at)
                at += 2 + size
    if at != end:
        raise PacketError("properties end too late")
    return end
