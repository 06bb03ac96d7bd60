"""Wills of brokers that die, in a cluster under a seeded clock: published once, or not at all."""

import pytest

from dovetail.codec.packets import Publish, Subscribe, Will
from dovetail.codec.packets import SubscriptionRequest as Request
from support.brokers.harness import KEPT, Client
from support.clusters.world import Cluster

NAMES = ("a", "b", "c")


class Scene:
    """A client with a will at a, and somebody at each broker who would hear of it."""

    def __init__(self, seed: int, *, is_kept: bool, delay_seconds: int = 0, qos: int = 1) -> None:
        self.cluster = Cluster(seed, *NAMES)
        self.will = Will(b"wills/x", b"gone", qos, delay_seconds=delay_seconds)
        self.fields = {**(KEPT if is_kept else {}), "will": self.will}
        self.cluster.run(2)
        self.listener = self.connect("c", "listener", **KEPT)
        self.listener.send(Subscribe(1, [Request("wills/#", qos)], 0))
        self.cluster.run(1)
        assert self.listener.take(), "no SUBACK"
        self.client = self.connect("a", "x", **self.fields)
        self.cluster.run(1)

    def connect(self, name: str, client_id: str, **fields: object) -> Client:
        node = self.cluster.nodes[name]
        node.wake()
        client = Client(node, client_id, **fields)
        client.open()
        client.send(client.connect_packet)
        self.cluster.run(0.5)
        assert client.take(), "no CONNACK"
        return client

    def heard(self, seconds: float) -> int:
        """Wills in this time."""
        self.cluster.run(seconds)
        return sum(isinstance(packet, Publish) for packet in self.listener.take())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_kept", [False, True])
def test_the_will_of_a_broker_that_dies_is_published_once(seed: int, is_kept: bool) -> None:
    scene = Scene(seed, is_kept=is_kept)
    scene.cluster.kill("a")
    assert scene.heard(20) == 1
    scene.cluster.start("a")
    assert scene.heard(60) == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_kept", [False, True])
def test_who_connects_elsewhere_takes_its_will_back(seed: int, is_kept: bool) -> None:
    scene = Scene(seed, is_kept=is_kept)
    scene.cluster.kill("a")
    scene.cluster.run(0.3)
    scene.connect("bc"[seed % 2], "x", **(KEPT if is_kept else {}))
    assert scene.heard(20) == 0
    scene.cluster.start("a")
    assert scene.heard(60) == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_delay_is_waited_for(seed: int) -> None:
    scene = Scene(seed, is_kept=True, delay_seconds=60)
    scene.cluster.kill("a")
    assert scene.heard(55) == 0
    assert scene.heard(15) == 1


@pytest.mark.parametrize("seed", range(4))
def test_what_nobody_has_kept_is_published_after_the_start(seed: int) -> None:
    """The keeper died with the owner."""
    scene = Scene(seed, is_kept=bool(seed % 2))
    scene.cluster.kill("a")
    scene.cluster.kill("b")
    assert scene.heard(20) == 0
    scene.cluster.start("b")
    scene.cluster.start("a")
    assert scene.heard(60) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_will_is_kept_by_whoever_is_left(seed: int) -> None:
    scene = Scene(seed, is_kept=True)
    scene.cluster.kill("b")
    scene.cluster.run(10)
    scene.cluster.kill("a")
    assert scene.heard(20) == 1


def test_an_end_in_peace_takes_the_will_with_it() -> None:
    scene = Scene(0, is_kept=True)
    scene.cluster.nodes["a"].wake()
    scene.client.disconnect()
    scene.cluster.run(1)
    scene.cluster.kill("a")
    assert scene.heard(30) == 0


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_will_waits_for_a_disk_that_is_full(qos: int, is_cut: bool) -> None:
    """Nobody is there who could be told that it was refused."""
    scene = Scene(qos, is_kept=False, qos=qos)
    node = scene.cluster.nodes["a"]
    node.disk_works = False
    if is_cut:
        scene.cluster.cut("c")
    scene.cluster.run(1)
    node.wake()
    scene.client.lose()
    scene.cluster.run(5)
    node.disk_works = True
    scene.cluster.run(5)
    scene.cluster.heal()
    heard = scene.listener.take()
    assert sum(isinstance(packet, Publish) for packet in heard) + scene.heard(30) == 1


class Replaced(Scene):
    """The first keeper, b, was down for a while: c had the wills in the meantime."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, is_kept=True)
        self.cluster.kill("b")
        self.cluster.run(10)
        self.cluster.start("b")
        self.cluster.run(10)


@pytest.mark.parametrize("seed", range(3))
def test_who_kept_a_will_in_the_meantime_does_not_publish_it(seed: int) -> None:
    scene = Replaced(seed)
    scene.cluster.kill("a")
    assert scene.heard(20) == 1


@pytest.mark.parametrize("seed", range(3))
def test_who_kept_a_will_in_the_meantime_does_not_outlive_an_end_in_peace(seed: int) -> None:
    scene = Replaced(seed)
    scene.cluster.nodes["a"].wake()
    scene.client.disconnect()
    scene.cluster.run(2)
    scene.cluster.kill("a")
    assert scene.heard(30) == 0
