"""Wills of clients whose broker crashes: published once or not at all. On a virtual clock."""

import pytest

from dovetail.codec.packets import Publish, Subscribe, Will
from dovetail.codec.packets import SubscriptionRequest as Request
from support.brokers.harness import PERSISTENT, Client
from support.clusters.simulated_cluster import SimulatedCluster

NAMES = ("a", "b", "c")


class Scenario:
    """A client with a will at broker a, and a subscriber to the will at each broker."""

    def __init__(self, seed: int, *, is_kept: bool, delay_seconds: int = 0, qos: int = 1) -> None:
        self.cluster = SimulatedCluster(seed, *NAMES)
        self.will = Will(b"wills/x", b"gone", qos, delay_seconds=delay_seconds)
        self.fields = {**(PERSISTENT if is_kept else {}), "will": self.will}
        self.cluster.run(2)
        self.listener = self.connect("c", "listener", **PERSISTENT)
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

    def wills_received(self, seconds: float) -> int:
        """Wills in this time."""
        self.cluster.run(seconds)
        return sum(isinstance(packet, Publish) for packet in self.listener.take())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_kept", [False, True])
def test_the_will_of_a_broker_that_dies_is_published_once(seed: int, is_kept: bool) -> None:
    scene = Scenario(seed, is_kept=is_kept)
    scene.cluster.kill("a")
    assert scene.wills_received(20) == 1
    scene.cluster.start("a")
    assert scene.wills_received(60) == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_client_that_reconnects_elsewhere_cancels_its_will(seed: int, is_kept: bool) -> None:
    scene = Scenario(seed, is_kept=is_kept)
    scene.cluster.kill("a")
    scene.cluster.run(0.3)
    scene.connect("bc"[seed % 2], "x", **(PERSISTENT if is_kept else {}))
    assert scene.wills_received(20) == 0
    scene.cluster.start("a")
    assert scene.wills_received(60) == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_will_waits_for_its_delay(seed: int) -> None:
    scene = Scenario(seed, is_kept=True, delay_seconds=60)
    scene.cluster.kill("a")
    assert scene.wills_received(55) == 0
    assert scene.wills_received(15) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_will_without_a_keeper_is_published_after_the_restart(seed: int) -> None:
    """The keeper crashed with the owner."""
    scene = Scenario(seed, is_kept=bool(seed % 2))
    scene.cluster.kill("a")
    scene.cluster.kill("b")
    assert scene.wills_received(20) == 0
    scene.cluster.start("b")
    scene.cluster.start("a")
    assert scene.wills_received(60) == 1


@pytest.mark.parametrize("seed", range(4))
def test_the_remaining_broker_keeps_a_will(seed: int) -> None:
    scene = Scenario(seed, is_kept=True)
    scene.cluster.kill("b")
    scene.cluster.run(10)
    scene.cluster.kill("a")
    assert scene.wills_received(20) == 1


def test_a_normal_disconnect_cancels_the_will() -> None:
    scene = Scenario(0, is_kept=True)
    scene.cluster.nodes["a"].wake()
    scene.client.disconnect()
    scene.cluster.run(1)
    scene.cluster.kill("a")
    assert scene.wills_received(30) == 0


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_will_waits_while_the_disk_is_full(qos: int, is_cut: bool) -> None:
    """No client is there that could learn of a refusal."""
    scene = Scenario(qos, is_kept=False, qos=qos)
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
    wills_received = scene.listener.take()
    assert (
        sum(isinstance(packet, Publish) for packet in wills_received) + scene.wills_received(30)
        == 1
    )


class FormerKeeperScenario(Scenario):
    """The first keeper, b, was down for a while: c kept the wills meanwhile."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, is_kept=True)
        self.cluster.kill("b")
        self.cluster.run(10)
        self.cluster.start("b")
        self.cluster.run(10)


@pytest.mark.parametrize("seed", range(3))
def test_a_former_keeper_does_not_publish_the_will(seed: int) -> None:
    scene = FormerKeeperScenario(seed)
    scene.cluster.kill("a")
    assert scene.wills_received(20) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_former_keeper_drops_the_will_after_a_normal_disconnect(seed: int) -> None:
    scene = FormerKeeperScenario(seed)
    scene.cluster.nodes["a"].wake()
    scene.client.disconnect()
    scene.cluster.run(2)
    scene.cluster.kill("a")
    assert scene.wills_received(30) == 0
