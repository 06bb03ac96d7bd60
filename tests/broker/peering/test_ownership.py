"""Users who connect to another broker with the client identifier of another user."""

from random import Random

import pytest

from dovetail.broker.auth.session_owner import OwnershipRules
from dovetail.broker.mailbox import new_handle, parse_handle
from dovetail.codec.packets import Connack, Packet, Publish, Subscribe, Will
from dovetail.codec.packets import SubscriptionRequest as Request
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client
from support.clusters.connect_scenario import ConnectScenario

NAMES = ("a", "b", "c")
OTHER_OWNER = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


class Scene(ConnectScenario):
    """Alice has a session at a, in which a message waits."""

    def __init__(self, seed: int, *, is_connected: bool = False) -> None:
        super().__init__(seed, *NAMES)
        self.alice, connack = self.connect("a", user="alice", **PERSISTENT)
        assert connack.reason == ReasonCode.SUCCESS
        self.cluster.nodes["a"].wake()
        self.alice.send(Subscribe(1, [Request("t", 1)], 0))
        self.cluster.run(1)
        if not is_connected:
            self.lose(self.alice)
            self.publish("c", b"for alice")

    def lose(self, client: Client) -> None:
        client.world.wake()  # type: ignore[attr-defined]
        client.lose()

    def publish(self, name: str, payload: bytes) -> None:
        client, _ = self.connect(name, "publisher")
        self.cluster.nodes[name].wake()
        client.publish("t", payload, 1)
        self.cluster.run(0.5)
        self.lose(client)

    def begin(self, name: str, **terms: object) -> Client:
        """To connect, without waiting for the answer."""
        node = self.cluster.nodes[name]
        node.wake()
        client = Client(node, "c", **terms)
        client.open()
        client.send(client.connect_packet)
        return client

    def reason(self, name: str, user: str | None, **terms: object) -> ReasonCode:
        return ReasonCode(self.connect(name, "c", user=user, **terms)[1].reason)

    def assert_hers(self, name: str) -> None:
        client = self.begin(name, user="alice", **PERSISTENT)
        self.cluster.run(3)
        connack, *packets = client.take()
        assert isinstance(connack, Connack)
        assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, True)
        assert payloads(packets) == [b"for alice"]


def payloads(packets: list[Packet]) -> list[bytes]:
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clean_start", [False, True])
@pytest.mark.parametrize("user", ["bob", None])
def test_another_user_is_refused_at_every_broker(
    user: str | None, clean_start: bool, seed: int
) -> None:
    scene = Scene(seed)
    for name in NAMES:
        assert (
            scene.reason(name, user, **(PERSISTENT | {"clean_start": clean_start})) == OTHER_OWNER
        )
    scene.assert_hers("b")
    assert scene.reason("a", user, clean_start=clean_start) == OTHER_OWNER
    assert scene.reason("c", user, clean_start=clean_start) == OTHER_OWNER


def test_a_client_that_is_connected_elsewhere_stays_so() -> None:
    scene = Scene(0, is_connected=True)
    for clean_start in (False, True):
        assert scene.reason("b", "bob", clean_start=clean_start) == OTHER_OWNER
    assert not scene.alice.is_closed


@pytest.mark.parametrize("milliseconds", [0, 2, 5, 10, 20, 40, 100, 300])
@pytest.mark.parametrize("seed", range(3))
def test_a_session_that_is_on_its_way_is_nobody_elses(seed: int, milliseconds: int) -> None:
    scene = Scene(seed)
    alice = scene.begin("b", user="alice", **PERSISTENT)
    scene.cluster.run(milliseconds / 1_000)
    others = [scene.begin(name, user="bob", clean_start=True) for name in NAMES]
    scene.cluster.run(3)
    for other in others:
        (connack,) = other.take()
        assert isinstance(connack, Connack)
        # Where bob was first, and alice was found out about before his question was.
        assert connack.reason in (OTHER_OWNER, ReasonCode.SERVER_BUSY)
    assert payloads(alice.take()) == [b"for alice"]


@pytest.mark.parametrize("seed", range(3))
def test_who_tries_again_and_again_keeps_nobody_out(seed: int) -> None:
    scene = Scene(seed)
    random = Random(seed)

    def bother() -> None:
        scene.begin(random.choice(NAMES), user="bob", clean_start=True)
        scene.cluster.clock.after(random.uniform(0, 0.01), bother)

    bother()
    for _ in range(10):
        scene.cluster.run(random.uniform(0, 0.5))
        client, connack = scene.connect(random.choice(NAMES), user="alice", **PERSISTENT)
        assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, True)
        scene.lose(client)


