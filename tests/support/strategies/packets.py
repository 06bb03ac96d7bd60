"""Hypothesis strategies for well-formed MQTT packets, of both versions and directions.

`packets(version)` draws any packet of the version. Values at the limits of the wire format are
frequent.
"""

from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from dovetail.codec import forwardable_properties
from dovetail.codec.codes import REASONS, RETURN_CODES
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
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from dovetail.errors import ReasonCode
from support.strategies.topics import filters, names

VERSIONS: Final = (4, 5)
ACKS: Final = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)

_character = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(_character, max_size=12) | st.sampled_from(["", "\ufeff", "é" * 100, "x" * 65_535])
binaries = st.binary(max_size=12) | st.just(bytes(65_535))
payloads = st.binary(max_size=20) | st.sampled_from([bytes(size) for size in (127, 128, 16_384)])
packet_ids = st.integers(1, 0xFFFF)
two_bytes = st.integers(0, 0xFFFF)
two_bytes_above_zero = st.integers(1, 0xFFFF)
four_bytes = st.integers(0, 0xFFFF_FFFF)
four_bytes_above_zero = st.integers(1, 0xFFFF_FFFF)
subscription_identifiers = st.integers(1, 127) | st.integers(1, 268_435_455)
qos_levels = st.integers(0, 2)
topics = names.map(str.encode)
shared_filters = st.builds("$share/{}/{}".format, st.sampled_from(["g", "日"]), filters())
user_properties = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)


def reasons_of(packet_type: PacketType) -> st.SearchStrategy[ReasonCode]:
    return st.sampled_from(list(REASONS[packet_type].values()))


forwardables = st.builds(
    forwardable_properties,
    payload_format=st.none() | st.integers(0, 1),
    content_type=st.none() | texts,
    response_topic=st.none() | names,
    correlation_data=st.none() | binaries,
    user=user_properties,
)


def wills(version: int) -> st.SearchStrategy[Will]:
    plain = st.builds(Will, topics, binaries, qos_levels, st.booleans())
    if version != MQTT_5:
        return plain
    return st.builds(
        replace,
        plain,
        properties=forwardables,
        expiry_seconds=st.none() | four_bytes,
        delay_seconds=four_bytes,
    )


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    packet = Connect(
        version,
        draw(texts),
        clean_start=draw(st.booleans()),
        keep_alive_seconds=draw(two_bytes),
        user=draw(st.none() | texts),
        password=draw(st.none() | binaries),
        will=draw(st.none() | wills(version)),
    )
    if version != MQTT_5:
        packet.clean_start |= not packet.client_id
        if packet.user is None:
            packet.password = None
        return packet
    packet.session_expiry_seconds = draw(four_bytes)
    packet.receive_max = draw(two_bytes_above_zero)
    packet.packet_bytes_max = draw(st.none() | four_bytes_above_zero)
    packet.alias_max = draw(two_bytes)
    packet.wants_response_information = draw(st.booleans())
    packet.wants_problem_information = draw(st.booleans())
    packet.authentication_method = draw(st.none() | texts)
    if packet.authentication_method is not None:
        packet.authentication_data = draw(st.none() | binaries)
    packet.user_properties = draw(user_properties)
    return packet


@st.composite
def connacks(draw: st.DrawFn, version: int) -> Connack:
    codes = list(REASONS[PacketType.CONNACK].values()) if version == MQTT_5 else RETURN_CODES
    reason = draw(st.just(ReasonCode.SUCCESS) | st.sampled_from(codes))
    packet = Connack(draw(st.booleans()) if reason == ReasonCode.SUCCESS else False, reason)
    if version == MQTT_5:
        packet.session_expiry_seconds = draw(st.none() | four_bytes)
        packet.receive_max = draw(st.none() | two_bytes_above_zero)
        packet.maximum_qos = draw(st.none() | st.integers(0, 1))
        packet.retain_available = draw(st.booleans())
        packet.packet_bytes_max = draw(st.none() | four_bytes_above_zero)
        packet.assigned_client_id = draw(st.none() | texts)
        packet.alias_max = draw(two_bytes)
        packet.reason_string = draw(st.none() | texts)
        packet.keep_alive_seconds = draw(st.none() | two_bytes)
        packet.response_information = draw(st.none() | texts)
        packet.authentication_method = draw(st.none() | texts)
        packet.user_properties = draw(user_properties)
    return packet


