from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import codec
from dovetail.attributes.space import Dimension, Space
from dovetail.broker.archive_queue import ArchiveQueue
from dovetail.broker.delivery import Receivers
from dovetail.broker.limits import FILTERS_PER_PACKET_MAX, SERVED_SECONDS
from dovetail.broker.route import AttributeRoute, Route
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, Packet, PacketType, Ping, Publish
from dovetail.codec.properties import forwardable_properties
from dovetail.errors import ReasonCode
from dovetail.settings import AccessRule
from support.brokers import mailboxes
from support.brokers.harness import PERSISTENT, Client, World
from support.brokers.long_work import DEEP_TOPIC, overlapping_filters

BACKLOG_BYTES = 16_000
PAYLOAD_BYTES = 1_000
WAIT_SECONDS = 1.0
ROADS = Space("roads", "t/#", (Dimension("speed", 0.0, 200.0),))


class Receiver(Client):
    """A client that reads only when a test says so, as many bytes as the test says."""

    def __init__(self, world: World, client_id: str = "", **fields: object) -> None:
        super().__init__(world, client_id, **fields)
        self.unread = bytearray()
        self.received: list[Publish] = []
        self._read = bytearray()
        self._reads_all = True

    def flush(self) -> None:
        if not self._reads_all:
            assert self.link is not None
            self.unread += b"".join(self.link.outgoing)
            self.link.outgoing = []
            self.link.written(len(self.unread))

    def stop_reading(self) -> None:
        self._reads_all = False

    def read_again(self) -> None:
        self._reads_all = True

    def read(self, size: int) -> None:
        """Read so many bytes."""
        self.flush()
        assert self.link is not None
        self._read += self.unread[:size]
        del self.unread[:size]
        self.link.written(len(self.unread))
        self.world.settle()
        self._decode()

    def read_all(self) -> None:
        """Read until nothing more comes."""
        self.flush()
        while self.unread:
            self.read(BACKLOG_BYTES // 4)
            self.flush()

    def _decode(self) -> None:
        at = 0
        while len(self._read) - at > 5:
            length = codec.decode_length(bytes(self._read[at : at + 6]), 1)
            assert length is not None
            body, end = at + length[1], at + length[0] + length[1]
            if end > len(self._read):
                break
            packet = codec.decode(self.version, self._read[at], bytes(self._read[body:end]))
            if isinstance(packet, Publish):
                self.received.append(packet)
            at = end
        del self._read[:at]

    @property
    def numbers(self) -> list[int]:
        return [number_of(packet.payload) for packet in self.received]


def number_of(payload: bytes) -> int:
    return int.from_bytes(payload[:4])


def payload_of(number: int) -> bytes:
    return number.to_bytes(4) + bytes(PAYLOAD_BYTES - 4)


def world_of(**limits: Any) -> World:  # noqa: ANN401
    limits.setdefault("backlog_bytes_max", BACKLOG_BYTES)
    limits.setdefault("publisher_wait_seconds", WAIT_SECONDS)
    return World(**limits)


def receiver_of(world: World, name: str, topic_filter: str = "t/#", **fields: Any) -> Receiver:  # noqa: ANN401
    options = {key: fields.pop(key) for key in ("qos", "identifier", "where") if key in fields}
    receiver = Receiver(world, name, **fields)
    receiver.connect()
    receiver.subscribe(topic_filter, **options)
    receiver.stop_reading()
    return receiver


def waits(publisher: Client) -> bool:
    assert publisher.link is not None
    return publisher.link.is_paused


def publish_until_it_waits(
    publisher: Client,
    topic: str = "t/1",
    begin: int = 0,
    count_max: int = 100,
    **fields: Any,  # noqa: ANN401
) -> int:
    """Publish numbers, and return the first that was not sent any more."""
    for number in range(begin, begin + count_max):
        if waits(publisher):
            return number
        publisher.publish(topic, payload_of(number), **fields)
    raise AssertionError("the publisher never waits")


def dropped(world: World) -> int:
    return world.shared.counters.publishes_dropped


def test_a_publisher_waits_until_its_only_receiver_has_room() -> None:
    world = world_of()
    receiver = receiver_of(world, "r")
    publisher = world.client("p")
    end = publish_until_it_waits(publisher)
    assert BACKLOG_BYTES // 8 * 6 < len(receiver.unread) <= BACKLOG_BYTES
    assert world.shared.gauges.publishers_waiting == 1
    receiver.read(len(receiver.unread) - BACKLOG_BYTES // 8 * 5 - 1)
    assert waits(publisher)
    receiver.read(1)
    assert not waits(publisher)
    assert world.shared.gauges.publishers_waiting == 0
    receiver.read_all()
    assert receiver.numbers == [*range(end)]
    assert dropped(world) == 0


def test_the_rest_of_a_read_waits_too() -> None:
    world = world_of()
    receiver = receiver_of(world, "r")
    publisher = world.client("p")
    ping = Ping(PacketType.PINGREQ)
    packets: list[Packet] = []
    for number in range(40):
        packets += (Publish(b"t/1", payload_of(number)), ping)
    publisher.send(*packets[:40])
    assert waits(publisher)
    publisher.send(*packets[40:])  # the shell had read it before
    answered = len(publisher.take())
    assert answered < 16
    while waits(publisher):
        receiver.read(PAYLOAD_BYTES)
        receiver.flush()
    receiver.read_all()
    assert receiver.numbers == [*range(40)]
    assert answered + len(publisher.take()) == 40
    assert dropped(world) == 0


# What waits, and how long -------------------------------------------------------------------------


def with_alias(publisher: Client, number: int) -> None:
    topic = b"" if number else b"t/1"
    publisher.send(Publish(topic, payload_of(number), alias=1))


def with_property(publisher: Client, number: int) -> None:
    properties = forwardable_properties(user=(("speed", "50"),))
    publisher.send(Publish(b"t/1", payload_of(number), properties=properties))


def one_of_many_topics(publisher: Client, number: int) -> None:
    publisher.publish(f"t/{number}", payload_of(number))


def plain(publisher: Client, number: int) -> None:
    publisher.publish("t/1", payload_of(number))


PUBLISHERS = {
    "3.1.1": (MQTT_3_1_1, plain),
    "plain": (MQTT_5, plain),
    "many topics": (MQTT_5, one_of_many_topics),
    "alias": (MQTT_5, with_alias),
    "property": (MQTT_5, with_property),
}
SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "identifier": {"topic_filter": "#", "identifier": 7},
    "shared": {"topic_filter": "$share/g/t/+"},
    "where-clause": {"where": "speed < 60"},
    "aliases": {"alias_max": 5},
    "3.1.1": {"version": MQTT_3_1_1},
    "QoS 1": {"qos": 1},
}


@pytest.mark.parametrize(
    ("publisher_kind", "subscription_kind"),
    [
        (publisher, subscription)
        for publisher in PUBLISHERS
        for subscription in SUBSCRIPTIONS
        if subscription != "where-clause" or publisher == "property"
    ],
)
def test_all_ways_of_publishing_wait(publisher_kind: str, subscription_kind: str) -> None:
    version, publish = PUBLISHERS[publisher_kind]
    subscription = SUBSCRIPTIONS[subscription_kind].copy()
    world = world_of(spaces=(ROADS,))
    receiver = receiver_of(world, "r", **subscription)
    publisher = world.client("p", version=version)
    number = 0
    while not waits(publisher):
        publish(publisher, number)
        number += 1
        assert number < 50
    publish(publisher, number)
    receiver.read_all()
    assert receiver.numbers == [*range(number + 1)]
    assert dropped(world) == 0


def test_a_receiver_with_several_subscriptions_is_one_receiver() -> None:
    world = world_of(spaces=(ROADS,))
    receiver = receiver_of(world, "r", "t/#", where="speed > 5")
    receiver.read_again()
    receiver.subscribe("#")
    receiver.subscribe("$share/g/t/+")
    receiver.stop_reading()
    publisher = world.client("p")
    end = publish_until_it_waits(publisher)
    receiver.read_all()
    assert not waits(publisher)
    assert receiver.numbers == [number // 2 for number in range(2 * end)]


def test_a_client_that_may_not_publish_everything_waits_too() -> None:
    rules = (AccessRule(publish=("t/#",), subscribe=("#",)),)
    world = world_of(rules=rules)
    receiver = receiver_of(world, "r")
    publisher = world.client("p")
    packets = [Publish(b"t/%d" % (number % 3), payload_of(number)) for number in range(20)]
    publisher.send(*packets)
    assert waits(publisher)
    receiver.read_all()
    assert receiver.numbers == [*range(20)]


def test_a_receiver_that_does_not_read_is_given_up_until_it_has_room() -> None:
    world = world_of()
    receiver = receiver_of(world, "r")
    publisher = world.client("p")
    end = publish_until_it_waits(publisher)
    world.pass_time(WAIT_SECONDS / 2)
    assert waits(publisher)
    world.pass_time(WAIT_SECONDS / 2)
    assert not waits(publisher)
    counters = world.shared.counters
    assert counters.publisher_waits == counters.publisher_waits_expired == 1
    assert counters.publisher_wait_milliseconds == 1_000 * WAIT_SECONDS
    others = [world.client(f"p{number}") for number in range(3)]
    for one in (publisher, *others):
        for number in range(end, end + 20):
            one.publish("t/1", payload_of(number))
            assert not waits(one)
    assert dropped(world) > 60
    receiver.read_all()
    assert counters.publisher_waits == 1
    publish_until_it_waits(publisher)
    assert counters.publisher_waits == 2


def test_publishers_that_come_later_do_not_begin_the_time_again() -> None:
    world = world_of()
    receiver_of(world, "r")
    publishers = [world.client(f"p{number}") for number in range(4)]
    publish_until_it_waits(publishers[0])
    for publisher in publishers[1:]:
        world.pass_time(WAIT_SECONDS / 4)
        publisher.publish("t/1", payload_of(0))
    assert all(map(waits, publishers))
    assert world.shared.gauges.publishers_waiting == 4
    world.pass_time(WAIT_SECONDS / 4)
    assert not any(map(waits, publishers))
    assert world.shared.counters.publisher_waits_expired == 4


def test_publishers_go_on_in_the_order_in_which_they_came() -> None:
    world = world_of()
    receiver = receiver_of(world, "r")
    end = publish_until_it_waits(world.client("first"))
    publishers = [world.client(f"p{number}") for number in range(5)]
    for number, publisher in enumerate(publishers, end):
        publisher.publish("t/1", payload_of(number))
    receiver.read_all()
    assert receiver.numbers == [*range(end + 5)]


def test_zero_seconds_switch_it_off() -> None:
    world = world_of(publisher_wait_seconds=0)
    receiver_of(world, "r")
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("t/1", payload_of(number))
        assert not waits(publisher)
    assert dropped(world) > 30


def test_a_publisher_with_another_receiver_never_waits() -> None:
    world = world_of()
    receiver_of(world, "slow")
    fast = world.client("fast")
    fast.subscribe("t/1")
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("t/1", payload_of(number))
        assert not waits(publisher)
        assert len(fast.messages()) == 1
    assert dropped(world) > 30


def test_nor_does_one_that_lately_had_another_receiver_on_another_topic() -> None:
    world = world_of()
    slow = receiver_of(world, "slow")
    fast = world.client("fast")
    fast.subscribe("u")
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("u" if number % 10 == 9 else "t/1", payload_of(number))
        assert not waits(publisher)
    assert len(fast.messages()) == 5
    assert dropped(world) > 20
    slow.read_all()
    world.pass_time(SERVED_SECONDS + 1)
    publish_until_it_waits(publisher)


def test_receivers_that_are_behind_are_no_other_receivers() -> None:
    """Each had room while the other one had none."""
    world = world_of()
    one, other = receiver_of(world, "r1", "t/1"), receiver_of(world, "r2", "t/2")
    publisher, second = world.client("p1"), world.client("p2")
    publish_until_it_waits(second, "t/2")
    publisher.publish("t/1", payload_of(0))
    end = publish_until_it_waits(publisher, "t/1", 1)
    other.read_all()
    assert waits(publisher)
    one.read_all()
    assert one.numbers == [*range(end)]
    assert dropped(world) == 0


def test_a_publisher_of_a_group_waits_if_all_its_members_are_behind() -> None:
    world = world_of()
    members = [receiver_of(world, f"m{number}", "$share/g/t/#") for number in range(2)]
    publisher = world.client("p")
    end = publish_until_it_waits(publisher)
    assert all(len(member.unread) > BACKLOG_BYTES // 8 * 6 for member in members)
    members[0].read_all()
    assert not waits(publisher)
    members[1].read_all()
    assert sorted(members[0].numbers + members[1].numbers) == [*range(end)]


def test_clients_that_are_away_are_not_waited_for() -> None:
    world = world_of()
    away = world.client("away", **PERSISTENT)
    away.subscribe("t/1", qos=1)
    away.lose()
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("t/1", payload_of(number))
        assert not waits(publisher)
    receiver = receiver_of(world, "r")
    count = dropped(world)
    end = publish_until_it_waits(publisher)
    receiver.read_all()
    assert receiver.numbers == [*range(end)]
    assert dropped(world) == count + end  # those for the one that is away


def test_a_queue_keeps_up() -> None:
    world = world_of()
    receiver = receiver_of(world, "r", qos=1)
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("t/1", payload_of(number), 1)
        assert not waits(publisher)
    assert len(publisher.take()) == 50
    assert dropped(world) == 0
    assert len(receiver.unread) <= BACKLOG_BYTES


def test_at_qos_1_the_acknowledgement_waits_with_its_message() -> None:
    """The receiver has subscribed at QoS 0, so nothing would wait in a queue."""
    world = world_of()
    receiver = receiver_of(world, "r", qos=0)
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("t/1", payload_of(number), 1)
    assert waits(publisher)
    acknowledged = len(publisher.take())
    assert acknowledged < 16
    receiver.read_all()
    assert receiver.numbers == [*range(50)]
    answers = publisher.take()
    assert all(isinstance(one, Ack) and one.type == PacketType.PUBACK for one in answers)
    assert acknowledged + len(answers) == 50


def test_retained_messages_do_not_wait() -> None:
    world = world_of()
    receiver_of(world, "r")
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("t/1", payload_of(number), retain=True)
        assert not waits(publisher)


class ArchivingWorld(World):
    def make_archive(self) -> ArchiveQueue:
        return ArchiveQueue(self.shared, "one", ["t/#"], bytes_max=1 << 20, next_sequence=1)


def test_an_archive_keeps_up() -> None:
    world = ArchivingWorld(backlog_bytes_max=BACKLOG_BYTES)
    receiver_of(world, "r")
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("t/1", payload_of(number))
        assert not waits(publisher)
    assert dropped(world) > 30
    assert world.shared.gauges.archive_rows_waiting == 50


def test_a_handle_keeps_up() -> None:
    world = world_of()
    receiver_of(world, "r")
    mailboxes.subscribe(world, "t/#")
    publisher = world.client("p")
    for number in range(50):
        publisher.publish("t/1", payload_of(number))
        assert not waits(publisher)


def test_other_brokers_and_streams_keep_up() -> None:
    nobody: Receivers = ((), {})
    elsewhere = AttributeRoute(ROADS, peers=("b",))
    assert Route(nobody, (), ("b",)).has_other_receivers
    assert Route(nobody, (), wants=elsewhere).has_other_receivers
    assert Route(nobody, (), streamed=True).has_other_receivers
    assert not Route(nobody, ()).has_other_receivers


def test_publications_wait_whose_receivers_take_long_to_find() -> None:
    world = world_of()
    filters = overlapping_filters(FILTERS_PER_PACKET_MAX)
    receiver = receiver_of(world, "r", "#")
    receiver.read_again()
    receiver.subscribe(*filters)
    receiver.stop_reading()
    end = publish_until_it_waits(world.client("p1"))
    publisher = world.client("p2")
    for number, name in enumerate((DEEP_TOPIC, DEEP_TOPIC + "/x"), end):
        publisher.publish(name, payload_of(number))
        assert waits(publisher)
    receiver.read_all()
    assert receiver.numbers == [*range(end + 2)]
    assert dropped(world) == 0


# Meanwhile ----------------------------------------------------------------------------------------


def test_others_do_not_wait() -> None:
    world = world_of()
    receiver_of(world, "r")
    publish_until_it_waits(world.client("p"))
    reader, writer = world.client("reader"), world.client("writer")
    reader.subscribe("u")
    for number in range(100):
        writer.publish("u", payload_of(number))
        assert not waits(writer)
        assert len(reader.messages()) == 1


def test_a_publisher_that_waits_is_not_silent_and_gets_its_messages() -> None:
    world = world_of(publisher_wait_seconds=30)
    receiver_of(world, "r")
    publisher = world.client("p", keep_alive_seconds=1)
    publisher.subscribe("mine")
    publish_until_it_waits(publisher)
    for _ in range(20):
        world.pass_time(1)
        assert not publisher.is_closed
    assert waits(publisher)
    other = world.client("other")
    other.publish("mine", b"for you")
    assert publisher.payloads() == [b"for you"]


@pytest.mark.parametrize("number", range(2))
def test_a_lost_publisher_is_forgotten(number: int) -> None:
    world = world_of()
    receiver = receiver_of(world, "r")
    publishers = [world.client(f"p{one}") for one in range(2)]
    publish_until_it_waits(publishers[0])
    publishers[1].publish("t/1", payload_of(0))
    publishers[number].lose()
    assert world.shared.gauges.publishers_waiting == 1
    assert waits(publishers[1 - number])
    world.client(f"p{number}").publish("t/1", payload_of(1))
    assert world.shared.gauges.publishers_waiting == 2
    receiver.read_all()
    assert world.shared.gauges.publishers_waiting == 0
    assert dropped(world) == 0


def test_a_receiver_that_goes_makes_nobody_wait() -> None:
    world = world_of()
    receiver = receiver_of(world, "r")
    publisher = world.client("p")
    publish_until_it_waits(publisher)
    receiver.lose()
    assert not waits(publisher)
    assert not world.broker.back_pressure.behind


def test_a_broker_that_stops_does_not_wait() -> None:
    world = world_of()
    receiver_of(world, "r")
    publisher = world.client("p")
    publish_until_it_waits(publisher)
    world.broker.stop(world.now)
    publisher.assert_ended(ReasonCode.SERVER_SHUTTING_DOWN)
    assert world.shared.gauges.publishers_waiting == 0


# Any traffic --------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3), st.integers(1, 6)),
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, BACKLOG_BYTES)),
        st.tuples(st.just("time"), st.just(0), st.integers(1, 6)),
    ),
    max_size=60,
)


