"""A burst for a client that reads slowly, over real sockets."""

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail import codec
from dovetail.codec.packets import MQTT_3_1_1, Publish
from support.brokers.wire_client import WireClient
from support.certificates import Authority
from support.processes.broker_process import TCP_AND_TLS, WAIT_SECONDS, BrokerProcess, wait_until

COUNT = 300_000
PAYLOAD_BYTES = 64
NUMBER_BYTES = 4
READ_BYTES = 16_384

# So long that a slow machine cannot make a wait expire.
PATIENT = f"""
{TCP_AND_TLS}
[http]
port = 0

[mqtt]
publisher_wait_seconds = 60
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("slow"))


@pytest.fixture(scope="module")
def patient(authority: Authority) -> Iterator[BrokerProcess]:
    authority.issue("server")
    folder: Path = authority.file.parent
    with BrokerProcess(folder, PATIENT) as process:
        yield process


def packets_of_burst() -> bytes:
    one = codec.encode(MQTT_3_1_1, Publish(b"burst", bytes(PAYLOAD_BYTES)))
    head = one[:-PAYLOAD_BYTES]
    rest = bytes(PAYLOAD_BYTES - NUMBER_BYTES)
    return b"".join(head + number.to_bytes(NUMBER_BYTES) + rest for number in range(COUNT))


class OtherPair:
    """A publisher and a subscriber that have nothing to do with the burst."""

    def __init__(self, port: int) -> None:
        self.publisher = WireClient(port)
        self.subscriber = WireClient(port)
        self.subscriber.subscribe("other")

    def exchange(self) -> None:
        self.publisher.publish("other", b"x")
        assert self.subscriber.receive_message().payload == b"x"

    def close(self) -> None:
        self.publisher.close()
        self.subscriber.close()


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_burst_for_a_client_that_reads_slowly_loses_nothing_and_delays_nobody_else(
    patient: BrokerProcess, authority: Authority, kind: str
) -> None:
    tls = ssl.create_default_context(cafile=str(authority.file)) if kind == "tls" else None
    burst = packets_of_burst()
    dropped = patient.metric("publishes_dropped_total")
    other = OtherPair(patient.port)
    with (
        WireClient(patient.port_of(kind), version=MQTT_3_1_1, tls=tls) as publisher,
        WireClient(
            patient.port_of(kind), version=MQTT_3_1_1, tls=tls, receive_buffer_bytes=READ_BYTES
        ) as slow,
    ):
        assert slow.subscribe("burst") == 0
        sender = threading.Thread(target=publisher.socket.sendall, args=(burst,))
        sender.start()
        wait_until(lambda: patient.metric("publishers_waiting") == 1, "a publisher that waits")
        for _ in range(100):
            other.exchange()
        assert patient.metric("publishers_waiting") == 1
        received = bytearray()
        while len(received) < len(burst):
            data = slow.socket.recv(READ_BYTES)
            assert data, "the connection has ended"
            if len(received) % (1 << 20) + len(data) >= 1 << 20:
                other.exchange()
            received += data
        assert received == burst
        sender.join(WAIT_SECONDS)
        assert not sender.is_alive()
        assert patient.metric("publishes_dropped_total") == dropped
        assert patient.metric("publisher_waits_expired_total") == 0
        wait_until(lambda: patient.metric("publishers_waiting") == 0, "the end of all waits")
    other.close()
