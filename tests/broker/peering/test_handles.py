"""Handles in a cluster: any broker answers for a handle, and none begins one anew."""

from collections.abc import Callable
from functools import partial

import pytest

from dovetail.broker.mailbox import Mailbox, new_handle
from dovetail.codec.packets import Subscribe, SubscriptionRequest
from dovetail.errors import ReasonCode
from support.brokers.harness import Client
from support.brokers.mailboxes import begin
from support.clusters.simulated_cluster import SimulatedCluster

PATIENCE_SECONDS = 12.0


class Scene:
    """A cluster, a handle, and a publisher at each broker."""

    def __init__(self, seed: int, *names: str) -> None:
        self.cluster = SimulatedCluster(seed, *names)
        self.cluster.run(3)
        self.handle = new_handle(bytes(16), None, 1_000)
        mailbox = self.open(names[0], window=0, is_new=True)
        node = self.cluster.nodes[names[0]]
        packet = Subscribe(1, [SubscriptionRequest("t", qos=1)])
        node.broker.slices.begin(node.broker.subscribe(mailbox, packet))
        node.settle()
        self.until(lambda: mailbox.reasons is not None)
        self.close(mailbox, names[0])
        self.cluster.run(1)

    def open(self, name: str, *, window: int = 100, is_new: bool = False) -> Mailbox:
        """When it was let in, or not."""
        node = self.cluster.nodes[name]
        node.wake()
        mailbox = begin(node)
        mailbox.open(self.handle, None, window, is_new=is_new)
        node.settle()
        self.until(lambda: mailbox.is_connected or mailbox.error is not None)
        return mailbox

    def close(self, mailbox: Mailbox, name: str) -> None:
        node = self.cluster.nodes[name]
        node.wake()
        mailbox.close(with_will=False)
        node.settle()

    def until(self, condition: Callable[[], object]) -> None:
        began_at = self.cluster.clock.now
        while not condition():
            assert self.cluster.clock.now < began_at + PATIENCE_SECONDS
            self.cluster.run(0.01)

    def publish(self, name: str, *payloads: str, qos: int = 1) -> None:
        node = self.cluster.nodes[name]
        node.wake()
        client = Client(node, f"p{name}")
        client.open()
        client.send(client.connect_packet)
        self.until(lambda: client.link is not None and client.link.is_connected)
        for payload in payloads:
            node.wake()
            client.publish("t", payload.encode(), qos)
        self.cluster.run(0.5)
        node.wake()
        client.disconnect()

    def poll(self, name: str, count: int, *, acknowledged: bool = True) -> list[str]:
        """So many messages, however many polls they take."""
        found: dict[tuple[int, str], None] = {}  # an id may be another's once it is acknowledged
        while len(found) < count:
            mailbox = self.open(name)
            assert mailbox.error is None
            self.until(partial(bool, mailbox.messages))
            found |= {(one.id, one.payload): None for one in mailbox.messages}
            session = mailbox.session
            assert session is not None
            for one in mailbox.messages:
                if acknowledged:
                    session.handle_puback(one.id, self.cluster.nodes[name].now)
            self.close(mailbox, name)
            self.cluster.run(0.1)
        return [payload for _, payload in found]

    def refusal(self, name: str) -> ReasonCode:
        error = self.open(name).error
        assert error is not None
        return error.reason

    def holders(self) -> list[str]:
        return [
            name
            for name, node in self.cluster.nodes.items()
            if node.is_running and self.handle.client_id in node.broker.sessions
        ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_poll_at_another_broker_gets_the_queue(qos: int, seed: int) -> None:
    scene = Scene(seed, "a", "b", "c")
    scene.publish("a", "1", qos=qos)
    scene.publish("c", "2", qos=qos)
    assert scene.poll("a", 2, acknowledged=False) == ["1", "2"]
    scene.publish("b", "3", qos=qos)
    assert scene.poll("b", 3) == ["1", "2", "3"]
    assert scene.holders() == ["b"]
    scene.cluster.run(8)
    scene.publish("a", "4", qos=qos)
    assert scene.poll("c", 1) == ["4"]
    assert scene.holders() == ["c"]


def test_a_handle_that_is_nowhere_is_begun_nowhere() -> None:
    scene = Scene(0, "a", "b", "c")
    scene.handle = new_handle(bytes(range(16)), None, 100)
    assert scene.refusal("b") == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert scene.holders() == []


@pytest.mark.parametrize("seed", range(4))
def test_while_its_broker_is_down_others_turn_it_away_and_nothing_is_lost(seed: int) -> None:
    scene = Scene(seed, "a", "b", "c")
    scene.publish("a", "1")
    scene.cluster.kill("a")
    assert scene.refusal("b") == ReasonCode.SERVER_BUSY
    scene.cluster.run(6)
    assert scene.refusal("c") == ReasonCode.SERVER_BUSY
    scene.publish("b", "2")
    assert scene.holders() == []
    scene.cluster.start("a")
    scene.cluster.run(6)
    scene.publish("b", "3")
    assert scene.poll("b", 3) == ["1", "2", "3"]
    assert scene.holders() == ["b"]


@pytest.mark.parametrize("is_cut_before", [False, True])
@pytest.mark.parametrize("seconds", [0, 1, 10])
@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_does_not_reach_the_queue_knows_of_it_from_one_that_does(
    seed: int, seconds: float, is_cut_before: bool
) -> None:
    scene = Scene(seed, "a", "b", "c")
    scene.publish("a", "1")
    if is_cut_before:
        scene.cluster.part("b", "c")
    assert scene.poll("b", 1, acknowledged=False) == ["1"]
    scene.cluster.run(seconds)
    scene.cluster.part("b", "c")
    for _ in range(2):
        assert scene.refusal("c") == ReasonCode.SERVER_UNAVAILABLE
        scene.cluster.run(10)
    handle, scene.handle = scene.handle, new_handle(bytes(range(16)), None, 100)
    assert scene.refusal("c") == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    scene.handle = handle
    scene.cluster.heal()
    scene.cluster.run(1)
    assert scene.poll("c", 1) == ["1"]


@pytest.mark.parametrize("seconds", [0, 1, 10])
@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_missed_the_move_does_not_call_it_unknown(seed: int, seconds: float) -> None:
    """It knows that the queue has left one broker, and does not reach the one that has it."""
    scene = Scene(seed, "a", "b", "c")
    scene.publish("a", "1")
    scene.cluster.part("b", "c")
    assert scene.poll("b", 1, acknowledged=False) == ["1"]
    scene.cluster.run(seconds)
    scene.cluster.kill("a")
    for _ in range(2):
        assert scene.refusal("c") in {ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_BUSY}
        scene.cluster.run(10)
    scene.cluster.heal()
    scene.cluster.start("a")
    scene.cluster.run(6)
    assert scene.poll("c", 1) == ["1"]


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_hung_during_the_move_does_not_call_it_unknown(seed: int) -> None:
    """It has an old sketch of the broker that is down. The one that knew better has restarted."""
    scene = Scene(seed, "a", "b", "c")
    scene.publish("a", "1")
    scene.cluster.pause("c", True)
    assert scene.poll("b", 1, acknowledged=False) == ["1"]
    scene.cluster.run(3)
    scene.cluster.kill("b")
    scene.cluster.kill("a")
    scene.cluster.start("a")
    scene.cluster.pause("c", False)
    scene.cluster.run(3)
    for name in "ca":
        assert scene.refusal(name) == ReasonCode.SERVER_BUSY, name
    scene.cluster.start("b")
    scene.cluster.run(6)
    assert scene.poll("c", 1) == ["1"]


@pytest.mark.parametrize("seed", range(6))
def test_a_broker_that_hung_when_the_queue_had_left_knows_where_it_went(seed: int) -> None:
    """The new broker has confirmed the session. The former one lacks its sketch as it was then."""
    scene = Scene(seed, "a", "b")
    scene.publish("a", "1")
    client = Client(scene.cluster.nodes["b"], "other")
    client.open()
    client.send(client.connect_packet)
    scene.cluster.run(1)
    node = scene.cluster.nodes["b"]
    node.wake()
    mailbox = begin(node)
    mailbox.open(scene.handle, None, 100)
    node.settle()
    scene.until(lambda: scene.cluster.nodes["a"].mesh.session_moves.has_ghosts)
    scene.cluster.pause("a", True)
    node.wake()
    client.send(Subscribe(1, [SubscriptionRequest("another")]))
    scene.cluster.run(2)
    assert mailbox.messages
    scene.cluster.kill("b")
    scene.cluster.pause("a", False)
    scene.cluster.run(2)
    assert scene.refusal("a") == ReasonCode.SERVER_BUSY
    scene.cluster.start("b")
    scene.cluster.run(6)
    assert scene.poll("a", 1) == ["1"]


def test_a_handle_that_is_nowhere_is_unknown_while_a_broker_is_down() -> None:
    """All others know its sketch. After a start one does not, until it forgets that broker."""
    scene = Scene(0, "a", "b", "c")
    handle, scene.handle = scene.handle, new_handle(bytes(range(16)), None, 100)
    scene.cluster.kill("a")
    for _ in range(2):
        for name in "bc":
            assert is_unknown(scene, name)
        scene.cluster.run(6)
    scene.cluster.kill("b")
    scene.cluster.start("b")
    scene.cluster.run(6)
    for name in "bc":
        assert scene.refusal(name) == ReasonCode.SERVER_BUSY
    for name in "bc":
        scene.cluster.nodes[name].mesh.forget("a")
    scene.handle = handle
    for name in "bc":
        assert is_unknown(scene, name)


@pytest.mark.parametrize("milliseconds", [0, 2, 5, 10, 20, 40, 100, 300])
@pytest.mark.parametrize("seed", range(3))
def test_its_broker_dies_while_it_moves(seed: int, milliseconds: int) -> None:
    """Whoever has it then: nobody begins it anew, and its subscription stays."""
    scene = Scene(seed, "a", "b", "c")
    scene.publish("c", "1", "2")
    node = scene.cluster.nodes["b"]
    node.wake()
    mailbox = begin(node)
    mailbox.open(scene.handle, None, 100)
    node.settle()
    scene.cluster.run(milliseconds / 1_000)
    scene.cluster.kill("a")
    scene.cluster.run(6)
    scene.close(mailbox, "b")
    assert is_whole_or_away(scene, "b")
    scene.cluster.start("a")
    scene.cluster.run(6)
    scene.publish("c", "3")
    assert scene.poll("c", 3) == ["1", "2", "3"]
    assert scene.holders() == ["c"]


def is_whole_or_away(scene: Scene, name: str) -> bool:
    mailbox = scene.open(name)
    if mailbox.error is not None:
        return mailbox.error.reason == ReasonCode.SERVER_BUSY
    session = mailbox.session
    assert session is not None
    subscribed = list(session.subscriptions) == ["t"]
    scene.close(mailbox, name)
    return subscribed


def test_the_end_at_another_broker_is_the_end_everywhere() -> None:
    scene = Scene(0, "a", "b")
    mailbox = scene.open("b")
    scene.cluster.nodes["b"].wake()
    mailbox.end_session()
    scene.cluster.nodes["b"].settle()
    assert scene.holders() == []
    for name in ("a", "b"):  # for a while it may be on its way
        scene.until(partial(is_unknown, scene, name))


def is_unknown(scene: Scene, name: str) -> bool:
    return scene.refusal(name) == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