class Traffic:
    """Four publishers and three receivers. The first and the last publisher share a receiver."""

    def __init__(self) -> None:
        self.world = world_of()
        self.receivers = [receiver_of(self.world, f"r{one}", f"t/{one}") for one in range(3)]
        self.publishers = [self.world.client(f"p{one}") for one in range(4)]
        self._sent = [0] * 4
        self._waits_since: dict[int, float] = {}

    def step(self, kind: str, place: int, amount: int) -> None:
        if kind == "read":
            self.receivers[place].read(amount)
        elif kind == "time":
            self.world.pass_time(amount / 10)
        elif not waits(self.publishers[place]):
            self.publishers[place].send(*[self._new_packet(place) for _ in range(amount)])

    def _new_packet(self, place: int) -> Publish:
        payload = (place * 1_000 + self._sent[place]).to_bytes(4) + bytes(500)
        self._sent[place] += 1
        return Publish(b"t/%d" % (place % 3), payload)

    def check_waits(self) -> None:
        """Whoever waits has a receiver that is behind, and does not wait for longer than it may."""
        for place, publisher in enumerate(self.publishers):
            if not waits(publisher):
                self._waits_since.pop(place, None)
                continue
            assert len(self.receivers[place % 3].unread) > BACKLOG_BYTES // 8 * 5
            since = self._waits_since.setdefault(place, self.world.now)
            assert self.world.now - since < WAIT_SECONDS

    def check_end(self) -> None:
        """Everything came, in order, unless a receiver took too long."""
        for receiver in self.receivers:
            receiver.read_all()
        assert not any(map(waits, self.publishers))
        assert not self.world.broker.back_pressure.behind
        counters = self.world.shared.counters
        is_whole = not counters.publisher_waits_expired
        for place, sent in enumerate(self._sent):
            numbers = self.receivers[place % 3].numbers
            mine = [one % 1_000 for one in numbers if one // 1_000 == place]
            assert mine == ([*range(sent)] if is_whole else sorted(mine))
        assert not (is_whole and counters.publishes_dropped)


@given(STEPS)
def test_nothing_is_lost_while_receivers_have_room_in_time(
    steps: list[tuple[str, int, int]],
) -> None:
    traffic = Traffic()
    for kind, place, amount in steps:
        traffic.step(kind, place, amount)
        traffic.check_waits()
    traffic.check_end()
