"""A publisher and a subscriber on this machine, which measure a broker's throughput and latency.

Rules:

- The clients must be faster than the broker. Packets are laid out before, and only numbered while
  they go. Both ends are one thread that never waits while there is something to send or read.
  Against a process that only passes bytes on, it reaches three times a broker's throughput.
- Results must be correct. The subscriber compares what comes back with what was sent, byte for
  byte, so nothing can be lost, doubled or reordered unnoticed.
- Each message has its own topic, so that no route is cached. The subscriber gets all messages.
- The publisher is at most a window ahead of the subscriber: at QoS 0 a broker may drop messages
  for a slow client.
"""

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail import codec
from dovetail.codec.packets import (
    MQTT_5,
    Connect,
    Disconnect,
    PacketType,
    Subscribe,
    SubscriptionRequest,
)
from dovetail.errors import DovetailError

HOST = "127.0.0.1"
STALL_SECONDS = 30.0
"""If nothing comes for so long, a message was lost or the broker has stopped."""

WINDOW_MESSAGES = 256
CHUNK_MESSAGES = 64
"""Messages per call: few enough that broker and publisher overlap."""

READ_BYTES = 262_144
LAP_DIGITS = 8
PLACE_DIGITS = 2
"""The first level of a topic: the number of the lap through the window, and the place in the window
(hexadecimal), which never changes in a row of the window."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class LoadResult:
    """The result of full load: messages, their time, and their mean latency."""

    messages: int
    seconds: float
    latency_seconds: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class Traffic:
    """Two connections. `levels` are the topic's levels after the first."""

    def __init__(self, port: int, levels: bytes, payload: bytes) -> None:
        topic = b"0" * (LAP_DIGITS + PLACE_DIGITS) + b"/" + levels
        packet = codec.encode_publish(MQTT_5, topic, payload)
        self._size = len(packet)
        rows: Bytes = np.tile(np.frombuffer(packet, np.uint8), (WINDOW_MESSAGES, 1))
        place_at = packet.index(topic) + LAP_DIGITS
        for place in range(WINDOW_MESSAGES):
            text = f"{place:0{PLACE_DIGITS}x}".encode()
            rows[place, place_at : place_at + PLACE_DIGITS] = np.frombuffer(text, np.uint8)
        self._laps = rows[:, place_at - LAP_DIGITS : place_at]
        self._stream = rows.ravel()
        self._sent_at = np.zeros(WINDOW_MESSAGES)
        self._buffer: Bytes = np.empty(READ_BYTES, np.uint8)
        self.sent = self.received = self._bytes_received = 0
        self._unsent = memoryview(b"")
        with contextlib.ExitStack() as opened:
            self._subscriber = opened.enter_context(connect(port, "figure-subscriber"))
            self._publisher = opened.enter_context(connect(port, "figure-publisher"))
            subscribe(self._subscriber)
            self._poll = select.poll()
            self._poll.register(self._subscriber, select.POLLIN)
            self._poll.register(self._publisher, 0)
            for one in (self._subscriber, self._publisher):
                one.setblocking(False)
            self._opened = opened.pop_all()

    def close(self) -> None:
        for one in (self._publisher, self._subscriber):
            with contextlib.suppress(OSError):  # the broker may have gone already
                one.setblocking(True)
                one.sendall(codec.encode(MQTT_5, Disconnect()))
        self._opened.close()

    def saturate(self, seconds: float) -> LoadResult:
        """Send at full load for `seconds`, then wait until everything has come back."""
        first = self.received
        latencies = 0.0
        started = time.perf_counter()
        while (now := time.perf_counter()) - started < seconds or self.received < self.sent:
            sending = now - started < seconds
            if sending and not self._unsent and self._ahead <= WINDOW_MESSAGES - CHUNK_MESSAGES:
                self._send(CHUNK_MESSAGES, now)
                sent = True
            else:
                sent = self._flush()
            begun, now = self.received, self._read()
            if self.received > begun:
                places = np.arange(begun, self.received) % WINDOW_MESSAGES
                latencies += float((now - self._sent_at[places]).sum())
            elif not sent:
                self._wait()
        count = self.received - first
        return LoadResult(count, time.perf_counter() - started, latencies / max(count, 1))

    def pace(self, rate: int, seconds: float) -> npt.NDArray[np.float64]:
        """Send at a fixed rate, and return the latencies in seconds.

        A latency counts from the time at which a message was due, so a stall adds to all messages
        that it delayed. The loop never sleeps: waking up would be measured too.
        """
        first, count = self.sent, max(round(rate * seconds), 1)
        interval = 1 / rate
        latencies = np.zeros(count)
        due = time.perf_counter() + interval
        last = due
        while self.received - first < count:
            now = time.perf_counter()
            number = self.sent - first
            # If the window is full, the message is late, and its latency includes that.
            if (
                number < count
                and now >= due + number * interval
                and not self._unsent
                and self._ahead < WINDOW_MESSAGES
            ):
                self._send(1, now)
            else:
                self._flush()
            begun, now = self.received, self._read()
            if self.received > begun:
                last = now
                numbers = np.arange(begun - first, self.received - first)
                latencies[numbers] = now - (due + numbers * interval)
            elif now - last > STALL_SECONDS:
                raise self._stalled()
        return latencies

    @property
    def _ahead(self) -> int:
        return self.sent - self.received

    def _send(self, count: int, now: float) -> None:
        """Send the next `count` messages, up to the end of the window's rows."""
        place = self.sent % WINDOW_MESSAGES
        count = min(count, WINDOW_MESSAGES - place)
        lap = f"{self.sent // WINDOW_MESSAGES:0{LAP_DIGITS}}".encode()
        self._laps[place : place + count] = np.frombuffer(lap, np.uint8)
        self._sent_at[place : place + count] = now
        self._unsent = self._stream.data[place * self._size : (place + count) * self._size]
        self.sent += count
        self._flush()

    def _flush(self) -> bool:
        """Send what is left, and return whether anything went out."""
        if not self._unsent:
            return False
        try:
            self._unsent = self._unsent[self._publisher.send(self._unsent) :]
        except BlockingIOError:
            return False
        return True

    def _read(self) -> float:
        """Read and compare what has come back, and return the time of reading."""
        try:
            count = self._subscriber.recv_into(self._buffer.data)
        except BlockingIOError:
            return time.perf_counter()
        now = time.perf_counter()
        if not count:
            raise DovetailError("the broker has closed the subscriber's connection.")
        if self._bytes_received + count > self.sent * self._size:
            raise DovetailError("more came back from the broker than was sent.")
        at = 0
        while at < count:
            place = (self._bytes_received + at) % len(self._stream)
            part = min(count - at, len(self._stream) - place)
            if not np.array_equal(self._buffer[at : at + part], self._stream[place : place + part]):
                raise DovetailError("what came back from the broker is not what was sent.")
            at += part
        self._bytes_received += count
        self.received = self._bytes_received // self._size
        return now

    def _wait(self) -> None:
        self._poll.modify(self._publisher, select.POLLOUT if self._unsent else 0)
        if not self._poll.poll(STALL_SECONDS * 1_000):
            raise self._stalled()

    def _stalled(self) -> DovetailError:
        return DovetailError(
            f"the broker has sent nothing for {STALL_SECONDS:.0f} s, "
            f"and {self._ahead:,} messages are missing."
        )


