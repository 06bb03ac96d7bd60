"""Access rules in a cluster of whole brokers: every delivery was allowed, wherever it came from.

Clients roam, groups have members at all brokers, and rules change at all brokers at once, when no
message is on its way. A failing seed is in the test's name, and can be replayed.
"""

from random import Random

import pytest

from dovetail.broker.auth.access import AccessRules
from dovetail.codec.packets import Connack, Packet, Publish, Subscribe, SubscriptionRequest, Will
from dovetail.errors import ReasonCode
from dovetail.settings import AccessRule
from support.brokers.harness import PERSISTENT, Client
from support.clusters.simulated_cluster import SimulatedCluster
from support.oracles.access import FILTERS, TOPICS, draw_rules, is_allowed

NAMES = ("one", "two", "three")
USERS = ("ann", "bob")
CALM_SECONDS = 1.0
"""After this time no message is on its way."""


class Published:
    """A publication: its user, its topic, and the rules at its time."""

    def __init__(self, user: str, topic: str, rules: tuple[AccessRule, ...]) -> None:
        self.user = user
        self.topic = topic
        self.rules = rules


class Roamer:
    """A client with a persistent session that connects to any broker."""

    def __init__(self, user: str, client_id: str) -> None:
        self.user = user
        self.client_id = client_id
        self.client: Client | None = None
        self.will: Published | None = None


class RandomScenario:
    """Random events in a cluster, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = SimulatedCluster(seed, *NAMES)
        self.rules: tuple[AccessRule, ...] = ()
        self.said: list[Published] = []
        self.delivered = 0
        self.roamers = [Roamer(user, f"{user}-{number}") for user in USERS for number in range(3)]
        self.cluster.run_until(
            lambda: all(node.is_open for node in self.cluster.nodes.values()), seconds_max=30
        )
        self.change_rules()
        for roamer in self.roamers:
            self.connect(roamer)

    def settle(self) -> None:
        self.cluster.run(CALM_SECONDS)
        for roamer in self.roamers:
            if roamer.client is not None:
                roamer.client.world.wake()  # type: ignore[attr-defined]
                self.check(roamer, roamer.client.take())

    def change_rules(self) -> None:
        self.settle()
        self.rules = draw_rules(self.random, USERS)
        for node in self.cluster.nodes.values():
            node.wake()
            node.broker.change_rules(AccessRules(self.rules))
            node.settle()
        self.settle()

    def publish_as(self, user: str, topic: str) -> bytes:
        self.said.append(Published(user, topic, self.rules))
        return b"%d" % (len(self.said) - 1)

    def connect(self, roamer: Roamer) -> None:
        node = self.cluster.nodes[self.random.choice(NAMES)]
        will = None
        if self.random.random() < 0.3:
            topic = self.random.choice(TOPICS)
            will = Will(topic.encode(), self.publish_as(roamer.user, topic))
        client = Client(node, roamer.client_id, user=roamer.user, will=will, **PERSISTENT)
        node.wake()
        client.open()
        client.send(client.connect_packet)
        self.cluster.run(CALM_SECONDS)
        first, *rest = client.take()
        assert isinstance(first, Connack)
        if first.reason:
            assert first.reason == ReasonCode.NOT_AUTHORIZED
            return
        roamer.client = client
        roamer.will = None if will is None else self.said[-1]
        self.check(roamer, rest)

    def disconnect(self, roamer: Roamer) -> None:
        client = roamer.client
        assert client is not None
        self.settle()
        if roamer.will is not None:
            roamer.will.rules = self.rules
        client.world.wake()  # type: ignore[attr-defined]
        client.lose()
        roamer.client = roamer.will = None

    def subscribe(self, roamer: Roamer) -> None:
        assert roamer.client is not None
        topic_filter = self.random.choice(FILTERS)
        if self.random.random() < 0.4:
            topic_filter = f"$share/group/{topic_filter}"
        request = SubscriptionRequest(topic_filter, qos=self.random.choice([0, 1, 2]))
        roamer.client.world.wake()  # type: ignore[attr-defined]
        roamer.client.send(Subscribe(1, [request]))

    def publish(self, roamer: Roamer) -> None:
        assert roamer.client is not None
        topic = self.random.choice(TOPICS)
        roamer.client.world.wake()  # type: ignore[attr-defined]
        roamer.client.publish(
            topic,
            self.publish_as(roamer.user, topic),
            self.random.choice([0, 1, 2]),
            retain=self.random.random() < 0.3,
        )

    def act(self) -> None:
        roamer = self.random.choice(self.roamers)
        if roamer.client is None:
            self.connect(roamer)
        elif self.random.random() < 0.1:
            self.disconnect(roamer)
        elif self.random.random() < 0.05:
            self.change_rules()
        else:
            self.random.choice([self.subscribe, self.publish])(roamer)

    def check(self, roamer: Roamer, packets: list[Packet]) -> None:
        for packet in packets:
            if isinstance(packet, Publish) and not packet.duplicate:
                said = self.said[int(packet.payload)]
                assert is_allowed(said.rules, said.user, "publish", said.topic)
                assert is_allowed(self.rules, roamer.user, "subscribe", said.topic)
                self.delivered += 1


@pytest.mark.parametrize("seed", range(10))
def test_every_delivery_was_allowed(seed: int) -> None:
    story = RandomScenario(seed)
    for _ in range(150):
        story.act()
    story.settle()
    assert story.delivered
