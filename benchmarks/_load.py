"""A load generator for MQTT brokers: publishers and subscribers in one process, on one core.

Rules:

- It must be much faster than any broker that it measures, on the one core that the broker leaves.
  Packets are encoded before the measurement, numbered and checked by kernels, and sent and received
  in large buffers; one thread waits for all sockets.
- Nothing fast may be wrong: every message is checked when it arrives (see `_load_kernels`), and the
  first wrong one ends the run with `LoadError`.
- Publishers do not run away. At QoS 0 a broker may drop messages of a slow client, so no publisher
  is further ahead of the slowest subscriber than a window.
- Time counts from the first send to the last message received and acknowledged.
"""

import gc
import select
import socket
import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

import _load_kernels as kernels
import _load_wire as wire
from _load_boxes import Boxes

HOST = "127.0.0.1"
STALL_SECONDS = 10.0
"""After this silence the broker has lost something, or has stopped."""
READ_BYTES = 256 << 10
SEND_BYTES = 64 << 10
"""The most bytes of one send: small enough that broker and generator overlap."""
PACKET_IDS = 65_536
SESSION_EXPIRY_SECONDS = 3_600
CONGESTION_CONTROL = b"reno"
"""Of what we send, and always there. Others keep a timer for every packet, at our core's cost."""
CONNECTIONS_AT_ONCE = 50
FILTERS_AT_ONCE = 500
HOLD_SECONDS_MAX = 60.0
"""For all filters that others hold. Some brokers keep a list, and never come to its end."""

SENSOR_PROPERTIES = wire.user_properties(
    [(b"lat", b"40.712"), (b"lon", b"-74.006"), (b"speed", b"12.5"), (b"heading", b"181")]
)
"""Four attributes, as a vehicle may publish them."""


class LoadError(Exception):
    """The broker did something wrong, or nothing at all: its figures are unusable."""


@dataclass(frozen=True)
class Traffic:
    """The traffic of a run, the same for all brokers."""

    qos: int = 0
    payload_bytes: int = 64
    publishers: int = 1
    topics_each: int = 1
    """Every publisher has its own topics and takes them in turn."""
    unique_topics: bool = False
    """Every message has a topic of its own."""
    single_packets: bool = False
    """A send call for every packet, all publishers in step; otherwise as many as fit."""
    subscribers: int = 1
    filters: tuple[bytes, ...] = (b"bench/000/000",)
    window_bytes: int = 1 << 20
    """How far all publishers together may be ahead of the slowest subscriber."""
    in_flight_max: int = 100
    """Unacknowledged messages of a publisher, if the broker takes as many."""
    publisher_version: int = wire.MQTT_5
    subscriber_version: int = wire.MQTT_5
    persistent: bool = False
    """The subscribers' sessions outlive their connections."""
    properties: bytes = b""
    """Properties of every message, encoded as MQTT 5 has them."""
    boxes: Boxes | None = None
    """Where-clauses of subscribers, and points to publish in place of `properties`."""
    points_in_json: bool = False
    """The points are in the payloads."""

    def topic(self, publisher: int, number: int) -> bytes:
        if self.unique_topics:
            return kernels.UNIQUE_TOPIC
        return b"bench/%03d/%03d" % (publisher, number % self.topics_each)

    def payloads(self, publisher: int) -> list[bytes]:
        """Return the payloads of messages in turn, as many as there are `properties_in_turn`."""
        if self.boxes is not None and self.points_in_json:
            fillers = self.boxes.json_fields()
        else:
            filler = bytes(
                33 + place * 7 % 90 for place in range(kernels.FILLER_AT, self.payload_bytes)
            )
            fillers = [filler] * len(self.properties_in_turn)
        letters = kernels.in_letters(publisher).to_bytes(8, "little")[:4]
        return [kernels.PAYLOAD_HEAD + letters + bytes(8) + filler for filler in fillers]

    @property
    def properties_in_turn(self) -> list[bytes]:
        if self.boxes is None:
            return [self.properties]
        properties = self.boxes.properties()
        return [b""] * len(properties) if self.points_in_json else properties

    def at_version(self, version_max: int) -> "Traffic":
        """Return this traffic for a broker that does not speak the newest version."""
        return replace(
            self,
            publisher_version=min(self.publisher_version, version_max),
            subscriber_version=min(self.subscriber_version, version_max),
        )


