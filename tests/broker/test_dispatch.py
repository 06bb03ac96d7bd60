"""The fast path of bytes and the general path of messages have the same results.

The same bytes go through three brokers: packet by packet and decoded; cut at random into reads,
every one of which is scanned; and in one read. Everybody has to receive the same from all three.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import codec
from dovetail.attributes.kernels.matching import match, match_few
from dovetail.attributes.space import Dimension, Space
from dovetail.broker import delivery, packet_reader, router, run_dispatch
from dovetail.broker.kernel_loader import load_kernels
from dovetail.broker.kernels.owners import collect_rows
from dovetail.broker.kernels.points import read_points
from dovetail.broker.limits import RECEIVERS_PER_PIECE, RUN_DELIVERIES_MAX
from dovetail.codec import forwardable_properties, scanner
from dovetail.codec.kernels.rewrite import find_starts, rewrite, rewrite_rows, write_pubacks
from dovetail.codec.kernels.scan import scan
from dovetail.codec.limits import RUNS_PER_PIECE
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Unsubscribe,
)
from dovetail.errors import ReasonCode
from dovetail.settings import AccessRule
from support.brokers.harness import PERSISTENT, Client, World

TOPICS = ("a", "a/b", "a/b/c", "b", "$d/x", "x" * 100)

topics = st.sampled_from([topic.encode() for topic in TOPICS])
payloads = st.binary(max_size=6) | st.sampled_from([bytes(100), bytes(300)])
json_payloads = payloads | st.sampled_from(
    [
        *(b'{"speed": %d}' % speed for speed in (0, 12, 19, 20, 99)),
        b'{"speed": "15.5", "other": true}',
        b'{"note": "x", "speed": 4}',
        '{"note": "é"}'.encode(),
        b'{"speed": null}',
        b'{"speed": "fast"}',
        b'{"speed": 1, "more": [2]}',
        b"{}",
        b"",
    ]
)
properties = st.sampled_from(
    [
        b"",
        b"",
        forwardable_properties(content_type="text"),
        forwardable_properties(user=(("speed", "12"), ("note", "é"))),
        forwardable_properties(user=(("speed", "99"),)),
        forwardable_properties(user=(("speed", "+19.50"), ("other", "1"))),
        forwardable_properties(user=(("speed", "0"), ("speed", " 2e1 "))),
        forwardable_properties(user=(("speed", "fast"),)),
    ]
)
packet_ids = st.integers(1, 4)

plain_packets = st.one_of(
    st.builds(Publish, topics, json_payloads),
    st.builds(Publish, topics, json_payloads, properties=properties),
    st.builds(
        Publish,
        topics,
        json_payloads,
        st.just(1),
        packet_id=st.integers(1, 500),
        properties=properties,
    ),
)
json_packets = st.builds(
    Publish,
    st.just(b"a"),
    st.integers(0, 40).map(lambda speed: b'{"speed": %d, "at": null}' % speed),
    st.just(1),
    packet_id=st.integers(1, 500),
    properties=properties,
)
other_packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(Publish, topics, payloads, st.just(0), st.booleans(), properties=properties),
    st.builds(
        Publish,
        topics,
        payloads,
        st.sampled_from([1, 2]),
        st.booleans(),
        packet_id=packet_ids,
        properties=properties,
    ),
    st.builds(Publish, topics, payloads, alias=st.integers(1, 2)),
    st.builds(Ack, st.just(PacketType.PUBREL), packet_ids),
    st.just(Ping(PacketType.PINGREQ)),
    st.builds(
        Subscribe,
        packet_ids,
        st.lists(
            st.builds(
                SubscriptionRequest,
                st.sampled_from(["a/#", "+", "$share/g/a"]),
                st.integers(0, 2),
            ),
            min_size=1,
            max_size=2,
        ),
        st.integers(0, 2),
    ),
    st.builds(Unsubscribe, packet_ids, st.just(["a/#", "$share/g/a"])),
)
ends = st.sampled_from(
    [
        b"",
        codec.encode(MQTT_5, Disconnect()),
        b"\x30\x05\x00\x03a/+",  # a topic that is none
        b"\x36\x05\x00\x01a\x00\x01",  # QoS 3
        b"\x30\xff\xff\xff\xff",
        b"\x30\xff\xff\x7f",  # too large
        b"\x30\x80\x00",
        b"\x30",
    ]
)


@st.composite
def streams(draw: st.DrawFn, version: int) -> list[bytes]:
    """The packets of a client, and maybe something that ends it in the middle."""
    packets = draw(
        st.lists(st.one_of(plain_packets, plain_packets, plain_packets, other_packets), max_size=25)
    )
    encoded = [codec.encode(version, packet) for packet in packets]
    if version == MQTT_3_1_1:
        # Without a topic: an alias there is none for.
        encoded = [data for data in encoded if data]
    at = draw(st.integers(0, len(encoded)))
    return [*encoded[:at], draw(ends), *encoded[at:]]


class Receiver(NamedTuple):
    name: str
    version: int
    fields: dict[str, object]
    subscribe: Callable[[Client], object]


RECEIVERS = (
    Receiver("plain 5", MQTT_5, {}, lambda client: client.subscribe("#", "$d/x")),
    Receiver("plain 3.1.1", MQTT_3_1_1, {}, lambda client: client.subscribe("a/#", "b")),
    Receiver("identified", MQTT_5, {}, lambda client: client.subscribe("a/+", identifier=7)),
    Receiver("aliased", MQTT_5, {"alias_max": 2}, lambda client: client.subscribe("#")),
    Receiver("small", MQTT_5, {"packet_bytes_max": 150}, lambda client: client.subscribe("#")),
    Receiver("member 1", MQTT_5, {}, lambda client: client.subscribe("$share/g/a", "$share/h/#")),
    Receiver("member 2", MQTT_3_1_1, {}, lambda client: client.subscribe("$share/h/#", qos=2)),
    Receiver("qos", MQTT_5, {"receive_max": 65_535}, lambda client: client.subscribe("#", qos=2)),
    Receiver("kept", MQTT_3_1_1, dict(PERSISTENT), lambda client: client.subscribe("a/#", qos=2)),
    Receiver("slow", MQTT_5, {}, lambda client: client.subscribe("a/#", where="speed < 20", qos=1)),
    Receiver("fast", MQTT_5, {}, lambda client: client.subscribe(
        "#", where='speed >= 20 or note = "é"', qos=2
    )),
    Receiver("both", MQTT_5, {}, lambda client: (
        client.subscribe("a", where="speed < 50", qos=1),
        client.subscribe("a", where="speed > 10"),
        client.subscribe("b", where="speed < 50", identifier=3),
    )),
    Receiver("all by clauses", MQTT_5, {}, lambda client: (
        client.subscribe("a/#", where="speed < 1e9"), client.subscribe("a/b/#", where="speed > 0")
    )),
    Receiver("as published", MQTT_5, {}, lambda client: client.subscribe(
        "+", retain_as_published=True
    )),
)  # fmt: skip


SPACE = Space("s", "#", (Dimension("speed", 0, 100),), frozenset({"note"}))
JSON_SPACE = replace(SPACE, json_fields=True)
spaces = st.sampled_from([SPACE, JSON_SPACE])


class DispatchWorld:
    """A broker with all kinds of receivers, and the client whose bytes are tried."""

    def __init__(
        self, version: int, receivers: int, *, rules: tuple[AccessRule, ...], space: Space
    ) -> None:
        self.world = World(rules=rules, spaces=[space])
        self.receivers: dict[str, Client] = {}
        for bit, receiver in enumerate(RECEIVERS):
            if receivers >> bit & 1:
                client = self.world.client(
                    receiver.name, version=receiver.version, **receiver.fields
                )
                receiver.subscribe(client)
                self.receivers[receiver.name] = client
        self.sender = self.world.client("sender", version=version)
        if version == MQTT_5 and receivers & 1:
            self.sender.subscribe("a/b", no_local=True)

    def outcome(self) -> dict[str, object]:
        """Return the packets that each client got, in order where the order counts."""
        seen: dict[str, object] = {}
        for name, client in (*self.receivers.items(), ("sender", self.sender)):
            packets = list(taken(client))
            for qos in range(3):
                seen[f"{name} {qos}"] = [
                    packet
                    for packet in packets
                    if isinstance(packet, Publish) and packet.qos == qos
                ]
            seen[f"{name} acks"] = [packet for packet in packets if isinstance(packet, Ack)]
            seen[f"{name} rest"] = [
                packet for packet in packets if isinstance(packet, SubscriptionAck | Ping)
            ]
            seen[f"{name} end"] = [
                packet.reason for packet in packets if isinstance(packet, Disconnect)
            ]
        counters = self.world.shared.counters
        seen["counters"] = (counters.publishes_sent, counters.publishes_dropped)
        if self.sender.is_closed:
            # It may have been waiting for the disk, and what ended it may be counted or not.
            del seen["sender acks"]
        else:
            seen["received"] = (counters.packets_received, counters.publishes_received)
        return seen


def taken(client: Client) -> Iterator[Packet]:
    while packets := client.take():
        yield from packets


def one_by_one(stage: DispatchWorld, packets: list[bytes]) -> None:
    """Each is decoded, and no bytes are passed on."""
    assert stage.sender.reader is not None
    for data in packets:
        if data:
            stage.sender.reader.receive(data, stage.world.now)
            stage.world.settle()


def in_pieces(stage: DispatchWorld, packets: list[bytes], cuts: list[int]) -> None:
    data = b"".join(packets)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, stop in pairwise(places):
        stage.sender.send_bytes(data[start:stop])


RESTRICTED = (AccessRule(publish=("a/#", "$d/#"), subscribe=("#", "$d/#")),)


def run(
    version: int,
    receivers: int,
    packets: list[bytes],
    cuts: list[int],
    rules: tuple[AccessRule, ...] = (),
    *,
    space: Space = SPACE,
    scan_bytes_min: int = packet_reader.SCAN_BYTES_MIN,
    receivers_per_piece: int = RECEIVERS_PER_PIECE,
    runs_max: int = RUNS_PER_PIECE,
    run_deliveries_max: int = RUN_DELIVERIES_MAX,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_dispatch, "RUN_DELIVERIES_MAX", run_deliveries_max)
        for module in (run_dispatch, packet_reader):
            patch.setattr(module, "RECEIVERS_PER_PIECE", receivers_per_piece)
        patch.setattr(scanner, "RUNS_PER_PIECE", runs_max)
        decoded, cut, whole = (
            DispatchWorld(version, receivers, rules=rules, space=space) for _ in range(3)
        )
        with patch.context() as unscanned:
            unscanned.setattr(packet_reader, "SCAN_BYTES_MIN", 1 << 30)
            unscanned.setattr(packet_reader, "SCANNED_FIRST", {})
            one_by_one(decoded, packets)
        patch.setattr(packet_reader, "SCAN_BYTES_MIN", scan_bytes_min)
        in_pieces(cut, packets, cuts)
        in_pieces(whole, packets, [])
    expected = decoded.outcome()
    assert cut.outcome() == expected
    assert whole.outcome() == expected


every_receiver = (1 << len(RECEIVERS)) - 1


@pytest.mark.parametrize("rules", [(), RESTRICTED], ids=["everything", "restricted"])
@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@settings(max_examples=40)
@given(
    data=st.data(),
    receivers=st.integers(0, every_receiver) | st.just(every_receiver),
    cuts=st.lists(st.integers(0, 1 << 16), max_size=20),
    space=spaces,
    receivers_per_piece=st.sampled_from([2, RECEIVERS_PER_PIECE]),
)
def test_however_the_bytes_come_everybody_receives_the_same(
    rules: tuple[AccessRule, ...],
    version: int,
    data: st.DataObject,
    receivers: int,
    cuts: list[int],
    space: Space,
    receivers_per_piece: int,
) -> None:
    packets = data.draw(streams(version))
    # Small reads are scanned too, and with room for a few runs only.
    run(
        version,
        receivers,
        packets,
        cuts,
        rules,
        space=space,
        scan_bytes_min=1,
        receivers_per_piece=receivers_per_piece,
        runs_max=3,
    )


LIGHT = sum(
    1 << bit
    for bit, receiver in enumerate(RECEIVERS)
    if receiver.name in {"plain 5", "plain 3.1.1", "qos", "slow", "fast", "all by clauses"}
)
"""Receivers whose publications can be passed on in runs."""


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@settings(max_examples=60)
@given(
    packets=st.lists(plain_packets, max_size=25) | st.lists(json_packets, max_size=25),
    receivers=st.integers(0, every_receiver),
    cuts=st.lists(st.integers(0, 1 << 16), max_size=3),
    space=spaces,
    run_deliveries_max=st.sampled_from([1, 6, RUN_DELIVERIES_MAX]),
)
def test_runs_reach_the_same_receivers(
    version: int,
    packets: list[Publish],
    receivers: int,
    cuts: list[int],
    space: Space,
    run_deliveries_max: int,
) -> None:
    encoded = [codec.encode(version, packet) for packet in packets]
    run(
        version,
        receivers & LIGHT,
        encoded,
        cuts,
        space=space,
        scan_bytes_min=1,
        run_deliveries_max=run_deliveries_max,
    )


def test_a_run_whose_route_takes_long_to_find_is_passed_on_whole() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SEARCH_STEPS_PER_PIECE", "SEARCH_STEPS_MAX"):
            patch.setattr(router, name, 1)
        world = World(spaces=[SPACE])
        receiver = world.client("receiver")
        receiver.subscribe("a", where="speed < 50")
        world.client("other").subscribe("+", "#", "x/#", "x/+")
        sender = world.client("sender")
        packet = codec.encode_publish(
            MQTT_5, b"a", b"", properties=forwardable_properties(user=(("speed", "1"),))
        )
        sender.send_bytes(packet * 200)
    assert len(receiver.messages()) == 200


def test_a_run_to_many_receivers_is_passed_on_in_parts() -> None:
    world = World()
    receivers = [world.client(f"r{number}") for number in range(100)]
    for receiver in receivers:
        receiver.subscribe("a", qos=1)
    sender = world.client("sender")
    world.works = False
    sender.send_bytes(
        b"".join(codec.encode_publish(MQTT_5, b"a", b"x", 1, packet_id=n) for n in range(1, 401))
    )
    assert len(receivers[0].messages()) * len(receivers) <= RUN_DELIVERIES_MAX
    assert sender.link is not None
    assert sender.link.is_busy
    world.work()
    counted = [len(receiver.messages()) for receiver in receivers]
    assert counted == [400 - RUN_DELIVERIES_MAX // 100] + [400] * 99


@pytest.mark.parametrize("qos", [0, 1])
def test_a_run_is_matched_and_written_at_once(qos: int) -> None:
    world = World(spaces=[SPACE])
    slow, fast = world.client("slow"), world.client("fast", version=MQTT_3_1_1)
    slow.subscribe("a", where="speed < 20", qos=1)
    fast.subscribe("a?speed>=20")
    sender = world.client("sender")
    sent = [
        codec.encode_publish(
            MQTT_5,
            b"a",
            b"%d" % number,
            qos,
            packet_id=number + 1 if qos else 0,
            properties=forwardable_properties(user=(("speed", str(speed)),)),
        )
        for number, speed in enumerate([10, 30, 19.5, 20, -1, 99, 12])
    ]
    sender.send_bytes(b"".join(sent) * 20)
    for client, expected in ((slow, [b"0", b"2", b"4", b"6"]), (fast, [b"1", b"3", b"5"])):
        assert client.link is not None
        assert len(client.link.outgoing) == 1
        assert [message.payload for message in client.messages()] == expected * 20
    assert sender.link is not None
    assert len(sender.link.outgoing) == qos


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_a_large_buffer_of_everything(version: int) -> None:
    packets = [
        codec.encode_publish(
            version,
            TOPICS[number * 7 % len(TOPICS)].encode(),
            b"%d" % number,
            qos=1 if number % 50 == 49 else 0,
            packet_id=number if number % 50 == 49 else 0,
        )
        for number in range(3_000)
    ]
    run(version, every_receiver, packets, [7, 5_000, 9_001, 20_000])


def test_more_runs_than_one_scan_has_room_for() -> None:
    packets = [
        codec.encode_publish(MQTT_5, b"ab"[number % 2 : number % 2 + 1], b"%d" % number)
        for number in range(20_000)
    ]
    run(MQTT_5, 0b11, packets, [])


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("size", [121, 122, 123, 124, 125, 126, 127, 128])
def test_around_the_length_of_one_byte(version: int, size: int) -> None:
    run(version, 0b11, [codec.encode_publish(version, b"a", bytes(size))] * 3, [1, 130])


def alike(version: int, odd: Publish, at: int) -> list[bytes]:
    """Ten packets of one topic and size, as a sensor sends them, but for one."""
    packets = [Publish(b"a/b", b"%06d" % number) for number in range(10)]
    packets[at:at] = [odd]
    return [codec.encode(version, packet) for packet in packets]


ODD_ONES = {
    "alike": Publish(b"a/b", b"unlike"),
    "other topic": Publish(b"a/c", b"000000"),
    "longer topic, same size": Publish(b"a/bcd", b"0000"),
    "longer payload": Publish(b"a/b", b"0000000"),
    "retained": Publish(b"a/b", b"000000", retain=True),
    "QoS 1": Publish(b"a/b", b"0000", qos=1, packet_id=1),
    "properties": Publish(b"a/b", b"00", properties=forwardable_properties(content_type="t")),
    "$ topic": Publish(b"$d/x", b"00000"),
}


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("at", [0, 1, 5, 10])
@pytest.mark.parametrize("odd", ODD_ONES.values(), ids=ODD_ONES)
def test_a_run_of_packets_that_are_nearly_alike(version: int, at: int, odd: Publish) -> None:
    packets = alike(version, odd, at)
    known = [codec.encode(version, Publish(b"a/b", b""))]  # so that its route is
    size = len(known[0])
    for cuts in ([], [size], [size, size + 3], [size, size + len(packets[0]) * at]):
        run(version, every_receiver, [*known, *packets], cuts)


def test_a_packet_within_a_packet_is_not_passed_on() -> None:
    world = World()
    receiver = world.client("r")
    receiver.subscribe("#")
    sender = world.client("s")
    sender.publish("a")  # now its route is known
    receiver.take()
    # To a careless reader this is one packet of 130 bytes on topic `a`; it is one of 3, and more.
    data = b"\x30\x80\x00\x01a\x00" + b"\x30\x08\x00\x01a\x00evil"
    sender.send_bytes(data.ljust(130, b"\0"))
    sender.assert_ended(ReasonCode.MALFORMED_PACKET)
    assert receiver.take() == []


PADDED = {
    "QoS 0": b"\x30\x84\x00\x00\x01a\x00",
    "QoS 1": b"\x32\x86\x00\x00\x01a\x00\x07\x00",
    "QoS 2": b"\x34\x86\x00\x00\x01a\x00\x07\x00",
}


@pytest.mark.parametrize("packet", PADDED.values(), ids=PADDED)
@pytest.mark.parametrize("count", [1, 300])
def test_a_length_is_passed_on_in_as_few_bytes_as_it_needs(packet: bytes, count: int) -> None:
    world = World()
    receiver = world.client("r")
    receiver.subscribe("#", qos=2)
    sender = world.client("s")
    sender.publish("a")
    receiver.take()
    sender.send_bytes(packet * count)
    assert receiver.link is not None
    assert receiver.link.outgoing
    assert all(piece[1] < 0x80 for piece in receiver.link.outgoing)
    assert {message.topic for message in receiver.messages()} == {b"a"}


def test_a_closed_connection_passes_nothing_on() -> None:
    world = World()
    receiver = world.client("r")
    receiver.subscribe("#")
    sender = world.client("s")
    sender.publish("a")
    receiver.take()
    sender.disconnect()
    sender.publish("a", b"too late")
    assert receiver.take() == []


def test_each_kernel_of_runs_is_compiled_for_one_combination_of_types() -> None:
    """At set-up; a second one would be compiled while clients wait."""
    delivery.load_kernels()
    load_kernels()
    world = World(spaces=[SPACE])
    for number in range(40):  # more than are compared one by one
        client = world.client(f"r{number}", version=(MQTT_3_1_1, MQTT_5)[number % 2], **PERSISTENT)
        client.subscribe(f"a?speed<{number + 1}", qos=number % 3)
    few = world.client("few")
    few.subscribe("b", where="speed < 20", qos=1)
    sender = world.client("sender")
    for topic in (b"a", b"b"):
        for qos in (0, 1):
            sender.send_bytes(
                b"".join(
                    codec.encode_publish(
                        MQTT_5,
                        topic,
                        b"",
                        qos,
                        packet_id=number + 1 if qos else 0,
                        properties=forwardable_properties(user=(("speed", str(number)),)),
                    )
                    for number in range(60)
                )
            )
    assert few.messages()
    kernels: tuple[Any, ...] = (
        *(scan, rewrite, rewrite_rows, find_starts, write_pubacks),
        *(read_points, collect_rows, match, match_few),
    )
    assert [len(kernel.signatures) for kernel in kernels] == [1] * len(kernels)
