"""Runs taken apart and written for receivers, against the codec."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import codec
from dovetail.codec.kernels.scan import QOS_0, QOS_1
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, PacketType
from dovetail.codec.run import (
    Published,
    Run,
    borders_of,
    packet_ids_of,
    packets_of,
    pubacks_of,
    retained_parts_of,
    rewritten,
    rewritten_rows,
)
from dovetail.errors import ReasonCode

versions = st.sampled_from([MQTT_3_1_1, MQTT_5])
levels = st.sampled_from([0, 1])
first_ids = st.integers(1, 65_000)
sizes = [0, 1, *range(119, 130), 16_380]
parts = st.builds(
    Published,
    st.sampled_from([b"a", b"a/b", b"x" * 124, b"x" * 200]),
    st.sampled_from([bytes(size) for size in sizes]) | st.binary(max_size=5),
    st.sampled_from(
        [b"", codec.forwardable_properties(content_type="t" * 120)]
        + [codec.forwardable_properties(user=(("a", "b" * size),)) for size in (0, 118, 119, 120)]
    ),
)


def encoded(parts: list[Published], version: int, qos: int, first_id: int) -> bytes:
    return b"".join(
        codec.encode_publish(
            version,
            part.topic,
            part.payload,
            qos,
            packet_id=first_id + number if qos else 0,
            properties=part.properties if version == MQTT_5 else b"",
        )
        for number, part in enumerate(parts)
    )


def run_of(parts: list[Published], version: int, qos: int, first_id: int = 7) -> Run:
    data = encoded(parts, version, qos, first_id)
    has_properties = version == MQTT_5 and any(part.properties for part in parts)
    return Run(data, version, (QOS_0, QOS_1)[qos], len(parts), int(has_properties))


@given(st.lists(parts, max_size=8), versions, levels, versions, levels, st.integers(1, 65_000))
def test_a_receiver_gets_what_the_codec_encodes_for_it(
    parts: list[Published], version: int, qos: int, to_version: int, to_qos: int, first_id: int
) -> None:
    if version == MQTT_3_1_1:
        parts = [part._replace(properties=b"") for part in parts]
    run = run_of(parts, version, qos)
    assert rewritten(run, to_version, to_qos, first_id) == encoded(
        parts, to_version, to_qos, first_id
    )


@pytest.mark.parametrize("size", [0, 1, *range(119, 130), *range(16_370, 16_390), 2_097_150])
@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("qos", [0, 1])
def test_around_each_size_of_the_length(version: int, qos: int, size: int) -> None:
    parts = [Published(b"a", bytes(size))]
    for to_version in (MQTT_3_1_1, MQTT_5):
        for to_qos in (0, 1):
            assert rewritten(run_of(parts, version, qos), to_version, to_qos, 9) == encoded(
                parts, to_version, to_qos, 9
            )


@given(st.lists(parts, max_size=8), versions, levels)
def test_packets_of(parts: list[Published], version: int, qos: int) -> None:
    if version == MQTT_3_1_1:
        parts = [part._replace(properties=b"") for part in parts]
    assert packets_of(run_of(parts, version, qos)) == parts


@given(st.lists(parts, max_size=8), versions, levels)
def test_borders_of(parts: list[Published], version: int, qos: int) -> None:
    data = run_of(parts, version, qos).data
    borders = borders_of(data)
    assert b"".join(data[start:end] for start, _, end in borders) == data
    for start, body, end in borders:
        length = codec.decode_length(data, start + 1)
        assert length == (end - body, body)


@given(st.lists(st.tuples(parts, st.booleans()), min_size=1, max_size=8), versions, first_ids)
def test_acknowledgements(some: list[tuple[Published, bool]], version: int, first_id: int) -> None:
    run = run_of([part for part, _ in some], version, 1, first_id)
    found = pubacks_of(run, np.array([matched for _, matched in some], np.uint8))
    assert found == b"".join(
        codec.encode_ack(
            version,
            PacketType.PUBACK,
            first_id + number,
            0 if matched or version == MQTT_3_1_1 else ReasonCode.NO_MATCHING_SUBSCRIBERS,
        )
        for number, (_, matched) in enumerate(some)
    )
    if all(matched for _, matched in some):
        assert packet_ids_of(found) == list(range(first_id, first_id + len(some)))


@given(st.lists(st.tuples(parts, st.booleans()), max_size=8), versions, levels, versions, levels)
def test_some_packets_of_a_run(
    some: list[tuple[Published, bool]], version: int, qos: int, to_version: int, to_qos: int
) -> None:
    if version == MQTT_3_1_1:
        some = [(part._replace(properties=b""), is_wanted) for part, is_wanted in some]
    run = run_of([part for part, _ in some], version, qos)
    starts = np.array([start for start, _, _ in borders_of(run.data)] + [len(run.data)])
    rows = np.flatnonzero([is_wanted for _, is_wanted in some])
    wanted = [part for part, is_wanted in some if is_wanted]
    found = rewritten_rows(run, starts, rows, to_version, to_qos, 9)
    assert found == encoded(wanted, to_version, to_qos, 9)


@given(st.lists(parts, min_size=1, max_size=8), versions, levels)
def test_a_run_of_retained_publications(parts: list[Published], version: int, qos: int) -> None:
    parts = [part._replace(payload=part.payload + b"x", properties=b"") for part in parts]
    run = run_of(parts, version, qos)
    found = retained_parts_of(run)
    assert found.topics == [part.topic for part in parts]
    assert found.payloads == [part.payload for part in parts]
    assert found.ends == [end for _, _, end in borders_of(run.data)]
