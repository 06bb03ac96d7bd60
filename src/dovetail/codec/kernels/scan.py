"""Finds where packets begin and end in a read buffer, and which of them form a run.

A run is a series of neighbouring packets that are handled together:

- PUBLISH at QoS 0, or PUBLISH at QoS 1 for the first time. All are on one topic, which does not
  begin with `$`. None is to be retained. Their properties, if any, are only such as a server passes
  on untouched.
- PUBLISH with the retain flag, at QoS 0, or at QoS 1 for the first time. Each has its own topic,
  plain ASCII, and a payload, and none has properties.
- PUBACK in its short form.

Every other packet is a run of its own and is taken apart elsewhere. So is whatever is not encoded
in the fewest bytes, as it must not be passed on like that.
"""

import numpy as np
import numpy.typing as npt

from dovetail.codec.kernels.pairs import is_text
from dovetail.codec.limits import RETAINED_RUN_PACKETS_MAX
from dovetail.compilation import inlined, inner_kernel, kernel

Bytes = npt.NDArray[np.uint8]
Runs = npt.NDArray[np.int64]

START, BODY, END, COUNT, TOPIC_END, KIND, PROPERTIES = range(7)
"""Columns of a run. BODY is where the first packet's fixed header ends. TOPIC_END is 0 unless the
run is publications that are not retained. PROPERTIES says whether any of them has properties."""

SINGLE, QOS_0, QOS_1, PUBACKS, RETAINED_QOS_0, RETAINED_QOS_1 = range(6)
"""Kinds of runs."""

WHOLE, TOO_LONG, MALFORMED = range(3)
"""Why a scan ended: at the end of the data, or before a packet that is too large or has an invalid
length."""

_PUBLISH_QOS_0 = 0x30
_PUBLISH_QOS_1 = 0x32
_RETAINED_QOS_0 = 0x31
_RETAINED_QOS_1 = 0x33
_PUBACK = 0x40
_MORE = 0x80
_DOLLAR, _PLUS, _HASH = 0x24, 0x2B, 0x23

_PAYLOAD_FORMAT = 0x01
_CONTENT_TYPE = 0x03
_CORRELATION_DATA = 0x09
_USER_PROPERTY = 0x26


@kernel
def scan(
    data: Bytes, version: int, packet_bytes_max: int, run_packets_max: int, runs: Runs
) -> tuple[int, int, int, int]:
    """Fill `runs`. Return how many, where they end, why, and how many bytes the rest needs."""
    size = len(data)
    count = 0
    at = 0
    while at + 2 <= size:
        body = at + 1
        length = 0
        shift = 0
        while True:
            if body == size:
                return count, at, WHOLE, 0
            byte = int(data[body])
            body += 1
            length |= (byte & 0x7F) << shift
            if byte < _MORE:
                break
            shift += 7
            if shift == 28:
                return count, at, MALFORMED, 0
        end = body + length
        if end - at > packet_bytes_max:
            return count, at, TOO_LONG, end - at
        if end > size:
            return count, at, WHOLE, end - at
        kind = SINGLE
        topic_end = 0
        payload = 0
        first = data[at]
        if first in (_PUBLISH_QOS_0, _PUBLISH_QOS_1):
            if length >= 3 and byte:  # a length whose last byte is 0 is longer than it has to be
                stop = body + 2 + (int(data[body]) << 8) + int(data[body + 1])
                if stop > body + 2 and data[body + 2] != _DOLLAR:
                    payload = _payload_of(data, stop, end, version, first == _PUBLISH_QOS_1)
                if payload:
                    topic_end = stop
                    kind = QOS_1 if first == _PUBLISH_QOS_1 else QOS_0
        elif first == _PUBACK and length == 2 and body == at + 2 and (data[body] or data[body + 1]):
            kind = PUBACKS
        elif first in (_RETAINED_QOS_0, _RETAINED_QOS_1) and _is_plainly_retained(
            data, body, end, version, first == _RETAINED_QOS_1
        ):
            kind = RETAINED_QOS_1 if first == _RETAINED_QOS_1 else RETAINED_QOS_0
        if kind and count:
            last = count - 1
            is_retained = kind in (RETAINED_QOS_0, RETAINED_QOS_1)
            if (
                runs[last, KIND] == kind
                and runs[last, END] == at
                and runs[last, COUNT]
                < (RETAINED_RUN_PACKETS_MAX if is_retained else run_packets_max)
                and _is_same_topic(data, runs[last, BODY], runs[last, TOPIC_END], body, topic_end)
            ):
                runs[last, END] = end
                runs[last, COUNT] += 1
                if topic_end and version == 5 and data[_properties_at(topic_end, kind)]:
                    runs[last, PROPERTIES] = 1
                at = end
                continue
        if count == len(runs):
            return count, at, WHOLE, 0
        runs[count, START] = at
        runs[count, BODY] = body
        runs[count, END] = end
        runs[count, COUNT] = 1
        runs[count, TOPIC_END] = topic_end
        runs[count, KIND] = kind
        runs[count, PROPERTIES] = 0
        if topic_end and version == 5 and data[_properties_at(topic_end, kind)]:
            runs[count, PROPERTIES] = 1
        count += 1
        at = end
    return count, at, WHOLE, 0


