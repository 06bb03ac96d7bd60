"""Sends hostile packets over real sockets, to a broker in a process of its own.

This tests what the pure core cannot show: connections that are reset, half open or never read, all
at once. Only the good client waits for answers; the broker must serve it before, during and after
the attack. At the end the process runs, has written no traceback, and its memory is bounded.
"""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from dovetail import codec
from dovetail.codec.packets import (
    MQTT_3_1_1,
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
from support.strategies.fuzzing import PROGRESS_SECONDS, BrokerViolation, resident_bytes
from support.strategies.hostile_packets import VERSIONS, HostilePackets, pick

OPEN_MAX = 40
"""Hostile connections at once; the oldest goes first."""

PACKETS_A_CONNECTION = 15
GOOD_CONNECTIONS = 150
"""Hostile connections between two visits of the good client."""

START_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 30.0
GROWN_BYTES_MAX = 128 << 20
"""Of the broker: what sessions and retained messages with hostile names may add, and buffers."""

_CONFIGURATION = """\
data = "data"

[[listeners]]
kind = "tcp"
port = 0

[http]
enabled = false

[log]
level = "error"

[mqtt]
session_expiry_max_seconds = 60
"""


@contextmanager
def broker() -> Iterator[tuple[str, int, "subprocess.Popen[str]"]]:
    """Run `dovetail up` as users do. Any output on standard error is a failure."""
    with tempfile.TemporaryDirectory(prefix="dovetail-fuzz-") as folder:
        configuration = Path(folder) / "dovetail.toml"
        configuration.write_text(_CONFIGURATION)
        errors = Path(folder) / "errors"
        with errors.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dovetail", "up", "--config", str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        with process:
            try:
                yield ("127.0.0.1", _announced_port(process), process)
                process.terminate()
                if process.wait(START_SECONDS_MAX):
                    raise BrokerViolation(f"the broker ended with exit code {process.returncode}")
            finally:
                process.kill()
        said = errors.read_text(errors="replace")
        if said:
            raise BrokerViolation(f"the broker complained:\n{said[-4_000:]}")


def _announced_port(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    for line in process.stdout:
        word, _, address = line.strip().partition(" ")
        if word == "MQTT":
            return int(address.strip().rpartition(":")[2])
    raise BrokerViolation("the broker did not start")


class GoodClient:
    """A well-behaved client that requires correct answers."""

    def __init__(self, address: tuple[str, int], version: int) -> None:
        self._version = version
        self._data = b""
        self._socket = socket.create_connection(address, ANSWER_SECONDS_MAX)
        self.send(Connect(version, f"good-{version}"))
        answer = self.receive()
        if not isinstance(answer, Connack) or answer.reason:
            raise BrokerViolation(f"a good client was answered with {answer}")

    def send(self, *packets: Packet) -> None:
        self._socket.sendall(b"".join(codec.encode(self._version, packet) for packet in packets))

    def receive(self) -> Packet:
        while True:
            if len(self._data) > 1:
                length = codec.decode_length(self._data, 1)
                if length is not None and sum(length) <= len(self._data):
                    end = sum(length)
                    data, self._data = self._data[:end], self._data[end:]
                    return codec.decode(self._version, data[0], data[length[1] :])
            try:
                more = self._socket.recv(65_536)
            except TimeoutError:
                raise BrokerViolation("a good client got no answer") from None
            if not more:
                raise BrokerViolation("a good client was cut off")
            self._data += more

    def expect(self, *packets: Packet) -> None:
        """Receive these packets, in any order."""
        wanted = list(packets)
        while wanted:
            packet = self.receive()
            if packet not in wanted:
                raise BrokerViolation(f"a good client got {packet}, and waits for {wanted}")
            wanted.remove(packet)

    def talk(self) -> None:
        """Send itself a message with each QoS."""
        name = f"good/{self._version}"
        self.send(Subscribe(1, [SubscriptionRequest(name, 2)]))
        self.expect(SubscriptionAck(PacketType.SUBACK, 1, [2]))
        topic = name.encode()
        self.send(Publish(topic, b"0"))
        self.expect(Publish(topic, b"0"))
        self.send(Publish(topic, b"1", 1, packet_id=1))
        self.expect(Ack(PacketType.PUBACK, 1), Publish(topic, b"1", 1, packet_id=1))
        self.send(Ack(PacketType.PUBACK, 1), Publish(topic, b"2", 2, packet_id=2))
        self.expect(Ack(PacketType.PUBREC, 2), Publish(topic, b"2", 2, packet_id=2))
        self.send(Ack(PacketType.PUBREL, 2), Ack(PacketType.PUBREC, 2))
        self.expect(Ack(PacketType.PUBCOMP, 2), Ack(PacketType.PUBREL, 2))
        self.send(Ack(PacketType.PUBCOMP, 2), Disconnect())
        with contextlib.suppress(ConnectionResetError):
            while self._socket.recv(65_536):
                pass
        self._socket.close()


class HostileClients:
    """Connections that are opened, used and dropped, as a seed decides."""

    def __init__(self, address: tuple[str, int], random: Random) -> None:
        self._address = address
        self._random = random
        self._packets = HostilePackets(random)
        self._open: list[socket.socket] = []

    def connect(self) -> int:
        """Open another connection, and return how many packets it sent."""
        random = self._random
        if len(self._open) >= OPEN_MAX:
            self._drop(self._open.pop(0))
        connection = socket.create_connection(self._address, ANSWER_SECONDS_MAX)
        self._open.append(connection)
        version = pick(random, VERSIONS)
        count = int(random.random() * PACKETS_A_CONNECTION) + 1
        pieces = [self._packets.packet(version) for _ in range(count)]
        if random.random() < 0.85:
            pieces.insert(0, self._packets.valid(version, "connect"))
        data = b"".join(pieces)
        # A broker that has closed answers what still comes with a reset; one that reads slowly
        # is left to itself.
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            at = 0
            while at < len(data):
                end = at + 1 + int(random.random() * len(data))
                at += connection.send(data[at:end])
        if random.random() < 0.7:
            self._drop(self._open.pop(int(random.random() * len(self._open))))
        return len(pieces)

    def _drop(self, connection: socket.socket) -> None:
        chance = self._random.random()
        if chance < 0.3:
            self._read(connection)
        elif chance < 0.6:
            # With this option and no time to linger, closing is a reset.
            linger = (1).to_bytes(4, sys.byteorder) + bytes(4)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif chance < 0.8:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        connection.close()

    @staticmethod
    def _read(connection: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while connection.recv(65_536):
                pass

    def close(self) -> None:
        while self._open:
            self._drop(self._open.pop())


def attack(
    address: tuple[str, int],
    seed: int,
    packets: int,
    show: Callable[[str], None] = lambda _line: None,
) -> int:
    """Return how many packets were sent. Raise `Broken` if the good client is not served."""
    hostile = HostileClients(address, Random(seed))
    sent = connections = 0
    started = shown = time.monotonic()
    try:
        while sent < packets:
            if connections % GOOD_CONNECTIONS == 0:
                GoodClient(address, pick(Random(connections), (MQTT_3_1_1, MQTT_5))).talk()
            sent += hostile.connect()
            connections += 1
            if time.monotonic() - shown >= PROGRESS_SECONDS:
                shown = time.monotonic()
                rate = sent / (shown - started)
                show(f"{sent:>9,} of {packets:,} packets, {rate:,.0f} a second")
    finally:
        hostile.close()
    for version in VERSIONS:
        GoodClient(address, version).talk()
    return sent


def run_live(
    seed: int,
    packets: int,
    address: str = "",
    *,
    show: Callable[[str], None] = lambda _line: None,
) -> None:
    """Attack HOST:PORT, or a broker of our own."""
    if address:
        host, _, port = address.rpartition(":")
        sent = attack((host, int(port)), seed, packets, show)
        show(f"{sent:,} packets; a good client is served as before")
        return
    with broker() as (host, number, process):
        # One round first, so that memory that every broker needs does not count as growth.
        attack((host, number), seed + 1, packets // 10)
        before = resident_bytes(process.pid)
        sent = attack((host, number), seed, packets, show)
        if process.poll() is not None:
            raise BrokerViolation("the broker is gone")
        after = resident_bytes(process.pid)
        if after - before > GROWN_BYTES_MAX:
            raise BrokerViolation(f"the broker grew from {before >> 20} to {after >> 20} MB")
    show(f"{sent:,} packets; the broker had {before >> 20} MB, and has {after >> 20}: all is well")
