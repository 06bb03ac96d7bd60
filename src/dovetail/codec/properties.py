"""Decode and encode the properties of MQTT 5.0 packets (section 2.2.2) by one table.

A row of the table says which packets may have a property, its data type, and the field of the
packet's class (packets.py) that holds it. Three kinds of rows differ:

- `forwarded`: a server forwards it unchanged, so it is checked and stays raw bytes.
- `repeats`: may occur several times; the field is a tuple. All others may occur once.
- without a field: checked and dropped, because no part of Dovetail needs it.

A packet may have very many user properties. A kernel checks a series of them. Where the packet has
a field for them, the field holds the first USER_PROPERTIES_MAX. More than that is an error only in
SUBSCRIBE and UNSUBSCRIBE.

A field that has its class's default is not written.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from dovetail.codec.datatypes import (
    FieldReader,
    encode_length,
    malformed,
    protocol_error,
    write_binary,
    write_byte,
    write_four_bytes,
    write_pair,
    write_text,
    write_two_bytes,
)
from dovetail.codec.kernels.pairs import pairs_end
from dovetail.codec.limits import USER_PROPERTIES_MAX
from dovetail.codec.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Publish,
    Subscribe,
    SubscriptionAck,
    Unsubscribe,
    UserProperties,
    Will,
)
from dovetail.errors import ClientError, ReasonCode
from dovetail.topics.names import check_name

WILL: Final = 0
"""A pseudo packet type for the properties of a will, which have their own rules."""

_CLIENT_PUBLISH: Final = -1
"""A pseudo packet type for a PUBLISH from a client, which has its own rules too."""

CACHED_BLOCKS_MAX: Final = 4_096
"""Property blocks of publications whose decoded form is cached."""

CACHED_BYTES_MAX: Final = 127
"""Longer property blocks are not cached. At this size the cache takes a megabyte or two."""

PublishProperties = tuple[bytes, int | None, int, tuple[int, ...]]
"""Forwarded bytes, expiry in seconds, alias, subscription identifiers."""

PAIRS_BYTES_MIN: Final = 256
"""For fewer bytes of properties the kernel does not pay: a call costs as much as reading them."""

PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
TOPIC_ALIAS: Final = 0x23
USER_PROPERTY: Final = 0x26


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type of section 1.5, as a property's value."""

    read: Callable[[FieldReader, str], Any]
    write: Callable[[Any], bytes]


def _read_topic(reader: FieldReader, what: str) -> str:
    topic = reader.text(what)
    check_name(topic)  # [MQTT-3.3.2-14], [MQTT-4.7.3-1]
    return topic


def _refuse_identifier(_reader: FieldReader, _what: str) -> int:
    # [MQTT-3.3.4-6]
    raise protocol_error("a client's PUBLISH has no subscription identifiers")


BYTE = DataType(FieldReader.byte, write_byte)
FLAG = DataType(FieldReader.flag, write_byte)
TWO_BYTES = DataType(FieldReader.two_bytes, write_two_bytes)
FOUR_BYTES = DataType(FieldReader.four_bytes, write_four_bytes)
VARIABLE = DataType(FieldReader.variable, encode_length)
TEXT = DataType(FieldReader.text, write_text)
TOPIC = DataType(_read_topic, write_text)
BINARY = DataType(FieldReader.binary, write_binary)
PAIR = DataType(FieldReader.pair, write_pair)


@dataclass(frozen=True, slots=True, eq=False)
class Property:
    """One row of the table."""

    id: int
    name: str
    data_type: DataType
    packets: frozenset[int]
    field: str = ""
    minimum: int | None = None
    maximum: int | None = None
    repeats: bool = False
    forwarded: bool = False
    out_of_range: ReasonCode = ReasonCode.PROTOCOL_ERROR


_CONNECT = frozenset({PacketType.CONNECT})
_CONNACK = frozenset({PacketType.CONNACK})
_DISCONNECT = frozenset({PacketType.DISCONNECT})
_AUTH = frozenset({PacketType.AUTH})
_PUBLISH = frozenset({PacketType.PUBLISH})
_SUBSCRIBE = frozenset({PacketType.SUBSCRIBE})
_WILL = frozenset({WILL})
_MESSAGE = _PUBLISH | _WILL
_ACKS = frozenset({PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP})
_ANSWERS = _ACKS | {PacketType.SUBACK, PacketType.UNSUBACK}
_REASONED = _CONNACK | _ANSWERS | _DISCONNECT | _AUTH
_NAMED = _REASONED | _CONNECT | _SUBSCRIBE | {PacketType.UNSUBSCRIBE}
_BY_USER = frozenset({PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE})
"""Packets whose user properties Dovetail reads (broker/subscribe.py): none may be skipped."""

