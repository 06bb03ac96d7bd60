"""Runs of PUBLISH packets, as kernels/scan.py finds them: taken apart, or written for a receiver.

All functions trust their input: the scan has checked it. Pure.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.codec.kernels.rewrite import (
    GROWTH_BYTES_MAX,
    find_starts,
    rewrite,
    rewrite_rows,
    write_pubacks,
)
from dovetail.codec.kernels.scan import QOS_0, find_retained
from dovetail.codec.packets import MQTT_5

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint8]

PUBACK_BYTES = 4
"""The size of a PUBACK without a reason. With one, MQTT 5 takes a byte more."""


class Run(NamedTuple):
    """Neighbouring PUBLISH packets, at QoS 0 or 1, that go to the same receivers."""

    data: bytes
    version: int
    kind: int
    packets: int
    has_properties: int

    @property
    def qos(self) -> int:
        return self.kind - QOS_0


class Published(NamedTuple):
    """The parts of a PUBLISH that concern its receivers."""

    topic: bytes
    payload: bytes
    properties: bytes = b""


def packets_of(run: Run) -> list[Published]:
    """Take a run apart."""
    data, version, qos = run.data, run.version, run.qos
    found = []
    at = 0
    while at < len(data):
        length, body = _variable(data, at + 1)
        topic_end = body + 2 + int.from_bytes(data[body : body + 2])
        properties = payload = topic_end + 2 * qos
        if version == MQTT_5:
            size, properties = _variable(data, properties)
            payload = properties + size
        at = body + length
        found.append(
            Published(data[body + 2 : topic_end], data[payload:at], data[properties:payload])
        )
    return found


class RetainedParts(NamedTuple):
    """The columns of a run of retained publications."""

    topics: list[bytes]
    payloads: list[bytes]
    ends: list[int]
    """Where each packet ends."""


def retained_parts_of(run: Run) -> RetainedParts:
    """Take a run of retained publications apart."""
    data = run.data
    borders = np.empty((run.packets, 4), np.int64)
    find_retained(np.frombuffer(data, np.uint8), run.version, run.qos > 0, borders)
    topic_starts, topic_ends, payload_starts, ends = borders.T.tolist()
    return RetainedParts(
        [data[start:end] for start, end in zip(topic_starts, topic_ends, strict=True)],
        [data[start:end] for start, end in zip(payload_starts, ends, strict=True)],
        ends,
    )


def borders_of(data: bytes) -> list[tuple[int, int, int]]:
    """Return where each packet of a run begins, where its header ends, and where it ends."""
    found = []
    at = 0
    while at < len(data):
        length, body = _variable(data, at + 1)
        found.append((at, body, body + length))
        at = body + length
    return found


def _variable(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable byte integer, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def rewritten(run: Run, version: int, qos: int, first_id: int = 0) -> bytes:
    """Return a run as a receiver of this version gets it at this QoS (0 or 1).

    At QoS 1 its packet identifiers begin with `first_id`.
    """
    if qos == run.qos == 0 and version == run.version:
        return run.data
    out = np.empty(len(run.data) + GROWTH_BYTES_MAX * run.packets, np.uint8)
    source = np.frombuffer(run.data, np.uint8)
    size = rewrite(source, run.version, run.qos, version, qos, first_id, out)
    return out[:size].tobytes()


def rewritten_rows(
    run: Run, starts: Numbers, rows: Numbers, version: int, qos: int, first_id: int = 0
) -> bytes:
    """Return some packets of a run like `rewritten`. `starts` has where each packet begins."""
    sizes = starts[rows + 1] - starts[rows]
    out = np.empty(int(sizes.sum()) + GROWTH_BYTES_MAX * len(rows), np.uint8)
    source = np.frombuffer(run.data, np.uint8)
    size = rewrite_rows(source, starts, rows, run.version, run.qos, version, qos, first_id, out)
    return out[:size].tobytes()


def starts_of(run: Run) -> Numbers:
    """Return where each packet begins, and behind them the end of the last."""
    starts = np.empty(run.packets + 1, np.int64)
    find_starts(np.frombuffer(run.data, np.uint8), starts)
    return starts


def first_packets(run: Run, count: int) -> Run:
    """Return the first packets of a run, so many."""
    return run._replace(data=run.data[: int(starts_of(run)[count])], packets=count)


def rest_of(run: Run, first: Run) -> Run:
    """Return a run without its first packets."""
    data = run.data[len(first.data) :]
    return run._replace(data=data, packets=run.packets - first.packets)


def pubacks_of(run: Run, matched: Flags | None) -> bytes:
    """Return the PUBACKs of a run at QoS 1.

    `matched` says which packets have a subscriber. None: all of them.
    """
    if matched is None:
        matched = np.ones(run.packets, np.uint8)
    out = np.empty(5 * run.packets, np.uint8)
    size = write_pubacks(np.frombuffer(run.data, np.uint8), run.version, matched, out)
    return out[:size].tobytes()


def packet_ids_of(acknowledgements: bytes) -> list[int]:
    """Return the packet identifiers of a run of PUBACKs."""
    ids: list[int] = np.frombuffer(acknowledgements, ">u2")[1::2].tolist()
    return ids