class Client:
    """A connection after CONNACK. Blocking until `start`, then never."""

    def __init__(
        self, port: int, client_id: str, version: int, *, persistent: bool = False
    ) -> None:
        self.client_id = client_id
        self.version = version
        self._connect(port, persistent=persistent, resumes=False)

    def _connect(self, port: int, *, persistent: bool, resumes: bool) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=STALL_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_CONTROL)
        self._unread = b""
        self._packet_id = 0
        expiry = SESSION_EXPIRY_SECONDS if persistent else 0
        version = self.version
        self.socket.sendall(
            wire.connect(self.client_id, version, session_expiry_seconds=expiry, resumes=resumes)
        )
        self.receive_max = wire.receive_max(self.expect(wire.CONNACK), version)
        self.unsent = memoryview(b"")
        self.waits_for_room = False

    def expect(self, kind: int) -> bytes:
        """Return the body of the next packet, which must be of this type."""
        got, body = self.take()
        if got != kind:
            raise LoadError(
                f"{self.client_id} waited for packet type {kind} and got {got}: {body!r}"
            )
        return body

    def take(self) -> tuple[int, bytes]:
        """Return the type and the body of the next packet."""
        while (packet := wire.take_packet(self._unread)) is None:
            try:
                data = self.socket.recv(65_536)
            except TimeoutError:
                raise LoadError(f"no answer to {self.client_id} for {STALL_SECONDS:g} s") from None
            if not data:
                raise LoadError(f"the broker closed the connection of {self.client_id}")
            self._unread += data
        kind, body, self._unread = packet
        return kind, body

    def subscribe(self, filters: list[bytes], qos: int, where: str = "") -> None:
        self._packet_id = self._packet_id % 65_535 + 1
        self.socket.sendall(wire.subscribe(self._packet_id, filters, qos, self.version, where))
        body = self.expect(wire.SUBACK)
        wire.check_suback(body, self._packet_id, len(filters), self.version)

    def check_silent(self) -> None:
        """Check that no unexpected packet has come: the next one must answer a ping."""
        self.socket.sendall(wire.PINGREQ_PACKET)
        self.expect(wire.PINGRESP)

    def start(self) -> None:
        if self._unread:
            raise LoadError(f"{self.client_id} got {self._unread!r} before anything was published")
        self.socket.setblocking(False)

    def send(self, data: memoryview) -> None:
        """Send now, or after waiting data. The rest is copied, so `data` may be overwritten."""
        self.unsent = memoryview(bytes(self.unsent) + bytes(data)) if self.unsent else data
        self.flush()
        if self.unsent:
            self.unsent = memoryview(bytes(self.unsent))

    def flush(self) -> None:
        while self.unsent:
            try:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
            except BlockingIOError:
                return

    def receive(self, buffer: memoryview, kept: bytes) -> int:
        """Receive after the `kept` bytes; return the number of bytes in the buffer."""
        buffer[: len(kept)] = kept
        count = self.socket.recv_into(buffer[len(kept) :])
        if count == 0:
            raise LoadError(f"the broker closed the connection of {self.client_id}")
        return len(kept) + count

    def close(self) -> None:
        try:
            self.socket.settimeout(STALL_SECONDS)
            self.socket.sendall(wire.DISCONNECT_PACKET)
        except OSError:
            pass  # the broker has gone first, which whoever waited for it has said already
        self.socket.close()


def fail(
    who: str, fault: int, data: npt.NDArray[np.uint8], at: int, end: int, more: str = ""
) -> None:
    packet = bytes(data[at : min(end, at + 64)])
    detail = f", type {packet[0] >> 4}: {packet.hex(' ')}"
    raise LoadError(f"{who} got {kernels.FAULTS[fault]}{detail}{more}")


class Buffers:
    """Buffers that all clients of a run share, so that they stay in the cache."""

    def __init__(self) -> None:
        self.incoming = np.zeros(READ_BYTES, np.uint8)
        self.view = self.incoming.data
        self.acks = np.zeros(READ_BYTES, np.uint8)
        self.acks_view = self.acks.data