# Section 2.2.2.2, table 2-4.
TABLE: Final = (
    Property(PAYLOAD_FORMAT, "the payload format indicator", FLAG, _MESSAGE, forwarded=True),
    Property(MESSAGE_EXPIRY, "the message expiry interval", FOUR_BYTES, _MESSAGE, "expiry_seconds"),
    Property(CONTENT_TYPE, "the content type", TEXT, _MESSAGE, forwarded=True),
    Property(RESPONSE_TOPIC, "the response topic", TOPIC, _MESSAGE, forwarded=True),
    Property(CORRELATION_DATA, "the correlation data", BINARY, _MESSAGE, forwarded=True),
    Property(
        SUBSCRIPTION_IDENTIFIER,
        "the subscription identifier",
        VARIABLE,
        _PUBLISH,
        "identifiers",
        minimum=1,
        repeats=True,
    ),
    Property(
        SUBSCRIPTION_IDENTIFIER,
        "the subscription identifier",
        VARIABLE,
        _SUBSCRIBE,
        "identifier",
        minimum=1,
    ),
    Property(
        0x11,
        "the session expiry interval",
        FOUR_BYTES,
        _CONNECT | _CONNACK | _DISCONNECT,
        "session_expiry_seconds",
    ),
    Property(0x12, "the assigned client identifier", TEXT, _CONNACK, "assigned_client_id"),
    Property(0x13, "the server keep alive", TWO_BYTES, _CONNACK, "keep_alive_seconds"),
    Property(0x15, "the authentication method", TEXT, _CONNECT | _CONNACK, "authentication_method"),
    Property(0x15, "the authentication method", TEXT, _AUTH, "method"),
    Property(0x16, "the authentication data", BINARY, _CONNECT, "authentication_data"),
    Property(0x16, "the authentication data", BINARY, _CONNACK),
    Property(0x16, "the authentication data", BINARY, _AUTH, "data"),
    Property(0x17, "the request problem information", FLAG, _CONNECT, "wants_problem_information"),
    Property(0x18, "the will delay interval", FOUR_BYTES, _WILL, "delay_seconds"),
    Property(
        0x19, "the request response information", FLAG, _CONNECT, "wants_response_information"
    ),
    Property(0x1A, "the response information", TEXT, _CONNACK, "response_information"),
    Property(0x1C, "the server reference", TEXT, _CONNACK),
    Property(0x1C, "the server reference", TEXT, _DISCONNECT, "server_reference"),
    Property(0x1F, "the reason string", TEXT, _REASONED, "reason_string"),
    Property(0x21, "the receive maximum", TWO_BYTES, _CONNECT | _CONNACK, "receive_max", minimum=1),
    Property(0x22, "the topic alias maximum", TWO_BYTES, _CONNECT | _CONNACK, "alias_max"),
    Property(
        TOPIC_ALIAS,
        "the topic alias",
        TWO_BYTES,
        _PUBLISH,
        "alias",
        minimum=1,  # [MQTT-3.3.2-8]
        out_of_range=ReasonCode.TOPIC_ALIAS_INVALID,
    ),
    Property(0x24, "the maximum QoS", BYTE, _CONNACK, "maximum_qos", maximum=1),
    Property(0x25, "the retain available", FLAG, _CONNACK, "retain_available"),
    Property(USER_PROPERTY, "a user property", PAIR, _MESSAGE, repeats=True, forwarded=True),
    Property(USER_PROPERTY, "a user property", PAIR, _NAMED, "user_properties", repeats=True),
    Property(
        0x27,
        "the maximum packet size",
        FOUR_BYTES,
        _CONNECT | _CONNACK,
        "packet_bytes_max",
        minimum=1,
    ),
    Property(0x28, "the wildcard subscription available", FLAG, _CONNACK),
    Property(0x29, "the subscription identifier available", FLAG, _CONNACK),
    Property(0x2A, "the shared subscription available", FLAG, _CONNACK),
)

_CLASSES: dict[int, type[Any]] = {
    WILL: Will,
    PacketType.CONNECT: Connect,
    PacketType.CONNACK: Connack,
    PacketType.PUBLISH: Publish,
    PacketType.PUBACK: Ack,
    PacketType.PUBREC: Ack,
    PacketType.PUBREL: Ack,
    PacketType.PUBCOMP: Ack,
    PacketType.SUBSCRIBE: Subscribe,
    PacketType.SUBACK: SubscriptionAck,
    PacketType.UNSUBSCRIBE: Unsubscribe,
    PacketType.UNSUBACK: SubscriptionAck,
    PacketType.DISCONNECT: Disconnect,
    PacketType.AUTH: Auth,
}