@pytest.mark.parametrize("seed", range(6))
def test_of_two_users_who_come_for_a_new_session_at_once_one_gets_it(seed: int) -> None:
    scene = ConnectScenario(seed, *NAMES)
    random = Random(seed)
    for number in range(10):
        clients = []
        for user, name in (("alice", "a"), ("bob", "b")):
            node = scene.cluster.nodes[name]
            node.wake()
            client = Client(node, f"c{number}", user=user, **PERSISTENT)
            client.open()
            client.send(client.connect_packet)
            clients.append(client)
            scene.cluster.run(random.choice((0, 0.001, 0.01, 0.03)))
        scene.cluster.run(1)
        reasons = [packet.reason for one in clients for packet in one.take()]  # type: ignore[union-attr]
        let_in, refused = sorted(reasons)
        assert let_in == ReasonCode.SUCCESS
        assert refused in (ReasonCode.SERVER_BUSY, OTHER_OWNER)


@pytest.mark.parametrize("clean_start", [False, True])
@pytest.mark.parametrize("is_cut_off", [False, True], ids=["down", "cut off"])
@pytest.mark.parametrize("seed", range(2))
def test_another_user_does_not_get_a_session_whose_broker_is_away(
    seed: int, is_cut_off: bool, clean_start: bool
) -> None:
    """The other brokers do not know who owns it. Then both users have one."""
    scene = Scene(seed)
    if is_cut_off:
        scene.cluster.part("a", "b")
        scene.cluster.part("a", "c")
    else:
        scene.cluster.kill("a")
    scene.cluster.run(15 if is_cut_off else 5)
    bob, connack = scene.connect("b", user="bob", **(PERSISTENT | {"clean_start": clean_start}))
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, False)
    scene.cluster.run(2)
    if is_cut_off:
        scene.cluster.heal()
    else:
        scene.cluster.start("a")
    scene.cluster.run(10)
    assert payloads(bob.take()) == []
    assert scene.reason("b", "alice", **PERSISTENT) == OTHER_OWNER
    scene.assert_hers("c")
    assert not bob.is_closed
    scene.lose(bob)
    assert scene.reason("a", "bob", **PERSISTENT) == ReasonCode.SUCCESS
    assert "c" not in scene.cluster.nodes["b"].broker.sessions


def test_another_user_does_not_take_a_will_back() -> None:
    scene = ConnectScenario(0, *NAMES)
    watcher, _ = scene.connect("c", "watcher")
    scene.cluster.nodes["c"].wake()
    watcher.send(Subscribe(1, [Request("will", 1)], 0))
    scene.cluster.run(1)
    watcher.take()
    scene.connect("a", user="alice", will=Will(b"will", b"gone", 1))
    scene.cluster.run(1)
    scene.cluster.kill("a")
    scene.cluster.run(0.5)
    _, connack = scene.connect("b", user="bob")
    assert connack.reason == ReasonCode.SUCCESS  # her session was not kept
    scene.cluster.run(20)
    assert payloads(watcher.take()) == [b"gone"]


def test_who_may_take_over_ends_the_session_wherever_it_is() -> None:
    scene = Scene(0)
    for node in scene.cluster.nodes.values():
        node.shared.ownership = OwnershipRules(allows_takeover=True)
    _, connack = scene.connect("b", user="bob", **PERSISTENT)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, False)
    assert "c" not in scene.cluster.nodes["a"].broker.sessions


@pytest.mark.parametrize("is_connected", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_of_two_who_may_take_over_and_were_cut_off_the_later_one_stays(
    seed: int, is_connected: bool
) -> None:
    scene = ConnectScenario(seed, *NAMES)
    for node in scene.cluster.nodes.values():
        node.shared.ownership = OwnershipRules(allows_takeover=True)
    scene.cluster.part("a", "b")
    scene.cluster.part("a", "c")
    scene.cluster.run(15)
    clients = {}
    for user, name in (("alice", "a"), ("bob", "b")):
        clients[user], connack = scene.connect(name, user=user, **PERSISTENT)
        assert connack.reason == ReasonCode.SUCCESS
        scene.cluster.run(1)
        if not is_connected:
            scene.cluster.nodes[name].wake()
            clients[user].lose()
    scene.cluster.heal()
    scene.cluster.run(20)
    sessions = [node.broker.sessions.get("c") for node in scene.cluster.nodes.values()]
    assert [one.user for one in sessions if one is not None] == ["bob"]
    assert clients["bob"].is_closed != is_connected
    assert clients["alice"].is_closed


def test_a_session_from_before_there_were_names_becomes_the_first_users() -> None:
    scene = ConnectScenario(0, *NAMES)
    scene.visit("a")
    scene.cluster.run(1)
    assert scene.connect("b", user="alice", **PERSISTENT)[1].reason == OTHER_OWNER
    for node in scene.cluster.nodes.values():
        node.shared.ownership = OwnershipRules(needs_name=True)
    client, connack = scene.connect("b", user="alice", **PERSISTENT)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, True)
    client.disconnect()
    scene.cluster.run(1)
    assert scene.connect("c", user="bob", **PERSISTENT)[1].reason == OTHER_OWNER
    _, connack = scene.connect("c", user="alice", **PERSISTENT)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, True)


def test_a_handle_is_its_users() -> None:
    """Every broker can tell by its name alone."""
    handle = new_handle(bytes(16), "alice", 100)
    assert parse_handle(handle.text, "alice") == handle
    assert parse_handle(handle.text, "bob") is None
    assert parse_handle(handle.text, None) is None
