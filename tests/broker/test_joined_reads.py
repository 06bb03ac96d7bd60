"""Reads of many clients that are taken together, against the same reads one by one."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import codec
from dovetail.attributes.space import Dimension, Space
from dovetail.broker import run_dispatch
from dovetail.broker.limits import JOINED_READS_MIN, RUN_DELIVERIES_MAX
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, Packet, PacketType, Publish
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, World, attributes

SPACE = Space("s", "#", (Dimension("speed", 0, 100),), frozenset({"note"}))
TOPICS = [b"a/1", b"a/2", b"b", b"nobody/wants"]
PUBLISHERS = JOINED_READS_MIN + 2

RECEIVERS: dict[str, Callable[[World], Client]] = {
    "plain": lambda world: subscribed(world.client("plain"), "#"),
    "plain 3.1.1": lambda world: subscribed(world.client("old", version=MQTT_3_1_1), "a/#"),
    "qos 1": lambda world: subscribed(world.client("one"), "#", qos=1),
    "persistent": lambda world: subscribed(world.client("kept", **PERSISTENT), "a/#", qos=1),
    "slow": lambda world: subscribed(world.client("slow"), "#", where="speed < 50", qos=1),
    "identified": lambda world: subscribed(world.client("id"), "b", identifier=7),
}
NO_LOCAL = "no local"


def subscribed(client: Client, topic_filter: str, **options: object) -> Client:
    client.subscribe(topic_filter, **options)  # type: ignore[arg-type]
    return client


class Stage:
    """A broker with receivers, and many publishers."""

    def __init__(self, receivers: frozenset[str]) -> None:
        self.world = World(spaces=[SPACE], receive_max=10)
        self.receivers = {
            name: make(self.world) for name, make in RECEIVERS.items() if name in receivers
        }
        self.publishers = [
            self.world.client(f"p{number}", version=(MQTT_5, MQTT_5, MQTT_3_1_1)[number % 3])
            for number in range(PUBLISHERS)
        ]
        if NO_LOCAL in receivers:
            self.publishers[0].subscribe("a/+", no_local=True)
            self.publishers[1].subscribe("b", where="speed >= 0", no_local=True)
        for topic in TOPICS:  # so that its route is known
            self.world.broker.router.look_up(topic)

    def take(self, reads: Sequence[tuple[Client, bytes]], *, are_joined: bool) -> int:
        """Take the reads of one turn. Return how many were joined with others."""
        named = {client.reader: client for client, _ in reads}
        pairs = [(client.reader, data) for client, data in reads if client.reader is not None]
        rest = self.world.broker.joined_reads.take(pairs) if are_joined else pairs
        for reader, data in rest:
            named[reader].send_bytes(data)
        self.world.settle()
        return len(reads) - len(rest)

    def outcome(self) -> dict[str, object]:
        """Return what each client got, in the order of each publisher, and its acknowledgements."""
        seen: dict[str, object] = {}
        for name, client in (*self.receivers.items(), *enumerate(self.publishers)):
            packets = taken(client)
            by_publisher = defaultdict(list)
            for packet in packets:
                if isinstance(packet, Publish):
                    packet.packet_id = 0  # they count deliveries of all publishers
                    by_publisher[packet.payload[:2], packet.qos].append(packet)
            seen[f"{name}"] = dict(by_publisher)
            seen[f"acknowledgements of {name}"] = [one for one in packets if isinstance(one, Ack)]
            seen[f"end of {name}"] = client.is_closed
        counters = self.world.shared.counters
        seen["counters"] = (
            counters.publishes_received, counters.packets_received, counters.publishes_sent,
            counters.publishes_dropped,
        )  # fmt: skip
        return seen


def taken(client: Client) -> list[Packet]:
    """Return all packets for a client. It acknowledges what comes at QoS 1."""
    found: list[Packet] = []
    while packets := client.take():
        found += packets
        for packet in packets:
            if isinstance(packet, Publish) and packet.qos:
                client.send(Ack(PacketType.PUBACK, packet.packet_id))
    return found


topics = st.sampled_from(TOPICS)
properties = st.sampled_from(
    [
        b"", b"", attributes(speed=10), attributes(speed=90), attributes(speed="fast"),
        attributes(note="x"), attributes(other=1),
    ]
)  # fmt: skip
publication = st.tuples(topics, st.integers(0, 1), properties)
odd_reads = st.tuples(
    st.lists(st.tuples(topics, st.integers(0, 2), properties), max_size=3),
    st.sampled_from([b"", b"\x30", b"\xc0\x00", b"\xe0\x00", b"\x30\x02"]),
)
reads_of_turn = st.builds(
    lambda alike, odd: [*(([one], b"") for one in alike), *odd],
    st.lists(publication, min_size=JOINED_READS_MIN, max_size=JOINED_READS_MIN),
    st.lists(odd_reads, min_size=2, max_size=2),
)


@settings(max_examples=150)
@given(
    receivers=st.frozensets(st.sampled_from([*RECEIVERS, NO_LOCAL])),
    turns=st.lists(reads_of_turn, min_size=1, max_size=3),
    run_deliveries_max=st.sampled_from([1, 5, RUN_DELIVERIES_MAX]),
)
def test_everybody_receives_the_same(
    receivers: frozenset[str],
    turns: list[list[tuple[list[tuple[bytes, int, bytes]], bytes]]],
    run_deliveries_max: int,
) -> None:
    stages = Stage(receivers), Stage(receivers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_dispatch, "RUN_DELIVERIES_MAX", run_deliveries_max)
        for are_joined, stage in enumerate(stages):
            packet_id = 0
            for turn in turns:
                reads = []
                for number, (publisher, (some, end)) in enumerate(
                    zip(stage.publishers, turn, strict=True)
                ):
                    data = b""
                    for place, (topic, qos, attached) in enumerate(some):
                        packet_id += 1
                        payload = b"%02d %d %d" % (number, packet_id, place)
                        data += codec.encode(
                            publisher.version,
                            Publish(topic, payload, qos, packet_id=packet_id, properties=attached),
                        )
                    if (data or end) and not publisher.is_closed:
                        reads.append((publisher, data + end))
                stage.take(reads, are_joined=bool(are_joined))
    apart, joined = (stage.outcome() for stage in stages)
    assert joined == apart


def plain(qos: int = 0, packet_id: int = 0, attached: bytes = b"") -> bytes:
    return codec.encode(
        MQTT_5, Publish(b"a/1", b"00", qos, packet_id=packet_id, properties=attached)
    )


def newest(stage: Stage) -> list[Client]:
    """Return the publishers of MQTT 5."""
    return [one for one in stage.publishers if one.version == MQTT_5]


@pytest.fixture
def many() -> Stage:
    stage = Stage(frozenset({"plain"}))
    while len(newest(stage)) < JOINED_READS_MIN:
        stage.publishers.append(stage.world.client(f"p{len(stage.publishers)}"))
    return stage


def test_publications_of_many_clients_are_one_piece(many: Stage) -> None:
    clients = newest(many)
    assert many.take([(one, plain()) for one in clients], are_joined=True) == len(clients)
    link = many.receivers["plain"].link
    assert link is not None
    assert len(link.outgoing) == 1
    assert len(many.receivers["plain"].messages()) == len(clients)


def test_a_few_are_taken_one_by_one(many: Stage) -> None:
    few = newest(many)[: JOINED_READS_MIN - 1]
    assert many.take([(one, plain()) for one in few], are_joined=True) == 0
    assert len(many.receivers["plain"].messages()) == len(few)


def test_a_connection_that_has_ended_publishes_nothing(many: Stage) -> None:
    clients = newest(many)
    assert clients[0].link is not None
    clients[0].link.close()
    many.take([(one, plain()) for one in clients], are_joined=True)
    assert len(many.receivers["plain"].messages()) == len(clients) - 1


def test_a_client_that_may_not_publish_everywhere_is_checked(many: Stage) -> None:
    clients = newest(many)
    reader = clients[0].reader
    assert reader is not None
    assert reader.joinable_version == MQTT_5
    reader.receive(b"\x30", many.world.now)
    assert reader.joinable_version == 0  # the rest of its packet is still to come


def test_a_publisher_waits_for_a_receiver_that_is_behind(many: Stage) -> None:
    link = many.receivers["plain"].link
    assert link is not None
    link.written(many.world.shared.limits.backlog_bytes_max)
    assert link.has_room()
    assert many.world.broker.back_pressure.behind == {link}
    reads = [(one, plain()) for one in newest(many)]
    assert many.take(reads, are_joined=True) == 0
    assert many.world.shared.gauges.publishers_waiting == len(reads)


def test_publishers_wait_before_anything_joined_is_dropped() -> None:
    """The receiver reads nothing, and all that comes in one turn is more than its backlog."""
    world = World(backlog_bytes_max=16_000)
    receiver = world.client("slow")
    receiver.subscribe(*[topic.decode() for topic in TOPICS])
    assert receiver.link is not None
    for topic in TOPICS:
        world.broker.router.look_up(topic)
    publishers = [world.client(f"p{number}") for number in range(4 * PUBLISHERS)]
    payload = bytes(500)
    reads = [
        (one.reader, codec.encode(MQTT_5, Publish(TOPICS[place % len(TOPICS)], payload)) * 4)
        for place, one in enumerate(publishers)
        if one.reader is not None
    ]
    rest = world.broker.joined_reads.take(reads)
    assert world.shared.counters.publishes_dropped == 0
    assert receiver.link.unsent <= world.shared.limits.backlog_bytes_max
    assert 0 < len(rest) < len(reads)
    for reader, data in rest:
        reader.receive(data, world.now)
    assert world.shared.gauges.publishers_waiting > 0
    received = 0
    while messages := receiver.messages():
        received += len(messages)
        world.settle()
    assert received == 4 * len(reads)
    assert world.shared.counters.publishes_dropped == 0


def test_nothing_is_joined_before_its_client_is_admitted(many: Stage) -> None:
    reader = newest(many)[0].reader
    assert reader is not None
    assert reader.joinable_version == MQTT_5
    reader.link.session = None
    assert reader.joinable_version == 0


def test_a_client_that_wants_none_of_its_own_is_not_joined(many: Stage) -> None:
    clients = newest(many)
    clients[0].subscribe("a/1", where="speed > 1", no_local=True)
    many.world.broker.router.look_up(b"a/1")
    reads = [(one, plain(attached=attributes(speed=5))) for one in clients]
    assert many.take(reads, are_joined=True) == len(clients) - 1
    assert len(clients[0].messages()) == len(clients) - 1


def test_a_window_bounds_a_read_of_many_publications() -> None:
    stage = Stage(frozenset({"persistent"}))
    stage.world.auto_commit = False
    clients = newest(stage)
    data = b"".join(plain(1, number + 1, attributes(speed=1)) for number in range(11))
    others = [(one, plain(0)) for one in stage.publishers if one.version == MQTT_5]
    assert len(clients) + len(others) > JOINED_READS_MIN
    stage.take([(clients[0], data), *others[1:], *others[1:]], are_joined=True)
    clients[0].assert_ended(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


@pytest.mark.parametrize("is_there", [True, False])
def test_what_cannot_be_stored_is_refused_to_each_of_them(many: Stage, is_there: bool) -> None:
    world = many.world
    kept = subscribed(world.client("kept", **PERSISTENT), "a/#", qos=1)
    if not is_there:
        kept.lose()
    clients = newest(many)
    world.broker.router.look_up(b"a/1")
    world.auto_commit = False
    data = [(one, plain(1, place + 1, attributes(speed=5))) for place, one in enumerate(clients)]
    assert many.take(data, are_joined=True) == len(clients)
    assert [one.take() for one in clients] == [[]] * len(clients)
    world.disk_works = False
    world.commit_all()
    for place, one in enumerate(clients):
        answer = one.take_one()
        assert isinstance(answer, Ack)
        assert (answer.packet_id, answer.reason) == (place + 1, ReasonCode.QUOTA_EXCEEDED)
    world.disk_works = world.auto_commit = True
    world.commit_all()
    assert kept.link is not None
    session = world.broker.sessions["kept"]
    assert session.queue.count == 0
