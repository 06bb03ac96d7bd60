"""Compiled work for every message of the load generator: fills packets and checks them.

Every message is checked completely: its topic, its length, each byte of its payload, and that it is
exactly the next one of its publisher. Kernels take plain arrays. A fault is a number that `FAULTS`
explains, with the position of the packet.

A payload is a few bytes, publisher (4 bytes), sequence number (8 bytes), and a filler. Numbers are
little-endian, with half a byte in each letter from a to p, so that a payload can be JSON.
Arrays are flat, with positions in them: Numba counts references to every view.
"""

# ruff: noqa: C901, PLR0911, PLR0912 (a packet is taken apart in one walk, as kernels are in src/)

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]

PAYLOAD_HEAD = b'{"id":"'
PUBLISHER_AT = len(PAYLOAD_HEAD)
SEQUENCE_AT = PUBLISHER_AT + 4
FILLER_AT = SEQUENCE_AT + 8
_LETTERS = 0x6161_6161_6161_6161

UNIQUE_TOPIC = b"site000/area00/device00000000/value"
"""The pattern of topics that are never published twice. Digits are filled in."""
SITES, AREAS = 1_000, 100
_SITE_AT, _AREA_AT, _DEVICE_AT = 4, 12, 21

FREE, SENT, RELEASED = 0, 1, 2
"""States of a packet identifier: with the publisher until PUBACK or PUBCOMP, with the subscriber
from a QoS 2 PUBLISH to its PUBREL."""

FINE, STRAY_PACKET, WRONG_LENGTH, WRONG_PUBLISHER, WRONG_SEQUENCE, WRONG_TOPIC, WRONG_PAYLOAD = (
    range(7)
)
WRONG_IDENTIFIER, REFUSED, WRONG_PROPERTIES = 7, 8, 9
FAULTS = {
    STRAY_PACKET: "a packet that has no place here",
    WRONG_LENGTH: "a packet of the wrong length",
    WRONG_PUBLISHER: "a message of a publisher that there is not",
    WRONG_SEQUENCE: "a message that is not its publisher's next (lost, doubled or out of order)",
    WRONG_TOPIC: "a message with another topic than it was published to",
    WRONG_PAYLOAD: "a message with an altered payload",
    WRONG_IDENTIFIER: "a packet identifier that is not in this state",
    WRONG_PROPERTIES: "a message with altered properties",
    REFUSED: "an acknowledgement with a reason code of failure",
}


def _define_word(_context: Any, data: Any, _at: Any) -> Any:  # noqa: ANN401
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        loaded = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
        loaded.align = 1
        return loaded

    return types.int64(data, types.int64), generate


_word: Any = intrinsic(_define_word)
"""Eight bytes at any place, as a number: Numba alone can only load them one by one."""


@numba.njit(forceinline=True)
def _same(data: Bytes, at: int, expected: Bytes, first: int, size: int) -> bool:
    """Return whether `data` at `at` equals `expected` at `first`."""
    difference = 0
    if size < 8:
        for place in range(size):
            difference |= data[at + place] ^ expected[first + place]
    else:
        difference = _word(data, at + size - 8) ^ _word(expected, first + size - 8)
        for place in range(0, size - 8, 8):
            difference |= _word(data, at + place) ^ _word(expected, first + place)
    return difference == 0


@numba.njit
def in_letters(number: int) -> int:
    """Return the low 32 bits as eight letters."""
    number &= 0xFFFF_FFFF
    number = (number | number << 16) & 0x0000_FFFF_0000_FFFF
    number = (number | number << 8) & 0x00FF_00FF_00FF_00FF
    number = (number | number << 4) & 0x0F0F_0F0F_0F0F_0F0F
    return number + _LETTERS


@numba.njit(forceinline=True)
def _publisher_of(letters: int) -> int:
    """Return the number below 65,536 in four letters, or a larger one."""
    number = (letters & 0xFFFF_FFFF) - (_LETTERS & 0xFFFF_FFFF)
    if number & 0xF0F0_F0F0:
        return 1 << 16
    number = (number | number >> 4) & 0x00FF_00FF
    return (number | number >> 8) & 0xFFFF


@numba.njit(forceinline=True)
def _put_number(packets: Bytes, at: int, number: int) -> None:
    letters = in_letters(number)
    for place in range(8):
        packets[at + place] = (letters >> 8 * place) & 0xFF


@numba.njit(forceinline=True)
def _put_digits(data: Bytes, at: int, digits: int, number: int) -> None:
    for place in range(digits - 1, -1, -1):
        data[at + place] = 48 + number % 10
        number //= 10