@st.composite
def publishes(draw: st.DrawFn, version: int) -> Publish:
    qos = draw(qos_levels)
    packet = Publish(draw(topics), draw(payloads), qos, draw(st.booleans()))
    if qos:
        packet.duplicate = draw(st.booleans())
        packet.packet_id = draw(packet_ids)
    if version == MQTT_5:
        packet.properties = draw(st.just(b"") | forwardables)
        packet.expiry_seconds = draw(st.none() | four_bytes)
        packet.alias = draw(two_bytes)
        packet.identifiers = tuple(draw(st.lists(subscription_identifiers, max_size=3)))
        if packet.alias and draw(st.booleans()):
            packet.topic = b""
    return packet


@st.composite
def acks(draw: st.DrawFn, version: int) -> Ack:
    packet = Ack(draw(st.sampled_from(ACKS)), draw(packet_ids))
    if version == MQTT_5:
        packet.reason = draw(reasons_of(packet.type))
        packet.reason_string = draw(st.none() | texts)
        packet.user_properties = draw(user_properties)
    return packet


@st.composite
def subscription_requests(draw: st.DrawFn, version: int) -> SubscriptionRequest:
    request = SubscriptionRequest(draw(filters() | shared_filters), draw(qos_levels))
    if version == MQTT_5:
        request.no_local = draw(st.booleans()) and not request.filter.startswith("$share/")
        request.retain_as_published = draw(st.booleans())
        request.retain_handling = draw(st.integers(0, 2))
    return request


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Subscribe:
    requests = st.lists(subscription_requests(version), min_size=1, max_size=4)
    packet = Subscribe(draw(packet_ids), draw(requests))
    if version == MQTT_5:
        packet.identifier = draw(st.just(0) | subscription_identifiers)
        packet.user_properties = draw(user_properties)
    return packet


def unsubscribes(version: int) -> st.SearchStrategy[Unsubscribe]:
    return st.builds(
        Unsubscribe,
        packet_ids,
        st.lists(filters() | shared_filters, min_size=1, max_size=4),
        user_properties if version == MQTT_5 else st.just(()),
    )


@st.composite
def subscription_acks(draw: st.DrawFn, version: int) -> SubscriptionAck:
    packet_type = draw(st.sampled_from([PacketType.SUBACK, PacketType.UNSUBACK]))
    packet = SubscriptionAck(packet_type, draw(packet_ids))
    if version == MQTT_5:
        packet.reasons = [*draw(st.lists(reasons_of(packet_type), min_size=1, max_size=4))]
        packet.reason_string = draw(st.none() | texts)
        packet.user_properties = draw(user_properties)
    elif packet_type == PacketType.SUBACK:
        codes = st.sampled_from([0x00, 0x01, 0x02, 0x80])
        packet.reasons = draw(st.lists(codes, min_size=1, max_size=4))
    return packet


pings = st.builds(Ping, st.sampled_from([PacketType.PINGREQ, PacketType.PINGRESP]))


def disconnects(version: int) -> st.SearchStrategy[Disconnect]:
    if version != MQTT_5:
        return st.just(Disconnect())
    return st.builds(
        Disconnect,
        reason=reasons_of(PacketType.DISCONNECT),
        session_expiry_seconds=st.none() | four_bytes,
        reason_string=st.none() | texts,
        server_reference=st.none() | texts,
        user_properties=user_properties,
    )


auths = st.just(Auth()) | st.builds(
    Auth,
    reason=reasons_of(PacketType.AUTH),
    method=texts,
    data=st.none() | binaries,
    reason_string=st.none() | texts,
    user_properties=user_properties,
)


def packets(version: int) -> st.SearchStrategy[Packet]:
    strategies: list[st.SearchStrategy[Packet]] = [
        connects(version),
        connacks(version),
        publishes(version),
        acks(version),
        subscribes(version),
        unsubscribes(version),
        subscription_acks(version),
        pings,
        disconnects(version),
    ]
    if version == MQTT_5:
        strategies.append(auths)
    return st.one_of(strategies)
