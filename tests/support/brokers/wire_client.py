"""A client over a socket that a test controls packet by packet."""

import contextlib
import itertools
import select
import socket
import ssl

from cryptography import x509

from dovetail import codec
from dovetail.codec.packets import (
    MQTT_5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
)
from dovetail.errors import ReasonCode
from support.clusters.closing_context import ClosingContext
from support.processes.broker_process import WAIT_SECONDS

KEPT_SECONDS = 3_600


class WireClient(ClosingContext):
    """A client that connects at once. `connack` has the answer; `fields` are those of CONNECT."""

    def __init__(
        self,
        port: int,
        client_id: str = "",
        *,
        persistent: bool = False,
        version: int = MQTT_5,
        receive_buffer_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
        **fields: object,
    ) -> None:
        """With `persistent` the client resumes its session, which outlives the connection."""
        self.version = version
        self._packet_ids = itertools.count(1)
        self._buffer = bytearray()
        self._early: list[Packet] = []
        plain = socket.socket()
        plain.settimeout(WAIT_SECONDS)
        if receive_buffer_bytes is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            plain.connect(("127.0.0.1", port))
            self.socket = (
                plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
            )
            if persistent:
                fields.setdefault("clean_start", False)
                if version == MQTT_5:
                    fields.setdefault("session_expiry_seconds", KEPT_SECONDS)
            self.send(Connect(version, client_id, **fields))  # type: ignore[arg-type]
            answer = self.receive()
        except BaseException:
            plain.close()
            raise
        if not isinstance(answer, Connack):
            self.close()
            raise ConnectionError(f"no CONNACK but {answer}")
        self.connack = answer

    def send(self, *packets: Packet) -> None:
        self.socket.sendall(b"".join(codec.encode(self.version, packet) for packet in packets))

    def receive(self) -> Packet | None:
        """Return the next packet, or None if the broker has closed the connection."""
        if self._early:
            return self._early.pop(0)
        while True:
            packet = self._decode()
            if packet is not None:
                return packet
            try:
                data = self.socket.recv(262_144)
            except TimeoutError:
                raise AssertionError(f"nothing came in {WAIT_SECONDS} seconds") from None
            except ConnectionError:
                return None
            if not data:
                return None
            self._buffer += data

    def receive_within(self, seconds: float) -> Packet | None:
        """Return the next packet, or None if none begins to arrive in time.

        Raise ConnectionError if the broker has closed the connection.
        """
        if not self._early and (packet := self._decode()) is not None:
            return packet
        if not self._early and not select.select([self.socket], [], [], seconds)[0]:
            return None
        packet = self.receive()
        if packet is None:
            raise ConnectionError("the broker ended the connection")
        return packet

    def _decode(self) -> Packet | None:
        buffer = self._buffer
        length = codec.decode_length(bytes(buffer[:5]), 1) if len(buffer) > 1 else None
        if length is None or sum(length) > len(buffer):
            return None
        body, end = length[1], sum(length)
        packet = codec.decode(self.version, buffer[0], bytes(buffer[body:end]))
        del buffer[:end]
        return packet

    def receive_message(self) -> Publish:
        packet = self.receive()
        assert isinstance(packet, Publish), packet
        return packet

    def receive_end(self) -> ReasonCode | None:
        """Return the reason with which the broker closes the connection, or None (3.1.1)."""
        packet = self.receive()
        if packet is None:
            return None
        assert isinstance(packet, Disconnect), packet
        assert self.receive() is None
        return ReasonCode(packet.reason)

    def is_open(self) -> bool:
        """Is the connection still open? This does not wait."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            self.socket.settimeout(WAIT_SECONDS)

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        """Subscribe, and return the reason code. Messages before it stay to be received."""
        packet_id = self._next_packet_id()
        self.send(Subscribe(packet_id, [SubscriptionRequest(topic_filter, qos)]))
        early: list[Packet] = []
        while not isinstance(packet := self.receive(), SubscriptionAck):
            assert packet is not None
            early.append(packet)
        self._early = early
        (reason,) = packet.reasons
        return reason

    def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> int:
        """Publish, and return the reason code of PUBACK or, after the exchange, of PUBREC."""
        packet_id = self._next_packet_id() if qos else 0
        self.send(Publish(topic.encode(), payload, qos, retain=retain, packet_id=packet_id))
        if not qos:
            return 0
        answer = self._receive_ack(packet_id)
        if answer.type == PacketType.PUBREC and answer.reason < 0x80:
            self.send(Ack(PacketType.PUBREL, packet_id))
            self._receive_ack(packet_id)
        return answer.reason

    def _receive_ack(self, packet_id: int) -> Ack:
        packet = self.receive()
        if packet is None:
            raise ConnectionError("the broker ended the connection")
        assert isinstance(packet, Ack), packet
        assert packet.packet_id == packet_id
        return packet

    def acknowledge(self, message: Publish) -> None:
        """Acknowledge a message at QoS 1."""
        self.send(Ack(PacketType.PUBACK, message.packet_id))

    def disconnect(self) -> None:
        with contextlib.suppress(OSError):
            self.send(Disconnect())
        assert self.receive() is None
        self.close()

    def close(self) -> None:
        self.socket.close()

    def _next_packet_id(self) -> int:
        return next(self._packet_ids) % 65_535 + 1


def certificate_serial(port: int) -> int:
    """Return the serial number of a server's certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as plain,
        context.wrap_socket(plain) as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number
