"""Encoded packets, byte for byte, against figures of the specifications."""

import pytest

from dovetail.codec import (
    decode_publish,
    encode,
    encode_ack,
    encode_publish,
    forwardable_properties,
)
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
from dovetail.errors import ReasonCode

V3, V5 = MQTT_3_1_1, MQTT_5

EXAMPLES: list[tuple[int, Packet, bytes]] = [
    (V3, Connect(V3, "c", keep_alive_seconds=60), b"\x10\x0d\0\4MQTT\4\2\0\x3c\0\1c"),
    (V5, Connect(V5, "c", keep_alive_seconds=60), b"\x10\x0e\0\4MQTT\5\2\0\x3c\0\0\1c"),
    (V3, Connect(V5, "", clean_start=False), b"\x10\x0d\0\4MQTT\5\0\0\0\0\0\0"),
    (
        V3,
        Connect(V3, "c", user="u", password=b"p", will=Will(b"w", b"m", 2, retain=True)),
        b"\x10\x19\0\4MQTT\4\xf6\0\0\0\1c\0\1w\0\1m\0\1u\0\1p",
    ),
    (
        V5,
        Connect(
            V5,
            "c",
            session_expiry_seconds=0xFFFF_FFFF,
            password=b"p",
            will=Will(b"w", b"m", properties=b"\x01\1", expiry_seconds=3, delay_seconds=5),
        ),
        (
            b"\x10\x29\0\4MQTT\5\x46\0\0\5\x11\xff\xff\xff\xff\0\1c"
            b"\x0c\x02\0\0\0\3\x18\0\0\0\5\x01\1\0\1w\0\1m\0\1p"
        ),
    ),
    (V3, Connack(session_present=True, reason=ReasonCode.SUCCESS), b"\x20\2\1\0"),
    (V5, Connack(session_present=True, reason=ReasonCode.SUCCESS), b"\x20\3\1\0\0"),
    (
        V5,
        Connack(
            session_present=False,
            reason=ReasonCode.SUCCESS,
            session_expiry_seconds=0,
            maximum_qos=1,
            retain_available=False,
            assigned_client_id="x",
        ),
        b"\x20\x10\0\0\x0d\x11\0\0\0\0\x12\0\1x\x24\1\x25\0",
    ),
    (V3, Publish(b"a/b", b"hi"), b"\x30\7\0\3a/bhi"),
    (V5, Publish(b"a/b", b"hi"), b"\x30\x08\0\3a/b\0hi"),
    (V3, Publish(b"a", b"", 1, True, True, 10), b"\x3b\5\0\1a\0\x0a"),
    (V5, Publish(b"", b"x", 2, packet_id=10, alias=7), b"\x34\x09\0\0\0\x0a\3\x23\0\7x"),
    (V3, Ack(PacketType.PUBACK, 10), b"\x40\2\0\x0a"),
    (V5, Ack(PacketType.PUBREC, 10), b"\x50\2\0\x0a"),
    (V5, Ack(PacketType.PUBREL, 10), b"\x62\2\0\x0a"),
    (V5, Ack(PacketType.PUBCOMP, 10, 0x92), b"\x70\3\0\x0a\x92"),
    (V5, Ack(PacketType.PUBACK, 10, 0, "r"), b"\x40\x08\0\x0a\0\4\x1f\0\1r"),
    (V3, Subscribe(10, [SubscriptionRequest("a", 1)]), b"\x82\6\0\x0a\0\1a\1"),
    (
        V5,
        Subscribe(
            10,
            [
                SubscriptionRequest("a", 2, no_local=True),
                SubscriptionRequest("#", 0, retain_as_published=True, retain_handling=2),
            ],
            identifier=300,
        ),
        b"\x82\x0e\0\x0a\3\x0b\xac\x02\0\1a\6\0\1#\x28",
    ),
    (V3, Unsubscribe(10, ["a", "b"]), b"\xa2\x08\0\x0a\0\1a\0\1b"),
    (V5, Unsubscribe(10, ["a"], (("k", "v"),)), b"\xa2\x0d\0\x0a\7\x26\0\1k\0\1v\0\1a"),
    (V3, SubscriptionAck(PacketType.SUBACK, 10, [2, 0x80]), b"\x90\4\0\x0a\2\x80"),
    (V5, SubscriptionAck(PacketType.SUBACK, 10, [2, 0x87]), b"\x90\5\0\x0a\0\2\x87"),
    (V3, SubscriptionAck(PacketType.UNSUBACK, 10), b"\xb0\2\0\x0a"),
    (V5, SubscriptionAck(PacketType.UNSUBACK, 10, [0, 0x11]), b"\xb0\5\0\x0a\0\0\x11"),
    (V3, Ping(PacketType.PINGREQ), b"\xc0\0"),
    (V5, Ping(PacketType.PINGRESP), b"\xd0\0"),
    (V3, Disconnect(), b"\xe0\0"),
    (V5, Disconnect(), b"\xe0\0"),
    (V5, Disconnect(ReasonCode.SESSION_TAKEN_OVER), b"\xe0\1\x8e"),
    (V5, Disconnect(session_expiry_seconds=0), b"\xe0\7\0\5\x11\0\0\0\0"),
    (V5, Auth(), b"\xf0\0"),
    (V5, Auth(0x18, "m", b"d"), b"\xf0\x0a\x18\x08\x15\0\1m\x16\0\1d"),
]


