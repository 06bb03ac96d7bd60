"""The scan and the transcoder against plain Python."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import codec
from dovetail.broker.dispatch import packets_of, transcoded
from dovetail.codec.kernels.scan import MALFORMED, TOO_LONG, WHOLE, scan, transcode
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5
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
    runs = np.zeros((runs_max, 5), np.int64)
    count, at, status, needs = scan(
        np.frombuffer(data, np.uint8), version, packet_bytes_max, run_packets_max, runs
    )
    return Found(runs[:count].tolist(), at, status, needs)


def topic_end(data: bytes, version: int, at: int, body: int, end: int) -> int:
    """Return where the topic of a plain packet ends; 0 for a packet that is not plain."""
    length = data[at + 1 : body]
    if data[at] != 0x30 or end - body < 3 or (len(length) > 1 and not length[-1]):
        return 0
    stop = body + 2 + int.from_bytes(data[body : body + 2])
    if stop == body + 2 or data[body + 2] == ord("$"):
        return 0
    if version == MQTT_5:
        return stop if stop < end and data[stop] == 0 else 0
    return stop if stop <= end else 0


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
        stop = topic_end(data, version, at, body, end)
        if runs and stop:
            _, first_body, last_end, count, first_stop = runs[-1]
            is_alike = last_end == at and data[first_body:first_stop] == data[body:stop]
            if first_stop and is_alike and count < run_packets_max:
                runs[-1][2] = end
                runs[-1][3] += 1
                at = end
                continue
        if len(runs) == runs_max:
            break
        runs.append([at, body, end, 1, stop])
        at = end
    return Found(runs, at, WHOLE, 0)


few_topics = st.sampled_from([b"a", b"a/b", b"$a", b"b", "é".encode(), b"x" * 300])


@st.composite
def plain(draw: st.DrawFn, version: int) -> bytes:
    payload = draw(st.binary(max_size=4) | st.sampled_from([bytes(size) for size in (120, 130)]))
    return codec.encode_publish(version, draw(few_topics), payload)


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
        plain(version),
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


# Transcoding --------------------------------------------------------------------------------------

plain_messages = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"a/b", b"x" * 124, b"x" * 200]),
        st.sampled_from([bytes(size) for size in (0, 1, 121, 122, 123, 124, 125, 126, 127, 16_380)])
        | st.binary(max_size=5),
    ),
    max_size=8,
)


@given(versions, plain_messages)
def test_transcoding_is_encoding_for_the_other_version(
    version: int, messages: list[tuple[bytes, bytes]]
) -> None:
    data = b"".join(codec.encode_publish(version, *message) for message in messages)
    other = MQTT_5 if version == MQTT_3_1_1 else MQTT_3_1_1
    expected = b"".join(codec.encode_publish(other, *message) for message in messages)
    assert transcoded(data, version) == expected
    assert transcoded(expected, other) == data
    assert packets_of(data, version) == messages


@pytest.mark.parametrize("size", [0, 1, *range(120, 130), *range(16_370, 16_390), 2_097_150])
@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_transcoding_around_each_size_of_the_length(version: int, size: int) -> None:
    message = (b"a", bytes(size))
    data = codec.encode_publish(version, *message)
    other = MQTT_5 if version == MQTT_3_1_1 else MQTT_3_1_1
    assert transcoded(data, version) == codec.encode_publish(other, *message)


def test_a_part_of_a_buffer_is_transcoded() -> None:
    first, second, third = (
        codec.encode_publish(MQTT_5, topic, b"x") for topic in (b"a", b"b", b"c")
    )
    data = np.frombuffer(first + second + third, np.uint8)
    out = np.empty(100, np.uint8)
    size = transcode(data, len(first), len(first + second), MQTT_3_1_1, out)
    assert out[:size].tobytes() == codec.encode_publish(MQTT_3_1_1, b"b", b"x")