@contextlib.contextmanager
def traffic(port: int, levels: bytes, payload: bytes) -> Iterator[Traffic]:
    opened = Traffic(port, levels, payload)
    try:
        yield opened
    finally:
        opened.close()


def connect(port: int, client_id: str) -> socket.socket:
    try:
        opened = socket.create_connection((HOST, port), STALL_SECONDS)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DovetailError(f"the broker of the experiment cannot be reached: {reason}.") from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.sendall(codec.encode(MQTT_5, Connect(MQTT_5, client_id)))
    expect(opened, PacketType.CONNACK)
    return opened


def subscribe(opened: socket.socket) -> None:
    opened.sendall(codec.encode(MQTT_5, Subscribe(1, [SubscriptionRequest("#")])))
    expect(opened, PacketType.SUBACK)


def expect(opened: socket.socket, kind: PacketType) -> None:
    """Read one packet of this type, with nothing behind it."""
    data = b""
    while (length := codec.decode_length(data, 1) if len(data) > 1 else None) is None or len(
        data
    ) < sum(length):
        more = opened.recv(4_096)
        if not more:
            raise DovetailError("the broker has closed a connection instead of answering.")
        data += more
    if data[0] >> 4 != kind or len(data) > sum(length):
        raise DovetailError(f"the broker did not answer with {kind.name}, but {data[:32].hex()}.")