@pytest.mark.parametrize(("version", "packet", "encoded"), EXAMPLES)
def test_examples(version: int, packet: Packet, encoded: bytes) -> None:
    assert encode(version, packet) == encoded


def test_version_4_leaves_out_what_it_has_no_words_for() -> None:
    properties = forwardable_properties(content_type="x", user=(("k", "v"),))
    plain = encode_publish(V3, b"a", b"p", 1, packet_id=5)
    assert plain == encode_publish(
        V3, b"a", b"p", 1, False, False, 5, properties, expiry_seconds=9, identifiers=(1,), alias=2
    )
    user = (("k", "v"),)
    assert encode(V3, Ack(PacketType.PUBACK, 5, 0x87, "r", user)) == b"\x40\2\0\5"
    assert encode(V3, Disconnect(ReasonCode.SERVER_BUSY, 5, "r")) == b"\xe0\0"
    assert encode(V3, SubscriptionAck(PacketType.UNSUBACK, 5, [0, 0x11])) == b"\xb0\2\0\5"
    assert encode(V3, SubscriptionAck(PacketType.SUBACK, 5, [0, 1, 2, 0x8F, 0xA2])) == (
        b"\x90\7\0\5\0\1\2\x80\x80"
    )
    request = SubscriptionRequest("a", 1, no_local=True, retain_handling=2)
    assert encode(V3, Subscribe(5, [request], 9, user)) == b"\x82\6\0\5\0\1a\1"
    assert encode(V3, Unsubscribe(5, ["a"], user)) == b"\xa2\5\0\5\0\1a"
    connect = Connect(V3, "c", receive_max=1, will=Will(b"w", b"", 0, False, properties, 1, 2))
    assert encode(V5, connect) == b"\x10\x12\0\4MQTT\4\6\0\0\0\1c\0\1w\0\0"
    with pytest.raises(ValueError, match="no AUTH"):
        encode(V3, Auth())


@pytest.mark.parametrize(
    ("reason", "return_code"),
    [
        (ReasonCode.SUCCESS, 0),
        (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (ReasonCode.SERVER_UNAVAILABLE, 3),
        (ReasonCode.SERVER_BUSY, 3),
        (ReasonCode.SERVER_SHUTTING_DOWN, 3),
        (ReasonCode.QUOTA_EXCEEDED, 3),
        (ReasonCode.MALFORMED_PACKET, 3),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, 4),
        (ReasonCode.BAD_AUTHENTICATION_METHOD, 4),
        (ReasonCode.NOT_AUTHORIZED, 5),
        (ReasonCode.BANNED, 5),
    ],
)
def test_return_codes_of_version_4(reason: ReasonCode, return_code: int) -> None:
    packet = Connack(session_present=False, reason=reason)
    assert encode(V3, packet) == bytes([0x20, 2, 0, return_code])


def test_the_last_packet_of_a_connection_has_one_of_its_own_reasons() -> None:
    refused = Connack(session_present=False, reason=ReasonCode.SERVER_SHUTTING_DOWN)
    assert encode(V5, refused) == b"\x20\3\0\x80\0"  # [MQTT-3.2.2-8]
    assert encode(V5, Disconnect(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)) == b"\xe0\1\x80"
    assert encode(V5, Disconnect(ReasonCode.TOPIC_ALIAS_INVALID)) == b"\xe0\1\x94"


@pytest.mark.parametrize("packet_type", [4, 5, 6, 7])
def test_encode_ack(packet_type: int) -> None:
    kind = PacketType(packet_type)
    first_byte = 0x62 if kind == PacketType.PUBREL else packet_type << 4
    for version in (V3, V5):
        assert encode_ack(version, kind, 0xABCD) == bytes([first_byte, 2, 0xAB, 0xCD])
    assert encode_ack(V3, kind, 0xABCD, 0x92) == bytes([first_byte, 2, 0xAB, 0xCD])
    assert encode_ack(V5, kind, 0xABCD, 0x92) == bytes([first_byte, 3, 0xAB, 0xCD, 0x92])


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("size", [0, 100, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_publications_around_each_size_of_the_length(version: int, size: int) -> None:
    for remaining in (size, size + 1):
        payload = bytes(max(remaining - 5 - (version == V5), 0))
        encoded = encode_publish(version, b"abc", payload)
        header = len(encoded) - 5 - (version == V5) - len(payload)
        assert decode_publish(version, encoded[0], encoded[header:]) == Publish(b"abc", payload)


def test_a_packet_too_large_for_the_length() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return 268_435_456

    with pytest.raises(ValueError, match="no variable byte integer"):
        encode_publish(V5, b"a", Large())
