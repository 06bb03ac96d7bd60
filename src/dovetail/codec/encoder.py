"""Encode MQTT packets.

The encoder trusts that decoder.py would accept a packet; a value that does not fit the wire is a
ValueError. For 3.1.1 the fields that it lacks are left out. PUBLISH and the acknowledgements belong
to every message, so `encode_publish` and `encode_ack` work without a packet object.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from dovetail.codec.codes import (
    FLAGS,
    PASSWORD_FLAG,
    PROTOCOL_NAME,
    REASONS,
    RETURN_CODE_OF,
    RETURN_CODE_OF_OTHERS,
    SUBACK_FAILURE,
    USER_FLAG,
    WILL_FLAG,
)
from dovetail.codec.datatypes import encode_length, write_binary, write_text, write_two_bytes
from dovetail.codec.packets import (
    MQTT_5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Publish,
    Subscribe,
    SubscriptionAck,
    Unsubscribe,
)
from dovetail.codec.properties import (
    MESSAGE_EXPIRY,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    WILL,
    write_properties,
)
from dovetail.errors import ReasonCode

_PUBLISH_HEAD: Final = Struct(">BBH").pack  # first byte, a remaining length of one byte, topic's
_PUBLISH_HEAD_LONGER: Final = Struct(">BBBH").pack  # two bytes of remaining length
_ACK: Final = Struct(">BBH").pack
_ACK_WITH_REASON: Final = Struct(">BBHB").pack
_EXPIRY: Final = Struct(">BI").pack
_ALIAS: Final = Struct(">BH").pack
_IDENTIFIER: Final = bytes((SUBSCRIPTION_IDENTIFIER,))
_FIRST_BYTES: Final = tuple(packet_type << 4 | flags for packet_type, flags in enumerate(FLAGS))


def encode_publish(
    version: int,
    topic: bytes,
    payload: bytes,
    qos: int = 0,
    retain: bool = False,
    duplicate: bool = False,
    packet_id: int = 0,
    properties: bytes = b"",
    expiry_seconds: int | None = None,
    identifiers: tuple[int, ...] = (),
    alias: int = 0,
) -> bytes:
    """Encode a PUBLISH; for 3.1.1 without properties."""
    first_byte = 0x30 | duplicate << 3 | qos << 1 | retain
    middle = write_two_bytes(packet_id) if qos else b""  # [MQTT-2.2.1-2]
    if version == MQTT_5:
        if properties or identifiers or alias or expiry_seconds is not None:
            middle += _message_properties(properties, expiry_seconds, identifiers, alias)
        else:
            middle += b"\0"
    topic_length = len(topic)
    length = 2 + topic_length + len(middle) + len(payload)
    if length < 0x80:
        return _PUBLISH_HEAD(first_byte, length, topic_length) + topic + middle + payload
    if length < 0x4000:
        head = _PUBLISH_HEAD_LONGER(first_byte, length & 0x7F | 0x80, length >> 7, topic_length)
        return head + topic + middle + payload
    return b"".join(
        (bytes((first_byte,)), encode_length(length), write_binary(topic), middle, payload)
    )


def _message_properties(
    properties: bytes, expiry_seconds: int | None, identifiers: tuple[int, ...], alias: int
) -> bytes:
    if expiry_seconds is not None:
        properties = _EXPIRY(MESSAGE_EXPIRY, expiry_seconds) + properties
    if alias:
        properties = _ALIAS(TOPIC_ALIAS, alias) + properties
    if identifiers:
        properties += b"".join([_IDENTIFIER + encode_length(value) for value in identifiers])
    return encode_length(len(properties)) + properties


def encode_ack(
    version: int,
    type: PacketType,  # noqa: A002
    packet_id: int,
    reason: int = 0,
) -> bytes:
    """Encode a PUBACK, PUBREC, PUBREL or PUBCOMP; for 3.1.1 without a reason code."""
    if reason and version == MQTT_5:
        return _ACK_WITH_REASON(_FIRST_BYTES[type], 3, packet_id, reason)
    return _ACK(_FIRST_BYTES[type], 2, packet_id)


def encode(version: int, packet: Packet) -> bytes:
    """Return the packet's bytes with the fixed header. A CONNECT contains its own version."""
    return _ENCODERS[packet.__class__](version, packet)


def _encode_publish(version: int, packet: Publish) -> bytes:
    return encode_publish(
        version,
        packet.topic,
        packet.payload,
        packet.qos,
        packet.retain,
        packet.duplicate,
        packet.packet_id,
        packet.properties,
        packet.expiry_seconds,
        packet.identifiers,
        packet.alias,
    )


