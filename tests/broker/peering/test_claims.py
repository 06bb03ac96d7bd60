"""How long a CONNECT waits for other brokers, on a virtual clock."""

from random import Random

import pytest

from broker_harness import KEPT, Client
from cluster_world import Cluster
from dovetail.broker.packets import Connack
from dovetail.errors import ReasonCode

WAIT_SECONDS_MAX = 0.3
"""Two round trips over the slowest link of the simulator, writes to disk on both sides, a tick."""


class Scene:
    """A cluster, and a client that connects and leaves."""

    def __init__(self, seed: int, *names: str) -> None:
        self.cluster = Cluster(seed, *names)
        self.cluster.run(3)

    def connect(self, name: str, client_id: str = "c", **terms: object) -> tuple[Client, Connack]:
        """When CONNACK has come."""
        node = self.cluster.nodes[name]
        node.wake()
        client = Client(node, client_id, **terms)
        client.open()
        client.send(client.connect_packet)
        while not (packets := client.take()):
            self.cluster.run(0.001)
        (connack,) = packets
        assert isinstance(connack, Connack)
        return client, connack

    def seconds_to_connect(self, name: str, client_id: str = "c", **terms: object) -> float:
        began_at = self.cluster.clock.now
        client, connack = self.connect(name, client_id, **terms)
        assert connack.reason == ReasonCode.SUCCESS
        assert not connack.session_present
        client.disconnect(session_expiry_seconds=0)
        return self.cluster.clock.now - began_at

    def visit(self, name: str, client_id: str = "c", *, expiry_seconds: int | None = None) -> None:
        client, connack = self.connect(name, client_id, **KEPT)
        assert connack.reason == ReasonCode.SUCCESS
        client.disconnect(session_expiry_seconds=expiry_seconds)


@pytest.mark.parametrize("ends", ["clean start", "disconnect"])
@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("seed", range(4))
def test_a_session_that_was_dropped_while_it_moved_is_not_waited_for(
    seed: int, names: str, ends: str
) -> None:
    random = Random(seed)
    scene = Scene(seed, *names)
    slow = []
    for number in range(20):
        client_id = f"c{number}"
        terms: dict[str, object] = {"clean_start": True}
        for _ in range(3):
            scene.visit(random.choice(names), client_id)
            scene.cluster.run(random.choice((0, 0.003, 0.03)))
        if ends == "disconnect":
            scene.visit(random.choice(names), client_id, expiry_seconds=0)
            scene.cluster.run(random.choice((0, 0.003, 0.03)))
            terms = KEPT
        seconds = scene.seconds_to_connect(random.choice(names), client_id, **terms)
        if seconds > WAIT_SECONDS_MAX:
            slow.append((client_id, round(seconds, 3)))
    assert slow == []
