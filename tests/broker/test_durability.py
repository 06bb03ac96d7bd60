"""Acknowledged messages survive kills, a full disk, and a disk that refuses writes.

The broker is a process, and its end is SIGKILL, at moments that a seeded generator chooses by how
much has been acknowledged since. Clients come back with the state that MQTT says they keep. In the
end every publication that was acknowledged is where it belongs, and none of QoS 2 is there twice.
"""

import contextlib
import os
import random
import resource
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from dovetail.broker.net.limits import JOURNAL_BYTES_MAX, JOURNAL_MESSAGES_MAX
from dovetail.broker.store.database import DATABASE_FILE
from dovetail.broker.store.disk_reserve import DISK_BYTES_MIN, RESERVE_BYTES, RESERVE_FILE
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    PacketType,
    Publish,
    SubscriptionAck,
    Unsubscribe,
)
from dovetail.errors import ReasonCode
from support.brokers.wire_client import WireClient
from support.processes import mounts
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until

KILLS = 16
KILLS_MIN = 4
KILLING_SECONDS = 40.0
"""When these are over, KILLS_MIN kills are enough: on some machines a start takes its time."""

ACKNOWLEDGEMENTS_MAX = 2_000
"""A life of the broker ends after at most so many."""

WINDOW = 50
TOPICS = 20
LAST = b"the last"

LISTENER = """
[[listeners]]
kind = "tcp"
port = 0
"""
WITH_HTTP = f"{LISTENER}[http]\nport = 0\n"
WITHOUT_HTTP = f"{LISTENER}[http]\nenabled = false\n[mqtt]\nqueue_messages_max = 1_000_000\n"


class ReconnectingClient(threading.Thread):
    """A client that always comes back, with all it knew, until it has nothing more to do."""

    def __init__(self, port: int, client_id: str, version: int) -> None:
        super().__init__(name=client_id, daemon=True)
        self.client_id = client_id
        self.failure: BaseException | None = None
        self._port = port
        self._version = version
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            while not self.is_done():
                # A broker that is down, or goes down: that is what this is about.
                with contextlib.suppress(ConnectionError), self._connect() as client:
                    self.talk(client)
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 (the test shows it)
            self.failure = error

    def _connect(self) -> WireClient:
        return WireClient(self._port, self.client_id, persistent=True, version=self._version)

    def is_done(self) -> bool:
        return self._ending.is_set()

    def talk(self, client: WireClient) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._ending.set()


class Publisher(ReconnectingClient):
    """Publishes numbers, and again what is not acknowledged, until all is after `end`.

    `acknowledged` has the payloads whose PUBACK or PUBREC has come.
    """

    def __init__(
        self, port: int, client_id: str, version: int, qos: int, *, retain: bool = False
    ) -> None:
        super().__init__(port, client_id, version)
        self.acknowledged: set[bytes] = set()
        self.last: dict[bytes, int] = {}
        """By topic, the highest number that was acknowledged."""
        self._qos = qos
        self._retain = retain
        self._number = 0
        self._packet_id = 0
        self._inflight: dict[int, Publish | Ack] = {}
        """PUBLISH or PUBREL by packet identifier, in their order."""

    def is_done(self) -> bool:
        return super().is_done() and not self._inflight

    def talk(self, client: WireClient) -> None:
        if self._qos == 2 and self.acknowledged:
            assert client.connack.session_present, "the session of a publisher was lost"
        for packet in self._inflight.values():  # [MQTT-4.4.0-1]
            if isinstance(packet, Publish):
                packet.duplicate = True
            client.send(packet)
        while not self.is_done():
            while len(self._inflight) < WINDOW and not self._ending.is_set():
                client.send(self._next())
            answer = client.receive()
            if answer is None:
                return
            assert isinstance(answer, Ack), answer
            self._take(client, answer)

    def _next(self) -> Publish:
        self._number += 1
        self._packet_id = self._packet_id % 65_535 + 1
        while self._packet_id in self._inflight:
            self._packet_id = self._packet_id % 65_535 + 1
        packet = Publish(
            f"{self.client_id}/{self._number % TOPICS}".encode(),
            f"{self.client_id} {self._number}".encode(),
            self._qos,
            retain=self._retain,
            packet_id=self._packet_id,
        )
        self._inflight[self._packet_id] = packet
        return packet

    def _take(self, client: WireClient, answer: Ack) -> None:
        packet = self._inflight[answer.packet_id]
        if answer.type == PacketType.PUBCOMP:
            assert isinstance(packet, Ack), "PUBCOMP for what was not released"
            del self._inflight[answer.packet_id]
            return
        assert isinstance(packet, Publish), "acknowledged twice over one connection"
        assert answer.reason < 0x80, answer
        self.acknowledged.add(packet.payload)
        self.last[packet.topic] = number_of(packet)
        if self._qos == 1:
            del self._inflight[answer.packet_id]
        else:
            release = Ack(PacketType.PUBREL, answer.packet_id)
            self._inflight[answer.packet_id] = release
            client.send(release)


