"""Clients that follow MQTT through every crash, and record what is acknowledged and received.

They work over any transport of packets. A client comes back to its session, sends unacknowledged
messages again, and acknowledges what it receives. `check` then compares the acknowledged messages
with the received ones.
"""

from collections.abc import Iterable

from dovetail.codec.packets import Ack, PacketType, Publish, Subscribe, SubscriptionAck
from dovetail.codec.packets import SubscriptionRequest as Request

WINDOW = 5


class CheckedClient:
    """One client. The owner of its connection calls these methods, and implements `send`."""

    client_id: str

    def send(self, *packets: object) -> None:
        raise NotImplementedError

    def connected(self, *, session_present: bool) -> None:
        raise NotImplementedError

    def take(self, packet: object) -> None:
        raise NotImplementedError

    def work(self) -> None:
        pass


class CheckedReceiver(CheckedClient):
    """Subscribes once and records what it gets; `ready` once the subscription is acknowledged."""

    def __init__(self, client_id: str, topic_filter: str, qos: int) -> None:
        self.client_id = client_id
        self.filter = topic_filter
        self.qos = qos
        self.ready = False
        self.received: list[tuple[bytes, int]] = []
        """Publisher's topic and its number."""
        self._by_topic: dict[bytes, list[int]] = {}
        self._open_ids: dict[int, tuple[bytes, int]] = {}
        """QoS 2 that is under way, by packet identifier."""

    def connected(self, *, session_present: bool) -> None:
        if not session_present:
            assert not self.ready, f"{self.client_id}: the session is gone"
            self.subscribe()

    def subscribe(self) -> None:
        self.send(Subscribe(1, [Request(self.filter, self.qos)], 0))

    def take(self, packet: object) -> None:
        if isinstance(packet, SubscriptionAck):
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
        number = int(packet.payload)
        self.received.append((packet.topic, number))
        self._by_topic.setdefault(packet.topic, []).append(number)

    def numbers(self, topic: bytes) -> list[int]:
        return self._by_topic.get(topic, [])


class CheckedSender(CheckedClient):
    """Numbers its messages on one topic, and records the acknowledged ones."""

    def __init__(self, client_id: str, topic: bytes, qos: int) -> None:
        self.client_id = client_id
        self.topic = topic
        self.qos = qos
        self.acknowledged: list[int] = []
        self.is_sending = True
        self._is_connected = False
        self.messages_max: int | None = None
        self.sent = 0
        self._open: dict[int, tuple[int, bool]] = {}
        """By packet identifier: number, and whether PUBREC has come."""

    def connected(self, *, session_present: bool) -> None:
        assert session_present or not self._is_connected, f"{self.client_id}: the session is gone"
        self.send_again()

    def send_again(self) -> None:
        """Send again what was not acknowledged to the end."""
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
                self.promised(number)
            self._open[packet.packet_id] = (number, True)
            self.send(Ack(PacketType.PUBREL, packet.packet_id))
        else:
            if not is_received:
                self.promised(number)
            del self._open[packet.packet_id]

    def promised(self, number: int) -> None:
        self.acknowledged.append(number)

    def work(self) -> None:
        packets = []
        while self.is_sending and self._is_connected and len(self._open) < WINDOW:
            if self.sent == self.messages_max:
                break
            self.sent += 1
            packet_id = self.sent % 60_000 + 1
            self._open[packet_id] = (self.sent, False)
            self.begun(self.sent)
            packets.append(self._packet(self.sent, packet_id))
        if packets:
            self.send(*packets)

    def begun(self, number: int) -> None:
        """It is about to be sent for the first time."""

    @property
    def is_done(self) -> bool:
        return not self.is_sending and not self._open


def check(receivers: Iterable[CheckedReceiver], senders: Iterable[CheckedSender]) -> None:
    """QoS 1: nothing acknowledged is lost. QoS 2: nor is it doubled. Order holds."""
    senders = list(senders)
    for receiver in receivers:
        for sender in senders:
            got = receiver.numbers(sender.topic)
            first = list(dict.fromkeys(got))
            who = f"{sender.client_id} to {receiver.client_id}"
            missing = sorted(set(sender.acknowledged) - set(got))
            assert not missing, f"{who}: acknowledged, and lost: {missing[:10]}"
            assert first == sorted(first), f"{who}: out of order: {first}"
            if min(receiver.qos, sender.qos) == 2:
                assert len(got) == len(first), f"{who}: doubled"
