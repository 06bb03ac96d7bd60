"""Shared subscriptions over three brokers in three processes, with paho's clients as members."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from support.brokers.wire_client import WireClient
from support.clusters.brokers import BrokerProcesses
from support.clusters.closing_context import ClosingContext
from support.processes.broker_process import WAIT_SECONDS, wait_until

NAMES = ("one", "two", "three")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), *NAMES) as brokers:
        yield brokers


class Member(ClosingContext):
    """A kept session in some subscriptions. Comes back by itself when its broker does."""

    def __init__(self, port: int, client_id: str, *filters: str) -> None:
        self.received: list[bytes] = []
        self._filters = filters
        self._is_ready = threading.Event()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5, reconnect_on_failure=True
        )
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_message = lambda _client, _data, one: self.received.append(
            bytes(one.payload)
        )
        kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        kept.SessionExpiryInterval = 3_600
        self._client.connect("127.0.0.1", port, clean_start=False, properties=kept)
        self._client.loop_start()
        assert self._is_ready.wait(WAIT_SECONDS)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(
        self,
        client: paho.Client,
        _data: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if not reason.is_failure and not flags.session_present:
            client.subscribe([(one, 2) for one in self._filters])

    def _subscribed(
        self,
        _client: paho.Client,
        _data: object,
        _id: int,
        reasons: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        assert all(reason.value == 2 for reason in reasons), reasons
        self._is_ready.set()


def members(
    stack: ExitStack, cluster: BrokerProcesses, test: str, homes: tuple[str, ...], count: int
) -> dict[str, list[Member]]:
    """Members of one group at each of these brokers; each also gets the last message."""
    return {
        home: [
            stack.enter_context(
                Member(
                    cluster.ports[home],
                    f"{test}-{home}-{number}",
                    f"$share/{test}/{test}/#",
                    f"{test}-end",
                )
            )
            for number in range(count)
        ]
        for home in homes
    }


def finish(cluster: BrokerProcesses, test: str, everybody: list[Member]) -> None:
    """Send a last message from all brokers: all earlier messages have come when it has."""
    for name in NAMES:
        with WireClient(cluster.ports[name]) as publisher:
            publisher.publish(f"{test}-end", b"end", 2)
    wait_until(lambda: all(one.received.count(b"end") == 3 for one in everybody), "the end")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_member_in_the_cluster_gets_each_message(cluster: BrokerProcesses, qos: int) -> None:
    test = f"spread-{qos}"
    sent = []
    with ExitStack() as stack:
        groups = members(stack, cluster, test, NAMES, 2)
        everybody = [one for some in groups.values() for one in some]
        plain = stack.enter_context(
            Member(cluster.ports["two"], f"{test}-plain", f"{test}/#", f"{test}-end")
        )
        for name in NAMES:
            with WireClient(cluster.ports[name]) as publisher:
                for number in range(60):
                    sent.append(f"{name} {number}".encode())
                    assert publisher.publish(f"{test}/{number % 5}", sent[-1], qos) == 0
        finish(cluster, test, [*everybody, plain])
        got = Counter(payload for one in everybody for payload in one.received)
        del got[b"end"]
        assert got == Counter(sent)
        assert Counter(plain.received) == Counter([*sent, *[b"end"] * 3])
        # About evenly: a pick is a step of the golden section, at each of three publishers.
        for home, some in groups.items():
            share = sum(len(one.received) - 3 for one in some)
            assert 50 <= share <= 70, (home, share)
            assert all(one.received.count(b"end") < len(one.received) for one in some)


def test_members_at_a_broker_that_is_killed(cluster: BrokerProcesses) -> None:
    """At QoS 2: once each, though the broker had been picked and may have had it."""
    sent = []
    with ExitStack() as stack:
        groups = members(stack, cluster, "killed", ("two", "three"), 2)
        everybody = [one for some in groups.values() for one in some]
        publisher = stack.enter_context(WireClient(cluster.ports["one"], "writer", persistent=True))
        for number in range(300):
            if number == 100:
                cluster.kill("two")
            if number == 200:
                cluster.start("two")
            sent.append(b"%d" % number)
            assert publisher.publish("killed/t", sent[-1], 2) == 0
        wait_until(lambda: sum(len(one.received) for one in everybody) >= len(sent), "all messages")
        finish(cluster, "killed", everybody)
        got = Counter(payload for one in everybody for payload in one.received)
        del got[b"end"]
        assert got == Counter(sent)
        assert all(len(one.received) > 3 for one in everybody)


def test_nobody_else_gets_what_waits_for_the_only_member(cluster: BrokerProcesses) -> None:
    """Its broker is killed, and so is the one that owes it: it knows all the same."""
    with Member(cluster.ports["two"], "only", "$share/only/only/#"):
        pass
    cluster.kill("two")
    cluster.kill("three")
    cluster.start("three")
    with WireClient(cluster.ports["three"]) as publisher:
        for number in range(10):
            assert publisher.publish("only/t", b"%d" % number, 1) == 0
    cluster.start("two")
    with ExitStack() as stack:
        client = stack.enter_context(WireClient(cluster.ports["two"], "only", persistent=True))
        assert client.connack.session_present
        got = []
        for _ in range(10):
            message = client.receive_message()
            client.acknowledge(message)
            got.append(message.payload)
        assert sorted(got) == [b"%d" % number for number in range(10)]
