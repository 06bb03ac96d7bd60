"""Checked clients (checked_clients.py) of a simulated cluster; some roam."""

from random import Random

from dovetail.codec.packets import Connack, Disconnect
from dovetail.errors import ReasonCode
from support.brokers.harness import Client
from support.clusters.checked_clients import CheckedClient, CheckedReceiver, CheckedSender
from support.clusters.simulated_cluster import SimulatedCluster

_NOT_NOW = {ReasonCode.SERVER_BUSY, ReasonCode.SERVER_UNAVAILABLE}


class PersistentClient(CheckedClient):
    """A client with a persistent session. It returns to its broker, unless it roams."""

    roams: Random | None = None
    """Draws the next broker of a roaming client; None: it does not roam."""

    def __init__(self, cluster: SimulatedCluster, home: str, client_id: str) -> None:
        self.cluster = cluster
        self.home = home
        self.client_id = client_id
        self.client: Client | None = None
        self._node = cluster.nodes[home]
        self.trying_since: float | None = None
        """When it first sent CONNECT since it was last connected."""

    def pump(self) -> None:
        """Do what there is to do, if the broker can be reached."""
        node = self.cluster.nodes[self.home]
        is_new = self.client is None or node is not self._node or self.client.is_closed
        if is_new and self.roams is not None:
            self.home = self.roams.choice(list(self.cluster.nodes))
            node = self.cluster.nodes[self.home]
        if not node.is_running or node.is_paused or not node.is_open:
            return
        node.wake()
        if is_new:
            self._node = node
            self.client = Client(
                node, self.client_id, clean_start=False, session_expiry_seconds=100_000
            )
            if self.trying_since is None:
                self.trying_since = self.cluster.clock.now
            self.client.open()
            self.client.send(self.client.connect_packet)
        assert self.client is not None
        for packet in self.client.take():
            if isinstance(packet, Connack):
                if self.roams is not None and packet.reason in _NOT_NOW:
                    continue  # it comes again
                assert packet.reason == 0
                self.connected(session_present=packet.session_present)
                self.trying_since = None
            elif isinstance(packet, Disconnect):
                assert self.roams is not None
            else:
                self.take(packet)
        self.work()

    def send(self, *packets: object) -> None:
        assert self.client is not None
        self.client.send(*packets)  # type: ignore[arg-type]

    def lose(self) -> None:
        if self.client is not None and not self.client.is_closed and self._node.is_running:
            self._node.wake()
            self.client.lose()


class PersistentReceiver(CheckedReceiver, PersistentClient):
    """A subscriber. If it may lose its session, it records when it had none."""

    def __init__(
        self, cluster: SimulatedCluster, home: str, client_id: str, topic_filter: str, qos: int
    ) -> None:
        PersistentClient.__init__(self, cluster, home, client_id)
        CheckedReceiver.__init__(self, client_id, topic_filter, qos)
        self.may_lose_session = False
        self.away_since: float | None = None
        self.away: list[tuple[float, float]] = []
        """Times without a subscription known to all, from a CONNECT without a session on."""
        self.in_doubt: set[tuple[bytes, int]] = set()
        """QoS 2 messages in flight at those times."""

    def connected(self, *, session_present: bool) -> None:
        if not session_present:
            assert self.may_lose_session or not self.ready, f"{self.client_id}: session is gone"
            if self.ready:
                self.ready = False
                if self.away_since is None:
                    self.away_since = self.trying_since
                self.in_doubt |= set(self._open_ids.values())
            self._open_ids.clear()
        if not self.ready:
            self.subscribe()

    def work(self) -> None:
        if self.ready and self.away_since is not None and self._is_known_everywhere():
            self.away.append((self.away_since, self.cluster.clock.now))
            self.away_since = None

    def _is_known_everywhere(self) -> bool:
        """Do all brokers know our subscription? SUBACK does not wait long for hanging ones."""
        node = self.cluster.nodes[self.home]
        session = node.broker.sessions.get(self.client_id)
        sketch = node.mesh.sketch_exchange.sketch
        state = (sketch.lineage, sketch.version)
        peers = [other for other in self.cluster.nodes.values() if other is not node]
        return (
            session is not None
            and session.redirect is None
            and all(other.mesh.sketch_exchange.state_of(node.name) == state for other in peers)
        )


class PersistentSender(CheckedSender, PersistentClient):
    """A publisher that records times. It accepts the loss of its own session."""

    def __init__(
        self, cluster: SimulatedCluster, home: str, client_id: str, topic: bytes, qos: int
    ) -> None:
        PersistentClient.__init__(self, cluster, home, client_id)
        CheckedSender.__init__(self, client_id, topic, qos)
        self.times: dict[int, tuple[float, float]] = {}
        """When a message was first sent, and when it was acknowledged."""

    def connected(self, *, session_present: bool) -> None:
        del session_present
        self.send_again()

    def promised(self, number: int) -> None:
        super().promised(number)
        self.times[number] = (self.times[number][0], self.cluster.clock.now)

    def work(self) -> None:
        if self.client is not None and not self.client.is_closed:
            super().work()

    def begun(self, number: int) -> None:
        self.times[number] = (self.cluster.clock.now, float("inf"))