def _defaults(packet: int) -> dict[str, Any]:
    return {
        field.name: field.default
        for field in fields(_CLASSES[packet])
        if field.default is not MISSING
    }


# The table by packet: for lookups by a reader, and in order for a writer.
_BY_ID: Final = {
    packet: {row.id: row for row in TABLE if packet in row.packets} for packet in _CLASSES
}
_BY_ID[_CLIENT_PUBLISH] = {
    **_BY_ID[PacketType.PUBLISH],
    SUBSCRIPTION_IDENTIFIER: Property(
        SUBSCRIPTION_IDENTIFIER,
        "the subscription identifier",
        DataType(_refuse_identifier, encode_length),
        frozenset(),
    ),
}
_WRITTEN: Final = {
    packet: tuple(
        (row, _defaults(packet)[row.field]) for row in TABLE if packet in row.packets and row.field
    )
    for packet in _CLASSES
}


def read_properties(reader: FieldReader, packet: int) -> tuple[dict[str, Any], bytes]:
    """Return the packet's properties by field, and the raw bytes of the forwarded ones."""
    length = reader.variable("the property length")
    if not length:
        return {}, b""
    return _parse(reader.take(length, "properties"), packet)


def read_publish_properties(
    body: bytes, at: int, *, from_client: bool = False
) -> tuple[PublishProperties, int]:
    """Return the properties of a PUBLISH, and the position behind them.

    A PUBLISH from a client may not have a subscription identifier.
    """
    length = body[at]
    if length <= CACHED_BYTES_MAX:
        stop = at + length + 1
        if stop <= len(body):
            return _parse_short_publish(body[at + 1 : stop]), stop
    reader = FieldReader(body, at)
    length = reader.variable("the property length")
    properties = reader.take(length, "properties")
    return _parse_publish(properties, from_client=from_client), reader.at


def _parse_publish(properties: bytes, *, from_client: bool = False) -> PublishProperties:
    packet = _CLIENT_PUBLISH if from_client else PacketType.PUBLISH
    values, forwarded = _parse(properties, packet)
    return (
        forwarded,
        values.get("expiry_seconds"),
        values.get("alias", 0),
        values.get("identifiers", ()),
    )


# Publishers repeat the same properties.
_parse_short_publish = lru_cache(CACHED_BLOCKS_MAX)(_parse_publish)


def _parse(properties: bytes, packet: int) -> tuple[dict[str, Any], bytes]:
    reader = FieldReader(properties)
    rows = _BY_ID[packet]
    values: dict[str, Any] = {}
    seen: set[Property] = set()
    forwarded = bytearray()
    while reader.at < reader.end:
        start = reader.at
        if _read_pairs(reader, rows[USER_PROPERTY], packet, values):
            row = rows[USER_PROPERTY]
        else:
            row = _read_row(reader, rows)
            _take_value(values, row, _read_value(reader, row), seen)
        if row.forwarded:
            forwarded += properties[start : reader.at]
    for field, value in values.items():
        if isinstance(value, list):
            values[field] = tuple(value)
    return values, bytes(forwarded)


def _take_value(
    values: dict[str, Any],
    row: Property,
    value: Any,  # noqa: ANN401
    seen: set[Property],
) -> None:
    if row.repeats:
        if row.field:
            values.setdefault(row.field, []).append(value)
    elif row in seen:
        raise protocol_error(f"{row.name} is there twice")
    elif row.field:
        values[row.field] = value
    seen.add(row)


def _read_pairs(reader: FieldReader, row: Property, packet: int, values: dict[str, Any]) -> bool:
    """Read a series of user properties. Return False, and read nothing, if there is none."""
    start = reader.at
    if reader.end - start < PAIRS_BYTES_MIN or reader.data[start] != USER_PROPERTY:
        return False
    stop, count = pairs_end(np.frombuffer(reader.data, np.uint8), start)
    if stop == start:
        return False  # invalid: the caller reads it and raises the error
    if row.field:
        known = values.setdefault(row.field, [])
        if packet in _BY_USER and len(known) + count > USER_PROPERTIES_MAX:
            raise ClientError(
                ReasonCode.QUOTA_EXCEEDED, f"more than {USER_PROPERTIES_MAX:,} user properties"
            )
        for _ in range(min(count, USER_PROPERTIES_MAX - len(known))):
            reader.at += 1
            known.append(reader.pair(row.name))
    reader.at = stop
    return True


