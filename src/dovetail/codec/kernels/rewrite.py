"""Writes a run of PUBLISH packets (scan.py) as another receiver gets them.

Versions and QoS of a receiver may differ from the publisher's. MQTT 3.1.1 has no properties, and
QoS 0 no packet identifier. All else stays byte for byte.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import inlined, kernel

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

GROWTH_BYTES_MAX = 4
"""Bytes that a packet may grow by: packet identifier, property length, and a longer header."""

_PUBLISH = 0x30
_PUBACK = 0x40
_NO_MATCHING_SUBSCRIBERS = 0x10
_MORE = 0x80


@inlined
def variable(data: Bytes, at: int) -> tuple[int, int]:
    """Return a variable byte integer of valid data, and where it ends."""
    value = 0
    shift = 0
    while True:
        byte = int(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, at
        shift += 7


@inlined
def _copy(data: Bytes, start: int, stop: int, out: Bytes, at: int) -> int:
    for i in range(stop - start):
        out[at + i] = data[start + i]
    return at + stop - start


@inlined
def _put(
    data: Bytes,
    at: int,
    version: int,
    qos: int,
    to_version: int,
    to_qos: int,
    packet_id: int,
    out: Bytes,
    written: int,
) -> tuple[int, int]:
    """Write the packet at `at`. Return where it ends, and where the written one ends."""
    length, body = variable(data, at + 1)
    end = body + length
    topic_end = body + 2 + (int(data[body]) << 8) + int(data[body + 1])
    properties = topic_end + 2 if qos else topic_end
    payload = properties
    if version == 5:
        size, payload = variable(data, properties)
        payload += size
    rest = topic_end - body + end - payload
    if to_qos:
        rest += 2
    if to_version == 5:
        rest += payload - properties if version == 5 else 1
    out[written] = _PUBLISH | to_qos << 1
    written += 1
    while True:
        byte = rest & 0x7F
        rest >>= 7
        out[written] = byte | _MORE if rest else byte
        written += 1
        if not rest:
            break
    written = _copy(data, body, topic_end, out, written)
    if to_qos:
        out[written] = packet_id >> 8
        out[written + 1] = packet_id & 0xFF
        written += 2
    if to_version != 5:
        properties = payload
    elif version != 5:
        out[written] = 0
        written += 1
    return end, _copy(data, properties, end, out, written)


@kernel
def rewrite(
    data: Bytes, version: int, qos: int, to_version: int, to_qos: int, first_id: int, out: Bytes
) -> int:
    """Write all packets to `out`, and return how many bytes that took.

    At QoS 1 they get the packet identifiers from `first_id` on. `out` has room for
    GROWTH_BYTES_MAX more for each packet.
    """
    packet_id = first_id
    written = 0
    at = 0
    while at < len(data):
        at, written = _put(data, at, version, qos, to_version, to_qos, packet_id, out, written)
        packet_id += 1
    return written


@kernel
def rewrite_rows(
    data: Bytes,
    starts: Numbers,
    rows: Numbers,
    version: int,
    qos: int,
    to_version: int,
    to_qos: int,
    first_id: int,
    out: Bytes,
) -> int:
    """Write some of the packets like `rewrite`. `starts` has where each packet begins."""
    written = 0
    for i in range(len(rows)):
        _, written = _put(
            data, starts[rows[i]], version, qos, to_version, to_qos, first_id + i, out, written
        )
    return written


@kernel
def find_starts(data: Bytes, starts: Numbers) -> None:
    """Write where each packet begins, and behind them the end of the last."""
    at = 0
    row = 0
    starts[0] = 0
    while at < len(data):
        length, body = variable(data, at + 1)
        at = body + length
        row += 1
        starts[row] = at


@kernel
def write_pubacks(data: Bytes, version: int, matched: Bytes, out: Bytes) -> int:
    """Write a PUBACK for each packet of a QoS 1 run, and return how many bytes that took.

    In MQTT 5 it says which publications no subscription matched. `out` has five bytes for each.
    """
    at = 0
    row = 0
    written = 0
    while at < len(data):
        length, body = variable(data, at + 1)
        topic_end = body + 2 + (int(data[body]) << 8) + int(data[body + 1])
        has_reason = version == 5 and not matched[row]
        out[written] = _PUBACK
        out[written + 1] = 3 if has_reason else 2
        out[written + 2] = data[topic_end]
        out[written + 3] = data[topic_end + 1]
        written += 4
        if has_reason:
            out[written] = _NO_MATCHING_SUBSCRIBERS
            written += 1
        at = body + length
        row += 1
    return written
