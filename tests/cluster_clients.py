"""Clients that keep their part of MQTT through every crash: what they see is what is promised."""

from random import Random

from broker_harness import Client
from cluster_world import Cluster
from dovetail.broker.packets import (
    Ack,
    Connack,
    Disconnect,
    PacketType,
    Publish,
    Reasons,
    Subscribe,
)
from dovetail.broker.packets import SubscriptionRequest as Request
from dovetail.errors import ReasonCode

WINDOW = 5


class Persistent:
    """A client with a session at one broker, to which it comes back, unless it roams."""

    roams: Random | None = None
    """If it does: it draws its next broker."""

    def __init__(self, cluster: Cluster, home: str, client_id: str) -> None:
        self.cluster = cluster
        self.home = home
        self.client_id = client_id
        self.client: Client | None = None
        self._node = cluster.nodes[home]
        self.trying_since: float | None = None
        """When it first sent CONNECT since it was last connected."""

    def pump(self) -> None:
        """Whatever there is to do, while the broker can be talked to."""
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
                if self.roams is not None and packet.reason == ReasonCode.SERVER_BUSY:
                    continue  # it comes again
                assert packet.reason == 0
                self.connected(session_present=packet.session_present)
                self.trying_since = None
            elif isinstance(packet, Disconnect):
                assert self.roams is not None
            else:
                self.take(packet)
        self.work()

    def connected(self, *, session_present: bool) -> None:
        raise NotImplementedError

    def take(self, packet: object) -> None:
        raise NotImplementedError

    def work(self) -> None:
        pass

    def send(self, *packets: object) -> None:
        assert self.client is not None
        self.client.send(*packets)  # type: ignore[arg-type]

    def lose(self) -> None:
        if self.client is not None and not self.client.is_closed and self._node.is_running:
            self._node.wake()
            self.client.lose()


class Receiver(Persistent):
    """Subscribes once and notes what it gets; `ready` when the subscription was acknowledged."""

    def __init__(
        self, cluster: Cluster, home: str, client_id: str, topic_filter: str, qos: int
    ) -> None:
        super().__init__(cluster, home, client_id)
        self.filter = topic_filter
        self.qos = qos
        self.ready = False
        self.received: list[tuple[bytes, int]] = []
        """Publisher's topic and its number."""
        self._open_ids: dict[int, tuple[bytes, int]] = {}
        self.may_lose_session = False
        self.away_since: float | None = None
        self.away: list[tuple[float, float]] = []
        """When it had no subscription that all knew: from a CONNECT without its session on."""
        self.in_doubt: set[tuple[bytes, int]] = set()
        """QoS 2 that was under way then."""

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
            self.send(Subscribe(1, [Request(self.filter, self.qos)], 0))

    def work(self) -> None:
        if self.ready and self.away_since is not None and self._is_known_everywhere():
            self.away.append((self.away_since, self.cluster.clock.now))
            self.away_since = None

    def _is_known_everywhere(self) -> bool:
        """SUBACK does not wait long for brokers that hang."""
        node = self.cluster.nodes[self.home]
        session = node.broker.sessions.get(self.client_id)
        sketch = node.mesh.exchange.sketch
        state = (sketch.lineage, sketch.version)
        peers = [other for other in self.cluster.nodes.values() if other is not node]
        return (
            session is not None
            and session.detour is None
            and all(other.mesh.exchange.state_of(node.name) == state for other in peers)
        )

    def take(self, packet: object) -> None:
        if isinstance(packet, Reasons):
            assert packet.reasons == [self.qos]
            self.ready = True
        elif isinstance(packet, Publish):
            if packet.qos == 2:
                if packet.packet_id not in self._open_ids:
                    self._open_ids[packet.packet_id] = (packet.topic, int(packet.payload))
                    self._note(packet)
                self.send(Ack(PacketType.PUBREC, packet.packet_id))
            else:
                self._note(packet)
                if packet.qos:
                    self.send(Ack(PacketType.PUBACK, packet.packet_id))
        elif isinstance(packet, Ack) and packet.type == PacketType.PUBREL:
            self._open_ids.pop(packet.packet_id, None)
            self.send(Ack(PacketType.PUBCOMP, packet.packet_id))

    def _note(self, packet: Publish) -> None:
        self.received.append((packet.topic, int(packet.payload)))

    def numbers(self, topic: bytes) -> list[int]:
        return [number for name, number in self.received if name == topic]


class Sender(Persistent):
    """Numbers its messages on one topic; `acknowledged` is what it was promised."""

    def __init__(self, cluster: Cluster, home: str, client_id: str, topic: bytes, qos: int) -> None:
        super().__init__(cluster, home, client_id)
        self.topic = topic
        self.qos = qos
        self.acknowledged: list[int] = []
        self.is_sending = True
        self._is_connected = False
        self._sent = 0
        self.times: dict[int, tuple[float, float]] = {}
        """When a message was first sent, and when it was acknowledged."""
        self._open: dict[int, tuple[int, bool]] = {}
        """By packet identifier: number, and whether PUBREC has come."""

    def connected(self, *, session_present: bool) -> None:
        del session_present
        self._is_connected = True
        for packet_id, (number, is_received) in self._open.items():
            if is_received:
                self.send(Ack(PacketType.PUBREL, packet_id))
            else:
                self.send(self._packet(number, packet_id, duplicate=True))

    def _packet(self, number: int, packet_id: int, *, duplicate: bool = False) -> Publish:
        return Publish(
            self.topic, b"%d" % number, self.qos, duplicate=duplicate, packet_id=packet_id
        )

    def take(self, packet: object) -> None:
        assert isinstance(packet, Ack), packet
        assert packet.reason in (0, 0x10, 0x92), packet  # 0x92: this PUBREL came before
        if packet.packet_id not in self._open:
            return
        number, is_received = self._open[packet.packet_id]
        if packet.type == PacketType.PUBREC:
            if not is_received:
                self._promised(number)
            self._open[packet.packet_id] = (number, True)
            self.send(Ack(PacketType.PUBREL, packet.packet_id))
        else:
            if not is_received:
                self._promised(number)
            del self._open[packet.packet_id]

    def _promised(self, number: int) -> None:
        self.acknowledged.append(number)
        self.times[number] = (self.times[number][0], self.cluster.clock.now)

    def work(self) -> None:
        if self.client is None or self.client.is_closed or not self._is_connected:
            return
        while self.is_sending and len(self._open) < WINDOW:
            self._sent += 1
            packet_id = self._sent % 60_000 + 1
            self._open[packet_id] = (self._sent, False)
            self.times[self._sent] = (self.cluster.clock.now, float("inf"))
            self.send(self._packet(self._sent, packet_id))

    @property
    def is_done(self) -> bool:
        return not self.is_sending and not self._open