def _read_row(reader: FieldReader, rows: dict[int, Property]) -> Property:
    number = reader.byte("a property")  # all identifiers fit one byte
    row = rows.get(number)
    if row is None:  # section 2.2.2.2
        raise malformed(f"property 0x{number:02x} is unknown, or not for this packet")
    return row


def _read_value(reader: FieldReader, row: Property) -> Any:  # noqa: ANN401
    value = row.data_type.read(reader, row.name)
    if row.minimum is not None and value < row.minimum:
        raise ClientError(row.out_of_range, f"{row.name} is {value}, below {row.minimum}")
    if row.maximum is not None and value > row.maximum:
        raise ClientError(row.out_of_range, f"{row.name} is {value}, above {row.maximum}")
    return value


def write_properties(packet: int, source: Any, forwarded: bytes = b"") -> bytes:  # noqa: ANN401
    """Encode properties, with their length in front [MQTT-2.2.2-1]."""
    parts: list[bytes] = []
    for row, default in _WRITTEN[packet]:
        value = getattr(source, row.field)
        if value == default:
            continue
        for one in value if row.repeats else (value,):
            parts += (write_byte(row.id), row.data_type.write(one))
    encoded = b"".join(parts) + forwarded
    return encode_length(len(encoded)) + encoded


class ForwardedProperties(NamedTuple):
    """The properties of a publication that a server forwards; None for one that is absent."""

    payload_format: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user: UserProperties = ()


def forwarded_properties(properties: bytes) -> ForwardedProperties:
    """Decode the raw bytes in `Publish.properties` or `Will.properties`."""
    if not properties:
        return _NOTHING_FORWARDED
    reader = FieldReader(properties)
    rows = _BY_ID[PacketType.PUBLISH]
    found: dict[int, Any] = {}
    user: list[tuple[str, str]] = []
    while not reader.done():
        row = rows[reader.byte("a property")]
        value = row.data_type.read(reader, row.name)
        if row.id == USER_PROPERTY:
            user.append(value)
        else:
            found[row.id] = value
    return ForwardedProperties(
        found.get(PAYLOAD_FORMAT),
        found.get(CONTENT_TYPE),
        found.get(RESPONSE_TOPIC),
        found.get(CORRELATION_DATA),
        tuple(user),
    )


_NOTHING_FORWARDED: Final = ForwardedProperties()


def user_properties(properties: bytes) -> UserProperties:
    """Return the user properties in `Publish.properties`: fast, because they may be attributes.

    A ClientError if the bytes are malformed, since peers may send anything, or have more than
    USER_PROPERTIES_MAX user properties, which would take too long.
    """
    found: list[tuple[str, str]] = []
    at, size = 0, len(properties)
    try:
        while at < size:
            number = properties[at]
            if number == PAYLOAD_FORMAT:
                at += 2
                continue
            end = at + 3 + (properties[at + 1] << 8 | properties[at + 2])
            if number == USER_PROPERTY:
                value = end + 2
                name, end = properties[at + 3 : end], value + int.from_bytes(properties[end:value])
                found.append((name.decode(), properties[value:end].decode()))
                if len(found) > USER_PROPERTIES_MAX:
                    raise ClientError(
                        ReasonCode.QUOTA_EXCEEDED,
                        f"more than {USER_PROPERTIES_MAX:,} user properties, of which any may be "
                        "an attribute",
                    )
            elif number not in _LONG_PROPERTIES:
                break
            at = end
    except (IndexError, UnicodeDecodeError):
        at = -1
    if at != size:
        raise malformed("these are not the properties of a publication")
    return tuple(found)


_LONG_PROPERTIES: Final = frozenset({CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA})
"""Forwarded properties that begin with a length of two bytes."""


def forwardable_properties(
    *,
    payload_format: int | None = None,
    content_type: str | None = None,
    response_topic: str | None = None,
    correlation_data: bytes | None = None,
    user: UserProperties = (),
) -> bytes:
    """Encode the raw bytes for `Publish.properties` or `Will.properties`."""
    rows = _BY_ID[PacketType.PUBLISH]
    given = (
        (PAYLOAD_FORMAT, payload_format),
        (CONTENT_TYPE, content_type),
        (RESPONSE_TOPIC, response_topic),
        (CORRELATION_DATA, correlation_data),
        *((USER_PROPERTY, pair) for pair in user),
    )
    return b"".join(
        write_byte(number) + rows[number].data_type.write(value)
        for number, value in given
        if value is not None
    )
