"""Retained messages for the load generator: on many topics, set, set again, delivered, removed.

After each pass a new subscriber has to get every message once, with the payload that was set last
and with the retain flag. A broker that keeps too few, or old ones, fails.
"""

import _load_wire as wire
from _load import READ_BYTES, SEND_BYTES, Client, LoadError

TOPICS = 50_000
_FILTER = b"plant/#"
_LAST_TOPIC = b"plant-end"
_IN_FLIGHT_MAX = 100
_SET_SECONDS_MAX = 60.0
"""The answer to all messages at QoS 0 comes behind the last one."""
_RETAIN = 0x01
_PADDING = bytes(range(33, 33 + 56))


class _Newcomer(Client):
    """Subscribes, and reads retained messages."""

    def read(self, size: int) -> bytes:
        self.subscribe([_FILTER], 0)
        received, self._unread = bytearray(self._unread), b""
        while len(received) < size:
            data = self.socket.recv(READ_BYTES)
            if not data:
                raise LoadError("the broker closed the connection of a new subscriber")
            received += data
        self.check_silent()
        return bytes(received)


class _Publisher(Client):
    """Sends prepared packets, and waits until the broker has taken all of them."""

    def send_all(self, packets: list[bytes]) -> None:
        self.socket.settimeout(_SET_SECONDS_MAX)
        data = b"".join(packets)
        for at in range(0, len(data), SEND_BYTES):
            self.socket.sendall(data[at : at + SEND_BYTES])
        self.expect(wire.PUBACK)

    def send_in_window(self, packets: list[bytes]) -> None:
        in_flight_max = min(_IN_FLIGHT_MAX, self.receive_max)
        sent = acknowledged = 0
        while acknowledged < len(packets):
            count = min(in_flight_max - (sent - acknowledged), len(packets) - sent)
            if count:
                self.socket.sendall(b"".join(packets[sent : sent + count]))
                sent += count
            self.expect(wire.PUBACK)
            acknowledged += 1
            while wire.take_packet(self._unread) is not None:
                self.expect(wire.PUBACK)
                acknowledged += 1


class RetainedTopics:
    """Topics with retained messages, and the client that publishes to them."""

    def __init__(self, port: int, version: int, qos: int) -> None:
        self._port = port
        self._version = version
        self._qos = qos
        self._topics = [
            b"plant/line%02d/machine%03d/sensor%02d" % (n % 50, n // 50 % 100, n // 5_000)
            for n in range(TOPICS)
        ]
        self._expected: list[bytes] = []
        self._publisher = _Publisher(port, "retaining", version)

    def prepare(self, turn: int) -> list[bytes]:
        """Return the packets that set each topic to a new payload."""
        payloads = [turn.to_bytes(4) + number.to_bytes(4) + _PADDING for number in range(TOPICS)]
        topics_and_payloads = list(zip(self._topics, payloads, strict=True))
        self._expected = [self._packet(topic, payload) for topic, payload in topics_and_payloads]
        if not self._qos:
            return self._with_last(self._expected)
        return [
            self._packet(topic, payload, number % 65_535 + 1)
            for number, (topic, payload) in enumerate(topics_and_payloads)
        ]

    def set(self, packets: list[bytes]) -> None:
        """Send the packets, and return when the broker has acknowledged the last one."""
        if self._qos:
            self._publisher.send_in_window(packets)
        else:
            self._publisher.send_all(packets)

    def deliver(self) -> bytes:
        """Subscribe, and return what comes: as many bytes as a broker sends that loses nothing."""
        newcomer = _Newcomer(self._port, "newcomer", self._version)
        received = newcomer.read(sum(map(len, self._expected)))
        newcomer.close()
        return received

    def check(self, received: bytes) -> None:
        """Check that these packets are the retained messages."""
        missing = set(self._expected)
        at = 0
        while at < len(received):
            end = at + 2 + received[at + 1]  # all are shorter than 128 bytes
            if received[at:end] not in missing:
                raise LoadError(f"not a retained message, or again: {received[at:end]!r}")
            missing.remove(received[at:end])
            at = end
        if missing:
            raise LoadError(f"{len(missing):,} retained messages did not come")

    def remove(self) -> None:
        """Remove all messages, and check that a new subscriber gets none."""
        self._expected = []
        removals = [self._packet(topic, b"") for topic in self._topics]
        self._publisher.send_all(self._with_last(removals))
        self.check(self.deliver())

    def close(self) -> None:
        self._publisher.close()

    def _with_last(self, packets: list[bytes]) -> list[bytes]:
        """Add a message at QoS 1: its PUBACK means that the broker keeps all before it."""
        return [*packets, self._packet(_LAST_TOPIC, b"end", 1)]

    def _packet(self, topic: bytes, payload: bytes, packet_id: int = 0) -> bytes:
        """Encode a retained PUBLISH, at QoS 1 if it has a packet identifier."""
        qos = int(packet_id > 0)
        packet, layout = wire.publish(topic, payload, qos, self._version)
        encoded = bytearray(packet)
        encoded[0] |= _RETAIN
        if qos:
            encoded[layout.id_at : layout.id_at + 2] = packet_id.to_bytes(2)
        return bytes(encoded)
