"""Runs across brokers have the same results as single publications.

The same bytes go through two clusters. One takes every packet by itself, and the other scans reads
and passes runs on. Every client has to receive the same from both. A failing seed is in the test's
name, and can be replayed.
"""

import json
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from dovetail import codec
from dovetail.attributes.space import Dimension, Space
from dovetail.broker import packet_reader
from dovetail.codec import forwardable_properties
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    PacketType,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
)
from dovetail.matcher.layout import layout_of
from support.brokers.harness import PERSISTENT, Client
from support.clusters.matchers import ClusterWithMatchers
from support.clusters.simulated_cluster import SimulatedCluster

NAMES = ("a", "b", "c")
SPACE = Space(
    "s", "p/#", (Dimension("speed", 0, 100), Dimension("lat", -90, 90)), frozenset({"note"})
)
TOPICS = (b"p/1", b"p/2", b"p/3/x", b"q/1", b"q/2", b"$d/x")
PROPERTIES = (
    b"",
    b"",
    forwardable_properties(content_type="text"),
    *(forwardable_properties(user=(("speed", f"{speed}"),)) for speed in range(0, 100, 7)),
    *(forwardable_properties(user=(("speed", "50"), ("lat", f"{lat}"))) for lat in (-80, 0, 41)),
    forwardable_properties(user=(("speed", "+19.50"), ("note", "here"))),
    forwardable_properties(user=(("speed", "fast"),)),
)
FIELDS = (b"", b"", *(b', "speed": %d' % speed for speed in range(0, 100, 9)), b', "speed": 5e1')
FILTERS = (
    ("p/1", ""),
    ("q/+", ""),
    ("q/#", ""),
    ("p/#", "speed<20"),
    ("p/#", "speed>=30&speed<45"),
    ("p/+", "lat>40&speed>10"),
    ("p/+", "note=here"),
    ("$share/{}/p/3/#", ""),  # with one member, or another one might be picked
)


def packets_of(random: Random, version: int, count: int) -> list[bytes]:
    """Packets at QoS 0 and 1. Neighbours are often alike, as a publisher's are."""
    encoded = []
    topic, qos = random.choice(TOPICS), 1
    for number in range(count):
        if random.random() < 0.3:
            topic = random.choice(TOPICS)
        if random.random() < 0.1:
            qos = random.randrange(2)
        packet = Publish(
            topic,
            b'{"number": %d%s}' % (number, random.choice(FIELDS)),
            qos,
            packet_id=number + 1 if qos else 0,
            retain=random.random() < 0.03,
            properties=random.choice(PROPERTIES) if version == MQTT_5 else b"",
        )
        encoded.append(codec.encode(version, packet))
    return encoded


class Scene:
    """Clients at all brokers, and one that publishes at the first."""

    def __init__(self, seed: int, *, with_matchers: bool) -> None:
        self.random = random = Random(seed)
        space = replace(SPACE, json_fields=seed % 2 > 0)
        self.cluster: SimulatedCluster
        if with_matchers:
            matched = ClusterWithMatchers(seed, *NAMES, spaces=(space,))
            matched.matchers_spaces = (space,)
            for name in ("m1", "m2"):
                matched.add_matcher(name)
            self.cluster = matched
            view = matched.nodes["a"].mesh.matcher_client.directory
            shared = layout_of(space).id
            matched.run_until(lambda: len(view.now(shared).names) == 2, seconds_max=30)
        else:
            self.cluster = SimulatedCluster(seed, *NAMES, spaces=(space,))
        self.cluster.run(3)
        self.version = random.choice([MQTT_3_1_1, MQTT_5])
        self.packets = packets_of(random, self.version, 120)
        self.cuts = sorted(random.sample(range(1, 120), 6))
        self.clients = [self.receiver(number) for number in range(9)]
        self.cluster.run(2)
        self.sender = self.client("a", "sender", self.version)
        self.seen: dict[str, list[Publish]] = {}
        self.acknowledged: list[int] = []
        self.collect()

    def client(self, home: str, name: str, version: int, **fields: object) -> Client:
        node = self.cluster.nodes[home]
        node.wake()
        client = Client(node, name, version=version, **fields)
        client.open()
        client.send(client.connect_packet)
        self.cluster.run(1)
        return client

    def receiver(self, number: int) -> Client:
        random = self.random
        version = random.choice([MQTT_3_1_1, MQTT_5, MQTT_5])
        is_kept = random.random() < 0.4
        client = self.client(
            random.choice(NAMES), f"receiver {number}", version, **(PERSISTENT if is_kept else {})
        )
        for topic_filter, where in random.sample(FILTERS, 2):
            topic_filter = topic_filter.format(number)  # noqa: PLW2901
            text = f"{topic_filter}?{where}" if where else topic_filter
            identifier = 7 if version == MQTT_5 and random.random() < 0.1 else 0
            request = SubscriptionRequest(text, random.randrange(3))
            client.send(Subscribe(1, [request], identifier))
            self.cluster.run(0.5)
            answer = client.take()[-1]
            assert isinstance(answer, SubscriptionAck), answer
            assert answer.reasons[0] <= 2, answer
        return client

    def publish(self) -> None:
        for first, last in zip([0, *self.cuts], [*self.cuts, 120], strict=True):
            self.cluster.nodes["a"].wake()
            self.sender.send_bytes(b"".join(self.packets[first:last]))
            self.cluster.run(self.random.choice([0.0, 0.001, 0.1]))
            self.collect()
        for _ in range(60):
            self.cluster.run(0.2)
            self.collect()

    def collect(self) -> None:
        for client in (*self.clients, self.sender):
            for node in self.cluster.nodes.values():
                node.wake()
            for packet in client.take():
                if isinstance(packet, Publish):
                    self.seen.setdefault(client.connect_packet.client_id, []).append(packet)
                    if packet.qos:
                        kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
                        client.send(Ack(kind, packet.packet_id))
                elif isinstance(packet, Ack) and client is self.sender:
                    self.acknowledged.append(packet.packet_id)

    def outcome(self) -> dict[str, object]:
        """What everybody got, in the order that counts: of a topic, as published at one QoS."""
        found: dict[str, object] = {"acknowledged": sorted(self.acknowledged)}
        published_at = [data[0] >> 1 & 3 for data in self.packets]
        for name, packets in self.seen.items():
            for topic, qos in product(TOPICS, range(2)):
                found[f"{name} {topic!r} {qos}"] = [
                    (one.payload, one.properties, one.qos, one.identifiers, one.retain)
                    for one in packets
                    if one.topic == topic and published_at[json.loads(one.payload)["number"]] == qos
                ]
        return found


@pytest.mark.parametrize("with_matchers", [False, True], ids=["alone", "matchers"])
@pytest.mark.parametrize("seed", range(12))
def test_everybody_receives_the_same(
    seed: int, with_matchers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packet_reader, "SCAN_BYTES_MIN", 1 << 30)
    monkeypatch.setattr(packet_reader, "SCANNED_FIRST", {})
    single = Scene(seed, with_matchers=with_matchers)
    single.publish()
    monkeypatch.setattr(packet_reader, "SCAN_BYTES_MIN", 1)
    in_runs = Scene(seed, with_matchers=with_matchers)
    in_runs.publish()
    assert in_runs.outcome() == single.outcome(), f"seed {seed}"
    counted = in_runs.cluster.nodes["a"].shared.counters
    assert counted.publishes_forwarded, "nothing went to another broker"