def _frame(packet_type: PacketType, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((_FIRST_BYTES[packet_type],)) + encode_length(len(body)) + body


def _properties(version: int, packet_type: PacketType, packet: Packet) -> bytes:
    return write_properties(packet_type, packet) if version == MQTT_5 else b""


def _encode_connect(_version: int, packet: Connect) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1
    payload = [write_text(packet.client_id)]  # in the order of [MQTT-3.1.3-1]
    if will is not None:
        flags |= WILL_FLAG | will.qos << 3 | will.retain << 5
        if packet.version == MQTT_5:
            payload.append(write_properties(WILL, will, will.properties))
        payload += (write_binary(will.topic), write_binary(will.payload))
    if packet.user is not None:
        flags |= USER_FLAG
        payload.append(write_text(packet.user))
    if packet.password is not None:
        flags |= PASSWORD_FLAG
        payload.append(write_binary(packet.password))
    return _frame(
        PacketType.CONNECT,
        write_binary(PROTOCOL_NAME),
        bytes((packet.version, flags)),
        write_two_bytes(packet.keep_alive_seconds),
        _properties(packet.version, PacketType.CONNECT, packet),
        *payload,
    )


def _encode_connack(version: int, packet: Connack) -> bytes:
    if version == MQTT_5:
        reason = _sendable_reason(PacketType.CONNACK, packet.reason)  # [MQTT-3.2.2-8]
    else:
        reason = RETURN_CODE_OF.get(packet.reason, RETURN_CODE_OF_OTHERS)
    return _frame(
        PacketType.CONNACK,
        bytes((packet.session_present, reason)),
        _properties(version, PacketType.CONNACK, packet),
    )


def _encode_ack(version: int, packet: Ack) -> bytes:
    properties = _properties(version, packet.type, packet)
    if len(properties) <= 1:
        return encode_ack(version, packet.type, packet.packet_id, packet.reason)
    head = write_two_bytes(packet.packet_id) + bytes((packet.reason,))
    return _frame(packet.type, head, properties)


def _encode_subscribe(version: int, packet: Subscribe) -> bytes:
    payload: list[bytes] = []
    for request in packet.requests:
        options = request.qos
        if version == MQTT_5:
            options |= request.no_local << 2 | request.retain_as_published << 3
            options |= request.retain_handling << 4
        payload += (write_text(request.filter), bytes((options,)))
    return _frame(
        PacketType.SUBSCRIBE,
        write_two_bytes(packet.packet_id),
        _properties(version, PacketType.SUBSCRIBE, packet),
        *payload,
    )


def _encode_unsubscribe(version: int, packet: Unsubscribe) -> bytes:
    return _frame(
        PacketType.UNSUBSCRIBE,
        write_two_bytes(packet.packet_id),
        _properties(version, PacketType.UNSUBSCRIBE, packet),
        *(write_text(topic_filter) for topic_filter in packet.filters),
    )


def _encode_subscription_ack(version: int, packet: SubscriptionAck) -> bytes:
    reasons = bytes(packet.reasons)
    if version != MQTT_5:
        answers = packet.type == PacketType.SUBACK  # an UNSUBACK does not in 3.1.1
        reasons = bytes(min(reason, SUBACK_FAILURE) for reason in reasons if answers)
    return _frame(
        packet.type,
        write_two_bytes(packet.packet_id),
        _properties(version, packet.type, packet),
        reasons,
    )


def _encode_ping(_version: int, packet: Ping) -> bytes:
    return _frame(packet.type)


def _encode_disconnect(version: int, packet: Disconnect) -> bytes:
    if version != MQTT_5:
        return _frame(PacketType.DISCONNECT)
    reason = _sendable_reason(PacketType.DISCONNECT, packet.reason)  # [MQTT-3.14.2-1]
    properties = write_properties(PacketType.DISCONNECT, packet)
    if len(properties) > 1:
        return _frame(PacketType.DISCONNECT, bytes((reason,)), properties)
    return _frame(PacketType.DISCONNECT, bytes((reason,)) if reason else b"")


def _encode_auth(version: int, packet: Auth) -> bytes:
    if version != MQTT_5:
        raise ValueError("MQTT 3.1.1 has no AUTH packet")
    properties = write_properties(PacketType.AUTH, packet)
    if not packet.reason and len(properties) <= 1:
        return _frame(PacketType.AUTH)
    return _frame(PacketType.AUTH, bytes((packet.reason,)), properties)


def _sendable_reason(packet_type: PacketType, reason: int) -> int:
    """Return a reason code that this packet may have: errors have more codes than packets do."""
    return reason if reason in REASONS[packet_type] else ReasonCode.UNSPECIFIED_ERROR


_ENCODERS: Final[dict[type[Any], Callable[[int, Any], bytes]]] = {
    Connect: _encode_connect,
    Connack: _encode_connack,
    Publish: _encode_publish,
    Ack: _encode_ack,
    Subscribe: _encode_subscribe,
    Unsubscribe: _encode_unsubscribe,
    SubscriptionAck: _encode_subscription_ack,
    Ping: _encode_ping,
    Disconnect: _encode_disconnect,
    Auth: _encode_auth,
}
