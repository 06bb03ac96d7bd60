"""Single cases of session moves: fast moves, and moves while a broker is down."""

from collections.abc import Callable

import pytest

from dovetail.codec.packets import Connack, Publish, Subscribe
from dovetail.codec.packets import SubscriptionRequest as Request
from support.brokers.harness import PERSISTENT, Client
from support.clusters.clients import PersistentReceiver, PersistentSender
from support.clusters.simulated_cluster import SimulatedCluster

PATIENCE_SECONDS = 7.0


class Scenario:
    """A cluster and one client."""

    def __init__(self, seed: int, *names: str) -> None:
        self.cluster = SimulatedCluster(seed, *names)
        self.cluster.run(3)
        self.client: Client | None = None
        self.home = ""

    def connect(self, name: str, **fields: object) -> tuple[Connack, float]:
        """The answer, and how long it took."""
        self.begin_to_connect(name, **fields)
        assert self.client is not None
        began_at = self.cluster.clock.now
        while self.cluster.clock.now < began_at + PATIENCE_SECONDS:
            self.cluster.run(0.05)
            for packet in self.client.take():
                if isinstance(packet, Connack):
                    return packet, self.cluster.clock.now - began_at
        raise AssertionError("no CONNACK")

    def begin_to_connect(self, name: str, **fields: object) -> None:
        self.home = name
        node = self.cluster.nodes[name]
        node.wake()
        self.client = Client(node, "k", **fields)
        self.client.open()
        self.client.send(self.client.connect_packet)

    def subscribe(self, *filters: str) -> None:
        assert self.client is not None
        self.cluster.nodes[self.home].wake()
        self.client.send(Subscribe(1, [Request(name, 1) for name in filters], 0))
        self.cluster.run(1)

    def leave(self, act: Callable[[Client], object] = Client.lose) -> None:
        assert self.client is not None
        self.cluster.nodes[self.home].wake()
        act(self.client)

    def owed(self, to: str) -> int:
        """By all others together."""
        return sum(
            node.mesh.outbox(to).count
            for node in self.cluster.nodes.values()
            if node.is_running and node.name != to
        )


