"""Spaces that a stream serves get the same deliveries as live spaces: once, and none lost."""

from collections import Counter
from random import Random

import pytest

from dovetail.api.engine import ClauseQuery
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.limits import ENGINE_SILENT_SECONDS
from dovetail.codec.packets import Ack, PacketType, Publish
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, World, attributes
from support.brokers.streamed_world import LIVE, STREAMED, StreamedWorld
from support.oracles.engine import OracleEngine, matched_of


def published(client: Client, **more: object) -> int:
    return client.publish("traffic/1", b"", 1, properties=attributes(x=5), **more)


def got(client: Client) -> list[Publish]:
    """Return the publications that came, and acknowledge them."""
    found = []
    for packet in client.take():
        if isinstance(packet, Publish):
            found.append(packet)
            if packet.qos == 1:
                client.send(Ack(PacketType.PUBACK, packet.packet_id))
            elif packet.qos == 2:
                client.send(Ack(PacketType.PUBREC, packet.packet_id))
        elif isinstance(packet, Ack) and packet.type == PacketType.PUBREL:
            client.send(Ack(PacketType.PUBCOMP, packet.packet_id))
    return found


# The same as live ---------------------------------------------------------------------------------


def drawn_clause(random: Random) -> str:
    parts = []
    for _ in range(random.choice([1, 1, 2])):
        low = random.randint(0, 8)
        conditions = [f"{low} <= x < {low + random.randint(1, 5)}"]
        if random.random() < 0.3:
            conditions.append(f"y >= {random.randint(0, 8)}")
        if random.random() < 0.3:
            conditions.append(f'road == "{random.choice("ab")}"')
        parts.append(" and ".join(conditions))
    return " or ".join(parts)


Got = Counter[tuple[bytes, bytes, int, bool, bytes, tuple[int, ...]]]
NAMES = "abcd"
KEPT_NAMES = "ab"


