"""The scan against plain Python."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import codec
from dovetail.codec.kernels.scan import (
    MALFORMED,
    PUBACKS,
    QOS_0,
    QOS_1,
    RETAINED_QOS_0,
    RETAINED_QOS_1,
    SINGLE,
    TOO_LONG,
    WHOLE,
    scan,
)
from dovetail.codec.limits import RETAINED_RUN_PACKETS_MAX
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Publish
from dovetail.errors import ClientError
from support.strategies import packets

versions = st.sampled_from([MQTT_3_1_1, MQTT_5])


class Found(NamedTuple):
    runs: list[list[int]]
    at: int
    status: int
    needs: int


def scanned(
    data: bytes, version: int, packet_bytes_max: int, runs_max: int, run_packets_max: int = 512
) -> Found:
    runs = np.zeros((runs_max, 7), np.int64)
    count, at, status, needs = scan(
        np.frombuffer(data, np.uint8), version, packet_bytes_max, run_packets_max, runs
    )
    return Found(runs[:count].tolist(), at, status, needs)


class Packet(NamedTuple):
    kind: int
    topic_end: int = 0
    has_properties: int = 0


OTHER = Packet(SINGLE)


def classified(data: bytes, version: int, at: int, body: int, end: int) -> Packet:
    """What the codec makes of a packet decides how the scan has to see it."""
    packet = data[at:end]
    if packet[0] == 0x40 and len(packet) == 4 and packet[2:] != b"\0\0":
        return Packet(PUBACKS)
    if packet[0] in (0x31, 0x33):
        return classified_retained(packet[0], data[body:end], version)
    if packet[0] not in (0x30, 0x32) or end - body < 3:
        return OTHER
    stop = body + 2 + int.from_bytes(data[body : body + 2])
    # Whether a topic is a name is seen when its route is looked up.
    topic = data[body + 2 : stop]
    if stop > end or not topic or topic.startswith(b"$"):
        return OTHER
    named = packet[: body - at + 2] + b"x" * len(topic) + data[stop:end]
    try:
        publish = codec.decode(version, packet[0], named[body - at :])
    except ClientError:
        return OTHER
    assert isinstance(publish, Publish)
    if publish.alias or publish.expiry_seconds is not None or publish.identifiers:
        return OTHER
    if codec.encode(version, publish) != named or b"\x08" in publish_names(publish.properties):
        return OTHER
    kind = QOS_1 if publish.qos else QOS_0
    return Packet(kind, stop, int(bool(publish.properties)))


def classified_retained(first: int, data: bytes, version: int) -> Packet:
    try:
        publish = codec.decode(version, first, data)
    except ClientError:
        return OTHER
    assert isinstance(publish, Publish)
    if not publish.topic.isascii() or publish.topic.startswith(b"$") or not publish.payload:
        return OTHER
    if publish != Publish(publish.topic, publish.payload, publish.qos, True, False,
                          publish.packet_id):  # fmt: skip
        return OTHER  # it has properties
    return Packet(RETAINED_QOS_1 if publish.qos else RETAINED_QOS_0)


def publish_names(properties: bytes) -> list[bytes]:
    """The names of valid properties."""
    found = []
    at = 0
    while at < len(properties):
        name = properties[at : at + 1]
        found.append(name)
        if name == b"\x01":
            at += 2
            continue
        at += 1
        for _ in range(2 if name == b"\x26" else 1):
            at += 2 + int.from_bytes(properties[at : at + 2])
    return found


def oracle(
    data: bytes, version: int, packet_bytes_max: int, runs_max: int, run_packets_max: int = 512
) -> Found:
    runs: list[list[int]] = []
    at = 0
    while at < len(data):
        try:
            length = codec.decode_length(data, at + 1)
        except ClientError:
            return Found(runs, at, MALFORMED, 0)
        if length is None:
            return Found(runs, at, WHOLE, 0)
        body, end = length[1], length[0] + length[1]
        if end - at > packet_bytes_max:
            return Found(runs, at, TOO_LONG, end - at)
        if end > len(data):
            return Found(runs, at, WHOLE, end - at)
        kind, stop, has_properties = classified(data, version, at, body, end)
        if runs and kind:
            _, first_body, last_end, count, first_stop, last_kind, _ = runs[-1]
            is_alike = last_end == at and data[first_body:first_stop] == data[body:stop]
            if kind in (PUBACKS, RETAINED_QOS_0, RETAINED_QOS_1):
                is_alike = True
            is_retained = kind in (RETAINED_QOS_0, RETAINED_QOS_1)
            packets_max = RETAINED_RUN_PACKETS_MAX if is_retained else run_packets_max
            if last_kind == kind and is_alike and last_end == at and count < packets_max:
                runs[-1][2] = end
                runs[-1][3] += 1
                runs[-1][6] |= has_properties
                at = end
                continue
        if len(runs) == runs_max:
            break
        runs.append([at, body, end, 1, stop, kind, has_properties])
        at = end
    return Found(runs, at, WHOLE, 0)


few_topics = st.sampled_from([b"a", b"a/b", b"$a", b"b", "é".encode(), b"x" * 300])


@st.composite
def plain(draw: st.DrawFn, version: int) -> bytes:
    payload = draw(st.binary(max_size=4) | st.sampled_from([bytes(size) for size in (120, 130)]))
    return codec.encode_publish(version, draw(few_topics), payload)


some_properties = st.sampled_from(
    [
        b"",
        codec.forwardable_properties(user=(("a", "1"), ("b", "é"))),
        codec.forwardable_properties(payload_format=1, content_type="t", correlation_data=b"\xff"),
        codec.forwardable_properties(user=(("x" * 100, "y" * 100),)),
        codec.forwardable_properties(response_topic="a"),
        b"\x26\0\1a\0\1\0",  # a null character
        b"\x26\0\1\xff\0\0",
        b"\x01\2",
        b"\x01\1\x01\1",
        b"\x03\0\1t\x03\0\1t",
        b"\x02\0\0\0\1",
        b"\x0b\1",
        b"\x23\0\1",
        b"\x26\0\1a\0\2b",
        b"\x7f",
    ]
)


@st.composite
def publications(draw: st.DrawFn, version: int) -> bytes:
    """Of both kinds that form runs, with and without properties; some are not valid."""
    qos = draw(st.sampled_from([0, 1, 1]))
    return codec.encode_publish(
        version,
        draw(few_topics),
        draw(st.binary(max_size=4)),
        qos,
        draw(st.booleans()),
        packet_id=draw(st.integers(0, 300)) if qos else 0,
        properties=draw(some_properties) if version == MQTT_5 else b"",
    )


@st.composite
def padded(draw: st.DrawFn, version: int) -> bytes:
    """Return the packet with a length that takes more bytes than needed."""
    packet = draw(plain(version))
    length = codec.decode_length(packet, 1)
    assert length is not None
    if length[1] > 3:
        return packet
    head = bytearray(packet[1 : length[1]])
    head[-1] |= 0x80
    return packet[:1] + bytes(head) + b"\0" + packet[length[1] :]


@st.composite
def any_packet(draw: st.DrawFn, version: int) -> bytes:
    return codec.encode(version, draw(packets.packets(version)))


def buffers(version: int) -> st.SearchStrategy[bytes]:
    pieces = st.one_of(
        plain(version),
        plain(version),
        publications(version),
        publications(version),
        st.integers(0, 300).map(lambda number: b"\x40\x02" + number.to_bytes(2)),
        st.just(b"\x40\x82\x00\x00\x01"),  # a length of more bytes than it needs
        padded(version),
        any_packet(version),
        st.binary(max_size=6),
    )
    return st.lists(pieces, max_size=12).map(b"".join)


@given(versions.flatmap(lambda version: st.tuples(st.just(version), buffers(version))), st.data())
def test_runs_as_the_oracle_finds_them(case: tuple[int, bytes], data: st.DataObject) -> None:
    version, buffer = case
    buffer = (
        buffer[: data.draw(st.integers(0, len(buffer)))] if data.draw(st.booleans()) else buffer
    )
    packet_bytes_max = data.draw(st.sampled_from([20, 200, 1_000_000]))
    runs_max = data.draw(st.sampled_from([1, 3, 100]))
    run_packets_max = data.draw(st.sampled_from([1, 2, 512]))
    arguments = buffer, version, packet_bytes_max, runs_max, run_packets_max
    assert scanned(*arguments) == oracle(*arguments)


@given(versions, st.binary(max_size=40))
def test_noise_as_the_oracle_finds_it(version: int, buffer: bytes) -> None:
    assert scanned(buffer, version, 1_000, 50) == oracle(buffer, version, 1_000, 50)


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x01"])
def test_a_length_of_more_than_four_bytes(version: int, length: bytes) -> None:
    packet = codec.encode_publish(version, b"a", b"x")
    found = scanned(packet + b"\x30" + length, version, 1 << 30, 10)
    assert (len(found.runs), found.at, found.status) == (1, len(packet), MALFORMED)


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_every_cut_of_a_buffer(version: int) -> None:
    buffer = b"".join(
        codec.encode_publish(version, topic, bytes(size))
        for topic, size in ((b"a", 0), (b"a", 1), (b"b", 130), (b"$s", 1), (b"b", 2))
    )
    for size in range(len(buffer) + 1):
        assert scanned(buffer[:size], version, 1_000, 10) == oracle(
            buffer[:size], version, 1_000, 10
        )