class Publisher(Client):
    """Numbers the messages of one stream and counts their acknowledgements."""

    def __init__(
        self, port: int, number: int, traffic: Traffic, run: int, buffers: Buffers
    ) -> None:
        version = traffic.publisher_version
        super().__init__(port, f"publisher-{run}-{number}", version)
        self.qos = traffic.qos
        self.sent = self.done = 0
        self._buffers = buffers
        self._kept = b""
        payloads = traffic.payloads(number)
        properties = traffic.properties_in_turn
        _, self._layout = wire.publish(
            traffic.topic(number, 0), payloads[0], self.qos, version, properties[0]
        )
        self.packet_bytes = size = self._layout.packet_bytes
        turn = max(traffic.topics_each, len(properties))  # one of them is 1
        slots = turn * max(1, SEND_BYTES // size // turn)
        encoded = b"".join(
            wire.publish(
                traffic.topic(number, slot),
                payloads[slot % len(payloads)],
                self.qos,
                version,
                properties[slot % len(properties)],
            )[0]
            for slot in range(slots)
        )
        self._packets = np.frombuffer(bytearray(encoded), np.uint8)
        self._view = self._packets.data
        self._slots = slots
        self._unique_at = self._layout.topic_at if traffic.unique_topics else 0
        in_flight_max = min(traffic.in_flight_max, self.receive_max) if self.qos else 1
        self._free_ids = np.arange(1, in_flight_max + 1, dtype=np.int64)
        self._turns = np.array([0, in_flight_max], np.int64)
        self._states = np.zeros(PACKET_IDS, np.uint8)

    def begin_at(self, number: int) -> None:
        """Start with a number: earlier connections have used those before it."""
        self.sent = self.done = number

    @property
    def finished(self) -> bool:
        return not self.unsent and (self.qos == 0 or self.done == self.sent)

    def publish(self, allowed: int) -> int:
        """Send up to `allowed` messages, unless earlier ones are unsent."""
        if self.unsent:
            return 0
        slot = self.sent % self._slots
        count = min(allowed, self._slots - slot)
        if self.qos:
            count = min(count, int(self._turns[1] - self._turns[0]))
        if count <= 0:
            return 0
        self._fill(count)
        size = self.packet_bytes
        self.unsent = self._view[slot * size : (slot + count) * size]
        self.flush()
        return count

    def _fill(self, count: int) -> None:
        kernels.fill(
            self._packets,
            self.packet_bytes,
            self.sent,
            count,
            self._layout.payload_at,
            self._unique_at,
            self._layout.id_at,
            self._free_ids,
            self._turns,
            self._states,
        )
        self.sent += count

    def read(self) -> int:
        """Read acknowledgements; no messages come to a publisher."""
        buffers = self._buffers
        end = self.receive(buffers.view, self._kept)
        at, done, release_bytes, fault = kernels.take_acks(
            buffers.incoming,
            end,
            self.qos,
            self._free_ids,
            self._turns,
            self._states,
            buffers.acks,
        )
        if fault:
            fail(self.client_id, fault, buffers.incoming, at, end)
        self._kept = bytes(buffers.view[at:end])
        self.done += done
        if release_bytes:
            self.send(buffers.acks_view[:release_bytes])
        return 0


class Subscriber(Client):
    """Checks every message and acknowledges it."""

    def __init__(
        self,
        port: int,
        number: int,
        traffic: Traffic,
        run: int,
        buffers: Buffers,
        *,
        knows_clauses: bool,
    ) -> None:
        version = traffic.subscriber_version
        persistent = traffic.persistent
        super().__init__(port, f"subscriber-{run}-{number}", version, persistent=persistent)
        self.qos = traffic.qos
        self.received = self.released = 0
        self.read_at_ns = 0
        self._port = port
        self._persistent = persistent
        self._buffers = buffers
        self._kept = b""
        self._topics_each = traffic.topics_each
        self._unique_topics = traffic.unique_topics
        topics = [
            traffic.topic(publisher, number)
            for publisher in range(traffic.publishers)
            for number in range(traffic.topics_each)
        ]
        self._topics = np.frombuffer(bytearray(b"".join(topics)), np.uint8)
        self._topic_bytes = len(topics[0])
        blocks = [wire.properties_block(one, version) for one in traffic.properties_in_turn]
        self._properties = np.frombuffer(bytearray(b"".join(blocks)), np.uint8)
        self._payloads = np.frombuffer(bytearray(b"".join(traffic.payloads(0))), np.uint8)
        self.next_numbers = np.zeros(traffic.publishers, np.int64)
        self._states = np.zeros(PACKET_IDS, np.uint8)
        self.first_number = 0
        self._gaps = np.ones(len(blocks), np.int64)
        if traffic.boxes is None or not knows_clauses:
            self.subscribe(list(traffic.filters), self.qos)
            return
        for clause in traffic.boxes.clauses(number):
            self.subscribe(list(traffic.filters), self.qos, clause)
        slots = traffic.boxes.slots(number)
        if not len(slots):
            raise LoadError(f"{self.client_id} would get nothing: there are too few boxes")
        self.first_number = int(slots[0])
        self._gaps[slots] = np.diff(slots, append=slots[0] + len(blocks))

    def leave(self) -> None:
        """Disconnect; a persistent session stays."""
        super().close()

    def come_back(self) -> None:
        """Connect again to the session that stayed."""
        self._connect(self._port, persistent=True, resumes=True)
        self._kept, self._unread = self._unread, b""
        self.socket.setblocking(False)

    @property
    def next_number(self) -> int:
        """Of the first publisher: all messages before it have come, as far as they are for us."""
        return int(self.next_numbers[0])

    def read(self) -> int:
        buffers = self._buffers
        end = self.receive(buffers.view, self._kept)
        self.read_at_ns = time.perf_counter_ns()
        at, messages, releases, ack_bytes, fault = kernels.take_messages(
            buffers.incoming,
            end,
            self.version,
            self.qos,
            self._topics,
            self._topic_bytes,
            self._topics_each,
            self._unique_topics,
            self._properties,
            self._gaps,
            self._payloads,
            self.next_numbers,
            self._states,
            buffers.acks,
        )
        if fault:
            more = f"; next are {self.next_numbers.tolist()}"
            fail(self.client_id, fault, buffers.incoming, at, end, more)
        self._kept = bytes(buffers.view[at:end])
        self.received += messages
        self.released += releases
        if ack_bytes:
            self.send(buffers.acks_view[:ack_bytes])
        return messages

    def close(self) -> None:
        super().close()
        if self._persistent:
            # A clean start that expires at once leaves no session behind to collect messages.
            Client(self._port, self.client_id, self.version).close()


@dataclass(frozen=True)
class Run:
    """Messages and deliveries in a time. With fan-out there are more deliveries than messages."""

    messages: int
    deliveries: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.deliveries / self.seconds


class LockstepPublishers:
    """Publishers that send one packet each, in step, again and again. Only QoS 0."""

    def __init__(self, publishers: list[Publisher], traffic: Traffic) -> None:
        self._files = np.array([one.socket.fileno() for one in publishers], np.int32)
        packets = []
        for number in range(len(publishers)):
            payload = traffic.payloads(number)[0]
            packet, self._layout = wire.publish(
                traffic.topic(number, 0),
                payload,
                0,
                traffic.publisher_version,
                traffic.properties,
            )
            packets.append(packet)
        self._packets = np.frombuffer(bytearray(b"".join(packets)), np.uint8)
        self._number = publishers[0].sent

    def publish(self, allowed: int) -> int:
        """Send one message of each publisher, or none."""
        if allowed < self._files.size:
            return 0
        layout = self._layout
        count = kernels.send_each(
            self._files, self._packets, layout.packet_bytes, self._number, layout.payload_at
        )
        if count < self._files.size:
            # The window is far smaller than a socket's buffer.
            raise LoadError(f"publisher {count} cannot send: the broker has closed it, or stopped")
        self._number += 1
        return count


class Load:
    """All clients of one run, connected. `numbers_from`: message numbers below were used before."""

    _runs = 0

    def __init__(
        self,
        port: int,
        traffic: Traffic,
        numbers_from: int = 0,
        *,
        publishers_port: int | None = None,
        brokers: int = 1,
        knows_clauses: bool = False,
    ) -> None:
        """`publishers_port`: they are at another broker of a cluster.

        `brokers`: subscribers are dealt out to so many, with ports from `port` on.
        `knows_clauses`: does the broker understand where-clauses? Otherwise subscribers get all.
        """
        Load._runs += 1
        run = Load._runs
        self.traffic = traffic
        self.subscribers: list[Subscriber] = []
        self.publishers: list[Publisher] = []
        self._epoll = select.epoll()
        self._by_file: dict[int, Publisher | Subscriber] = {}
        buffers = Buffers()
        try:
            for number in range(traffic.subscribers):
                subscriber = Subscriber(
                    port + number % brokers,
                    number,
                    traffic,
                    run,
                    buffers,
                    knows_clauses=knows_clauses,
                )
                self.subscribers.append(subscriber)
            for number in range(traffic.publishers):
                self.publishers.append(
                    Publisher(publishers_port or port, number, traffic, run, buffers)
                )
        except BaseException:
            self.close()
            raise
        for subscriber in self.subscribers:
            subscriber.next_numbers[:] = numbers_from + subscriber.first_number
        for publisher in self.publishers:
            publisher.begin_at(numbers_from)
        for client in self.clients:
            client.start()
            self._by_file[client.socket.fileno()] = client
            self._epoll.register(client.socket.fileno(), select.EPOLLIN)
        self._published = 0
        self._window = traffic.window_bytes // self.publishers[0].packet_bytes
        assert self._window >= traffic.publishers
        self._lockstep = (
            LockstepPublishers(self.publishers, traffic) if traffic.single_packets else None
        )

    @property
    def clients(self) -> list[Publisher | Subscriber]:
        return [*self.subscribers, *self.publishers]

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_silent(self) -> None:
        """Check that nothing has come after the last run. Nothing runs after this."""
        for client in self.clients:
            client.socket.settimeout(STALL_SECONDS)
            client.check_silent()

    def close(self) -> None:
        self._epoll.close()
        # Subscribers first: nothing is on its way to them any more.
        for client in self.clients:
            client.close()

    def run(self, seconds: float) -> Run:
        """Publish for `seconds`, then wait for the rest."""
        published_before = self._published
        received_before = sum(subscriber.received for subscriber in self.subscribers)
        gc.disable()
        try:
            started = time.perf_counter()
            deadline = started + seconds
            while True:
                sending = time.perf_counter() < deadline
                went_on = sending and self._publish()
                if not sending and self._finished():
                    break
                self._serve(0 if went_on else STALL_SECONDS)
            ended = time.perf_counter()
        finally:
            gc.enable()
        return Run(
            messages=self._published - published_before,
            deliveries=sum(subscriber.received for subscriber in self.subscribers)
            - received_before,
            seconds=ended - started,
        )

    def fill_queues(self, count: int) -> None:
        """Disconnect the subscribers, and publish for their sessions."""
        for subscriber in self.subscribers:
            self._epoll.unregister(subscriber.socket.fileno())
            del self._by_file[subscriber.socket.fileno()]
            subscriber.leave()
        publisher = self.publishers[0]
        goal = publisher.sent + count
        while not (publisher.finished and publisher.sent == goal):
            self._published += publisher.publish(goal - publisher.sent)
            self._watch(publisher)
            self._serve(STALL_SECONDS if publisher.sent > publisher.done else 0)

    def empty_queues(self) -> None:
        """Connect the subscribers again, and read what waits for them."""
        for subscriber in self.subscribers:
            subscriber.come_back()
            self._by_file[subscriber.socket.fileno()] = subscriber
            self._epoll.register(subscriber.socket.fileno(), select.EPOLLIN)
        while not self._finished():
            self._serve(STALL_SECONDS)

    def run_paced(self, rate: int, seconds: float) -> npt.NDArray[np.float64]:
        """Return latencies in seconds of an open loop: one message each 1/rate, on schedule.

        They count from the moment when a message was due, so a stall counts for all the messages
        that it delayed. The loop never sleeps: waking up would be measured too.
        """
        publisher, subscriber = self.publishers[0], self.subscribers[0]
        count = round(rate * seconds)
        interval_ns = round(1e9 / rate)
        latencies = np.zeros(count)
        received = sent = 0
        clock = time.perf_counter_ns
        first_due = clock() + interval_ns
        last_progress = first_due
        while received < count:
            now = clock()
            if sent < count and now >= first_due + sent * interval_ns:
                just_sent = publisher.publish(1)
                self._watch(publisher)
                self._published += just_sent
                sent += just_sent
            messages = self._serve(0)
            if messages:
                last_progress = subscriber.read_at_ns
                due = first_due + interval_ns * np.arange(received, received + messages)
                latencies[received : received + messages] = (last_progress - due) / 1e9
                received += messages
            elif now - last_progress > STALL_SECONDS * 1e9:
                raise self._stalled()
        return latencies

    def _ahead(self) -> int:
        """Messages that the slowest subscriber has not got yet."""
        if self.traffic.boxes is not None:
            return self._published - min([one.next_number for one in self.subscribers])
        return self._published - min([subscriber.received for subscriber in self.subscribers])

    def _publish(self) -> bool:
        """Let publishers send; return whether one sent and could continue at once."""
        allowed = self._window - self._ahead()
        published = 0
        if self._lockstep is not None:
            published = self._lockstep.publish(allowed)
        else:
            for publisher in self.publishers:
                published += publisher.publish((allowed - published) // len(self.publishers))
                self._watch(publisher)
        self._published += published
        return published > 0

    def _watch(self, client: Publisher | Subscriber) -> None:
        """Wait for room in the socket only while data is unsent."""
        wanted = bool(client.unsent)
        if wanted != client.waits_for_room:
            client.waits_for_room = wanted
            events = select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN
            self._epoll.modify(client.socket.fileno(), events)

    def _serve(self, wait_seconds: float) -> int:
        """Serve the ready sockets; return the number of messages that came."""
        ready = self._epoll.poll(wait_seconds)
        if not ready and wait_seconds:
            raise self._stalled()
        messages = 0
        for file, event in ready:
            client = self._by_file[file]
            if event & ~select.EPOLLOUT:
                messages += client.read()
            if client.unsent:
                client.flush()
            self._watch(client)
        return messages

    def _finished(self) -> bool:
        if not all(publisher.finished for publisher in self.publishers) or self._ahead() > 0:
            return False
        return all(
            not subscriber.unsent
            and (self.traffic.qos < 2 or subscriber.released == subscriber.received)
            for subscriber in self.subscribers
        )

    def _stalled(self) -> LoadError:
        missing = sum(publisher.sent - publisher.done for publisher in self.publishers)
        unacknowledged = f" and {missing:,} are not acknowledged" if self.traffic.qos else ""
        return LoadError(
            f"the broker has sent nothing for {STALL_SECONDS:g} s, while the slowest subscriber "
            f"misses {self._ahead():,} messages{unacknowledged}"
        )


def hold_subscriptions(port: int, version: int, filters: list[bytes], clients: int) -> list[Client]:
    """Connect idle clients that share these filters among them."""
    deadline = time.monotonic() + HOLD_SECONDS_MAX
    holders = []
    for number in range(clients):
        holders.append(holder := Client(port, f"holder-{number}", version))
        own = filters[number::clients]
        for first in range(0, len(own), FILTERS_AT_ONCE):
            holder.subscribe(own[first : first + FILTERS_AT_ONCE], 0)
            if time.monotonic() > deadline:
                raise LoadError(f"{len(filters):,} subscriptions took over {HOLD_SECONDS_MAX:g} s")
    return holders


def connect_and_leave(port: int, version: int, count: int) -> Run:
    """Connect and disconnect `count` clients, some at once, as from many devices.

    The broker closes first, so that its side keeps the port that TCP holds back for a minute.
    """
    started = time.perf_counter()
    for first in range(0, count, CONNECTIONS_AT_ONCE):
        open_now = []
        for number in range(first, min(count, first + CONNECTIONS_AT_ONCE)):
            connection = socket.create_connection((HOST, port), timeout=STALL_SECONDS)
            connection.sendall(wire.connect(f"visitor-{number}", version))
            open_now.append(connection)
        for connection in open_now:
            packet = wire.take_packet(connection.recv(1_024))
            if packet is None or packet[0] != wire.CONNACK:
                raise LoadError(f"no CONNACK but {packet}")
            wire.receive_max(packet[1], version)
            connection.sendall(wire.DISCONNECT_PACKET)
        for connection in open_now:
            if connection.recv(1_024):
                raise LoadError("a packet after DISCONNECT")
            connection.close()
    return Run(count, count, time.perf_counter() - started)


def check_the_checks() -> None:
    """Check the checks: messages as sent pass, in any pieces, and all others fail.

    Called before a benchmark, it also compiles the kernels.
    """
    for properties in (b"", SENSOR_PROPERTIES):
        _check_the_checks(Traffic(topics_each=3, properties=properties))


def _check_the_checks(traffic: Traffic) -> None:
    properties = wire.properties_block(traffic.properties, wire.MQTT_5)
    topics = [traffic.topic(0, number) for number in range(3)]
    (payload,) = traffic.payloads(0)

    def packet(number: int, topic: bytes | None = None) -> bytes:
        head, tail = payload[: kernels.SEQUENCE_AT], payload[kernels.FILLER_AT :]
        numbered = head + kernels.in_letters(number).to_bytes(8, "little") + tail
        return wire.publish(
            topic or topics[number % 3], numbered, 0, wire.MQTT_5, traffic.properties
        )[0]

    def fault(*packets: bytes, cut_at: int | None = None) -> int:
        data = np.frombuffer(b"".join(packets), np.uint8)
        next_numbers = np.zeros(1, np.int64)
        at = messages = 0
        for end in (data.size if cut_at is None else cut_at, data.size):
            consumed, count, _, _, found = kernels.take_messages(
                data[at:].copy(),
                end - at,
                wire.MQTT_5,
                0,
                np.frombuffer(bytearray(b"".join(topics)), np.uint8),
                len(topics[0]),
                3,
                False,
                np.frombuffer(bytearray(properties), np.uint8),
                np.ones(1, np.int64),
                np.frombuffer(bytearray(payload), np.uint8),
                next_numbers,
                np.zeros(1, np.uint8),
                np.zeros(1, np.uint8),
            )
            if found:
                return int(found)
            at += consumed
            messages += count
        assert (at, messages) == (data.size, len(packets))
        return kernels.FINE

    good = [packet(number) for number in range(4)]
    altered = bytearray(good[1])
    altered[-1] ^= 1
    beheaded = good[1].replace(kernels.PAYLOAD_HEAD, kernels.PAYLOAD_HEAD.swapcase())
    if traffic.properties:
        other = bytearray(good[1])
        other[other.index(traffic.properties) + len(traffic.properties) - 1] ^= 1
        assert fault(good[0], bytes(other)) == kernels.WRONG_PROPERTIES
    for cut_at in range(sum(map(len, good))):
        assert fault(*good, cut_at=cut_at) == kernels.FINE
    assert fault(good[0], good[2]) == kernels.WRONG_SEQUENCE
    assert fault(good[0], good[0]) == kernels.WRONG_SEQUENCE
    assert fault(good[1], good[0]) == kernels.WRONG_SEQUENCE
    assert fault(good[0], packet(1, topics[0])) == kernels.WRONG_TOPIC
    assert fault(good[0], packet(1, topics[0] + b"/")) == kernels.WRONG_TOPIC
    assert fault(good[0], bytes(altered)) == kernels.WRONG_PAYLOAD
    assert fault(good[0], beheaded) == kernels.WRONG_PAYLOAD
    assert fault(good[0], wire.DISCONNECT_PACKET) == kernels.STRAY_PACKET
    assert fault(good[0], b"\x30\x01\x00") == kernels.WRONG_LENGTH
    shorter = bytearray(good[0][:-1])
    shorter[1] -= 1  # of a length of one byte, or the lower seven bits of two
    assert fault(bytes(shorter)) == kernels.WRONG_LENGTH
