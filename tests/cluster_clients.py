"""Clients that keep their part of MQTT through every crash: what they see is what is promised."""

from broker_harness import Client
from cluster_world import Cluster
from dovetail.broker.packets import Ack, Connack, PacketType, Publish, Reasons, Subscribe
from dovetail.broker.packets import SubscriptionRequest as Request

WINDOW = 5


class Persistent:
    """A client with a session at one broker, to which it always comes back."""

    def __init__(self, cluster: Cluster, home: str, client_id: str) -> None:
        self.cluster = cluster
        self.home = home
        self.client_id = client_id
        self.client: Client | None = None
        self._node = cluster.nodes[home]

    def pump(self) -> None:
        """Whatever there is to do, while the broker can be talked to."""
        node = self.cluster.nodes[self.home]
        if not node.is_running or node.is_paused or not node.is_open:
            return
        node.wake()
        if self.client is None or node is not self._node or self.client.is_closed:
            self._node = node
            self.client = Client(
                node, self.client_id, clean_start=False, session_expiry_seconds=100_000
            )
            self.client.open()
            self.client.send(self.client.connect_packet)
        for packet in self.client.take():
            if isinstance(packet, Connack):
                assert packet.reason == 0
                self.connected(session_present=packet.session_present)
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
        self._open_ids: set[int] = set()

    def connected(self, *, session_present: bool) -> None:
        if not session_present:
            assert not self.ready, f"{self.client_id}: the session is gone"
            self.send(Subscribe(1, [Request(self.filter, self.qos)], 0))

    def take(self, packet: object) -> None:
        if isinstance(packet, Reasons):
            assert packet.reasons == [self.qos]
            self.ready = True
        elif isinstance(packet, Publish):
            if packet.qos == 2:
                if packet.packet_id not in self._open_ids:
                    self._open_ids.add(packet.packet_id)
                    self._note(packet)
                self.send(Ack(PacketType.PUBREC, packet.packet_id))
            else:
                self._note(packet)
                if packet.qos:
                    self.send(Ack(PacketType.PUBACK, packet.packet_id))
        elif isinstance(packet, Ack) and packet.type == PacketType.PUBREL:
            self._open_ids.discard(packet.packet_id)
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
                self.acknowledged.append(number)
            self._open[packet.packet_id] = (number, True)
            self.send(Ack(PacketType.PUBREL, packet.packet_id))
        else:
            if not is_received:
                self.acknowledged.append(number)
            del self._open[packet.packet_id]

    def work(self) -> None:
        if self.client is None or self.client.is_closed or not self._is_connected:
            return
        while self.is_sending and len(self._open) < WINDOW:
            self._sent += 1
            packet_id = self._sent % 60_000 + 1
            self._open[packet_id] = (self._sent, False)
            self.send(self._packet(self._sent, packet_id))

    @property
    def is_done(self) -> bool:
        return not self.is_sending and not self._open
