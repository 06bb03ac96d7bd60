"""Clients that connect to brokers of a simulated cluster, and the CONNACK they get."""

from dovetail.codec.packets import Connack
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client
from support.clusters.simulated_cluster import SimulatedCluster


class ConnectScenario:
    """A simulated cluster, and a client that connects and leaves."""

    def __init__(self, seed: int, *names: str) -> None:
        self.cluster = SimulatedCluster(seed, *names)
        self.cluster.run(3)

    def connect(self, name: str, client_id: str = "c", **terms: object) -> tuple[Client, Connack]:
        """Connect, and wait for CONNACK."""
        node = self.cluster.nodes[name]
        node.wake()
        client = Client(node, client_id, **terms)
        client.open()
        client.send(client.connect_packet)
        while not (packets := client.take()):
            self.cluster.run(0.001)
        connack, *client.early = packets
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
        client, connack = self.connect(name, client_id, **PERSISTENT)
        assert connack.reason == ReasonCode.SUCCESS
        client.disconnect(session_expiry_seconds=expiry_seconds)
