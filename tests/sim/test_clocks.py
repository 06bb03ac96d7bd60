"""Brokers whose clocks differ by minutes: expiry is still right at every broker."""

from collections.abc import Mapping

import pytest

from dovetail.codec.packets import Connack, Packet, Publish, Subscribe, Will
from dovetail.codec.packets import SubscriptionRequest as Request
from support.brokers.harness import PERSISTENT, Client
from support.clusters.simulated_cluster import SimulatedCluster

CLOCKS = pytest.mark.parametrize(
    "ahead_seconds",
    [{"b": 120}, {"b": -120}, {"a": -120, "b": 120}, {"a": 120, "b": -120}],
    ids=["ahead", "behind", "far ahead", "far behind"],
)
EXPIRY_SECONDS = 60


class Scenario:
    """Brokers a, b and c, and clients at the brokers that the test chooses."""

    def __init__(self, ahead_seconds: Mapping[str, float]) -> None:
        self.cluster = SimulatedCluster(1, "a", "b", "c", ahead_seconds=ahead_seconds)
        self.cluster.run(3)

    def connect(self, name: str, client_id: str, **fields: object) -> tuple[Client, list[Packet]]:
        """A client, and what it has got by now."""
        node = self.cluster.nodes[name]
        node.wake()
        client = Client(node, client_id, **fields)
        client.open()
        client.send(client.connect_packet)
        self.cluster.run(1)
        return client, client.take()

    def subscribe(self, name: str, client_id: str, topic: str) -> Client:
        client, _ = self.connect(name, client_id, **PERSISTENT)
        self.cluster.nodes[name].wake()
        client.send(Subscribe(1, [Request(topic, 1)], 0))
        self.cluster.run(1)
        return client

    def publish(self, name: str, payload: bytes, *, retain: bool = False) -> None:
        client, _ = self.connect(name, "publisher")
        self.cluster.nodes[name].wake()
        client.publish("t", payload, 1, retain=retain, expiry_seconds=EXPIRY_SECONDS)
        self.cluster.run(0.5)
        self.lose(client)

    def lose(self, client: Client) -> None:
        client.world.wake()  # type: ignore[attr-defined]
        client.lose()


def messages(packets: list[Packet]) -> list[tuple[bytes, int | None]]:
    return [(one.payload, one.expiry_seconds) for one in packets if isinstance(one, Publish)]


def is_left(seconds: int | None, after_seconds: float) -> bool:
    """Return whether an expiry interval is plausible after so long, within some seconds."""
    left = EXPIRY_SECONDS - after_seconds
    return seconds is not None and left - 15 <= seconds <= left


@CLOCKS
def test_messages_expire_while_their_session_moves(ahead_seconds: Mapping[str, float]) -> None:
    scene = Scenario(ahead_seconds)
    client = scene.subscribe("a", "x", "t")
    scene.publish("c", b"in flight")
    assert messages(client.take())
    scene.lose(client)
    scene.publish("c", b"queued")
    scene.cluster.run(15)
    client, packets = scene.connect("b", "x", **PERSISTENT)
    found = messages(packets)
    assert [payload for payload, _ in found] == [b"in flight", b"queued"]
    assert all(is_left(seconds, 15) for _, seconds in found)
    scene.lose(client)
    scene.publish("c", b"on its way")
    scene.cluster.run(EXPIRY_SECONDS - 15)
    _, packets = scene.connect("a", "x", **PERSISTENT)
    # A sent message is resent even if it has expired: the client may have it.
    found = messages(packets)
    assert [payload for payload, _ in found] == [b"in flight", b"queued", b"on its way"]
    assert is_left(found[2][1], EXPIRY_SECONDS - 15)