@pytest.mark.parametrize("clean_start", [True, False])
@pytest.mark.parametrize("home", ["a", "b", "c"])
def test_a_session_that_moved_and_ended_delays_no_client(home: str, clean_start: bool) -> None:
    """The rest of the session waits for a broker that is down; its client does not."""
    scene = Scenario(0, "a", "b", "c", "x")
    scene.connect("a", **PERSISTENT)
    scene.cluster.kill("x")
    scene.cluster.run(6)
    scene.leave()
    answer, _ = scene.connect("b", **PERSISTENT)
    assert answer.session_present
    scene.cluster.run(12)
    assert "k" in scene.cluster.nodes["a"].mesh.session_moves.ghosts
    scene.leave(lambda client: client.disconnect(session_expiry_seconds=0))
    scene.cluster.run(2)
    for _ in range(3):
        answer, seconds = scene.connect(home, clean_start=clean_start)
        assert answer.reason == 0
        assert seconds < 1
        scene.leave(Client.disconnect)
        scene.cluster.run(1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("home", ["a", "c"])
def test_a_client_that_gives_up_at_one_broker_has_its_session_at_the_next(
    home: str, seed: int
) -> None:
    for milliseconds in (2, 5, 10, 20, 30, 50):
        scene = Scenario(seed, "a", "b", "c")
        scene.connect("a", **PERSISTENT)
        scene.subscribe("t")
        scene.leave()
        scene.cluster.run(1)
        scene.begin_to_connect("b", **PERSISTENT)
        scene.cluster.run(milliseconds / 1_000)
        scene.leave()
        answer, _ = scene.connect(home, **PERSISTENT)
        assert answer.session_present, milliseconds
        scene.cluster.run(8)
        session = scene.cluster.nodes[home].broker.sessions["k"]
        assert list(session.subscriptions) == ["t"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "slow",
    [(), (("b", "d"),), (("d", "a"),), (("a", "b"),), (("d", "a"), ("a", "b"))],
)
def test_two_consecutive_moves(slow: tuple[tuple[str, str], ...], seed: int) -> None:
    """Each message arrives once and in order, whichever connection is slow."""
    for stay_seconds in (0.03, 0.05, 0.1, 0.3, 0.6):
        cluster = SimulatedCluster(seed, "a", "b", "c", "d")
        cluster.run(3)
        receiver = PersistentReceiver(cluster, "a", "r", "t/#", 2)
        sender = PersistentSender(cluster, "d", "s", b"t/1", 2)

        def pump(
            cluster: SimulatedCluster = cluster,
            receiver: PersistentReceiver = receiver,
            sender: PersistentSender = sender,
        ) -> None:
            receiver.pump()
            if receiver.ready:
                sender.pump()
            cluster.clock.after(0.02, pump)

        pump()
        cluster.run(2)
        for ends in slow:
            cluster.wires[ends].slow_down(0.4)
        cluster.run(1)
        receiver.lose()
        receiver.home = "b"
        cluster.run(stay_seconds)
        receiver.lose()
        receiver.home = "c"
        cluster.run(2)
        sender.is_sending = False
        cluster.run(25)
        assert len(sender.acknowledged) > 100
        assert receiver.numbers(b"t/1") == sorted(sender.acknowledged), stay_seconds


def test_moves_while_a_broker_is_down_leave_little_spooled() -> None:
    scene = Scenario(0, "a", "b", "x")
    scene.connect("a", **PERSISTENT)
    scene.subscribe(*(f"t/{number}" for number in range(10)))
    scene.cluster.kill("x")
    scene.cluster.run(6)
    for turn in range(12):
        scene.leave()
        answer, _ = scene.connect("ba"[turn % 2], **PERSISTENT)
        assert answer.session_present
        scene.cluster.run(8)
    for name in "ab":
        node = scene.cluster.nodes[name]
        assert len(node.mesh.session_moves.ghosts["k"]) <= 2
        assert node.broker.router.count <= 30
    scene.cluster.start("x")
    scene.cluster.run(30)
    assert not any(node.mesh.session_moves.ghosts for node in scene.cluster.nodes.values())
    assert scene.owed("x") == 0


@pytest.mark.parametrize("clean_start", [True, False])
def test_frequent_moves_do_not_grow_the_spool_for_a_broker_that_is_down(
    clean_start: bool,
) -> None:
    scene = Scenario(0, "a", "b", "c")
    scene.connect("a", **PERSISTENT)
    scene.cluster.run(1)
    scene.cluster.kill("a")
    scene.cluster.run(5)
    owed = []
    for _ in range(10):
        scene.connect("b", clean_start=clean_start)
        scene.leave(Client.disconnect)
        scene.cluster.run(0.5)
        owed.append(scene.owed("a"))
    assert owed[0] == owed[-1] > 0
    scene.cluster.start("a")
    scene.cluster.run(20)
    assert scene.owed("a") == 0
    session = scene.cluster.nodes["a"].broker.sessions.get("k")
    assert session is None


def test_a_broker_that_started_while_another_was_down_asks_those_that_know_it() -> None:
    """Nothing is spooled for clients that were never there."""
    scene = Scenario(0, "a", "b", "c")
    scene.connect("a", **PERSISTENT)
    scene.cluster.run(1)
    scene.cluster.kill("a")
    scene.cluster.run(5)
    scene.cluster.kill("b")
    scene.cluster.start("b")
    scene.cluster.run(8)
    node = scene.cluster.nodes["b"]
    for number in range(10):
        node.wake()
        client = Client(node, f"new-{number}")
        client.open()
        client.send(client.connect_packet)
        scene.cluster.run(0.5)
        assert any(isinstance(packet, Connack) for packet in client.take())
    assert scene.owed("a") == 0
    answer, _ = scene.connect("b", **PERSISTENT)
    assert not answer.session_present
    assert scene.owed("a") > 0


def test_sessions_that_wait_for_a_broker_that_is_down_cost_nothing() -> None:
    cluster = SimulatedCluster(1, "a", "b", "c")
    cluster.run(3)

    def connect(name: str) -> None:
        node = cluster.nodes[name]
        node.wake()
        for number in range(50):
            client = Client(node, f"c{number}", **PERSISTENT)
            client.open()
            client.send(client.connect_packet)
        cluster.run(5)

    connect("a")
    cluster.kill("a")
    cluster.run(4)
    connect("b")
    cluster.run(10)
    node = cluster.nodes["b"]
    assert len(node.mesh.session_moves._redirects.arriving) == 50
    rows_before = node.shared.journal.rows_written
    cluster.run(30)
    assert node.shared.journal.rows_written == rows_before


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_publisher_that_moves_does_not_overtake_itself(seed: int, qos: int) -> None:
    """Messages that its former broker received are still on their way to a subscriber."""
    cluster = SimulatedCluster(seed, "a", "b", "c")
    receiver = PersistentReceiver(cluster, "c", "receiver", "t", qos)
    sender = PersistentSender(cluster, "a", "sender", b"t", qos)

    def pump() -> None:
        receiver.pump()
        if receiver.ready:
            sender.pump()
        cluster.clock.after(0.001, pump)

    pump()
    sender.messages_max = 0
    cluster.run(5)
    cluster.wires["a", "c"].slow_down(0.3)
    sender.messages_max = 3
    cluster.run(0.05)
    sender.lose()
    sender.home = "b"
    cluster.run(0.002)
    cluster.run_until(lambda: sender.trying_since is None, seconds_max=2)
    sender.messages_max = 6
    cluster.run(5)
    assert sender.acknowledged == [1, 2, 3, 4, 5, 6]
    assert [*dict.fromkeys(receiver.numbers(b"t"))] == [1, 2, 3, 4, 5, 6]


class Publishers:
    """Clients that publish at QoS 1, one at each broker."""

    def __init__(self, scene: Scenario, *names: str) -> None:
        self._scene = scene
        self.clients: dict[str, Client] = {}
        for name in names:
            node = scene.cluster.nodes[name]
            node.wake()
            client = self.clients[name] = Client(node, f"publisher-{name}")
            client.open()
            client.send(client.connect_packet)
        self.published: list[bytes] = []
        scene.cluster.run(1)

    def publish(self, name: str) -> None:
        payload = b"%d" % len(self.published)
        self.published.append(payload)
        self._scene.cluster.nodes[name].wake()
        self.clients[name].send(Publish(b"t", payload, 1, packet_id=len(self.published)))


def received(scene: Scenario, name: str) -> set[bytes]:
    """Connect the client at this broker, and return what it gets."""
    scene.begin_to_connect(name, **PERSISTENT)
    assert scene.client is not None
    scene.cluster.run(15)
    packets = scene.client.take()
    assert any(isinstance(packet, Connack) and packet.session_present for packet in packets)
    return {packet.payload for packet in packets if isinstance(packet, Publish)}


@pytest.mark.parametrize("seed", range(4))
def test_a_session_on_its_way_to_a_broker_that_is_down_gets_all_messages(seed: int) -> None:
    """No other broker sends directly to the new one before that has the subscriptions."""
    scene = Scenario(seed, "a", "b", "c")
    publishers = Publishers(scene, "a", "b")
    scene.connect("a", **PERSISTENT)
    scene.subscribe("t")
    scene.leave()
    scene.cluster.wires["a", "c"].slow_down(1)
    scene.begin_to_connect("c", **PERSISTENT)
    scene.cluster.run_until(
        lambda: scene.cluster.nodes["a"].mesh.session_moves.has_ghosts, seconds_max=1
    )
    scene.cluster.run(0.1)
    scene.cluster.kill("c")
    for _ in range(20):
        scene.cluster.run(1)
        publishers.publish("a")
        publishers.publish("b")
    scene.cluster.start("c")
    scene.cluster.run(8)
    assert received(scene, "c") == {*publishers.published}


def test_a_session_without_its_subscriptions_asks_for_no_messages() -> None:
    """Its new broker restarts when only a part of the session has come."""
    scene = Scenario(2, "a", "b", "c")  # the header comes well before the subscriptions
    publishers = Publishers(scene, "b")
    scene.connect("a", **PERSISTENT)
    scene.subscribe("t")
    scene.leave()
    cluster = scene.cluster
    cluster.wires["a", "c"].slow_down(0.5)
    scene.begin_to_connect("c", **PERSISTENT)
    node = cluster.nodes["c"]

    def has_header_on_disk() -> bool:
        session = node.broker.sessions.get("k")
        return session is not None and node.shared.journal.outstanding is None

    while not has_header_on_disk():
        cluster.run(0.000_1)
    assert not node.broker.sessions["k"].subscriptions
    cluster.kill("c")
    cluster.part("a", "c")
    cluster.start("c")
    cluster.run(12)
    publishers.publish("b")
    cluster.run(1)
    cluster.heal()
    cluster.run(8)
    assert received(scene, "c") == {*publishers.published}


@pytest.mark.parametrize("seed", range(4))
def test_ghosts_that_become_one_take_what_the_earlier_one_would_have(seed: int) -> None:
    """A publication is on its way to a broker where the client has been several times since."""
    scene = Scenario(seed, "a", "b", "c")
    publishers = Publishers(scene, "b")
    scene.connect("a", **PERSISTENT)
    scene.subscribe("t")
    scene.leave()
    cluster = scene.cluster
    cluster.wires["b", "c"].slow_down(20)
    scene.connect("c", **PERSISTENT)
    cluster.run(1)
    publishers.publish("b")
    cluster.run(0.5)
    cluster.pause("b", True)
    for name in "acacacac":
        scene.leave()
        answer, _ = scene.connect(name, **PERSISTENT)
        assert answer.session_present
        cluster.run(0.5)
    cluster.pause("b", False)
    cluster.run(30)
    assert scene.client is not None
    got = {packet.payload for packet in scene.client.take() if isinstance(packet, Publish)}
    assert got == {*publishers.published}
