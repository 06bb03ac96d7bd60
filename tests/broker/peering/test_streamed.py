"""A space that a stream serves, at several brokers: deliveries, and session moves."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.engine_backlog import EngineBacklog
from dovetail.broker.store.journal import ArchiveRow
from dovetail.codec.packets import Ack, PacketType, Publish, Subscribe, SubscriptionRequest
from support.brokers.harness import PERSISTENT, Client, attributes
from support.clusters.simulated_cluster import SimulatedBroker, SimulatedCluster
from support.oracles.engine import OracleEngine

LIVE = Space("traffic", "traffic/#", (Dimension("x", 0, 10),))
STREAMED = replace(LIVE, is_streamed=True)


class Broker:
    """One of the cluster's, as an engine sees it."""

    def __init__(self, node: SimulatedBroker) -> None:
        self.node = node

    @property
    def engine_backlog(self) -> EngineBacklog:
        assert self.node.broker.engine_backlog is not None
        return self.node.broker.engine_backlog

    def rows(self) -> Mapping[int, ArchiveRow]:
        return self.node.disk.tables["archive"]

    def begin(self) -> None:
        self.node.wake()

    def settle(self) -> None:
        self.node.settle()


class World:
    """Brokers a and b, and an engine."""

    def __init__(self, space: Space = STREAMED) -> None:
        self.cluster = SimulatedCluster(1, "a", "b", spaces=[space], archived=())
        self.cluster.run(8)
        self.brokers = {name: Broker(node) for name, node in self.cluster.nodes.items()}
        self.engine = OracleEngine(STREAMED, self.brokers)

    def client(self, at: str, name: str) -> Client:
        node = self.cluster.nodes[at]
        node.wake()
        client = Client(node, name, **PERSISTENT)
        client.open()
        client.send(client.connect_packet)
        self.cluster.run(2)  # the other broker is asked for its session
        client.early = client.take()
        return client

    def subscribe(self, client: Client, where: str | None, qos: int = 1, group: str = "") -> None:
        topic_filter = f"{group}traffic/#"
        properties = () if where is None else (("where", where),)
        client.world.broker.shared.now = client.world.now
        client.send(Subscribe(1, [SubscriptionRequest(topic_filter, qos)], 0, properties))
        self.cluster.run(2)
        client.take()

    def publish(self, client: Client, payload: bytes, x: int = 5) -> None:
        client.publish("traffic/1", payload, 1, properties=attributes(x=x))
        self.cluster.run(2)
        answers = [one for one in client.take() if isinstance(one, Ack)]
        assert [one.type for one in answers] == [PacketType.PUBACK]

    def run_engine(self) -> None:
        self.engine.run()
        self.cluster.run(3)


def payloads(client: Client) -> list[bytes]:
    found = [one for one in client.take() if isinstance(one, Publish)]
    for one in found:
        client.send(Ack(PacketType.PUBACK, one.packet_id))
    return [one.payload for one in found]


def test_brokers_do_not_look_at_clauses() -> None:
    world = World()
    here, there = world.client("a", "here"), world.client("b", "there")
    plain = world.client("b", "plain")
    for client in (here, there):
        world.subscribe(client, "x >= 5")
    world.subscribe(plain, None)
    world.subscribe(plain, "x >= 5")
    publisher = world.client("a", "publisher")
    world.publish(publisher, b"1")
    assert (payloads(here), payloads(there), payloads(plain)) == ([], [], [b"1"])
    assert world.cluster.nodes["a"].shared.counters.publishes_forwarded == 1
    world.run_engine()
    assert (payloads(here), payloads(there), payloads(plain)) == ([b"1"], [b"1"], [])


def test_without_plain_subscriptions_nothing_is_forwarded() -> None:
    world = World()
    there = world.client("b", "there")
    world.subscribe(there, "x >= 5")
    world.publish(world.client("a", "publisher"), b"1")
    assert world.cluster.nodes["a"].shared.counters.publishes_forwarded == 0
    world.run_engine()
    assert payloads(there) == [b"1"]


def test_a_session_follows_its_client() -> None:
    world = World()
    client = world.client("a", "walker")
    world.subscribe(client, "x >= 5")
    publisher = world.client("b", "publisher")
    world.publish(publisher, b"1")
    world.engine.follow()
    client.lose()
    walker = world.client("b", "walker")
    world.cluster.run(3)
    world.run_engine()
    assert [*(one.payload for one in walker.early if isinstance(one, Publish))] == []
    assert payloads(walker) == [b"1"]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_a_ghost_gets_goes_on(is_known: bool) -> None:
    """The engine knows the session where it was, or where it is."""
    world = World()
    client = world.client("a", "walker")
    world.subscribe(client, "x >= 5")
    publisher = world.client("b", "publisher")
    world.publish(publisher, b"1")
    if is_known:
        world.engine.follow()
    client.lose()
    node = world.cluster.nodes["b"]
    node.wake()
    walker = Client(node, "walker", **PERSISTENT)
    walker.open()
    walker.send(walker.connect_packet)
    world.cluster.run(0.2)
    world.run_engine()
    world.cluster.run(5)
    assert payloads(walker) == [b"1"]


def test_groups_of_all_brokers() -> None:
    world = World()
    members = [world.client(at, f"m{at}") for at in "ab"]
    for member in members:
        world.subscribe(member, "x >= 5", group="$share/g/")
    publisher = world.client("a", "publisher")
    for number in range(4):
        world.publish(publisher, b"%d" % number)
    world.run_engine()
    found = [payloads(member) for member in members]
    assert sorted(found[0] + found[1]) == [b"0", b"1", b"2", b"3"]
    assert all(found)


def test_brokers_that_have_not_heard_of_the_change_yet() -> None:
    """One has the space live, one streamed: each publication comes once."""
    world = World()
    for_a, for_b = world.client("a", "for-a"), world.client("b", "for-b")
    for client in (for_a, for_b):
        world.subscribe(client, "x >= 5")
    world.cluster.nodes["b"].broker.change_spaces(SpaceRegistry([LIVE]))
    world.cluster.run(2)
    at_a, at_b = world.client("a", "at-a"), world.client("b", "at-b")
    world.publish(at_a, b"streamed")
    world.publish(at_b, b"live")
    world.run_engine()
    for client in (for_a, for_b):
        assert sorted(payloads(client)) == [b"live", b"streamed"]
