"""The few MQTT packets that a load generator writes and reads, as bytes.

Written from the specification and not with Dovetail's codec: a generator that shared code with the
broker would share its mistakes. This module is for the time before and after the measurement;
`_load_kernels` works during it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MQTT_3_1_1 = 4
MQTT_5 = 5

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK = 1, 2, 3, 4, 8, 9
PINGREQ_PACKET = b"\xc0\x00"
PINGRESP = 13
DISCONNECT_PACKET = b"\xe0\x00"
DISCONNECT = 14

_SESSION_EXPIRY, _RECEIVE_MAX = 0x11, 0x21
# The bytes of each property of a CONNACK (5.0, section 3.2.2.3); 0: its length precedes it.
_CONNACK_WIDTHS = {
    0x11: 4, 0x12: 0, 0x13: 2, 0x15: 0, 0x16: 0, 0x1A: 0, 0x1C: 0, 0x1F: 0, 0x21: 2, 0x22: 2,
    0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip
_USER_PROPERTY = 0x26
_FAILURE = 0x80


class WireError(Exception):
    """The broker's answer ends the measurement."""


def variable_length(number: int) -> bytes:
    encoded = bytearray()
    while True:
        number, low = divmod(number, 128)
        encoded.append(low | 0x80 if number else low)
        if not number:
            return bytes(encoded)


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + variable_length(len(body)) + body


def connect(
    client_id: str, version: int, *, session_expiry_seconds: int = 0, resumes: bool = False
) -> bytes:
    """Encode CONNECT: a clean start without keep alive, or in 3.1.1 a session that persists."""
    properties = b""
    if session_expiry_seconds:
        properties += bytes([_SESSION_EXPIRY]) + session_expiry_seconds.to_bytes(4, "big")
    is_clean = (version == MQTT_5 or not session_expiry_seconds) and not resumes
    clean = 0x02 if is_clean else 0
    body = _text(b"MQTT") + bytes([version, clean, 0, 0])
    if version == MQTT_5:
        body += variable_length(len(properties)) + properties
    return _packet(CONNECT << 4, body + _text(client_id.encode()))


def subscribe(
    packet_id: int, filters: list[bytes], qos: int, version: int, where: str = ""
) -> bytes:
    properties = user_properties([(b"where", where.encode())]) if where else b""
    body = packet_id.to_bytes(2, "big") + properties_block(properties, version)
    body += b"".join(_text(one) + bytes([qos]) for one in filters)
    return _packet(SUBSCRIBE << 4 | 2, body)


@dataclass(frozen=True)
class Layout:
    """The positions of the parts of a PUBLISH: all of one stream have the same size."""

    packet_bytes: int
    topic_at: int
    id_at: int
    """0 at QoS 0."""
    payload_at: int


def user_properties(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join(bytes([_USER_PROPERTY]) + _text(name) + _text(value) for name, value in pairs)


def properties_block(properties: bytes, version: int) -> bytes:
    """Properties as they stand in a packet, behind their length."""
    return variable_length(len(properties)) + properties if version == MQTT_5 else b""


def publish(
    topic: bytes, payload: bytes, qos: int, version: int, properties: bytes = b""
) -> tuple[bytes, Layout]:
    head = _text(topic) + (b"\x00\x00" if qos else b"") + properties_block(properties, version)
    packet = _packet(PUBLISH << 4 | qos << 1, head + payload)
    topic_at = len(packet) - len(payload) - len(head) + 2
    return packet, Layout(
        packet_bytes=len(packet),
        topic_at=topic_at,
        id_at=topic_at + len(topic) if qos else 0,
        payload_at=len(packet) - len(payload),
    )


def take_packet(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Return type, body and the remaining bytes, if there is a complete packet."""
    size, at = 0, 1
    while at < len(data):
        size |= (data[at] & 0x7F) << 7 * (at - 1)
        at += 1
        if data[at - 1] < 0x80:
            if len(data) < at + size:
                return None
            return data[0] >> 4, data[at : at + size], data[at + size :]
    return None


def receive_max(body: bytes, version: int) -> int:
    """Return the server's Receive Maximum from its CONNACK."""
    if body[1]:
        raise WireError(f"the broker refused the connection with code {body[1]:#04x}")
    found = 65_535
    if version != MQTT_5:
        return found
    at = 3  # we only read properties of a CONNACK that are shorter than 128 bytes
    if body[2] >= 0x80:
        raise WireError("a CONNACK with more properties than a load generator reads")
    while at < len(body):
        name = body[at]
        at += 1
        if name == _USER_PROPERTY:
            for _ in range(2):
                at += 2 + int.from_bytes(body[at : at + 2], "big")
            continue
        width = _CONNACK_WIDTHS[name] or 2 + int.from_bytes(body[at : at + 2], "big")
        if name == _RECEIVE_MAX:
            found = int.from_bytes(body[at : at + 2], "big")
        at += width
    return found


def check_suback(body: bytes, packet_id: int, filters: int, version: int) -> None:
    codes = body[2:]
    if version == MQTT_5:
        codes = codes[1 + codes[0] :]
    if int.from_bytes(body[:2], "big") != packet_id or len(codes) != filters:
        raise WireError("a SUBACK that does not answer the SUBSCRIBE")
    refused = [code for code in codes if code >= _FAILURE]
    if refused:
        raise WireError(f"{len(refused)} subscriptions refused, the first with {refused[0]:#04x}")
