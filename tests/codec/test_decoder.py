"""Invalid packets are refused for the right reason: an entry for each rule, then noise."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.codec import connect_version, decode, decode_length, decode_publish, encode
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Auth,
    Connack,
    Disconnect,
    Packet,
    PacketType,
    Publish,
    SubscriptionAck,
)
from dovetail.errors import ClientError, ReasonCode
from support.strategies import packets

MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL = ReasonCode.PROTOCOL_ERROR
NAME = ReasonCode.TOPIC_NAME_INVALID
FILTER = ReasonCode.TOPIC_FILTER_INVALID
VERSION = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = (
    0x10,
    0x20,
    0x30,
    0x40,
    0x50,
    0x62,
    0x70,
)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP = 0x82, 0x90, 0xA2, 0xB0, 0xC0, 0xD0
DISCONNECT, AUTH = 0xE0, 0xF0
QOS_1 = 0x02

ID = b"\0\x0a"


class Refusal(NamedTuple):
    rule: str
    versions: tuple[int, ...]
    first_byte: int
    body: bytes
    reason: ReasonCode


BOTH = (MQTT_3_1_1, MQTT_5)
V3 = (MQTT_3_1_1,)
V5 = (MQTT_5,)


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return len(encoded).to_bytes(2, "big") + encoded


def block(*properties: bytes) -> bytes:
    joined = b"".join(properties)
    assert len(joined) < 128
    return bytes([len(joined)]) + joined


NONE = block()
USER = b"\x26" + text("k") + text("v")


def connect(
    *payload: bytes,
    version: int = MQTT_5,
    flags: int = 0b10,
    properties: bytes = NONE,
    name: bytes = b"MQTT",
) -> bytes:
    head = text(name) + bytes([version, flags]) + b"\0\x3c"
    return head + (properties if version == MQTT_5 else b"") + b"".join(payload or (text("c"),))


def will(
    properties: bytes = NONE,
    topic: str | bytes = "w",
    version: int = MQTT_5,
    flags: int = 0b110,
) -> bytes:
    fields = (text("c"), properties if version == MQTT_5 else b"", text(topic), text("gone"))
    return connect(*fields, flags=flags, version=version)


def publish(topic: str | bytes, properties: bytes = b"", packet_id: bytes = b"") -> bytes:
    return text(topic) + packet_id + properties + b"payload"


def connect_property(rule: str, *properties: bytes, reason: ReasonCode = PROTOCOL) -> Refusal:
    return Refusal(rule, V5, CONNECT, connect(properties=block(*properties)), reason)


def connack_property(rule: str, *properties: bytes, reason: ReasonCode = PROTOCOL) -> Refusal:
    return Refusal(rule, V5, CONNACK, b"\0\0" + block(*properties), reason)


def publish_property(rule: str, *properties: bytes, reason: ReasonCode = PROTOCOL) -> Refusal:
    return Refusal(rule, V5, PUBLISH, publish("a", block(*properties)), reason)


def subscribe(rule: str, *payload: bytes, reason: ReasonCode) -> tuple[Refusal, Refusal]:
    joined = b"".join(payload)
    return (
        Refusal(rule, V3, SUBSCRIBE, ID + joined, reason),
        Refusal(rule, V5, SUBSCRIBE, ID + NONE + joined, reason),
    )


FIXED_HEADER = [
    Refusal("2.1.2 packet type 0", BOTH, 0x00, b"", MALFORMED),
    Refusal("2.1.2 packet type 0 with flags", BOTH, 0x02, b"\0\0", MALFORMED),
    *(
        Refusal(f"MQTT-2.1.3-1 0x{first_byte ^ bit:02x}", BOTH, first_byte ^ bit, body, MALFORMED)
        for first_byte, body in {
            CONNECT: connect(),
            CONNACK: b"\0\0",
            PUBACK: ID,
            PUBREC: ID,
            PUBREL: ID,
            PUBCOMP: ID,
            SUBSCRIBE: ID + text("a") + b"\0",
            SUBACK: ID + b"\0",
            UNSUBSCRIBE: ID + text("a"),
            UNSUBACK: ID,
            PINGREQ: b"",
            PINGRESP: b"",
            DISCONNECT: b"",
            AUTH: b"",
        }.items()
        for bit in (1, 2, 4, 8)
    ),
]

CONNECTS = [
    Refusal("MQTT-3.1.2-1 other name", BOTH, CONNECT, connect(name=b"AMQP"), VERSION),
    Refusal("MQTT-3.1.2-1 3.1", BOTH, CONNECT, connect(name=b"MQIsdp", version=3), VERSION),
    Refusal("MQTT-3.1.2-1 case counts", BOTH, CONNECT, connect(name=b"mqtt"), VERSION),
    Refusal("MQTT-3.1.2-2 version 3", BOTH, CONNECT, connect(version=3), VERSION),
    Refusal("MQTT-3.1.2-2 version 6", BOTH, CONNECT, connect(version=6), VERSION),
    Refusal("MQTT-3.1.2-2 a bridge's bit", BOTH, CONNECT, connect(version=0x84), VERSION),
    Refusal("MQTT-3.1.2-3 reserved flag", BOTH, CONNECT, connect(flags=0b11), MALFORMED),
    Refusal("MQTT3-3.1.2-3", BOTH, CONNECT, connect(flags=0b11, version=4), MALFORMED),
    Refusal("MQTT-3.1.2-11 QoS, no will", BOTH, CONNECT, connect(flags=0b1010), PROTOCOL),
    Refusal("MQTT-3.1.2-12 will QoS 3", BOTH, CONNECT, will(flags=0b1_1110), MALFORMED),
    Refusal("MQTT-3.1.2-13 retain, no will", BOTH, CONNECT, connect(flags=0b10_0010), PROTOCOL),
    Refusal("MQTT-3.1.2-9 will is missing", BOTH, CONNECT, connect(flags=0b110), MALFORMED),
    Refusal("MQTT-3.1.2-16 user, no flag", BOTH, CONNECT, connect(text("c"), text("u")), MALFORMED),
    Refusal("MQTT-3.1.2-17 no user, flag", BOTH, CONNECT, connect(flags=0b1000_0010), MALFORMED),
    Refusal("MQTT-3.1.2-19 no password, flag", BOTH, CONNECT, connect(flags=0x42), MALFORMED),
    Refusal(
        "MQTT3-3.1.2-22 password without user",
        BOTH,
        CONNECT,
        connect(text("c"), text("p"), flags=0b0100_0010, version=4),
        PROTOCOL,
    ),
    Refusal("MQTT-3.1.3-3 no client id", BOTH, CONNECT, connect(b""), MALFORMED),
    Refusal("MQTT-3.1.3-4 client id", BOTH, CONNECT, connect(text(b"\xff")), MALFORMED),
    Refusal(
        "MQTT3-3.1.3-8 nameless and not clean",
        BOTH,
        CONNECT,
        connect(text(""), flags=0, version=4),
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ),
    Refusal("MQTT-3.1.3-11 will topic", BOTH, CONNECT, will(topic=b"\xc0\x80"), MALFORMED),
    Refusal("MQTT-3.1.3-11 of 3.1.1", BOTH, CONNECT, will(topic=b"a\0", version=4), MALFORMED),
    Refusal("MQTT-4.7.1-1 will to wildcard", BOTH, CONNECT, will(topic="a/#"), NAME),
    Refusal("MQTT-4.7.3-1 will to nowhere", BOTH, CONNECT, will(topic="", version=4), NAME),
    Refusal(
        "MQTT-3.1.3-12 user name",
        BOTH,
        CONNECT,
        connect(text("c"), text(b"\xed\xa0\x80"), flags=0b1000_0010),
        MALFORMED,
    ),
    Refusal("3.1 cut in its head", BOTH, CONNECT, connect()[:9], MALFORMED),
    connect_property("2.2.2.2 expiry of messages", b"\x02\0\0\0\1", reason=MALFORMED),
    connect_property("2.2.2.2 unknown property", b"\x7f\0", reason=MALFORMED),
    connect_property("2.2.2.2 property of two bytes", b"\x91\x00\0\0\0\1", reason=MALFORMED),
    connect_property("2.2.2.2 property cut off", b"\x11\0\0\0", reason=MALFORMED),
    connect_property("3.1.2.11.2 session expiry twice", b"\x11\0\0\0\1" * 2),
    connect_property("3.1.2.11.3 receive maximum 0", b"\x21\0\0"),
    connect_property("3.1.2.11.3 receive maximum twice", b"\x21\0\1" * 2),
    connect_property("3.1.2.11.4 packet size 0", b"\x27\0\0\0\0"),
    connect_property("3.1.2.11.4 packet size twice", b"\x27\0\0\0\1" * 2),
    connect_property("3.1.2.11.5 alias maximum twice", b"\x22\0\0" * 2),
    connect_property("3.1.2.11.6 response information 2", b"\x19\2"),
    connect_property("3.1.2.11.6 response information twice", b"\x19\1" * 2),
    connect_property("3.1.2.11.7 problem information 2", b"\x17\2"),
    connect_property("3.1.2.11.7 problem information twice", b"\x17\0" * 2),
    connect_property("3.1.2.11.9 method twice", (b"\x15" + text("m")) * 2),
    connect_property("3.1.2.11.10 data without method", b"\x16" + text("d")),
    connect_property("3.1.2.11.10 data twice", b"\x15\0\1m", (b"\x16" + text("d")) * 2),
    connect_property("MQTT-1.5.7-1 user property", b"\x26\0\1k\0\1\0", reason=MALFORMED),
    Refusal(
        "2.2.2.1 properties over the end",
        V5,
        CONNECT,
        connect(b"", properties=b"\x05\x21\0\1"),
        MALFORMED,
    ),
    Refusal("3.1.3.2.2 delay twice", V5, CONNECT, will(block(b"\x18\0\0\0\1" * 2)), PROTOCOL),
    Refusal("3.1.3.2.3 format 2", V5, CONNECT, will(block(b"\x01\2")), PROTOCOL),
    Refusal("3.1.3.2.6 reply to all", V5, CONNECT, will(block(b"\x08" + text("+"))), NAME),
    Refusal("2.2.2.2 alias in a will", V5, CONNECT, will(block(b"\x23\0\1")), MALFORMED),
]

CONNACKS = [
    Refusal("MQTT-3.2.2-1 reserved flags", BOTH, CONNACK, b"\2\0\0", MALFORMED),
    Refusal("MQTT-3.2.2-6 refused with session", V5, CONNACK, b"\1\x87\0", PROTOCOL),
    Refusal("MQTT3-3.2.2-4 refused with session", V3, CONNACK, b"\1\5", PROTOCOL),
    Refusal("MQTT-3.2.2-8 reason of DISCONNECT", V5, CONNACK, b"\0\x8e\0", PROTOCOL),
    Refusal("3.2.2.3 of 3.1.1: return code 6", V3, CONNACK, b"\0\6", PROTOCOL),
    Refusal("3.2 no reason", BOTH, CONNACK, b"\0", MALFORMED),
    Refusal("MQTT-2.2.2-1 no property length", V5, CONNACK, b"\0\0", MALFORMED),
    Refusal("3.2 properties in 3.1.1", V3, CONNACK, b"\0\0\0", MALFORMED),
    Refusal("3.2 has no payload", V5, CONNACK, b"\0\0\0\0", MALFORMED),
    connack_property("3.2.2.3.3 receive maximum 0", b"\x21\0\0"),
    connack_property("3.2.2.3.4 maximum QoS 2", b"\x24\2"),
    connack_property("3.2.2.3.4 maximum QoS twice", b"\x24\1" * 2),
    connack_property("3.2.2.3.5 retain available 2", b"\x25\2"),
    connack_property("3.2.2.3.6 packet size 0", b"\x27\0\0\0\0"),
    connack_property("3.2.2.3.7 assigned twice", b"\x12\0\1a" * 2),
    connack_property("3.2.2.3.9 reason string twice", b"\x1f\0\1a" * 2),
    connack_property("3.2.2.3.11 wildcards available 2", b"\x28\2"),
    connack_property("3.2.2.3.12 identifiers available 2", b"\x29\2"),
    connack_property("3.2.2.3.13 shared available 2", b"\x2a\2"),
    connack_property("3.2.2.3.13 shared available twice", b"\x2a\1" * 2),
    connack_property("2.2.2.2 will delay", b"\x18\0\0\0\1", reason=MALFORMED),
]

PUBLISHES = [
    Refusal("MQTT-3.3.1-4 QoS 3", BOTH, PUBLISH | 0x06, publish("a", NONE, ID), MALFORMED),
    Refusal("MQTT-3.3.1-4 QoS 3, dup", BOTH, PUBLISH | 0x0E, publish("a", NONE, ID), MALFORMED),
    Refusal("MQTT-3.3.1-2 duplicate of QoS 0", BOTH, PUBLISH | 0x08, publish("a", NONE), PROTOCOL),
    Refusal("MQTT-3.3.1-2 retained, too", BOTH, PUBLISH | 0x09, publish("a", NONE), PROTOCOL),
    Refusal("MQTT-2.2.1-3 id 0", BOTH, PUBLISH | QOS_1, publish("a", NONE, b"\0\0"), PROTOCOL),
    Refusal("MQTT-3.3.2-1 surrogate", BOTH, PUBLISH, publish(b"\xed\xa0\x80", NONE), MALFORMED),
    Refusal("MQTT-3.3.2-1 overlong", BOTH, PUBLISH, publish(b"\xc1\x81", NONE), MALFORMED),
    Refusal("MQTT-1.5.4-2 null", BOTH, PUBLISH, publish("a\0b", NONE), MALFORMED),
    Refusal("MQTT-3.3.2-2 #", BOTH, PUBLISH, publish("a/#", NONE), NAME),
    Refusal("MQTT-3.3.2-2 + anywhere", BOTH, PUBLISH, publish("a+b", NONE), NAME),
    Refusal("MQTT-3.3.2-2 + beyond ASCII", BOTH, PUBLISH, publish("é/+", NONE), NAME),
    Refusal("MQTT-4.7.3-1 no topic", V3, PUBLISH, publish(""), NAME),
    Refusal("3.3.2.1 no topic, no alias", V5, PUBLISH, publish("", NONE), PROTOCOL),
    Refusal("3.3.2.1 no alias among properties", V5, PUBLISH, publish("", block(USER)), PROTOCOL),
    Refusal("3.3 empty", BOTH, PUBLISH, b"", MALFORMED),
    Refusal("3.3 half a length", BOTH, PUBLISH, b"\0", MALFORMED),
    Refusal("3.3 topic cut off", BOTH, PUBLISH, b"\0\2a", MALFORMED),
    Refusal("3.3 topic with wildcard cut off", BOTH, PUBLISH, b"\0\2#", MALFORMED),
    Refusal("3.3 topic of nothing cut off", BOTH, PUBLISH, b"\0\2", MALFORMED),
    Refusal("3.3 no id", BOTH, PUBLISH | QOS_1, text("a"), MALFORMED),
    Refusal("3.3 half an id", BOTH, PUBLISH | QOS_1, text("a") + b"\1", MALFORMED),
    Refusal("MQTT-2.2.2-1 no property length", V5, PUBLISH, text("a"), MALFORMED),
    Refusal("2.2.2.1 properties cut off", V5, PUBLISH, text("a") + b"\5\1\1", MALFORMED),
    Refusal("2.2.2.1 long length cut off", V5, PUBLISH, text("a") + b"\x80", MALFORMED),
    Refusal("1.5.5 length of five bytes", V5, PUBLISH, text("a") + b"\x80" * 4 + b"\1", MALFORMED),
    Refusal("MQTT-1.5.5-1 length too long", V5, PUBLISH, text("a") + b"\x80\0", MALFORMED),
    Refusal("2.2.2.1 two hundred cut off", V5, PUBLISH, text("a") + b"\xc8\1" + USER, MALFORMED),
    publish_property("3.3.2.3.2 format 2", b"\x01\2"),
    publish_property("3.3.2.3.2 format twice", b"\x01\0" * 2),
    publish_property("3.3.2.3.3 expiry twice", b"\x02\0\0\0\1" * 2),
    publish_property("MQTT-3.3.2-8", b"\x23\0\0", reason=ReasonCode.TOPIC_ALIAS_INVALID),
    publish_property("3.3.2.3.4 alias twice", b"\x23\0\1" * 2),
    publish_property("MQTT-3.3.2-13", b"\x08\0\1\xff", reason=MALFORMED),
    publish_property("MQTT-3.3.2-14 +", b"\x08" + text("a/+"), reason=NAME),
    publish_property("MQTT-3.3.2-14 #", b"\x08" + text("#"), reason=NAME),
    publish_property("MQTT-4.7.3-1 reply to nowhere", b"\x08\0\0", reason=NAME),
    publish_property("3.3.2.3.5 response topic twice", b"\x08\0\1a" * 2),
    publish_property("3.3.2.3.6 correlation twice", b"\x09\0\1a" * 2),
    publish_property("MQTT-3.3.2-17 user property", b"\x26\0\1\xff\0\0", reason=MALFORMED),
    publish_property("3.3.2.3.7 half a user property", b"\x26\0\1a", reason=MALFORMED),
    publish_property("3.3.2.3.8 identifier 0", b"\x0b\0"),
    publish_property("MQTT-1.5.5-1 identifier too long", b"\x0b\x81\0", reason=MALFORMED),
    publish_property("1.5.5 identifier of five bytes", b"\x0b\xff\xff\xff\xff\1", reason=MALFORMED),
    publish_property("1.5.5 identifier cut off", b"\x0b\xff", reason=MALFORMED),
    publish_property("MQTT-3.3.2-19 content type", b"\x03\0\1\0", reason=MALFORMED),
    publish_property("3.3.2.3.9 content type twice", b"\x03\0\1a" * 2),
    publish_property("2.2.2.2 reason string", b"\x1f\0\1a", reason=MALFORMED),
    publish_property("2.2.2.2 value over the end", b"\x09\0\x09abc", reason=MALFORMED),
    publish_property("2.2.2.2 no value", b"\x01", reason=MALFORMED),
]

ACKS = [
    *(
        refusal
        for clause, first_byte, reason in (
            ("3.4", PUBACK, 0x92),
            ("3.5", PUBREC, 0x92),
            ("3.6", PUBREL, 0x10),
            ("3.7", PUBCOMP, 0x10),
        )
        for refusal in (
            Refusal(f"MQTT-{clause}.2-1 reason", V5, first_byte, ID + bytes([reason]), PROTOCOL),
            Refusal(f"{clause} id 0", BOTH, first_byte, b"\0\0", PROTOCOL),
            Refusal(f"{clause} half an id", BOTH, first_byte, b"\1", MALFORMED),
            Refusal(f"{clause} empty", BOTH, first_byte, b"", MALFORMED),
            Refusal(f"{clause} reason in 3.1.1", V3, first_byte, ID + b"\0", MALFORMED),
            Refusal(f"{clause} something behind", V5, first_byte, ID + b"\0\0\0", MALFORMED),
            Refusal(f"{clause} cut off", V5, first_byte, ID + b"\0\5" + USER[:4], MALFORMED),
            Refusal(
                f"{clause} reason twice", V5, first_byte, ID + b"\0\6\x1f\0\0\x1f\0\0", PROTOCOL
            ),
            Refusal(f"{clause} expiry", V5, first_byte, ID + b"\0\5\x11\0\0\0\0", MALFORMED),
        )
    )
]

SUBSCRIBES = [
    *subscribe("MQTT-3.8.3-2 no filter", reason=PROTOCOL),
    *subscribe("MQTT-3.8.3-1 filter", text(b"\xff"), b"\0", reason=MALFORMED),
    *subscribe("MQTT-1.5.4-2 null", text("a\0"), b"\0", reason=MALFORMED),
    *subscribe("MQTT-4.7.3-1 empty filter", text(""), b"\0", reason=FILTER),
    *subscribe("MQTT-4.7.1-1 # inside", text("a/#/b"), b"\0", reason=FILTER),
    *subscribe("MQTT-4.7.1-2 + in a level", text("a+"), b"\0", reason=FILTER),
    *subscribe("MQTT-4.8.2-1 no share name", text("$share//a"), b"\0", reason=FILTER),
    *subscribe("MQTT-4.8.2-2 share name", text("$share/a+/a"), b"\0", reason=FILTER),
    *subscribe("MQTT-4.8.2-2 no filter", text("$share/a"), b"\0", reason=FILTER),
    *subscribe("3.8.3 no options", text("a"), reason=MALFORMED),
    *subscribe("3.8.3 cut off later", text("a"), b"\0", b"\0\2a", reason=MALFORMED),
    *subscribe("3.8.3.1 QoS 3", text("a"), b"\3", reason=PROTOCOL),
    *subscribe("MQTT-3.8.3-5 bit 7", text("a"), b"\x80", reason=MALFORMED),
    *subscribe("MQTT-3.8.3-5 bit 6", text("a"), b"\x40", reason=MALFORMED),
    Refusal("MQTT3-3.8.3-4 no local", V3, SUBSCRIBE, ID + text("a") + b"\4", MALFORMED),
    Refusal("3.8.3.1 retain handling 3", V5, SUBSCRIBE, ID + NONE + text("a") + b"\x30", PROTOCOL),
    Refusal(
        "MQTT-3.8.3-4 no local and shared",
        V5,
        SUBSCRIBE,
        ID + NONE + text("$share/g/a") + b"\4",
        PROTOCOL,
    ),
    Refusal("MQTT-2.2.1-3", BOTH, SUBSCRIBE, b"\0\0\0" + text("a") + b"\0", PROTOCOL),
    Refusal("3.8.2.1.2 id 0", V5, SUBSCRIBE, ID + b"\2\x0b\0" + text("a") + b"\0", PROTOCOL),
    Refusal("3.8.2.1.2 id twice", V5, SUBSCRIBE, ID + b"\4\x0b\1\x0b\1\0\1a\0", PROTOCOL),
    Refusal("2.2.2.2 reason string", V5, SUBSCRIBE, ID + b"\3\x1f\0\0\0\1a\0", MALFORMED),
    Refusal("MQTT-3.10.3-2 no filter", V3, UNSUBSCRIBE, ID, PROTOCOL),
    Refusal("MQTT-3.10.3-2 no filter", V5, UNSUBSCRIBE, ID + NONE, PROTOCOL),
    Refusal("MQTT-3.10.3-1 filter", V3, UNSUBSCRIBE, ID + text(b"\xff"), MALFORMED),
    Refusal("MQTT-4.7.1-1 filter", V5, UNSUBSCRIBE, ID + NONE + text("##"), FILTER),
    Refusal("MQTT-2.2.1-3", BOTH, UNSUBSCRIBE, b"\0\0\0" + text("a"), PROTOCOL),
    Refusal("3.10.3 cut off", V5, UNSUBSCRIBE, ID + NONE + b"\0\2a", MALFORMED),
    Refusal("2.2.2.2 id", V5, UNSUBSCRIBE, ID + b"\2\x0b\1" + text("a"), MALFORMED),
    Refusal("MQTT-3.9.3-2 QoS 3", V5, SUBACK, ID + NONE + b"\3", PROTOCOL),
    Refusal("MQTT3-3.9.3-2 reason of 5.0", V3, SUBACK, ID + b"\x87", PROTOCOL),
    Refusal("MQTT3-3.9.3-2 QoS 3", V3, SUBACK, ID + b"\3", PROTOCOL),
    Refusal("3.9.3 no reasons", V3, SUBACK, ID, PROTOCOL),
    Refusal("3.9.3 no reasons", V5, SUBACK, ID + NONE, PROTOCOL),
    Refusal("3.9 id 0", BOTH, SUBACK, b"\0\0\0\0", PROTOCOL),
    Refusal("MQTT-3.11.3-2 QoS 1", V5, UNSUBACK, ID + NONE + b"\1", PROTOCOL),
    Refusal("3.11.3 no reasons", V5, UNSUBACK, ID + NONE, PROTOCOL),
    Refusal("3.11 reasons in 3.1.1", V3, UNSUBACK, ID + b"\0", MALFORMED),
]

OTHERS = [
    Refusal("3.12 body", BOTH, PINGREQ, b"\0", MALFORMED),
    Refusal("3.13 body", BOTH, PINGRESP, b"\0", MALFORMED),
    Refusal("3.14 body in 3.1.1", V3, DISCONNECT, b"\0", MALFORMED),
    Refusal("MQTT-3.14.2-1 reason of CONNACK", V5, DISCONNECT, b"\x85", PROTOCOL),
    Refusal("3.14 something behind", V5, DISCONNECT, b"\0\0\0", MALFORMED),
    Refusal("3.14.2.2.2 expiry twice", V5, DISCONNECT, b"\0\x0a" + b"\x11\0\0\0\1" * 2, PROTOCOL),
    Refusal("3.14.2.2.5 reference twice", V5, DISCONNECT, b"\0\6\x1c\0\0\x1c\0\0", PROTOCOL),
    Refusal("2.2.2.2 receive maximum", V5, DISCONNECT, b"\0\3\x21\0\1", MALFORMED),
    Refusal("3.15 in 3.1.1", V3, AUTH, b"", MALFORMED),
    Refusal("MQTT-3.15.2-1 reason", V5, AUTH, b"\x87\4\x15\0\1m", PROTOCOL),
    Refusal("3.15.2.2.2 no method", V5, AUTH, b"\x18\0", PROTOCOL),
    Refusal("3.15.2.2.2 nothing but a reason", V5, AUTH, b"\x18", PROTOCOL),
    Refusal("3.15.2.2.2 method twice", V5, AUTH, b"\x18\6\x15\0\0\x15\0\0", PROTOCOL),
    Refusal("3.15.2.2.3 data twice", V5, AUTH, b"\x18\x09\x15\0\0\x16\0\0\x16\0\0", PROTOCOL),
    Refusal("3.15 something behind", V5, AUTH, b"\x18\3\x15\0\0\0", MALFORMED),
]

REFUSALS = [*FIXED_HEADER, *CONNECTS, *CONNACKS, *PUBLISHES, *ACKS, *SUBSCRIBES, *OTHERS]


@pytest.mark.parametrize(
    ("version", "refusal"),
    [
        pytest.param(version, refusal, id=f"{refusal.rule} v{version} #{number}")
        for number, refusal in enumerate(REFUSALS)
        for version in refusal.versions
    ],
)
def test_refused(version: int, refusal: Refusal) -> None:
    with pytest.raises(ClientError) as caught:
        decode(version, refusal.first_byte, refusal.body)
    assert caught.value.reason == refusal.reason, caught.value
    kind = refusal.first_byte >> 4
    assert caught.value.message.startswith(PacketType(kind).name if kind else "no packet")


@pytest.mark.parametrize("refusal", PUBLISHES, ids=lambda refusal: refusal.rule)
def test_decode_publish_refuses_alike(refusal: Refusal) -> None:
    for version in refusal.versions:
        with pytest.raises(ClientError) as caught:
            decode_publish(version, refusal.first_byte, refusal.body)
        assert caught.value.reason == refusal.reason


def test_what_the_refusals_are_near_to_is_taken() -> None:
    for version, first_byte, body in (
        (5, CONNECT, connect()),
        (5, CONNECT, connect(text("c"), text("p"), flags=0b0100_0010)),  # a token, and no user
        (5, CONNECT, connect(text(""), flags=0)),
        (5, CONNECT, will(block(b"\x18\0\0\0\1", b"\x01\1", b"\x08" + text("a"), USER, USER))),
        (4, CONNECT, will(version=4)),
        (5, CONNECT, connect(properties=block(b"\x15" + text("m"), b"\x16" + text("d")))),
        (5, PUBLISH, publish("", block(b"\x23\0\1"))),
        (5, PUBLISH, publish("\ufeff", block(USER, USER, b"\x0b\x80\1\x0b\1"))),
        (5, SUBSCRIBE, ID + NONE + text("$share/g/#") + b"\x2a"),
        (5, SUBSCRIBE, ID + NONE + text("$shared/g") + b"\4"),
        (5, DISCONNECT, b"\x04"),
        (5, AUTH, b""),
    ):
        decode(version, first_byte, body)


def test_short_forms_of_version_5() -> None:
    for packet_type in packets.ACKS:
        first_byte = encode(MQTT_5, Ack(packet_type, 1))[0]
        expected = Ack(packet_type, 10)
        for body in (ID, ID + b"\0", ID + b"\0\0"):
            assert decode(MQTT_5, first_byte, body) == expected
    assert decode(MQTT_5, DISCONNECT, b"") == decode(MQTT_5, DISCONNECT, b"\0\0") == Disconnect()
    assert decode(MQTT_5, DISCONNECT, b"\x8e") == Disconnect(ReasonCode.SESSION_TAKEN_OVER)
    assert decode(MQTT_5, AUTH, b"") == Auth()


def test_version_4_answers() -> None:
    refused = Connack(session_present=False, reason=ReasonCode.NOT_AUTHORIZED)
    assert decode(MQTT_3_1_1, CONNACK, b"\0\5") == refused
    assert decode(MQTT_3_1_1, UNSUBACK, ID) == SubscriptionAck(PacketType.UNSUBACK, 10)
    assert decode(MQTT_3_1_1, SUBACK, ID + b"\1\x80") == SubscriptionAck(
        PacketType.SUBACK, 10, [1, 0x80]
    )


def test_a_publication_with_everything() -> None:
    properties = USER + b"\x03" + text("text/plain")
    body = publish("a/é", block(b"\x02\0\0\0\x3c", properties, b"\x23\0\7", b"\x0b\x09"), ID)
    assert decode_publish(MQTT_5, PUBLISH | 0x0D, body) == Publish(
        "a/é".encode(),
        b"payload",
        qos=2,
        retain=True,
        duplicate=True,
        packet_id=10,
        properties=properties,
        expiry_seconds=60,
        alias=7,
        identifiers=(9,),
    )


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (connect(), 5),
        (connect(version=4), 4),
        (connect(version=4)[:7], 4),
        (connect(flags=0xFF), 5),
        (connect(version=4)[:6], 4),
        (connect(version=3), 4),
        (connect(version=6), 5),
        (connect(version=255), 5),
        (connect(version=0x84), 4),
        (connect(name=b"MQIsdp", version=4), 4),
        (connect(name=b"MQIsdp", version=6), 4),
        (b"", 4),
    ],
)
def test_connect_version(body: bytes, version: int) -> None:
    assert connect_version(body) == version


def parts(encoded: bytes) -> tuple[int, bytes]:
    found = decode_length(encoded, 1)
    assert found is not None
    length, at = found
    assert len(encoded) == at + length
    return encoded[0], encoded[at:]


def decode_or_refuse(version: int, first_byte: int, body: bytes) -> None:
    """Any bytes give a packet that can be encoded and decoded again, or a ClientError."""
    try:
        packet = decode(version, first_byte, body)
    except ClientError:
        return
    assert decode(version, *parts(encode(version, packet))) == packet


@st.composite
def versions_and_packets(draw: st.DrawFn) -> tuple[int, Packet]:
    version = draw(st.sampled_from(packets.VERSIONS))
    return version, draw(packets.packets(version))


@given(versions_and_packets(), st.data())
def test_mutations(case: tuple[int, Packet], data: st.DataObject) -> None:
    version, packet = case
    first_byte, body = parts(encode(version, packet))
    mutated = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        # Most errors are early in a packet.
        at = data.draw(st.integers(0, min(len(mutated), 60)))
        size = data.draw(st.integers(0, 2))
        mutated[at : at + size] = data.draw(st.binary(max_size=3))
    first_byte ^= data.draw(st.sampled_from([0, 0, 0, 1, 2, 4, 8]))
    decode_or_refuse(version, first_byte, bytes(mutated))


@given(versions_and_packets())
def test_truncations(case: tuple[int, Packet]) -> None:
    version, packet = case
    first_byte, body = parts(encode(version, packet))
    for end in {*range(min(len(body), 100)), len(body) - 1} - {-1}:
        decode_or_refuse(version, first_byte, body[:end])


@given(st.sampled_from(packets.VERSIONS), st.integers(0, 255), st.binary(max_size=40))
def test_noise(version: int, first_byte: int, body: bytes) -> None:
    decode_or_refuse(version, first_byte, body)


@given(versions_and_packets())
def test_one_version_read_as_the_other(case: tuple[int, Packet]) -> None:
    version, packet = case
    decode_or_refuse(9 - version, *parts(encode(version, packet)))