class Subscriber(ReconnectingClient):
    """Counts what it receives, that of QoS 2 as section 4.3.3 says (method A)."""

    def __init__(
        self, port: int, client_id: str, version: int, topic_filter: str, qos: int
    ) -> None:
        super().__init__(port, client_id, version)
        self.received: Counter[bytes] = Counter()
        self.subscribed = threading.Event()
        self.qos = qos
        self._filter = topic_filter
        self._held: set[int] = set()
        self._client: WireClient | None = None

    def talk(self, client: WireClient) -> None:
        self._client = client
        if not client.connack.session_present:
            assert not self.subscribed.is_set(), "the session of a subscriber was lost"
            self._held.clear()
        if not self.subscribed.is_set():
            assert client.subscribe(self._filter, self.qos) == self.qos
            self.subscribed.set()
        while not self._ending.is_set():
            packet = client.receive()
            if packet is None:
                return
            if isinstance(packet, Publish):
                self._take(client, packet)
            else:
                assert isinstance(packet, Ack), packet
                assert packet.type == PacketType.PUBREL, packet
                self._held.discard(packet.packet_id)
                client.send(Ack(PacketType.PUBCOMP, packet.packet_id))

    def _take(self, client: WireClient, packet: Publish) -> None:
        if packet.qos < 2 or packet.packet_id not in self._held:
            self.received[packet.payload] += 1
        if packet.qos == 1:
            client.send(Ack(PacketType.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self._held.add(packet.packet_id)
            client.send(Ack(PacketType.PUBREC, packet.packet_id))

    def end(self) -> None:
        super().end()
        if self._client is not None:
            with contextlib.suppress(OSError):
                self._client.socket.shutdown(socket.SHUT_RDWR)


def number_of(packet: Publish) -> int:
    return int(packet.payload.split()[1])


def test_nothing_acknowledged_is_lost_and_no_qos_2_doubled_by_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("DOVETAIL_TEST_SEED", "0")) or random.randrange(1 << 32)
    print(f"DOVETAIL_TEST_SEED={seed}")
    broker = BrokerProcess(tmp_path, WITHOUT_HTTP)
    broker.start("--quiet", announced=False)
    port = broker.port
    offline = Subscriber(port, "offline", MQTT_5, "+/+", 2)
    subscribers = [
        Subscriber(port, "receives-once", MQTT_5, "+/+", 2),
        Subscriber(port, "receives-once-3", MQTT_3_1_1, "+/+", 2),
        Subscriber(port, "receives", MQTT_5, "+/+", 1),
    ]
    publishers = [
        Publisher(port, "once", MQTT_5, 2),
        Publisher(port, "once-3", MQTT_3_1_1, 2),
        Publisher(port, "least", MQTT_5, 1),
        Publisher(port, "retained", MQTT_3_1_1, 1, retain=True),
    ]
    clients: list[ReconnectingClient] = [*subscribers, *publishers]

    def acknowledged() -> int:
        broken = [client for client in clients if client.failure is not None]
        for client in broken:
            raise AssertionError(f"{client.name}, seed {seed}") from client.failure
        return sum(len(publisher.acknowledged) for publisher in publishers)

    try:
        with WireClient(port, offline.client_id, persistent=True) as client:
            assert client.subscribe("+/+", 2) == 2
            client.disconnect()
        offline.subscribed.set()
        for subscriber in subscribers:
            subscriber.start()
        for subscriber in subscribers:
            assert subscriber.subscribed.wait(WAIT_SECONDS)
        for publisher in publishers:
            publisher.start()
        kills = kill_often(broker, random.Random(seed), acknowledged)
        print(f"{kills} kills, {acknowledged()} acknowledged")
        assert kills >= KILLS_MIN
        for publisher in publishers:
            publisher.end()
        for publisher in publishers:
            publisher.join(WAIT_SECONDS)
            assert not publisher.is_alive(), publisher.name
        offline.start()
        subscribers.append(offline)
        clients.append(offline)
        # Behind all that a session is owed, so what would come twice has come before it.
        with WireClient(port, "last") as client:
            assert client.publish("the/last", LAST, 2) == ReasonCode.SUCCESS
        wait_until(
            lambda: acknowledged() and all(one.received[LAST] for one in subscribers),
            "the last message",
        )
        check_received(publishers, subscribers)
        check_retained(port, publishers[-1].last)
    finally:
        for each in clients:
            each.end()
        broker.kill()


def kill_often(
    broker: BrokerProcess, chance: random.Random, acknowledged: Callable[[], int]
) -> int:
    """Kill it, and start it again; returns how often."""
    kills = 0
    start_seconds = 1.0
    deadline = time.monotonic() + KILLING_SECONDS
    while kills < KILLS and (kills < KILLS_MIN or time.monotonic() < deadline):
        if chance.random() < 0.8:
            # Small numbers as often as large ones, in orders of magnitude.
            more = int(ACKNOWLEDGEMENTS_MAX ** chance.random()) - 1
            target = acknowledged() + more
            wait_until(lambda: acknowledged() >= target, f"{more} more acknowledgements")  # noqa: B023
        broker.kill()
        kills += 1
        if chance.random() < 0.2:
            # Into the start, wherever it is then.
            broker.launch("--quiet")
            time.sleep(chance.uniform(0.2, 1.0) * start_seconds)
            broker.kill()
            kills += 1
        began = time.monotonic()
        broker.start("--quiet", announced=False)
        start_seconds = time.monotonic() - began
    return kills


def check_received(publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    for subscriber in subscribers:
        for publisher in publishers:
            missing = publisher.acknowledged - subscriber.received.keys()
            assert not missing, f"{subscriber.name} lacks {len(missing)}: {sorted(missing)[:10]}"
        if subscriber.qos == 2:
            twice = [
                payload
                for payload, count in subscriber.received.items()
                if count > 1 and payload.startswith(b"once")
            ]
            assert not twice, f"{subscriber.name} has twice: {sorted(twice)[:10]}"


def check_retained(port: int, acknowledged: dict[bytes, int]) -> None:
    assert len(acknowledged) == TOPICS
    with WireClient(port) as client:
        client.subscribe("retained/+")
        found = [client.receive_message() for _ in acknowledged]
    assert all(message.retain for message in found)
    numbers = {message.topic: number_of(message) for message in found}
    for topic, number in acknowledged.items():
        assert numbers[topic] >= number, topic


def test_paho_clients_lose_and_double_nothing(tmp_path: Path) -> None:
    """The same with a client of other make, which keeps its sessions in its own way.

    It publishes with QoS 1 only: after a second attempt to reconnect, paho 2 publishes again what
    it had a PUBREC for.
    """
    broker = BrokerProcess(tmp_path, WITHOUT_HTTP)
    broker.start("--quiet", announced=False)
    received: Counter[bytes] = Counter()
    subscribed = threading.Event()
    published: set[int] = set()

    def subscribe(client: paho.Client, *_: object) -> None:
        client.subscribe([("once/+", 2), ("numbers", 1)])

    subscriber = paho_client("paho-subscriber")
    subscriber.on_connect = subscribe
    subscriber.on_subscribe = lambda *_: subscribed.set()
    subscriber.on_message = lambda _client, _, message: received.update([bytes(message.payload)])
    publisher = paho_client("paho-publisher")
    publisher.on_publish = lambda _client, _, message_id, *_rest: published.add(message_id)
    once = Publisher(broker.port, "once", MQTT_3_1_1, 2)
    try:
        subscriber.connect("127.0.0.1", broker.port)
        subscriber.loop_start()
        assert subscribed.wait(WAIT_SECONDS)
        publisher.connect("127.0.0.1", broker.port)
        publisher.loop_start()
        once.start()
        for life in range(1, 4):
            for number in range(200):
                publisher.publish("numbers", b"%d of %d" % (number, life), 1)
            half = 200 * life - 100
            wait_until(
                lambda: len(published) >= half and len(once.acknowledged) >= half,  # noqa: B023
                "half of the acknowledgements",
            )
            broker.kill()
            broker.start("--quiet", announced=False)
        once.end()
        once.join(WAIT_SECONDS)
        assert once.failure is None
        assert not once.is_alive()
        wait_until(lambda: len(published) == 600, "all PUBACKs")
        # paho passes a message of QoS 2 on when it was released, so the last has to be one too.
        with WireClient(broker.port, "last") as last:
            assert last.publish("once/last", LAST, 2) == ReasonCode.SUCCESS
        wait_until(lambda: received[LAST], "the last message")
        assert len([payload for payload in received if b" of " in payload]) == 600
        missing = once.acknowledged - received.keys()
        assert not missing, f"{len(missing)}: {sorted(missing)[:10]}"
        assert {received[payload] for payload in once.acknowledged} == {1}
    finally:
        once.end()
        for client in (publisher, subscriber):
            client.disconnect()
            client.loop_stop()
        broker.kill()


def paho_client(client_id: str) -> paho.Client:
    client = paho.Client(
        CallbackAPIVersion.VERSION2, client_id, clean_session=False, protocol=paho.MQTTv311
    )
    client.reconnect_delay_set(1, 1)
    return client


# A disk that does not take what it should ---------------------------------------------------------


class OfflineSession:
    """A broker with a session that is away, and what was accepted for it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.accepted: list[bytes] = []
        self._number = 0
        with WireClient(broker.port, "away", persistent=True) as client:
            assert client.subscribe("kept", 1) == 1
            client.disconnect()

    def offer(self, publisher: WireClient) -> int:
        """Publish 50 kB that have to be stored; returns the reason code."""
        self._number += 1
        payload = b"%d" % self._number + bytes(50_000)
        reason = publisher.publish("kept", payload, 1)
        if reason < 0x80:
            self.accepted.append(payload)
        return reason

    def offer_until_refused(self, publisher: WireClient) -> None:
        while (reason := self.offer(publisher)) == ReasonCode.SUCCESS:
            assert len(self.accepted) < 1_000
        assert reason == ReasonCode.QUOTA_EXCEEDED

    def is_closed_for_offering(self, publisher: WireClient) -> bool:
        """3.1.1 has no word for no."""
        try:
            self.offer(publisher)
        except ConnectionError:
            return True
        return False

    def is_failing(self, publisher: WireClient) -> bool:
        """After one more attempt: a disk that is nearly full takes small rows, and all is well."""
        self.offer(publisher)
        return self.broker.health()[0] == 503

    def check_other_traffic(self) -> None:
        """Publications that need no disk are not affected."""
        port = self.broker.port
        with WireClient(port) as receiver, WireClient(port) as sender:
            assert receiver.subscribe("live", 2) == 2
            for qos in (0, 1, 2):
                assert sender.publish("live", b"%d" % qos, qos) == ReasonCode.SUCCESS
                assert receiver.receive_message().payload == b"%d" % qos

    def check_recovery(self, publisher: WireClient) -> None:
        """All is well again; the session has all that was accepted, and nothing that was not."""
        wait_until(lambda: self.offer(publisher) == ReasonCode.SUCCESS, "a disk that works")
        assert self.broker.health() == (200, {"status": "ok"})
        with WireClient(self.broker.port, "away", persistent=True) as client:
            assert client.connack.session_present
            received = [client.receive_message() for _ in self.accepted]
            assert [message.payload for message in received] == self.accepted
            for message in received:
                client.acknowledge(message)
            assert publisher.publish("kept", LAST, 1) == ReasonCode.SUCCESS
            assert client.receive_message().payload == LAST


def test_a_full_disk_refuses_what_it_cannot_keep_and_nothing_else(tmp_path: Path) -> None:
    with mounts.small_disk(tmp_path / "disk", 6 << 20) as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(3 << 20))
        with (
            BrokerProcess(tmp_path, data=disk / "data") as broker,
            WireClient(broker.port) as publisher,
        ):
            session = OfflineSession(broker)
            session.offer_until_refused(publisher)
            assert session.accepted
            wait_until(lambda: session.is_failing(publisher), "503")
            broker.wait_for_log("There is no room left for")
            session.check_other_traffic()
            with WireClient(broker.port, version=MQTT_3_1_1) as old:
                wait_until(lambda: session.is_closed_for_offering(old), "the end of a connection")
            filler.unlink()
            session.check_recovery(publisher)


def test_a_full_disk_delivers_what_is_stored(tmp_path: Path) -> None:
    """At QoS 2 too, which has to write for each step; and it takes nothing new meanwhile."""
    with mounts.small_disk(tmp_path / "disk", 2 * DISK_BYTES_MIN) as disk:
        broker = BrokerProcess(tmp_path, data=disk / "data")
        with broker:
            with WireClient(broker.port, "away", persistent=True, receive_max=10) as client:
                assert client.subscribe("kept", 2) == 2
                client.disconnect()
            with WireClient(broker.port) as publisher:
                stored = [b"%d" % number + bytes(20_000) for number in range(200)]
                for payload in stored:
                    assert publisher.publish("kept", payload, 2) == ReasonCode.SUCCESS
        with broker:  # with a log that has no room in itself
            filler = mounts.fill(disk)
            with (
                WireClient(broker.port) as publisher,
                WireClient(broker.port, "away", persistent=True, receive_max=10) as client,
            ):
                received: list[bytes] = []
                for _ in range(4):
                    exchange(client, len(stored) // 4, received)
                    assert publisher.publish("kept", b"", 2) == ReasonCode.QUOTA_EXCEEDED
                assert received == stored
                assert broker.health()[0] == 503
                assert broker.metric("store_failing") == 1
                assert not (disk / "data" / RESERVE_FILE).exists()
                filler.unlink()
                wait_until(lambda: broker.health()[0] == 200, "a disk with room")
                assert (disk / "data" / RESERVE_FILE).stat().st_size == RESERVE_BYTES
                assert publisher.publish("kept", b"new", 2) == ReasonCode.SUCCESS
                exchange(client, 1, received)
                assert received[-1] == b"new"


def exchange(client: WireClient, count: int, received: list[bytes]) -> None:
    """See so many messages of QoS 2 to the end; `received` gets the payloads of all that come."""
    released = 0
    while released < count:
        packet = client.receive()
        if isinstance(packet, Publish):
            received.append(packet.payload)
            client.send(Ack(PacketType.PUBREC, packet.packet_id))
        else:
            assert isinstance(packet, Ack)
            assert packet.type == PacketType.PUBREL
            client.send(Ack(PacketType.PUBCOMP, packet.packet_id))
            released += 1


def test_a_disk_that_takes_no_byte_at_all(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, WireClient(broker.port) as publisher:
        session = OfflineSession(broker)
        assert session.offer(publisher) == ReasonCode.SUCCESS
        # As a file system that became read-only: no write goes through, to files that are open too.
        limits = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        session.offer_until_refused(publisher)
        status, body = broker.health()
        assert (status, body["status"]) == (503, "failing")
        assert broker.metric("store_failing") == 1
        session.check_other_traffic()
        with WireClient(broker.port, version=MQTT_3_1_1) as old:
            assert session.is_closed_for_offering(old)
        failures = broker.metric("commit_failures_total")
        wait_until(lambda: broker.metric("commit_failures_total") > failures, "further attempts")
        assert broker.health()[0] == 503
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, limits)
        session.check_recovery(publisher)
        assert broker.log().count("cannot write to the data folder") == 1
        assert broker.log().count("the data folder takes writes again") == 1


def test_a_data_folder_that_is_moved_away_and_back(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path) as broker,
        WireClient(broker.port, "pub", persistent=True) as publisher,
    ):
        session = OfflineSession(broker)
        broker.data.rename(tmp_path / "elsewhere")
        # There is nothing to write, and still the broker notices.
        publisher.send(Unsubscribe(9, ["unknown"]))
        assert isinstance(publisher.receive(), SubscriptionAck)
        wait_until(lambda: broker.health()[0] == 503, "503")
        assert session.offer(publisher) == ReasonCode.QUOTA_EXCEEDED
        broker.wait_for_log("was moved or removed")
        (tmp_path / "elsewhere").rename(broker.data)
        wait_until(lambda: broker.health()[0] == 200, "200 without further ado")
        session.check_recovery(publisher)


def test_a_session_that_was_ended_does_not_come_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, WITHOUT_HTTP) as broker:
        for number in range(3):
            with WireClient(broker.port, "c", persistent=True) as client:
                assert not client.connack.session_present
                assert client.subscribe("a", 1) == 1
            with WireClient(broker.port, "c") as client:
                if number < 2:
                    assert client.subscribe("b", 1) == 1  # it is read from again
                    continue
                broker.kill()
        broker.start()
        with WireClient(broker.port, "c", persistent=True) as client:
            assert not client.connack.session_present


def test_durability_power(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, f'durability = "power"\n{WITH_HTTP}') as broker:
        assert "(survives a power failure)" in broker.printed()
        with WireClient(broker.port) as publisher:
            session = OfflineSession(broker)
            for _ in range(5):
                assert session.offer(publisher) == ReasonCode.SUCCESS
        broker.kill()
        broker.start()
        with WireClient(broker.port) as publisher:
            session.check_recovery(publisher)


def test_a_publisher_faster_than_the_disk_is_paused(tmp_path: Path) -> None:
    count, size = 500, 200_000
    with (
        BrokerProcess(tmp_path, f"{WITH_HTTP}[mqtt]\nqueue_bytes_max = 1_000_000_000\n") as broker,
        WireClient(broker.port) as publisher,
    ):
        session = OfflineSession(broker)
        before = broker.resident_bytes()
        packets = [
            Publish(b"kept", b"%d" % number + bytes(size), 1, packet_id=number + 1)
            for number in range(count)
        ]
        sending = threading.Thread(target=lambda: publisher.send(*packets))
        # Another program has the database to itself: the broker's commits wait.
        with contextlib.closing(sqlite3.connect(broker.data / DATABASE_FILE)) as database:
            database.isolation_level = None
            database.execute("BEGIN IMMEDIATE")
            sending.start()
            wait_until(
                lambda: broker.metric("bytes_received_total") > JOURNAL_BYTES_MAX, "a full journal"
            )
            taken = -1.0
            while taken != (taken := broker.metric("bytes_received_total")):
                pass
            assert taken < 2 * JOURNAL_BYTES_MAX
            assert sending.is_alive()
            assert broker.resident_bytes() - before < 4 * JOURNAL_BYTES_MAX
            database.execute("ROLLBACK")
        for number in range(count):
            answer = publisher.receive()
            assert isinstance(answer, Ack), answer
            assert (answer.packet_id, answer.reason) == (number + 1, ReasonCode.SUCCESS)
        sending.join(WAIT_SECONDS)
        session.accepted = [packet.payload for packet in packets]
        session.check_recovery(publisher)


def test_a_publisher_of_many_small_messages_is_paused_too(tmp_path: Path) -> None:
    """The broker takes the data of one read in slices, and the journal fills between them."""
    count = 3 * JOURNAL_MESSAGES_MAX
    packets = [Publish(b"kept", bytes(100), 1, packet_id=number + 1) for number in range(count)]
    with (
        BrokerProcess(tmp_path, f"{WITH_HTTP}[mqtt]\nqueue_messages_max = 1_000_000\n") as broker,
        WireClient(broker.port, version=MQTT_3_1_1) as publisher,
    ):
        OfflineSession(broker)
        sending = threading.Thread(target=lambda: publisher.send(*packets))
        with contextlib.closing(sqlite3.connect(broker.data / DATABASE_FILE)) as database:
            database.isolation_level = None
            database.execute("BEGIN IMMEDIATE")
            sending.start()
            wait_until(
                lambda: broker.metric("publishes_received_total") > JOURNAL_MESSAGES_MAX,
                "a full journal",
            )
            taken = -1.0
            while taken != (taken := broker.metric("publishes_received_total")):
                pass
            assert taken < 2 * JOURNAL_MESSAGES_MAX
            database.execute("ROLLBACK")
        for number in range(count):
            answer = publisher.receive()
            assert isinstance(answer, Ack), answer
            assert answer.packet_id == number + 1
        sending.join(WAIT_SECONDS)
