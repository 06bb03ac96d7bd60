"""Access rules over whole brokers: whatever is delivered was allowed, wherever it was published.

Clients roam, groups have members at all brokers, and rules change at all of them at once, when all
is calm. A failing seed is in the test's name, and replays.
"""

from random import Random

import pytest

from dovetail.broker.auth.access import AccessRules
from dovetail.codec.packets import Connack, Packet, Publish, Subscribe, SubscriptionRequest, Will
from dovetail.errors import ReasonCode
from dovetail.settings import Rule
from support.brokers.harness import KEPT, Client
from support.clusters.world import Cluster
from support.oracles.access import FILTERS, TOPICS, drawn_rules, is_allowed

NAMES = ("one", "two", "three")
USERS = ("ann", "bob")
CALM_SECONDS = 1.0
"""After this nothing is on its way."""


class Said:
    """A publication: whose, where, and the rules that there were."""

    def __init__(self, user: str, topic: str, rules: tuple[Rule, ...]) -> None:
        self.user = user
        self.topic = topic
        self.rules = rules


class Roamer:
    """A client that comes to any broker, with a kept session."""

    def __init__(self, user: str, client_id: str) -> None:
        self.user = user
        self.client_id = client_id
        self.client: Client | None = None
        self.will: Said | None = None


class Story:
    """What happens in a cluster, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(seed, *NAMES)
        self.rules: tuple[Rule, ...] = ()
        self.said: list[Said] = []
        self.delivered = 0
        self.roamers = [Roamer(user, f"{user}-{number}") for user in USERS for number in range(3)]
        self.cluster.run_until(
            lambda: all(node.is_open for node in self.cluster.nodes.values()), seconds_max=30
        )
        self.change_rules()
        for roamer in self.roamers:
            self.come(roamer)

    def calm(self) -> None:
        self.cluster.run(CALM_SECONDS)
        for roamer in self.roamers:
            if roamer.client is not None:
                roamer.client.world.wake()  # type: ignore[attr-defined]
                self.check(roamer, roamer.client.take())

    def change_rules(self) -> None:
        self.calm()
        self.rules = drawn_rules(self.random, USERS)
        for node in self.cluster.nodes.values():
            node.wake()
            node.broker.change_rules(AccessRules(self.rules))
            node.settle()
        self.calm()

    def say(self, user: str, topic: str) -> bytes:
        self.said.append(Said(user, topic, self.rules))
        return b"%d" % (len(self.said) - 1)

    def come(self, roamer: Roamer) -> None:
        node = self.cluster.nodes[self.random.choice(NAMES)]
        will = None
        if self.random.random() < 0.3:
            topic = self.random.choice(TOPICS)
            will = Will(topic.encode(), self.say(roamer.user, topic))
        client = Client(node, roamer.client_id, user=roamer.user, will=will, **KEPT)
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

    def go(self, roamer: Roamer) -> None:
        client = roamer.client
        assert client is not None
        self.calm()
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
            self.say(roamer.user, topic),
            self.random.choice([0, 1, 2]),
            retain=self.random.random() < 0.3,
        )

    def act(self) -> None:
        roamer = self.random.choice(self.roamers)
        if roamer.client is None:
            self.come(roamer)
        elif self.random.random() < 0.1:
            self.go(roamer)
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
def test_whatever_is_delivered_was_allowed(seed: int) -> None:
    story = Story(seed)
    for _ in range(150):
        story.act()
    story.calm()
    assert story.delivered
