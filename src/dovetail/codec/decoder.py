"""Decode MQTT packets, and check every rule that one packet alone can break.

A decoded packet (packets.py) needs no further checks. Bytes that cannot be parsed, or that the
specification calls malformed, are MALFORMED_PACKET. A packet that can be parsed and is not allowed
is PROTOCOL_ERROR, or has a more specific reason code. The caller checks which side may send it.

PUBLISH and the shortest acknowledgements belong to every message, so they have fast paths.
"""

from collections.abc import Callable, Generator
from struct import Struct
from typing import Any, Final, TypeVar

from dovetail.attributes.clauses import check_requested_filter
from dovetail.codec.codes import (
    FLAGS,
    PASSWORD_FLAG,
    PROTOCOL_NAME,
    REASONS,
    RETURN_CODES,
    SUBACK_FAILURE,
    USER_FLAG,
    WILL_FLAG,
    WILL_RETAIN_FLAG,
)
from dovetail.codec.datatypes import (
    FieldReader,
    check_text,
    malformed,
    protocol_error,
    write_binary,
)
from dovetail.codec.limits import FILTERS_DECODED_PER_PIECE
from dovetail.codec.packets import (
    MQTT_3_1_1,
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
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from dovetail.codec.properties import WILL, read_properties, read_publish_properties
from dovetail.errors import ClientError, ReasonCode
from dovetail.slices import run_to_end
from dovetail.topics.names import SHARE_PREFIX, check_name

_ACK_TYPES: Final = {
    int(packet_type): packet_type
    for packet_type in (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
}

_HEAD_NAME: Final = write_binary(PROTOCOL_NAME)
_LEVEL_AT: Final = len(_HEAD_NAME)
CONNECT_HEAD_BYTES: Final = _LEVEL_AT + 1
"""The first bytes of a CONNECT's body: name and level of its protocol."""
_CONNECT_FIXED: Final = Struct(">BBH").unpack_from  # level, flags, keep alive
_CONNECT_FIXED_BYTES: Final = _LEVEL_AT + 4
_CLEAN_START_FLAG: Final = 0b0000_0010
VERSIONS: Final = frozenset({MQTT_3_1_1, MQTT_5})
_BRIDGE_FLAG: Final = 0x80

# QoS, retain and duplicate by the low half of a PUBLISH's first byte; None where they cannot be.
_PUBLISH_FLAGS: Final = tuple(
    None
    if flags & 0b0110 == 0b0110 or flags & 0b1110 == 0b1000
    else (flags >> 1 & 0b11, bool(flags & 0b0001), bool(flags & 0b1000))
    for flags in range(16)
)

_TEXT_LENGTH_BYTES: Final = 2
_QOS_BITS: Final = 0b11
_SUBSCRIPTION_OPTIONS: Final = {
    options: (options & _QOS_BITS, bool(options & 0b0100), bool(options & 0b1000), options >> 4)
    for options in range(0b11_0000)
    if options & _QOS_BITS < _QOS_BITS
}
"""QoS, No Local, Retain As Published and Retain Handling, by the byte that has them."""


def decode(version: int, first_byte: int, body: bytes) -> Packet:
    """Return the packet with this fixed header and `body`, or raise a ClientError.

    The version is that of the connection. A CONNECT contains its own.
    """
    if first_byte & 0xF0 == 0x30:
        return decode_publish(version, first_byte, body)
    packet_type = first_byte >> 4
    try:
        decoder = _DECODERS.get(first_byte)
        if decoder is None:
            raise _first_byte_error(first_byte)
        return decoder(version, packet_type, body)
    except ClientError as error:
        raise _with_packet_name(packet_type, error) from None


def decode_in_pieces(
    version: int, first_byte: int, body: bytes
) -> Generator[None, None, Subscribe | Unsubscribe]:
    """Decode a SUBSCRIBE or UNSUBSCRIBE like `decode`, with pauses, since it may be long."""
    packet_type = first_byte >> 4
    try:
        if packet_type == PacketType.SUBSCRIBE:
            return (yield from _subscribe_in_pieces(version, body))
        return (yield from _unsubscribe_in_pieces(version, body))
    except ClientError as error:
        raise _with_packet_name(packet_type, error) from None


def decode_publish(
    version: int, first_byte: int, body: bytes, *, from_client: bool = False
) -> Publish:
    """Decode a PUBLISH like `decode`. A topic is empty only if there is an alias."""
    try:
        flags = _PUBLISH_FLAGS[first_byte & 0x0F]
        if flags is None:
            raise _publish_flags_error(first_byte)
        qos, retain, duplicate = flags
        at = (body[0] << 8 | body[1]) + 2
        topic = body[2:at]
        if not topic.isascii() or 0 in topic or 0x23 in topic or 0x2B in topic:
            _check_topic(topic, at, body)
        packet_id = 0
        if qos:
            packet_id = body[at] << 8 | body[at + 1]
            if not packet_id:  # [MQTT-2.2.1-3], [MQTT-2.2.1-4]
                raise protocol_error("the packet identifier is 0; it has to be 1 to 65,535")
            at += 2
        if version == MQTT_5:
            if body[at] or not topic:
                packet = Publish(topic, b"", qos, retain, duplicate, packet_id)
                return _with_properties(packet, body, at, from_client=from_client)
            at += 1
        elif at > len(body):
            raise IndexError
        elif not topic:
            check_name(topic)  # [MQTT-4.7.3-1]
        return Publish(topic, body[at:], qos, retain, duplicate, packet_id)
    except (IndexError, ClientError) as error:
        raise _publish_error(error) from None


def _check_topic(topic: bytes, end: int, body: bytes) -> None:
    """Check a topic in full, and raise an error that says what is wrong."""
    if end > len(body):
        raise IndexError
    check_text(topic, "the topic name")  # [MQTT-3.3.2-1]
    check_name(topic)  # [MQTT-3.3.2-2]


def _with_properties(packet: Publish, body: bytes, at: int, *, from_client: bool) -> Publish:
    found, at = read_publish_properties(body, at, from_client=from_client)
    packet.properties, packet.expiry_seconds, packet.alias, packet.identifiers = found
    if not packet.topic and not packet.alias:  # section 3.3.2.1
        raise protocol_error("there is neither a topic name nor a topic alias")
    packet.payload = body[at:]
    return packet


def _publish_error(error: IndexError | ClientError) -> ClientError:
    if isinstance(error, IndexError):
        error = malformed("it ends before its payload begins")
    return _with_packet_name(PacketType.PUBLISH, error)


def _publish_flags_error(first_byte: int) -> ClientError:
    if first_byte & 0b0110:  # [MQTT-3.3.1-4]
        return malformed("QoS 3 does not exist")
    return protocol_error("what has QoS 0 cannot be a duplicate")  # [MQTT-3.3.1-2]


def connect_version(head: bytes) -> int:
    """Return the version in which to refuse a CONNECT that begins with `head`.

    Only the protocol's name and level count. Bridges of 3.1.1 set the level's highest bit. They
    retry without it after the return code 1 of 3.1.1.
    """
    level = head[_LEVEL_AT] & ~_BRIDGE_FLAG if _speaks_mqtt(head) else 0
    return MQTT_5 if level >= MQTT_5 else MQTT_3_1_1


def is_unknown_version(head: bytes) -> bool:
    """Is it a CONNECT of an unsupported version? Then the rest can have any format."""
    return _speaks_mqtt(head) and head[_LEVEL_AT] not in VERSIONS


def _speaks_mqtt(head: bytes) -> bool:
    return len(head) >= CONNECT_HEAD_BYTES and head.startswith(_HEAD_NAME)


def _first_byte_error(first_byte: int) -> ClientError:
    if not first_byte >> 4:
        return malformed("packet type 0 is reserved")
    # [MQTT-2.1.3-1], [MQTT-3.6.1-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1], [MQTT-3.14.1-1],
    # [MQTT-3.15.1-1]
    return malformed(f"the first byte, 0x{first_byte:02x}, has flags that are not its type's")


def _with_packet_name(packet_type: int, error: ClientError) -> ClientError:
    """Return the same error with the packet's name in its message."""
    name = PacketType(packet_type).name if packet_type else "no packet"
    return ClientError(error.reason, f"{name}: {error.message}")


def _decode_connect(_version: int, _packet_type: int, body: bytes) -> Connect:
    if len(body) < _CONNECT_FIXED_BYTES or not body.startswith(_HEAD_NAME):
        raise _connect_head_error(FieldReader(body))
    version, flags, keep_alive_seconds = _CONNECT_FIXED(body, _LEVEL_AT)
    if version not in VERSIONS:
        raise _unsupported_protocol(PROTOCOL_NAME, version)
    if flags & ~_CLEAN_START_FLAG:
        _check_connect_flags(version, flags)
    reader = FieldReader(body, _CONNECT_FIXED_BYTES)
    packet = Connect(version, "", bool(flags & _CLEAN_START_FLAG), keep_alive_seconds)
    if version == MQTT_5:
        _read_fields(reader, PacketType.CONNECT, packet)
        if packet.authentication_data is not None and packet.authentication_method is None:
            raise protocol_error("there are authentication data without a method")
    # The order of the payload is [MQTT-3.1.3-1].
    packet.client_id = reader.text("the client identifier")  # [MQTT-3.1.3-3], [MQTT-3.1.3-4]
    if version == MQTT_3_1_1 and not packet.client_id and not packet.clean_start:
        raise ClientError(  # [MQTT3-3.1.3-8]
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            "an empty client identifier needs a clean session in MQTT 3.1.1",
        )
    if flags & WILL_FLAG:  # [MQTT-3.1.2-9]
        packet.will = _read_will(reader, version, flags)
    if flags & USER_FLAG:  # [MQTT-3.1.2-17]
        packet.user = reader.text("the user name")  # [MQTT-3.1.3-12]
    if flags & PASSWORD_FLAG:  # [MQTT-3.1.2-19]
        packet.password = reader.binary("the password")
    reader.finish()  # [MQTT-3.1.2-16], [MQTT-3.1.2-18]
    return packet


def _connect_head_error(reader: FieldReader) -> ClientError:
    """Return what is wrong with a CONNECT of another protocol, or one that ends too early."""
    name = reader.binary("the protocol name")
    version = reader.byte("the protocol version")
    if name != PROTOCOL_NAME or version not in VERSIONS:
        return _unsupported_protocol(name, version)
    _check_connect_flags(version, reader.byte("the connect flags"))
    reader.two_bytes("the keep alive")
    raise AssertionError("a CONNECT that has all fixed fields")


def _unsupported_protocol(name: bytes, version: int) -> ClientError:
    return ClientError(  # [MQTT-3.1.2-1], [MQTT-3.1.2-2]
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        f"protocol {name[:16]!r} with version {version} is not spoken here; 'MQTT' with "
        f"version {MQTT_3_1_1} (3.1.1) or {MQTT_5} (5.0) is",
    )


def _check_connect_flags(version: int, flags: int) -> None:
    will_qos = flags >> 3 & 0b11
    if flags & 0b0000_0001:  # [MQTT-3.1.2-3]
        raise malformed("the reserved connect flag is set")
    if will_qos == 3:  # [MQTT-3.1.2-12]
        raise malformed("QoS 3 of the will does not exist")
    if not flags & WILL_FLAG and (will_qos or flags & WILL_RETAIN_FLAG):
        # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
        raise protocol_error("there is a QoS or a retain flag for a will, and no will")
    if version == MQTT_3_1_1 and flags & (USER_FLAG | PASSWORD_FLAG) == PASSWORD_FLAG:
        # [MQTT3-3.1.2-22]
        raise protocol_error("MQTT 3.1.1 has no password without a user name")


def _read_will(reader: FieldReader, version: int, flags: int) -> Will:
    values: dict[str, Any] = {}
    properties = b""
    if version == MQTT_5:
        values, properties = read_properties(reader, WILL)
    topic = reader.binary("the will topic")
    check_text(topic, "the will topic")  # [MQTT-3.1.3-11]
    return Will(
        check_name(topic),
        payload=reader.binary("the will payload"),
        qos=flags >> 3 & 0b11,
        retain=bool(flags & WILL_RETAIN_FLAG),
        properties=properties,
        **values,
    )


def _decode_connack(version: int, packet_type: int, body: bytes) -> Connack:
    reader = FieldReader(body)
    flags = reader.byte("the acknowledge flags")
    if flags > 1:  # [MQTT-3.2.2-1]
        raise malformed("a reserved acknowledge flag is set")
    code = reader.byte("the reason code")
    values: dict[str, Any] = {}
    if version == MQTT_5:
        reason = _reason(packet_type, code)
        values, _ = read_properties(reader, packet_type)
    elif code < len(RETURN_CODES):
        reason = RETURN_CODES[code]
    else:
        raise protocol_error(f"MQTT 3.1.1 has no return code {code}")
    if flags and reason:  # [MQTT-3.2.2-6]
        raise protocol_error("a refused connection has no session")
    reader.finish()
    return Connack(bool(flags), reason, **values)


def _decode_ack(version: int, packet_type: int, body: bytes) -> Ack:
    if len(body) == 2 and (packet_id := body[0] << 8 | body[1]):
        return Ack(_ACK_TYPES[packet_type], packet_id)
    reader = FieldReader(body)
    packet_id = reader.packet_id()
    if version != MQTT_5:
        reader.finish()
    return _with_reason(reader, packet_type, Ack(_ACK_TYPES[packet_type], packet_id))


def _decode_subscribe(version: int, _packet_type: int, body: bytes) -> Subscribe:
    return run_to_end(_subscribe_in_pieces(version, body))


def _subscribe_in_pieces(version: int, body: bytes) -> Generator[None, None, Subscribe]:
    reader = FieldReader(body)
    packet = Subscribe(reader.packet_id(), [])
    if version == MQTT_5:
        _read_fields(reader, PacketType.SUBSCRIBE, packet)
    data, end = reader.data, reader.end
    while reader.at < end:
        start = reader.at + _TEXT_LENGTH_BYTES
        stop = start + (data[start - 2] << 8 | data[start - 1]) if start <= end else end
        if stop >= end:  # it is cut off: the reader says where
            _read_filter(reader)
            reader.byte("the subscription options")
        topic_filter = check_text(data[start:stop], "the topic filter")
        check_requested_filter(topic_filter)  # [MQTT-3.8.3-1]
        packet.requests.append(_request(version, topic_filter, data[stop]))
        reader.at = stop + 1
        if not len(packet.requests) % FILTERS_DECODED_PER_PIECE:
            yield
    if not packet.requests:  # [MQTT-3.8.3-2]
        raise protocol_error("there is no topic filter")
    return packet


def _request(version: int, topic_filter: str, options: int) -> SubscriptionRequest:
    fields = _SUBSCRIPTION_OPTIONS.get(options)
    if fields is None or (version != MQTT_5 and options > _QOS_BITS):
        raise _options_error(version, options)
    request = SubscriptionRequest(topic_filter, *fields)
    if request.no_local and topic_filter.startswith(f"{SHARE_PREFIX}/"):  # [MQTT-3.8.3-4]
        raise protocol_error("a shared subscription cannot be No Local")
    return request


def _options_error(version: int, options: int) -> ClientError:
    if options & (0b1100_0000 if version == MQTT_5 else 0b1111_1100):
        # [MQTT-3.8.3-5], [MQTT3-3.8.3-4]
        return malformed(f"reserved bits of the subscription options, 0x{options:02x}, are set")
    if options & _QOS_BITS == _QOS_BITS:  # section 3.8.3.1
        return protocol_error("QoS 3 does not exist")
    return protocol_error("retain handling 3 does not exist")  # section 3.8.3.1


def _decode_unsubscribe(version: int, _packet_type: int, body: bytes) -> Unsubscribe:
    return run_to_end(_unsubscribe_in_pieces(version, body))


def _unsubscribe_in_pieces(version: int, body: bytes) -> Generator[None, None, Unsubscribe]:
    reader = FieldReader(body)
    packet = Unsubscribe(reader.packet_id(), [])
    if version == MQTT_5:
        _read_fields(reader, PacketType.UNSUBSCRIBE, packet)
    while not reader.done():
        packet.filters.append(_read_filter(reader))
        if not len(packet.filters) % FILTERS_DECODED_PER_PIECE:
            yield
    if not packet.filters:  # [MQTT-3.10.3-2]
        raise protocol_error("there is no topic filter")
    return packet


def _read_filter(reader: FieldReader) -> str:
    topic_filter = reader.text("the topic filter")  # [MQTT-3.8.3-1], [MQTT-3.10.3-1]
    check_requested_filter(topic_filter)
    return topic_filter


def _decode_subscription_ack(version: int, packet_type: int, body: bytes) -> SubscriptionAck:
    reader = FieldReader(body)
    packet = SubscriptionAck(PacketType(packet_type), reader.packet_id())
    if version == MQTT_5:
        _read_fields(reader, packet_type, packet)
    elif packet_type == PacketType.UNSUBACK:
        reader.finish()
        return packet
    packet.reasons = [_reason(packet_type, code) for code in reader.rest()]
    if not packet.reasons:
        raise protocol_error("there is no reason code")
    if version != MQTT_5 and max(packet.reasons) > SUBACK_FAILURE:  # [MQTT3-3.9.3-2]
        raise protocol_error(f"MQTT 3.1.1 has no return code 0x{max(packet.reasons):02x}")
    return packet


def _decode_ping(_version: int, packet_type: int, body: bytes) -> Ping:
    FieldReader(body).finish()
    return Ping(PacketType(packet_type))


def _decode_disconnect(version: int, packet_type: int, body: bytes) -> Disconnect:
    if not body:
        return Disconnect()
    reader = FieldReader(body)
    if version != MQTT_5:
        reader.finish()
    return _with_reason(reader, packet_type, Disconnect())


def _decode_auth(version: int, packet_type: int, body: bytes) -> Auth:
    if version != MQTT_5:
        raise malformed("MQTT 3.1.1 has no such packet")
    packet = _with_reason(FieldReader(body), packet_type, Auth())
    if body and packet.method is None:  # section 3.15.2.2.2
        raise protocol_error("there is no authentication method")
    return packet


_Reasoned = TypeVar("_Reasoned", Ack, Disconnect, Auth)


def _with_reason(reader: FieldReader, packet_type: int, packet: _Reasoned) -> _Reasoned:
    """Read the optional reason code and properties at the end of a packet."""
    if reader.done():
        return packet
    packet.reason = _reason(packet_type, reader.byte("the reason code"))
    if reader.done():
        return packet
    _read_fields(reader, packet_type, packet)
    reader.finish()
    return packet


def _read_fields(reader: FieldReader, packet_type: int, packet: Packet) -> None:
    values, _ = read_properties(reader, packet_type)
    for field, value in values.items():
        setattr(packet, field, value)


def _reason(packet_type: int, code: int) -> ReasonCode:
    reason = REASONS[packet_type].get(code)
    if reason is None:
        raise protocol_error(f"0x{code:02x} is no reason code of this packet")
    return reason


_Decoder = Callable[[int, int, bytes], Packet]
_BY_TYPE: Final[dict[PacketType, _Decoder]] = {
    PacketType.CONNECT: _decode_connect,
    PacketType.CONNACK: _decode_connack,
    PacketType.PUBACK: _decode_ack,
    PacketType.PUBREC: _decode_ack,
    PacketType.PUBREL: _decode_ack,
    PacketType.PUBCOMP: _decode_ack,
    PacketType.SUBSCRIBE: _decode_subscribe,
    PacketType.SUBACK: _decode_subscription_ack,
    PacketType.UNSUBSCRIBE: _decode_unsubscribe,
    PacketType.UNSUBACK: _decode_subscription_ack,
    PacketType.PINGREQ: _decode_ping,
    PacketType.PINGRESP: _decode_ping,
    PacketType.DISCONNECT: _decode_disconnect,
    PacketType.AUTH: _decode_auth,
}
# All types but PUBLISH have one first byte.
_DECODERS: Final[dict[int, _Decoder]] = {
    packet_type << 4 | FLAGS[packet_type]: decoder for packet_type, decoder in _BY_TYPE.items()
}
