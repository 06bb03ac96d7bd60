"""Find where packets begin and end in a read buffer, and join neighbours into runs.

A run is a series of packets that can be forwarded unchanged to the same receivers: PUBLISH at QoS
0, not retained, without properties, on one topic that does not begin with `$`. Its length is
bounded. Any other packet is a run by itself, which the caller decodes.
"""

import numpy as np
import numpy.typing as npt

from dovetail.compilation import kernel

Bytes = npt.NDArray[np.uint8]
Runs = npt.NDArray[np.int64]

START, BODY, END, COUNT, TOPIC_END = range(5)
"""Columns of a run. BODY is where the first packet's fixed header ends; TOPIC_END is 0 for a packet
that must be decoded."""

WHOLE, TOO_LONG, MALFORMED = range(3)
"""Why a scan ended: at the end of the data, or before a packet that is too large or has an invalid
length."""

_PUBLISH_PLAIN = 0x30
_MORE = 0x80
_DOLLAR = 0x24


@kernel
def scan(
    data: Bytes, version: int, packet_bytes_max: int, run_packets_max: int, runs: Runs
) -> tuple[int, int, int, int]:
    """Fill `runs`. Return how many, where they end, why, and the bytes the next packet needs."""
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
        topic_end = 0
        # A length whose last byte is 0 has more bytes than needed: such a packet is not forwarded.
        if data[at] == _PUBLISH_PLAIN and length >= 3 and byte:
            stop = body + 2 + (int(data[body]) << 8) + int(data[body + 1])
            if (
                stop > body + 2
                and data[body + 2] != _DOLLAR
                and ((stop <= end and version < 5) or (stop < end and data[stop] == 0))
            ):
                topic_end = stop
        if topic_end and count:
            last = count - 1
            before = runs[last, BODY]
            topic_bytes = topic_end - body
            if (
                runs[last, TOPIC_END] - before == topic_bytes
                and runs[last, END] == at
                and runs[last, COUNT] < run_packets_max
            ):
                same = True
                for i in range(topic_bytes):
                    if data[before + i] != data[body + i]:
                        same = False
                        break
                if same:
                    runs[last, END] = end
                    runs[last, COUNT] += 1
                    at = end
                    continue
        if count == len(runs):
            return count, at, WHOLE, 0
        runs[count, START] = at
        runs[count, BODY] = body
        runs[count, END] = end
        runs[count, COUNT] = 1
        runs[count, TOPIC_END] = topic_end
        count += 1
        at = end
    return count, at, WHOLE, 0


@kernel
def transcode(data: Bytes, start: int, stop: int, to_version: int, out: Bytes) -> int:
    """Convert plain QoS 0 packets to the other version. Return how many bytes `out` got.

    To MQTT 5: add a property length of zero behind the topic. To 3.1.1: remove it. `out` has room
    for two more bytes a packet.
    """
    written = 0
    at = start
    while at < stop:
        body = at + 1
        length = 0
        shift = 0
        while True:
            byte = int(data[body])
            body += 1
            length |= (byte & 0x7F) << shift
            if byte < _MORE:
                break
            shift += 7
        end = body + length
        topic_end = body + 2 + (int(data[body]) << 8) + int(data[body + 1])
        payload = topic_end
        if to_version == 5:
            length += 1
        else:
            length -= 1
            payload += 1
        out[written] = data[at]
        written += 1
        rest = length
        while True:
            byte = rest & 0x7F
            rest >>= 7
            out[written] = byte | _MORE if rest else byte
            written += 1
            if not rest:
                break
        for i in range(body, topic_end):
            out[written] = data[i]
            written += 1
        if to_version == 5:
            out[written] = 0
            written += 1
        for i in range(payload, end):
            out[written] = data[i]
            written += 1
        at = end
    return written
