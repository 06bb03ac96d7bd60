"""Three brokers in three processes, over real connections, killed and stopped for real."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

from dovetail.codec.packets import Ack, PacketType, Publish, Will
from support.brokers.wire_client import WireClient
from support.clusters.brokers import BrokerProcesses
from support.processes.broker_process import WAIT_SECONDS, wait_until

NAMES = ("one", "two", "three")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), *NAMES) as brokers:
        yield brokers


def take(client: WireClient, count: int) -> list[bytes]:
    """Messages in the order they came, acknowledged to the end."""
    payloads: list[bytes] = []
    open_ids: set[int] = set()
    while len(payloads) < count or open_ids:
        packet = client.receive()
        if isinstance(packet, Publish):
            if packet.packet_id not in open_ids:
                payloads.append(packet.payload)
            if packet.qos == 1:
                client.acknowledge(packet)
            elif packet.qos == 2:
                open_ids.add(packet.packet_id)
                client.send(Ack(PacketType.PUBREC, packet.packet_id))
        else:
            assert isinstance(packet, Ack), packet
            assert packet.type == PacketType.PUBREL
            open_ids.discard(packet.packet_id)
            client.send(Ack(PacketType.PUBCOMP, packet.packet_id))
    return payloads


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_once_it_is_acknowledged_a_subscription_counts_everywhere(
    cluster: BrokerProcesses, qos: int
) -> None:
    for home in NAMES:
        topic = f"{home}/{qos}"
        with WireClient(cluster.ports[home]) as subscriber:
            subscriber.subscribe(f"{home}/+", qos)
            for name in NAMES:
                with WireClient(cluster.ports[name]) as publisher:
                    assert publisher.publish(topic, name.encode(), qos) == 0
                    assert take(subscriber, 1) == [name.encode()]


def test_many_in_order_from_everywhere(cluster: BrokerProcesses) -> None:
    with WireClient(cluster.ports["one"]) as subscriber:
        subscriber.subscribe("many/#", 2)
        publishers = {name: WireClient(cluster.ports[name]) for name in NAMES}
        for number in range(50):
            for name, publisher in publishers.items():
                publisher.publish(f"many/{name}", f"{name} {number}".encode(), number % 3)
        got = take(subscriber, 150)
        for name, publisher in publishers.items():
            for qos in range(3):
                expected = [f"{name} {number}".encode() for number in range(qos, 50, 3)]
                assert [one for one in got if one in set(expected)] == expected
            publisher.close()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_killed_broker_gets_its_spooled_messages(cluster: BrokerProcesses, qos: int) -> None:
    client_id = f"owed-{qos}"
    with WireClient(cluster.ports["two"], client_id, persistent=True) as subscriber:
        subscriber.subscribe(f"owed/{qos}", qos)
    cluster.kill("two")
    with WireClient(cluster.ports["three"]) as publisher:
        for number in range(20):  # acknowledged though the broker is down: it is on disk
            assert publisher.publish(f"owed/{qos}", b"%d" % number, qos) == 0
    cluster.kill("three")
    cluster.start("three")
    cluster.start("two")
    with WireClient(cluster.ports["two"], client_id, persistent=True) as subscriber:
        assert subscriber.connack.session_present
        assert take(subscriber, 20) == [b"%d" % number for number in range(20)]


def test_the_will_of_a_client_whose_broker_is_killed_comes_once(cluster: BrokerProcesses) -> None:
    with WireClient(cluster.ports["one"]) as listener:
        listener.subscribe("wills/#", 1)
        will = Will(b"wills/a", b"gone", 1)
        client = WireClient(cluster.ports["two"], "wills-a", persistent=True, will=will)
        client.publish("wills/here", b"here", 1)  # what "one" keeps of it came before
        assert take(listener, 1) == [b"here"]
        cluster.kill("two")
        client.close()
        assert take(listener, 1) == [b"gone"]
        cluster.start("two")
        with WireClient(cluster.ports["three"]) as publisher:
            publisher.publish("wills/z", b"after", 1)
        assert take(listener, 1) == [b"after"]


class Collector(threading.Thread):
    """A subscriber that comes back whenever its broker does; what it got, in order."""

    def __init__(self, port: int, topic: str, last: bytes) -> None:
        super().__init__(daemon=True)
        self.got: list[bytes] = []
        self.is_ready = threading.Event()
        self._port = port
        self._topic = topic
        self._last = last
        self._open_ids: set[int] = set()

    def run(self) -> None:
        while self._last not in self.got or self._open_ids:
            with (
                contextlib.suppress(OSError),
                WireClient(self._port, f"{self._topic}-{self._port}", persistent=True) as client,
            ):
                if not client.connack.session_present:
                    client.subscribe(self._topic, 2)
                    self.is_ready.set()
                while self._last not in self.got or self._open_ids:
                    self._take(client)

    def _take(self, client: WireClient) -> None:
        packet = client.receive()
        if packet is None:
            raise ConnectionError
        if isinstance(packet, Publish):
            if packet.packet_id not in self._open_ids:
                self._open_ids.add(packet.packet_id)
                self.got.append(packet.payload)
            client.send(Ack(PacketType.PUBREC, packet.packet_id))
        elif isinstance(packet, Ack):
            self._open_ids.discard(packet.packet_id)
            client.send(Ack(PacketType.PUBCOMP, packet.packet_id))


def test_brokers_are_killed_while_messages_flow(cluster: BrokerProcesses) -> None:
    collectors = [Collector(cluster.ports[name], "flow", b"end") for name in ("two", "three")]
    for collector in collectors:
        collector.start()
        assert collector.is_ready.wait(WAIT_SECONDS)
    sent: list[bytes] = []
    is_over = threading.Event()

    def publish() -> None:
        with WireClient(cluster.ports["one"]) as publisher:
            while not is_over.is_set():
                sent.append(b"%d" % len(sent))
                assert publisher.publish("flow", sent[-1], 2) == 0
            sent.append(b"end")
            assert publisher.publish("flow", b"end", 2) == 0

    publishing = threading.Thread(target=publish, daemon=True)
    publishing.start()
    for name in ("two", "three", "two"):
        flowing = len(sent) + 20
        wait_until(lambda flowing=flowing: len(sent) > flowing, "messages flow")  # type: ignore[misc]
        cluster.kill(name)
        flowing = len(sent) + 20
        wait_until(lambda flowing=flowing: len(sent) > flowing, "and go on")  # type: ignore[misc]
        cluster.start(name)
    is_over.set()
    publishing.join(WAIT_SECONDS)
    for collector in collectors:
        collector.join(WAIT_SECONDS)
        assert not collector.is_alive()
        assert collector.got == sent


def test_a_broker_that_hangs_does_not_hold_publishers_up_for_long(cluster: BrokerProcesses) -> None:
    with WireClient(cluster.ports["two"], "hanging", persistent=True) as subscriber:
        subscriber.subscribe("hanging", 1)
        cluster.signal("two", signal.SIGSTOP)
        try:
            with WireClient(cluster.ports["one"]) as publisher:
                assert publisher.publish("hanging", b"kept", 1) == 0
        finally:
            cluster.signal("two", signal.SIGCONT)
        assert take(subscriber, 1) == [b"kept"]


def test_a_broker_that_hangs_is_in_the_log(cluster: BrokerProcesses) -> None:
    def told(words: str) -> int:
        return cluster.log("one").count(words)

    lives = told("two is alive")
    assert cluster.stop("two") == 0  # it may hang still, to the others
    cluster.start("two")
    wait_until(lambda: told("two is alive") > lives, "it is there")
    silent, back = told("two is not heard any more"), told("two is heard again")
    cluster.signal("two", signal.SIGSTOP)
    try:
        wait_until(lambda: told("two is not heard any more") > silent, "it is missed")
    finally:
        cluster.signal("two", signal.SIGCONT)
    wait_until(lambda: told("two is heard again") > back, "it is back")


def test_a_stopped_broker_leaves_the_cluster(cluster: BrokerProcesses) -> None:
    assert cluster.stop("three") == 0
    wait_until(lambda: "three has left" in cluster.log("one"), "it is told")
    cluster.start("three")
    with (
        WireClient(cluster.ports["three"]) as subscriber,
        WireClient(cluster.ports["one"]) as publisher,
    ):
        subscriber.subscribe("again")
        publisher.publish("again", b"here")
        assert take(subscriber, 1) == [b"here"]