@kernel
def scan_reads(
    data: Bytes,
    ends: Runs,
    versions: Runs,
    packet_bytes_max: int,
    run_packets_max: int,
    runs: Runs,
) -> None:
    """Scan the reads of many connections, and fill a row of `runs` for each.

    COUNT is 0 for a read that is not exactly one run of publications, and for one whose version is
    0. All places count from the begin of the read.
    """
    start = np.int64(0)
    for read in range(len(ends)):
        end = ends[read]
        found = runs[read : read + 1]
        count = 0
        if versions[read]:
            count, at, _, _ = scan(
                data[start:end], versions[read], packet_bytes_max, run_packets_max, found
            )
            if start + at < end or (count and not found[0, TOPIC_END]):
                count = 0
        if not count:
            found[0, COUNT] = 0
        start = end


@kernel
def find_retained(data: Bytes, version: int, has_id: bool, borders: Runs) -> None:
    """Fill `borders` with where the topic of each packet of a retained run begins and ends.

    Then come where its payload begins and ends.
    """
    at = 0
    for packet in range(len(borders)):
        length = 0
        shift = 0
        while True:
            at += 1
            length |= (int(data[at]) & 0x7F) << shift
            if data[at] < _MORE:
                break
            shift += 7
        at += 1
        end = at + length
        topic_end = at + 2 + (int(data[at]) << 8) + int(data[at + 1])
        borders[packet, 0] = at + 2
        borders[packet, 1] = topic_end
        borders[packet, 2] = _plain_payload_at(topic_end, version, has_id)
        borders[packet, 3] = end
        at = end


@inlined
def _plain_payload_at(topic_end: int, version: int, has_id: bool) -> int:
    """Return where the payload of a packet without properties begins."""
    return topic_end + (2 if has_id else 0) + (1 if version == 5 else 0)


@inlined
def _is_plainly_retained(data: Bytes, body: int, end: int, version: int, has_id: bool) -> bool:
    """Has a PUBLISH a payload, no properties, and an ASCII topic that a client may publish to?"""
    topic = body + 2
    if topic >= end or data[topic] == _DOLLAR:
        return False
    topic_end = topic + (int(data[body]) << 8) + int(data[body + 1])
    payload = _plain_payload_at(topic_end, version, has_id)
    if topic_end == topic or payload >= end or (version == 5 and data[payload - 1]):
        return False
    if has_id and not (data[topic_end] or data[topic_end + 1]):
        return False
    for i in range(topic, topic_end):
        byte = data[i]
        if byte in (0, _PLUS, _HASH) or byte >= 0x80:
            return False
    return True


@inlined
def _properties_at(topic_end: int, kind: int) -> int:
    return topic_end + 2 if kind == QOS_1 else topic_end


@inlined
def _is_same_topic(data: Bytes, first: int, first_end: int, body: int, topic_end: int) -> bool:
    """Are the topics of two packets the same, or have they none that matters?"""
    if not topic_end:
        return True
    size = topic_end - body
    if first_end - first != size:
        return False
    for i in range(size):
        if data[first + i] != data[body + i]:
            return False
    return True


@inlined
def _payload_of(data: Bytes, topic_end: int, end: int, version: int, has_id: bool) -> int:
    """Return where the payload begins, or 0 if the packet has to be taken apart."""
    at = topic_end
    if has_id:
        at += 2
        if at > end or not (data[topic_end] or data[topic_end + 1]):
            return 0
    if version < 5:
        return at if at <= end else 0
    if at >= end:
        return 0
    return at + 1 if data[at] == 0 else _properties_end(data, at, end)


@inner_kernel
def _properties_end(data: Bytes, at: int, end: int) -> int:
    """Return where properties end that a server passes on untouched, or 0 if they are not such.

    `at` is where their length stands. A response topic has rules of its own, and is one of those
    that are taken apart elsewhere.
    """
    length = 0
    shift = 0
    while True:
        if at == end or shift == 28:
            return 0
        byte = int(data[at])
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < _MORE:
            break
    stop = at + length
    if stop > end or not byte:
        return 0
    seen = 0
    while at < stop:
        name = int(data[at])
        at += 1
        texts = 1
        if name == _USER_PROPERTY:
            texts = 2
        else:
            if name > _CORRELATION_DATA or seen >> name & 1:
                return 0
            seen |= 1 << name
            if name == _PAYLOAD_FORMAT:
                if at == stop or data[at] > 1:
                    return 0
                at += 1
                continue
            if name != _CONTENT_TYPE and name != _CORRELATION_DATA:  # noqa: PLR1714
                return 0
        for _ in range(texts):
            if at + 2 > stop:
                return 0
            first = at + 2
            at = first + (int(data[at]) << 8) + int(data[at + 1])
            if at > stop or (name != _CORRELATION_DATA and not is_text(data, first, at)):
                return 0
    return stop