@CLOCKS
@pytest.mark.parametrize(("wait_seconds", "comes"), [(20, True), (EXPIRY_SECONDS, False)])
def test_messages_expire_for_a_session_that_moved_while_its_broker_was_down(
    ahead_seconds: Mapping[str, float], wait_seconds: float, comes: bool
) -> None:
    """The messages wait at the broker that published them, as session items or publications."""
    scene = Scenario(ahead_seconds)
    scene.lose(scene.subscribe("a", "x", "t"))
    scene.publish("a", b"1")
    scene.cluster.kill("a")
    scene.cluster.run(5)
    scene.publish("b", b"2")
    client, _ = scene.connect("b", "x", **PERSISTENT)  # it begins anew
    scene.cluster.run(wait_seconds)
    scene.cluster.start("a")
    scene.cluster.run(5)
    found = messages(client.take())
    assert [payload for payload, _ in found] == ([b"1", b"2"] if comes else [])
    assert all(is_left(seconds, wait_seconds) for _, seconds in found)


@CLOCKS
@pytest.mark.parametrize(("wait_seconds", "comes"), [(20, True), (EXPIRY_SECONDS, False)])
def test_retained_messages_expire(
    ahead_seconds: Mapping[str, float], wait_seconds: float, comes: bool
) -> None:
    scene = Scenario(ahead_seconds)
    scene.cluster.kill("b")
    scene.publish("a", b"1", retain=True)
    scene.cluster.run(5)
    scene.cluster.start("b")
    scene.cluster.run(wait_seconds - 5)
    client = scene.subscribe("b", "x", "t")
    scene.cluster.run(1)
    found = messages(client.take())
    assert [payload for payload, _ in found] == ([b"1"] if comes else [])
    assert all(is_left(seconds, wait_seconds) for _, seconds in found)


@CLOCKS
def test_a_session_expires(ahead_seconds: Mapping[str, float]) -> None:
    scene = Scenario(ahead_seconds)
    terms = {"clean_start": False, "session_expiry_seconds": EXPIRY_SECONDS}
    client, _ = scene.connect("a", "x", **terms)
    scene.lose(client)
    client, _ = scene.connect("b", "x", **terms)
    scene.lose(client)
    node = scene.cluster.nodes["b"]
    scene.cluster.run(EXPIRY_SECONDS - 2)
    assert "x" in node.broker.sessions
    scene.cluster.run(4)
    assert "x" not in node.broker.sessions


@CLOCKS
def test_the_delay_of_a_will_whose_broker_dies(ahead_seconds: Mapping[str, float]) -> None:
    scene = Scenario(ahead_seconds)
    listener = scene.subscribe("c", "listener", "t")
    listener.take()
    client, _ = scene.connect("a", "x", **PERSISTENT, will=Will(b"t", b"gone", 1, delay_seconds=30))
    scene.lose(client)
    scene.cluster.run(10)
    scene.cluster.kill("a")
    scene.cluster.run(15)
    assert messages(listener.take()) == []
    scene.cluster.run(10)
    assert [payload for payload, _ in messages(listener.take())] == [b"gone"]


@pytest.mark.parametrize(
    "ahead_seconds", [{}, {"a": 3_600}, {"b": 86_400}, {"c": -3_600}], ids=["right", "a", "b", "c"]
)
def test_the_later_of_two_sessions_stays(ahead_seconds: Mapping[str, float]) -> None:
    """The client has a session on each side of a cut, with other topics in the later one."""
    scene = Scenario(ahead_seconds)
    scene.lose(scene.subscribe("a", "x", "earlier"))
    scene.lose(scene.connect("b", "y", **PERSISTENT)[0])
    scene.cluster.cut("c")
    scene.cluster.run(10)
    scene.lose(scene.connect("a", "x", **PERSISTENT)[0])
    scene.lose(scene.subscribe("c", "x", "t"))
    scene.cluster.heal()
    scene.cluster.run(8)
    client, packets = scene.connect("c", "x", **PERSISTENT)
    assert [one.session_present for one in packets if isinstance(one, Connack)] == [True]
    scene.publish("b", b"1")
    assert [payload for payload, _ in messages(client.take())] == [b"1"]
