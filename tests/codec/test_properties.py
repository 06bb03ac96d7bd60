"""Properties against paho-mqtt, which has a table of its own."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from dovetail.codec.datatypes import FieldReader
from dovetail.codec.limits import USER_PROPERTIES_MAX
from dovetail.codec.packets import (
    MQTT_5,
    Connack,
    Connect,
    Packet,
    PacketType,
    Publish,
    Subscribe,
    UserProperties,
)
from dovetail.codec.properties import (
    BINARY,
    BYTE,
    CACHED_BYTES_MAX,
    FLAG,
    FOUR_BYTES,
    PAIR,
    TABLE,
    TEXT,
    TOPIC,
    TWO_BYTES,
    VARIABLE,
    WILL,
    DataType,
    forwardable_properties,
    forwarded_properties,
    read_properties,
    read_publish_properties,
    user_properties,
    write_properties,
)
from dovetail.errors import ClientError
from support.strategies import packets as packet_strategies

PAHO_KINDS = {
    "Byte": (BYTE, FLAG),
    "Two Byte Integer": (TWO_BYTES,),
    "Four Byte Integer": (FOUR_BYTES,),
    "Variable Byte Integer": (VARIABLE,),
    "Binary Data": (BINARY,),
    "UTF-8 Encoded String": (TEXT, TOPIC),
    "UTF-8 String Pair": (PAIR,),
}
# Our fields by paho's names, where they mean the same in all packets.
PAHO_NAMES = {
    "SessionExpiryInterval": "session_expiry_seconds",
    "AssignedClientIdentifier": "assigned_client_id",
    "ServerKeepAlive": "keep_alive_seconds",
    "AuthenticationMethod": "authentication_method",
    "AuthenticationData": "authentication_data",
    "RequestProblemInformation": "wants_problem_information",
    "RequestResponseInformation": "wants_response_information",
    "ResponseInformation": "response_information",
    "ServerReference": "server_reference",
    "ReasonString": "reason_string",
    "ReceiveMaximum": "receive_max",
    "TopicAliasMaximum": "alias_max",
    "MaximumQoS": "maximum_qos",
    "RetainAvailable": "retain_available",
    "UserProperty": "user_properties",
    "MaximumPacketSize": "packet_bytes_max",
    "SubscriptionIdentifier": "identifier",
}
PAHO_NAMES_OF_AUTH = {"AuthenticationMethod": "method", "AuthenticationData": "data"}


def paho_properties(packet_type: int) -> Any:  # noqa: ANN401
    make: Any = Properties
    return make(PacketTypes.WILLMESSAGE if packet_type == WILL else packet_type)


def test_table_as_paho_has_it() -> None:
    paho = paho_properties(PacketType.PUBLISH)
    theirs = {
        (number, WILL if packet == PacketTypes.WILLMESSAGE else packet)
        for number, (_, packets) in paho.properties.items()
        for packet in packets
    }
    ours = [(row.id, int(packet)) for row in TABLE for packet in row.packets]
    assert sorted(ours) == sorted(theirs)  # a list, so that no two rows are for the same


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_kinds_as_paho_has_them(row: Any) -> None:  # noqa: ANN401
    paho = paho_properties(PacketType.PUBLISH)
    kinds: tuple[DataType, ...] = PAHO_KINDS[paho.types[paho.properties[row.id][0]]]
    assert row.data_type in kinds


def packet_type_of(packet: Packet) -> PacketType:
    given_type = getattr(packet, "type", None)
    return given_type or PacketType[type(packet).__name__.upper()]


def as_paho(packet: Packet) -> Any:  # noqa: ANN401
    """Return the packet's properties that differ from their defaults, in paho's class."""
    packet_type = packet_type_of(packet)
    paho = paho_properties(packet_type)
    names = PAHO_NAMES | (PAHO_NAMES_OF_AUTH if packet_type == PacketType.AUTH else {})
    for name, field in names.items():
        # A CONNECT's keep alive is no property, a CONNACK's is.
        value = getattr(packet, field, None)
        allowed = packet_type in paho.properties[paho.getIdentFromName(name)][1]
        if (
            not allowed
            or value is None
            or value == type(packet).__dataclass_fields__[field].default
        ):
            continue
        # Lists and large packets are the two things paho checks differently than we do.
        object.__setattr__(paho, name, list(value) if field == "user_properties" else value)
    if hasattr(paho, "SubscriptionIdentifier"):
        object.__setattr__(paho, "SubscriptionIdentifier", [paho.SubscriptionIdentifier])
    return paho


plain_packets = st.one_of(
    packet_strategies.connects(MQTT_5),
    packet_strategies.connacks(MQTT_5),
    packet_strategies.acks(MQTT_5),
    packet_strategies.subscribes(MQTT_5),
    packet_strategies.unsubscribes(MQTT_5),
    packet_strategies.subscription_acks(MQTT_5),
    packet_strategies.disconnects(MQTT_5),
    packet_strategies.auths,
)


@given(plain_packets)
def test_written_as_by_paho(packet: Packet) -> None:
    assert write_properties(packet_type_of(packet), packet) == as_paho(packet).pack()


@given(packet_strategies.publishes(MQTT_5))
def test_what_paho_reads_of_a_publication(packet: Publish) -> None:
    encoded = write_properties(PacketType.PUBLISH, packet, packet.properties)
    if b"\xef\xbb\xbf" in encoded:  # paho refuses U+FEFF, which [MQTT-1.5.4-3] allows
        return
    paho = paho_properties(PacketType.PUBLISH)
    _, length = paho.unpack(encoded)
    assert length == len(encoded)
    assert getattr(paho, "MessageExpiryInterval", None) == packet.expiry_seconds
    assert getattr(paho, "TopicAlias", 0) == packet.alias
    assert tuple(getattr(paho, "SubscriptionIdentifier", ())) == packet.identifiers
    assert tuple(getattr(paho, "UserProperty", ())) == user_properties(packet.properties)
    assert packet.properties == forwardable_properties(
        payload_format=getattr(paho, "PayloadFormatIndicator", None),
        content_type=getattr(paho, "ContentType", None),
        response_topic=getattr(paho, "ResponseTopic", None),
        correlation_data=getattr(paho, "CorrelationData", None),
        user=cast("UserProperties", tuple(getattr(paho, "UserProperty", ()))),
    )


def test_what_is_forwarded_keeps_its_order_and_the_rest_is_taken_out() -> None:
    user = forwardable_properties(user=(("b", "1"), ("a", "2"), ("b", "1")))
    kind = forwardable_properties(content_type="text/plain")
    expiry, alias, identifier = b"\x02\0\0\0\x09", b"\x23\0\x07", b"\x0b\x05"
    block = user + expiry + kind + alias + identifier + identifier + user
    body = bytes([len(block)]) + block + b"payload"
    found, at = read_publish_properties(body, 0)
    assert found == (user + kind + user, 9, 7, (5, 5))
    assert body[at:] == b"payload"
    assert user_properties(found[0]) == (("b", "1"), ("a", "2"), ("b", "1")) * 2  # [MQTT-3.3.2-18]


@given(packet_strategies.forwardables)
def test_long_and_short_publish_properties_are_read_alike(properties: bytes) -> None:
    # The filler may repeat, and makes the block too large for the cache.
    filler = forwardable_properties(user=(("x" * CACHED_BYTES_MAX, ""),))
    for block in (properties, properties + filler):
        reader = FieldReader(write_properties(PacketType.PUBLISH, Publish(b"", b""), block))
        assert read_publish_properties(reader.data, 0) == ((block, None, 0, ()), reader.end)
        assert read_properties(reader, PacketType.PUBLISH) == ({}, block)


def test_properties_that_were_refused_once_are_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(ClientError, match="twice"):
            read_publish_properties(b"\x06\x23\0\1\x23\0\1", 0)


def test_defaults_are_not_written() -> None:
    packet = Connect(MQTT_5, "c")
    assert write_properties(PacketType.CONNECT, packet) == b"\0"
    assert write_properties(PacketType.CONNECT, replace(packet, receive_max=1)) == b"\3\x21\0\1"


def test_connack_properties_without_a_field_are_checked_and_dropped() -> None:
    paho = paho_properties(PacketType.CONNACK)
    paho.WildcardSubscriptionAvailable = 0
    paho.SubscriptionIdentifierAvailable = 1
    paho.SharedSubscriptionAvailable = 0
    paho.ServerReference = "elsewhere"
    paho.AuthenticationData = b"\0"
    paho.AuthenticationMethod = "m"
    found = read_properties(FieldReader(paho.pack()), PacketType.CONNACK)
    assert found == ({"authentication_method": "m"}, b"")
    assert "authentication_method" in Connack.__dataclass_fields__
    with pytest.raises(ClientError, match="shared subscription available is 2"):
        read_properties(FieldReader(b"\x02\x2a\x02"), PacketType.CONNACK)


@given(st.binary(max_size=40))
def test_what_are_no_properties_has_no_users_either(data: bytes) -> None:
    """Bytes as peers may send them: read with the same result as by the table, or refused."""
    try:
        found = user_properties(data)
    except ClientError:
        return
    with suppress(ClientError, KeyError):  # the table is stricter about texts
        assert forwarded_properties(data).user == found


@given(packet_strategies.user_properties, st.integers(1, 40))
def test_properties_that_are_cut_short(pairs: tuple[tuple[str, str], ...], cut: int) -> None:
    data = forwardable_properties(content_type="x", user=(("first", "1"), *pairs))
    assert user_properties(data) == (("first", "1"), *pairs)
    with pytest.raises(ClientError):
        user_properties(data[: -min(cut, 3)])


def test_no_user_properties() -> None:
    assert user_properties(b"") == ()
    assert user_properties(forwardable_properties(content_type="x")) == ()


MANY = tuple((f"name {number}", "é") for number in range(3 * USER_PROPERTIES_MAX))


def test_many_user_properties_are_passed_on_as_they_came() -> None:
    data = forwardable_properties(content_type="x", user=MANY)
    packed = write_properties(PacketType.PUBLISH, Publish(b"t", b""), data)
    (found, *_), at = read_publish_properties(packed, 0, from_client=True)
    assert (found, at) == (data, len(packed))
    with pytest.raises(ClientError, match="user property"):
        read_publish_properties(packed[:-2] + b"\xff\xff", 0)


def test_many_user_properties_that_nobody_asks_for() -> None:
    packed = write_properties(PacketType.CONNECT, Connect(MQTT_5, "c", user_properties=MANY))
    values, _ = read_properties(FieldReader(packed), PacketType.CONNECT)
    assert values == {"user_properties": MANY[:USER_PROPERTIES_MAX]}


def test_more_user_properties_than_may_mean_something() -> None:
    few, many = MANY[:USER_PROPERTIES_MAX], MANY[: USER_PROPERTIES_MAX + 1]
    packed = write_properties(PacketType.SUBSCRIBE, Subscribe(1, [], user_properties=few))
    values, _ = read_properties(FieldReader(packed), PacketType.SUBSCRIBE)
    assert values == {"user_properties": few}
    packed = write_properties(PacketType.SUBSCRIBE, Subscribe(1, [], user_properties=many))
    with pytest.raises(ClientError, match="more than 1,000 user properties"):
        read_properties(FieldReader(packed), PacketType.SUBSCRIBE)
    assert user_properties(forwardable_properties(user=few)) == few
    with pytest.raises(ClientError, match="more than 1,000 user properties"):
        user_properties(forwardable_properties(user=many))


def test_a_client_is_refused_with_its_first_subscription_identifier() -> None:
    packed = write_properties(
        PacketType.PUBLISH, Publish(b"t", b"", identifiers=(1,) * 100), bytes([0x26, 0, 0, 0])
    )
    with pytest.raises(ClientError, match="no subscription identifiers"):
        read_publish_properties(packed, 0, from_client=True)