@numba.njit(forceinline=True)
def put_unique_topic(data: Bytes, at: int, number: int) -> None:
    """Write a unique topic: sites and areas repeat in no simple order, devices never do."""
    mixed = (number * 2_654_435_761) & 0xFFFF_FFFF
    _put_digits(data, at + _SITE_AT, 3, (mixed >> 8) % SITES)
    _put_digits(data, at + _AREA_AT, 2, (mixed >> 20) % AREAS)
    _put_digits(data, at + _DEVICE_AT, 8, number)


# send(2) of the C library: at one packet a call Python's own would take as long as the kernel's.
_send: Any = types.ExternalFunction(
    "send", types.int64(types.int32, types.uintp, types.uintp, types.int32)
)
_WITHOUT_SIGNAL_OR_WAITING = 0x4040  # Linux: MSG_NOSIGNAL | MSG_DONTWAIT


@numba.njit(cache=True)
def send_each(
    files: npt.NDArray[np.int32], packets: Bytes, packet_bytes: int, number: int, payload_at: int
) -> int:
    """Send message `number` of every publisher, each in a send call of its own.

    `packets` has one of each. Return how many publishers could send theirs.
    """
    for publisher in range(files.size):
        packet = publisher * packet_bytes
        _put_number(packets, packet + payload_at + SEQUENCE_AT, number)
        address = packets.ctypes.data + packet
        if (
            _send(files[publisher], address, packet_bytes, _WITHOUT_SIGNAL_OR_WAITING)
            != packet_bytes
        ):
            return publisher
    return files.size


@numba.njit(cache=True)
def fill(
    packets: Bytes,
    packet_bytes: int,
    first: int,
    count: int,
    payload_at: int,
    unique_topic_at: int,
    id_at: int,
    free_ids: npt.NDArray[np.int64],
    turns: npt.NDArray[np.int64],
    states: Bytes,
) -> None:
    """Number the messages first .. first + count in their slots, which are used in turn.

    `free_ids` is a ring; `turns` counts the identifiers taken from it, and given back.
    """
    slots = packets.size // packet_bytes
    for number in range(first, first + count):
        packet = number % slots * packet_bytes
        _put_number(packets, packet + payload_at + SEQUENCE_AT, number)
        if unique_topic_at:
            put_unique_topic(packets, packet + unique_topic_at, number)
        if id_at:
            packet_id = free_ids[turns[0] % free_ids.size]
            turns[0] += 1
            states[packet_id] = SENT
            packets[packet + id_at] = packet_id >> 8
            packets[packet + id_at + 1] = packet_id & 0xFF


