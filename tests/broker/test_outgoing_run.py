"""Runs of QoS 1 messages in persistent sessions: nothing lost, in order, nothing left behind."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import codec
from dovetail.attributes.space import Dimension, Space
from dovetail.broker import packet_reader, session, session_sender
from dovetail.codec import forwardable_properties
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, Disconnect, Packet, PacketType, Publish
from dovetail.errors import ReasonCode
from dovetail.slices import run_to_end
from support.brokers.harness import PERSISTENT, Client, World

SPACE = Space("s", "#", (Dimension("speed", 0, 100),))
FEW_IDS = 15
SLOW = 20
"""A subscriber with a where-clause gets what is slower."""


@pytest.fixture(autouse=True)
def _every_read_is_scanned() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packet_reader, "SCAN_BYTES_MIN", 1)
        yield


class Exchange:
    """A publisher and a subscriber with a persistent session, on a broker that may crash."""

    def __init__(self, version: int, *, window: int, where: bool) -> None:
        self.world = World(spaces=[SPACE])
        self.version = version
        self.window = window
        self.publisher = self.world.client("publisher")
        self.subscriber = self._connect()
        if where:
            self.subscriber.subscribe(f"t?speed<{SLOW}", qos=2)
        else:
            self.subscriber.subscribe("t", qos=2)
        self.where = where
        # By QoS: between two levels there is no order.
        self.expected: dict[int, list[bytes]] = {1: [], 2: []}
        self.received: dict[int, list[bytes]] = {1: [], 2: []}
        self.pending: list[Publish] = []
        self._sent = 0

    def _connect(self) -> Client:
        fields = {"receive_max": self.window} if self.version == MQTT_5 else {}
        return self.world.client("subscriber", version=self.version, **PERSISTENT, **fields)

    def publish(self, speeds: list[int], qos: int = 1, **fields: object) -> None:
        packets = []
        for number, speed in enumerate(speeds, 1):
            payload = b"%d" % self._sent
            self._sent += 1
            if not self.where or speed < SLOW:
                self.expected[qos].append(payload)
            packet = Publish(b"t", payload, qos, packet_id=number, **fields)  # type: ignore[arg-type]
            packet.properties = forwardable_properties(user=(("speed", str(speed)),))
            packets.append(codec.encode(MQTT_5, packet))
        self.publisher.send_bytes(b"".join(packets))
        for number in range(1, len(speeds) + 1 if qos == 2 else 0):
            self.publisher.send(Ack(PacketType.PUBREL, number))
        answers = self.publisher.take()
        assert len(answers) == len(speeds) * qos
        assert all(isinstance(one, Ack) and one.reason < 0x80 for one in answers)
        self.read()

    def read(self) -> None:
        if self.subscriber.is_closed:
            return
        while packets := self.subscriber.take():
            self._take(packets)

    def _take(self, packets: list[Packet]) -> None:
        for packet in packets:
            if isinstance(packet, Ack):  # PUBREL
                self.subscriber.send(Ack(PacketType.PUBCOMP, packet.packet_id))
                continue
            assert isinstance(packet, Publish)
            received = self.received[packet.qos]
            if packet.payload in received:
                assert packet.duplicate
            else:
                received.append(packet.payload)
            self.pending.append(packet)

    def acknowledge(self, places: list[int]) -> None:
        """Acknowledge some pending messages, in this order, as one read of the broker."""
        if self.subscriber.is_closed:
            return
        data = b""
        for place in places:
            if self.pending:
                packet = self.pending.pop(place % len(self.pending))
                kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
                data += codec.encode(self.version, Ack(kind, packet.packet_id))
        if data:
            self.subscriber.send_bytes(data)
            self.read()

    def leave(self, *, is_lost: bool) -> None:
        if self.subscriber.is_closed:
            return
        if is_lost:
            self.subscriber.lose()
        else:
            self.subscriber.disconnect()
        self.pending.clear()

    def come_back(self) -> None:
        if self.subscriber.is_closed:
            self.subscriber = self._connect()
            assert self.subscriber.connack is not None
            assert self.subscriber.connack.session_present
            early = b"".join(codec.encode(self.version, one) for one in self.subscriber.early)
            self.subscriber._buffer = early
            self.read()

    def crash(self) -> None:
        self.world = self.world.crash(spaces=[SPACE])
        self.publisher = self.world.client("publisher")
        self.subscriber = Client(self.world, "subscriber")
        self.pending.clear()

    def finish(self) -> None:
        """Read and acknowledge everything."""
        self.come_back()
        while self.pending:
            self.acknowledge([0] * len(self.pending))
        assert self.received == self.expected
        gauges = self.world.shared.gauges
        assert (gauges.queued_messages, gauges.queued_bytes) == (0, 0)
        self.assert_nothing_is_stored()

    def assert_nothing_is_stored(self) -> None:
        tables = self.world.disk.tables
        for name in ("messages", "deliveries", "runs", "run_deliveries"):
            assert tables[name] == {}, name


speeds = st.lists(st.integers(0, 40), min_size=1, max_size=12)
steps = st.one_of(
    st.tuples(st.just("run"), speeds),
    st.tuples(st.just("run"), speeds),
    st.tuples(st.just("one"), st.integers(0, 40), st.sampled_from([1, 2])),
    st.tuples(st.just("acknowledge"), st.lists(st.integers(0, 12), max_size=12)),
    st.tuples(st.just("acknowledge"), st.integers(1, 12).map(lambda count: [0] * count)),
    st.tuples(st.just("leave"), st.booleans()),
    st.tuples(st.just("come back")),
    st.tuples(st.just("crash")),
)


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@settings(max_examples=150)
@given(
    steps=st.lists(steps, max_size=25),
    window=st.sampled_from([1, 5, 65_535]),
    where=st.booleans(),
    has_few_ids=st.booleans(),
)
def test_everything_arrives_once_and_in_order_of_publication(
    version: int, steps: list[tuple[object, ...]], window: int, where: bool, has_few_ids: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if has_few_ids and version == MQTT_5 and window < FEW_IDS // 2:
            for module in (session, session_sender):  # identifiers are used again soon
                patch.setattr(module, "PACKET_ID_MAX", FEW_IDS)
        check_exchange(version, steps, window, where=where)


def check_exchange(
    version: int, steps: list[tuple[object, ...]], window: int, *, where: bool
) -> None:
    exchange = Exchange(version, window=window, where=where)
    for kind, *arguments in steps:
        match kind, arguments:
            case "run", [list(some)]:
                exchange.publish(some)
            case "one", [int(speed), int(qos)]:
                exchange.publish([speed], qos, expiry_seconds=1_000)
            case "acknowledge", [list(places)]:
                exchange.acknowledge(places)
            case "leave", [bool(is_lost)]:
                exchange.leave(is_lost=is_lost)
            case "come back", _:
                exchange.come_back()
            case _:
                exchange.crash()
    exchange.finish()


def test_a_run_is_one_row() -> None:
    exchange = Exchange(MQTT_5, window=65_535, where=True)
    exchange.leave(is_lost=False)
    exchange.publish([1, 30, 2, 31, 3])
    tables = exchange.world.disk.tables
    assert (len(tables["runs"]), len(tables["run_deliveries"])) == (1, 1)
    assert (tables["messages"], tables["deliveries"]) == ({}, {})
    assert exchange.world.shared.gauges.queued_messages == 3
    exchange.crash()
    exchange.finish()
    assert exchange.received[1] == [b"0", b"2", b"4"]


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_run_that_cannot_be_stored_is_not_acknowledged(version: int, is_there: bool) -> None:
    exchange = Exchange(MQTT_5, window=65_535, where=False)
    if not is_there:
        exchange.leave(is_lost=False)
    world = exchange.world
    publisher = world.client("other", version=version)
    world.disk_works = False
    publisher.send_bytes(
        b"".join(codec.encode_publish(version, b"t", b"x", 1, packet_id=n) for n in (1, 2, 3))
    )
    answers = publisher.take()
    if version == MQTT_5:
        assert answers == [
            Ack(PacketType.PUBACK, number, ReasonCode.QUOTA_EXCEEDED) for number in (1, 2, 3)
        ]
    else:
        assert publisher.is_closed
        assert not any(isinstance(one, Ack | Disconnect) for one in answers)
    assert world.shared.gauges.queued_messages == (3 if is_there else 0)
    world.disk_works = True
    world.settle()
    if not is_there:
        assert world.disk.tables["runs"] == {}
        exchange.finish()


def test_a_queue_that_is_full_takes_what_fits() -> None:
    exchange = Exchange(MQTT_5, window=65_535, where=False)
    exchange.world = World(queue_messages_max=4)
    exchange.publisher = exchange.world.client("publisher")
    exchange.subscriber = exchange._connect()
    exchange.subscriber.subscribe("t", qos=1)
    exchange.leave(is_lost=False)
    exchange.publish([1, 2, 3])
    exchange.publish([4, 5, 6])
    exchange.expected[1] = [b"0", b"1", b"2", b"3"]
    exchange.finish()


def test_unwanted_messages_of_a_queued_run_are_dropped() -> None:
    exchange = Exchange(MQTT_5, window=65_535, where=False)
    exchange.leave(is_lost=False)
    exchange.publish([1, 2, 3])
    exchange.publish([4], expiry_seconds=1_000)
    exchange.publish([5, 6])
    subscriber = exchange.world.broker.sessions["subscriber"]
    unwanted = {b"1", b"3", b"5"}
    run_to_end(subscriber.drop_queued(lambda message: message.payload in unwanted))
    exchange.world.settle()
    exchange.expected[1] = [b"0", b"2", b"4"]
    exchange.finish()


def test_a_session_that_becomes_short_lived_leaves_the_disk() -> None:
    exchange = Exchange(MQTT_5, window=2, where=False)
    exchange.publish([1, 2, 3, 4])
    exchange.leave(is_lost=True)
    exchange.publish([5, 6])
    client = exchange.world.client("subscriber", clean_start=False)
    tables = exchange.world.disk.tables
    assert [tables[name] for name in ("runs", "run_deliveries", "messages", "deliveries")] == [
        {}
    ] * 4
    assert [packet.payload for packet in client.early if isinstance(packet, Publish)] == [
        b"%d" % number for number in range(6)
    ]


def test_a_session_that_ends_leaves_no_run_behind() -> None:
    exchange = Exchange(MQTT_5, window=2, where=False)
    exchange.publish([1, 2, 3, 4])
    exchange.leave(is_lost=True)
    exchange.publish([5, 6])
    exchange.world.client("subscriber", clean_start=True)
    tables = exchange.world.disk.tables
    assert [tables[name] for name in ("runs", "run_deliveries", "messages", "deliveries")] == [
        {}
    ] * 4
    assert exchange.world.shared.gauges.queued_messages == 0


def test_an_identifier_that_was_used_again_belongs_to_the_later_message() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (session, session_sender):
            patch.setattr(module, "PACKET_ID_MAX", FEW_IDS)
        exchange = Exchange(MQTT_5, window=10, where=False)
        exchange.publish([1] * 10)
        exchange.acknowledge([0, 0, 0, 0, 1, 1, 1, 1, 1])  # all but the fifth
        for _ in range(6):
            exchange.publish([1], expiry_seconds=1_000)
        assert {packet.packet_id for packet in exchange.pending} >= {1, 5}
        exchange.crash()
        exchange.finish()


def test_a_piece_of_a_refused_run_is_not_delivered_later() -> None:
    exchange = Exchange(MQTT_5, window=2, where=False)
    exchange.world.disk_works = False
    other = exchange.world.client("other")
    other.send_bytes(
        b"".join(codec.encode_publish(MQTT_5, b"t", b"x", 1, packet_id=n) for n in range(1, 6))
    )
    assert all(isinstance(one, Ack) and one.reason >= 0x80 for one in other.take())
    exchange.world.disk_works = True
    exchange.world.settle()
    assert len(exchange.subscriber.messages()) == 2  # they had been sent
    assert exchange.world.shared.gauges.queued_messages == 2


def test_a_session_stores_only_what_it_gets_of_a_run() -> None:
    exchange = Exchange(MQTT_5, window=65_535, where=True)
    exchange.leave(is_lost=False)
    exchange.publish([30] * 100 + [1] + [30] * 100)
    (row,) = exchange.world.disk.tables["runs"].values()
    assert row.packets == 1
    assert len(row.data) == exchange.world.shared.gauges.queued_bytes
    exchange.crash()
    exchange.finish()


def test_sessions_together_stay_within_their_limit() -> None:
    world = World(queued_bytes_total_max=20_000)
    for number in range(10):
        client = world.client(f"s{number}", **PERSISTENT)
        client.subscribe("t", qos=1)
        client.disconnect()
    publisher = world.client("publisher")
    publisher.send_bytes(
        b"".join(
            codec.encode_publish(MQTT_5, b"t", bytes(100), 1, packet_id=n) for n in range(1, 51)
        )
    )
    assert world.shared.gauges.queued_bytes <= 20_000
    assert world.shared.counters.publishes_dropped > 0


def test_each_acknowledgement_of_a_run_is_counted() -> None:
    for where in (False, True):
        exchange = Exchange(MQTT_5, window=65_535, where=where)
        counters = exchange.world.shared.counters
        before = counters.packets_sent
        exchange.publish([1] * 10)
        # The shell counts the two pieces.
        assert counters.packets_sent - before == 2 * 10 - 2


def test_messages_that_expire_do_not_take_runs_apart() -> None:
    exchange = Exchange(MQTT_5, window=65_535, where=False)
    exchange.leave(is_lost=False)
    exchange.publish([1, 2, 3])
    exchange.publish([4], expiry_seconds=10)
    exchange.publish([5, 6])
    exchange.world.pass_time(11)
    tables = exchange.world.disk.tables
    assert (len(tables["run_deliveries"]), tables["deliveries"]) == (2, {})
    exchange.expected[1].remove(b"3")
    exchange.finish()
