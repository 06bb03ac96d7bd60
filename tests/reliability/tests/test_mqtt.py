"""The tool and the broker's codec read each other's packets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import codec
from dovetail.codec import packets
from dovetail.codec.packets import SubscriptionRequest
from dovetail.errors import ReasonCode
from reliability import mqtt
from reliability.mqtt import Decoder, Packet, PacketError, Will

VERSIONS = (4, 5)
versions = st.sampled_from(VERSIONS)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0#+", categories=("L", "N")))
names = texts.filter(bool)
ids = st.integers(1, 65_535)
pairs = st.lists(st.tuples(texts, texts), max_size=3)


def read(version: int, data: bytes) -> packets.Packet:
    """Decode packets with the broker's codec."""
    found = codec.decode_length(data[:5], 1)
    assert found is not None
    assert sum(found) == len(data)
    return codec.decode(version, data[0], data[found[1] :])


def written(version: int, packet: packets.Packet, cut: int = 0) -> Packet:
    """Encode a packet with the broker's codec, and decode it with the tool's, in two pieces."""
    data = codec.encode(version, packet)
    cut %= len(data)
    decoder = Decoder(version)
    found = [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])]
    assert len(found) == 1
    return found[0]


@given(versions, names, st.booleans(), st.integers(0, 2**32 - 1), st.booleans())
def test_connect(
    version: int, client_id: str, clean_start: bool, expiry: int, has_will: bool
) -> None:
    will = Will("w/1", b"gone", 2, 7) if has_will else None
    data = mqtt.connect(
        version, client_id, clean_start=clean_start, expiry_seconds=expiry, will=will
    )
    packet = read(version, data)
    assert isinstance(packet, packets.Connect)
    assert (packet.version, packet.client_id) == (version, client_id)
    assert packet.clean_start == clean_start
    if version == 5:
        assert packet.session_expiry_seconds == expiry
    if will is None:
        assert packet.will is None
    else:
        assert packet.will is not None
        assert (packet.will.topic, packet.will.payload, packet.will.qos) == (b"w/1", b"gone", 2)


@given(versions, names, st.binary(max_size=300), st.integers(0, 2), ids, pairs, st.booleans())
@settings(deadline=None)
def test_publish(
    version: int,
    topic: str,
    payload: bytes,
    qos: int,
    packet_id: int,
    properties: list[tuple[str, str]],
    retain: bool,
) -> None:
    data = mqtt.publish(
        version,
        topic,
        payload,
        qos,
        packet_id=packet_id,
        retain=retain,
        duplicate=bool(qos),
        user_properties=properties,
    )
    packet = read(version, data)
    assert isinstance(packet, packets.Publish)
    assert (packet.topic.decode(), packet.payload, packet.qos) == (topic, payload, qos)
    assert (packet.retain, packet.duplicate) == (retain, bool(qos))
    back = written(version, packet, packet_id)
    assert back == Packet(
        mqtt.PUBLISH,
        packet_id if qos else 0,
        topic=topic,
        payload=payload,
        qos=qos,
        retain=retain,
        duplicate=bool(qos),
    )


@given(versions, ids, st.sampled_from([mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBREL, mqtt.PUBCOMP]))
def test_acknowledgements(version: int, packet_id: int, kind: int) -> None:
    packet = read(version, mqtt.acknowledgement(kind, packet_id))
    assert isinstance(packet, packets.Ack)
    assert (packet.type, packet.packet_id, packet.reason) == (kind, packet_id, 0)
    reason = 0x92 if version == 5 else 0
    answer = packets.Ack(packets.PacketType(kind), packet_id, reason)
    assert written(version, answer) == Packet(kind, packet_id, reason)


@given(versions, ids, names, st.integers(0, 2), st.booleans())
def test_subscribe_and_unsubscribe(
    version: int, packet_id: int, name: str, qos: int, no_local: bool
) -> None:
    no_local = no_local and version == 5
    where = [("where", "x < 1")]
    data = mqtt.subscribe(version, packet_id, name, qos, no_local=no_local, user_properties=where)
    packet = read(version, data)
    assert isinstance(packet, packets.Subscribe)
    (request,) = packet.requests
    assert isinstance(request, SubscriptionRequest)
    assert (request.filter, request.qos, request.no_local) == (name, qos, no_local)
    left = read(version, mqtt.unsubscribe(version, packet_id, name))
    assert isinstance(left, packets.Unsubscribe)
    assert left.filters == [name]


def test_answers_are_read() -> None:
    connack = packets.Connack(True, ReasonCode.SUCCESS)
    assert written(5, connack).session_present
    assert written(4, connack) == Packet(mqtt.CONNACK, session_present=True)
    suback = packets.SubscriptionAck(packets.PacketType.SUBACK, 7, [2])
    assert written(5, suback) == Packet(mqtt.SUBACK, 7, reasons=(2,))
    assert written(5, packets.Disconnect(0x8B)) == Packet(mqtt.DISCONNECT, reason=0x8B)
    assert written(5, packets.SubscriptionAck(packets.PacketType.SUBACK, 7, [0x97])).is_refusal


def test_what_is_no_mqtt_is_refused() -> None:
    for data in (b"\xf0\x00", b"\x30\xff\xff\xff\xff", b"\x30\x01\x00", b"\x36\x02\x00\x00"):
        with pytest.raises(PacketError):
            list(Decoder(5).feed(data))