@numba.njit(forceinline=True)
def _find_body(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the begin and end of the body of the packet at `at`; (0, 0) if it is incomplete."""
    body, size, shift = at + 1, 0, 0
    while body < end:
        size |= (data[body] & 0x7F) << shift
        shift += 7
        body += 1
        if data[body - 1] < 0x80:
            return (body, body + size) if body + size <= end else (0, 0)
    return 0, 0


@numba.njit(forceinline=True)
def _put_ack(acks: Bytes, at: int, first: int, packet_id: int) -> int:
    acks[at] = first
    acks[at + 1] = 2
    acks[at + 2] = packet_id >> 8
    acks[at + 3] = packet_id & 0xFF
    return at + 4


@numba.njit(forceinline=True)
def check_message(
    data: Bytes,
    body: int,
    stop: int,
    version: int,
    qos: int,
    topics: Bytes,
    topic_bytes: int,
    topics_each: int,
    unique_topics: bool,
    properties: Bytes,
    gaps: npt.NDArray[np.int64],
    payloads: Bytes,
    next_numbers: npt.NDArray[np.int64],
) -> int:
    """A fault, or FINE: then the publisher's next number has moved on.

    `properties` and `payloads` are those of messages in turn, as many as there are `gaps`: how far
    it is from each of them to the next message that the subscriber gets.
    """
    topic = body + 2
    if stop < topic:
        return WRONG_LENGTH
    after = topic + (data[body] << 8 | data[body + 1])
    if after - topic != topic_bytes:
        return WRONG_TOPIC
    if qos:
        after += 2
    properties_bytes = 0
    if version == 5:
        if after >= stop:
            return WRONG_LENGTH
        properties_bytes = properties.size // gaps.size
        if properties_bytes > 1:
            after += properties_bytes  # they are compared when the number is known
            if after > stop:
                return WRONG_LENGTH
        elif data[after] > 127:
            return WRONG_LENGTH  # no properties were sent, so no broker passes many on
        else:
            after += 1 + data[after]
    payload_bytes = payloads.size // gaps.size
    if stop - after != payload_bytes:
        return WRONG_LENGTH

    publisher = _publisher_of(_word(data, after + PUBLISHER_AT))
    if publisher >= next_numbers.size:
        return WRONG_PUBLISHER
    number = next_numbers[publisher]
    if _word(data, after + SEQUENCE_AT) != in_letters(number):
        return WRONG_SEQUENCE

    slot = number % gaps.size
    if version == 5 and properties_bytes > 1:
        first = after - properties_bytes
        if not _same(data, first, properties, slot * properties_bytes, properties_bytes):
            return WRONG_PROPERTIES
    expected = (publisher * topics_each + number % topics_each) * topic_bytes
    if unique_topics:
        put_unique_topic(topics, expected, number)
    if not _same(data, topic, topics, expected, topic_bytes):
        return WRONG_TOPIC
    first = slot * payload_bytes
    if not _same(data, after, payloads, first, PUBLISHER_AT):
        return WRONG_PAYLOAD
    filler_bytes = payload_bytes - FILLER_AT
    if not _same(data, after + FILLER_AT, payloads, first + FILLER_AT, filler_bytes):
        return WRONG_PAYLOAD
    next_numbers[publisher] += gaps[slot]
    return FINE


@numba.njit(cache=True)
def take_messages(
    data: Bytes,
    end: int,
    version: int,
    qos: int,
    topics: Bytes,
    topic_bytes: int,
    topics_each: int,
    unique_topics: bool,
    properties: Bytes,
    gaps: npt.NDArray[np.int64],
    payloads: Bytes,
    next_numbers: npt.NDArray[np.int64],
    states: Bytes,
    acks: Bytes,
) -> tuple[int, int, int, int, int]:
    """Check all complete packets of a subscriber.

    Return the position after the last one, messages, PUBRELs, bytes of acknowledgements, and a
    fault.
    """
    at = messages = releases = ack_bytes = 0
    while True:
        body, stop = _find_body(data, at, end)
        if body == 0:
            return at, messages, releases, ack_bytes, FINE
        if data[at] == 0x30 | qos << 1:
            fault = check_message(
                data,
                body,
                stop,
                version,
                qos,
                topics,
                topic_bytes,
                topics_each,
                unique_topics,
                properties,
                gaps,
                payloads,
                next_numbers,
            )
            if fault:
                return at, messages, releases, ack_bytes, fault
            messages += 1
            if qos:
                id_at = body + 2 + (data[body] << 8 | data[body + 1])
                packet_id = data[id_at] << 8 | data[id_at + 1]
                if packet_id == 0 or states[packet_id] != FREE:
                    return at, messages, releases, ack_bytes, WRONG_IDENTIFIER
                if qos == 1:
                    ack_bytes = _put_ack(acks, ack_bytes, 0x40, packet_id)
                else:
                    states[packet_id] = SENT
                    ack_bytes = _put_ack(acks, ack_bytes, 0x50, packet_id)
        elif data[at] == 0x62 and qos == 2 and stop - body >= 2:
            packet_id = data[body] << 8 | data[body + 1]
            if states[packet_id] != SENT:
                return at, messages, releases, ack_bytes, WRONG_IDENTIFIER
            states[packet_id] = FREE
            releases += 1
            ack_bytes = _put_ack(acks, ack_bytes, 0x70, packet_id)
        else:
            return at, messages, releases, ack_bytes, STRAY_PACKET
        at = stop


@numba.njit(cache=True)
def take_acks(
    data: Bytes,
    end: int,
    qos: int,
    free_ids: npt.NDArray[np.int64],
    turns: npt.NDArray[np.int64],
    states: Bytes,
    releases: Bytes,
) -> tuple[int, int, int, int]:
    """Read all complete packets of a publisher.

    Return the position after the last one, finished messages, bytes of PUBRELs, and a fault.
    """
    at = done = release_bytes = 0
    while True:
        body, stop = _find_body(data, at, end)
        if body == 0:
            return at, done, release_bytes, FINE
        kind = data[at]
        if qos == 0 or stop - body < 2 or not (kind == 0x40 or kind == 0x50 or kind == 0x70):  # noqa: PLR1714
            return at, done, release_bytes, STRAY_PACKET
        if stop - body > 2 and data[body + 2] >= 0x80:
            return at, done, release_bytes, REFUSED
        packet_id = data[body] << 8 | data[body + 1]
        state = states[packet_id]
        if kind == 0x50 and qos == 2 and state == SENT:
            states[packet_id] = RELEASED
            release_bytes = _put_ack(releases, release_bytes, 0x62, packet_id)
        elif (kind == 0x40 and qos == 1 and state == SENT) or (kind == 0x70 and state == RELEASED):
            states[packet_id] = FREE
            free_ids[turns[1] % free_ids.size] = packet_id
            turns[1] += 1
            done += 1
        else:
            return at, done, release_bytes, WRONG_IDENTIFIER
        at = stop