class RandomRun:
    """Clients that subscribe, publish, go and come back, as a seed decides."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.clients: dict[str, Client] = {}
        self.found: dict[str, list[Publish]] = {name: [] for name in NAMES}
        self.subscribed: dict[str, list[tuple[str, str | None]]] = {name: [] for name in NAMES}
        self.has_both: set[str] = set()
        """Clients that have had subscriptions without a clause."""
        for name in NAMES:
            self.connect(name)
        for number in range(60):
            self.act(self.random.choice(NAMES), number)
        self.settle()
        for name in KEPT_NAMES:
            if self.clients[name].is_closed:
                self.connect(name)
        self.settle()

    @property
    def got(self) -> dict[str, Got]:
        return {
            name: Counter(
                (
                    one.topic,
                    one.payload,
                    one.qos,
                    one.retain,
                    one.properties,
                    tuple(sorted(one.identifiers)),
                )
                for one in found
            )
            for name, found in self.found.items()
        }

    def connect(self, name: str) -> None:
        kept = PERSISTENT if name in KEPT_NAMES else {}
        client = self.clients[name] = self.world.client(name, **kept)
        self.found[name] += [one for one in client.early if isinstance(one, Publish)]

    def settle(self) -> None:
        """The stream has dealt with everything, and clients have it."""
        if isinstance(self.world, StreamedWorld):
            self.world.engine.run()
        for _ in range(3):
            for name, client in self.clients.items():
                if not client.is_closed:
                    self.found[name] += got(client)

    def act(self, name: str, number: int) -> None:
        client, chosen = self.clients[name], self.random.random()
        if not client.is_closed and chosen >= 0.42:
            self.publish(client, number)
            return
        self.settle()
        if client.is_closed:
            self.connect(name)
        elif chosen < 0.3:
            self.subscribe(name, number)
        elif chosen < 0.37 and self.subscribed[name]:
            topic_filter, where = self.subscribed[name].pop()
            client.unsubscribe(topic_filter, where=where)
        elif name in KEPT_NAMES:
            client.lose()

    def subscribe(self, name: str, number: int) -> None:
        random = self.random
        topic_filter = random.choice(["traffic/#", "traffic/+", "traffic/1", "other/#"])
        where = drawn_clause(random) if random.random() < 0.8 else None
        if topic_filter == "other/#":
            where = None
        elif where is None:
            self.has_both.add(name)
        self.clients[name].subscribe(
            topic_filter,
            where=where,
            identifier=random.choice([0, 0, number + 1]) if where else 0,
            qos=random.randint(0, 2),
            no_local=random.random() < 0.2,
            retain_as_published=random.random() < 0.3,
            retain_handling=2,
        )
        self.subscribed[name].append((topic_filter, where))

    def publish(self, client: Client, number: int) -> None:
        random = self.random
        fields: dict[str, object] = {"x": random.randint(0, 10)}
        if random.random() < 0.5:
            fields["road"] = random.choice("ab")
        client.publish(
            random.choice(["traffic/1", "traffic/2", "other/1"]),
            b'{"y": %d, "n": %d}' % (random.randint(0, 10), number),
            random.randint(0, 2),
            properties=attributes(**fields) if random.random() < 0.8 else b"",
            retain=random.random() < 0.2,
        )


@pytest.mark.parametrize("seed", range(25))
def test_the_same_deliveries_as_live(seed: int) -> None:
    live = RandomRun(World(spaces=[LIVE]), seed)
    streamed = RandomRun(StreamedWorld(), seed).got
    for name, expected in live.got.items():
        if name not in live.has_both:
            assert streamed[name] == expected
            continue
        # What the clause promises besides may come as a copy of its own [MQTT-3.3.4-2].
        best: dict[bytes, int] = {}
        for _, payload, qos, *_ in streamed[name]:
            best[payload] = max(best.get(payload, 0), qos)
        assert best == {payload: qos for _, payload, qos, *_ in expected}


# Rules --------------------------------------------------------------------------------------------


def test_only_what_has_attributes_waits() -> None:
    world = StreamedWorld()
    client = world.client("c")
    client.publish("traffic/1", b"", 1)  # nothing that a clause could want
    client.publish("other/1", b"", 1, properties=attributes(x=1))
    client.publish("traffic/1", b'{"x": 5}')
    published(client)
    assert [row.qos for row in world.rows().values()] == [0, 1]


def test_who_subscribed_without_a_clause_gets_it_at_once() -> None:
    world = StreamedWorld()
    plain, wanting = world.client("plain"), world.client("wanting")
    plain.subscribe("traffic/#")
    wanting.subscribe("traffic/#", where="x >= 5")
    published(world.client("c"))
    assert len(plain.messages()) == 1
    assert wanting.messages() == []
    world.engine.run()
    assert len(wanting.messages()) == 1
    assert plain.messages() == []


def test_an_acknowledgement_waits_for_the_row() -> None:
    world = StreamedWorld(auto_commit=False)
    client = world.client("c")
    world.commit_all()
    published(client)
    assert client.take() == []
    world.commit_all()
    (answer,) = client.take()
    assert isinstance(answer, Ack)
    assert answer.reason == ReasonCode.SUCCESS
    assert len(world.rows()) == 1


def test_both_kinds_of_subscriptions_make_one_delivery() -> None:
    world = StreamedWorld()
    client = world.client("both")
    client.subscribe("traffic/#", qos=1)
    client.subscribe("traffic/#", where="x >= 5", qos=1)
    publisher = world.client("c")
    published(publisher)
    assert len(got(client)) == 1
    world.engine.run()
    assert got(client) == []
    # The clause promises more: a copy of its own.
    client.subscribe("traffic/#", where="x >= 4", qos=1, identifier=7)
    published(publisher)
    assert len(got(client)) == 1
    world.engine.run()
    assert [one.identifiers for one in got(client)] == [(7,)]


def test_nothing_comes_to_its_publisher_that_does_not_want_it() -> None:
    world = StreamedWorld()
    client = world.client("c")
    client.subscribe("traffic/#", where="x >= 5", no_local=True)
    client.subscribe("traffic/1", where="x >= 4")
    published(client)
    world.engine.run()
    assert len(got(client)) == 1  # by the second


def test_expiry_and_all_properties_travel() -> None:
    world = StreamedWorld()
    client = world.client("reader")
    client.subscribe("traffic/#", where="x >= 5", qos=1)
    publisher = world.client("c")
    for seconds in (10, 30):
        published(publisher, expiry_seconds=seconds)
    world.pass_time(20)
    world.engine.run()
    (one,) = got(client)
    assert one.expiry_seconds == 10
    assert one.properties == attributes(x=5)


def test_a_batch_that_comes_again_is_taken_once() -> None:
    world = StreamedWorld()
    client = world.client("reader", **PERSISTENT)
    client.subscribe("traffic/#", where="x >= 5", qos=1)
    publisher = world.client("c")
    published(publisher)
    world.engine.run(forgets=True)
    published(publisher)
    world.engine.run()
    assert len(got(client)) == 2
    assert world.shared.counters.engine_repeats == 1


def test_neither_does_a_restart_make_doubles() -> None:
    world = StreamedWorld()
    client = world.client("reader", **PERSISTENT)
    client.subscribe("traffic/#", where="x >= 5", qos=1)
    client.lose()
    published(world.client("c"))
    world.engine.run(forgets=True)
    after = world.restart()
    after.engine.run()
    client = after.client("reader", **PERSISTENT)
    assert len([one for one in client.early if isinstance(one, Publish)]) == 1
    other = OracleEngine(STREAMED, {"one": after}, "another history")
    other.run()
    assert len(client.messages()) == 1


def test_an_engine_goes_on_where_the_last_one_was() -> None:
    world = StreamedWorld()
    publisher = world.client("c")
    published(publisher)
    published(publisher)
    first, last = sorted(world.rows())
    listed = world.engine_backlog.clauses_since(ClauseQuery("traffic"))
    assert listed.served == first - 1
    world.engine.run()
    assert world.restart().engine_backlog.clauses_since(ClauseQuery("traffic")).served == last


def test_without_room_in_the_archive_brokers_look_themselves() -> None:
    world = StreamedWorld(bytes_max=1)
    client = world.client("reader")
    client.subscribe("traffic/#", where="x >= 5")
    published(world.client("c"))
    assert len(client.messages()) == 1
    assert world.shared.counters.archive_rows_dropped == 1
    assert not world.rows()


def test_topics_of_the_archive_have_one_row() -> None:
    world = StreamedWorld(topics=["#"])
    client = world.client("c")
    published(client)
    client.publish("traffic/1", b"")
    assert [bool(row.stream) for row in world.rows().values()] == [True, False]


def test_what_waits_is_said(caplog: pytest.LogCaptureFixture) -> None:
    world = StreamedWorld()
    gauges = world.shared.gauges
    world.pass_time(100)
    assert "no engine" not in caplog.text
    publisher = world.client("c")
    published(publisher)
    world.pass_time(5)
    published(publisher)
    world.pass_time(ENGINE_SILENT_SECONDS)
    assert (gauges.engine_rows_waiting, gauges.engine_wait_seconds) == (2, 15)
    assert gauges.engine_silent
    assert "no engine has asked" in caplog.text
    after: StreamedWorld = world.restart()
    after.pass_time(ENGINE_SILENT_SECONDS + 1)
    assert after.shared.gauges.engine_silent
    world.engine.run()
    world.pass_time(1)
    assert (gauges.engine_rows_waiting, gauges.engine_silent) == (0, 0)
    assert "again" in caplog.text


def test_ids_that_are_not_here() -> None:
    world = StreamedWorld()
    client = world.client("reader")
    client.subscribe("traffic/#", where="x >= 5")
    client.subscribe("traffic/#", where="x >= 4")
    published(world.client("c"))
    world.engine.follow()
    ((sequence, row),) = world.rows().items()
    ids = list(world.engine.entries["one"])
    client.unsubscribe("traffic/#", where="x >= 5")
    matched = matched_of("one", sequence, row, ids)
    assert world.engine_backlog.deliver("e", "traffic", matched, is_moved=False) == ids[:1]
    assert len(client.messages()) == 1


def test_a_group_gets_it_once() -> None:
    world = StreamedWorld()
    members = [world.client(name) for name in ("m", "n")]
    for member in members:
        member.subscribe("$share/g/traffic/#", where="x >= 5")
    publisher = world.client("c")
    for _ in range(4):
        published(publisher)
    world.engine.run()
    assert [len(member.messages()) for member in members] == [2, 2]


def test_a_space_that_is_live_again() -> None:
    world = StreamedWorld()
    client = world.client("reader")
    client.subscribe("traffic/#", where="x >= 5")
    publisher = world.client("c")
    published(publisher)
    world.broker.change_spaces(SpaceRegistry([LIVE]))
    published(publisher)
    assert len(client.messages()) == 1
    world.engine.run()  # what waited comes all the same
    assert len(client.messages()) == 1


def test_many_filters_in_one_request_are_one_session() -> None:
    world = StreamedWorld()
    client = world.client("reader")
    client.subscribe(*(f"traffic/{level}" for level in ("#", "+", "1")), where="x >= 5", qos=1)
    published(world.client("c"))
    world.engine.run()
    assert len(got(client)) == 1
