"""How long a CONNECT waits for other brokers, on a virtual clock."""

from random import Random

import pytest

from dovetail.broker.peering.roaming.limits import CLAIM_WAIT_SECONDS
from dovetail.codec.packets import Connack
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client
from support.clusters.connect_scenario import ConnectScenario

WAIT_SECONDS_MAX = 0.3
"""Two round trips over the slowest link of the simulator, writes to disk on both sides, a tick."""


@pytest.mark.parametrize("ends", ["clean start", "disconnect"])
@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("seed", range(4))
def test_a_session_that_was_dropped_while_it_moved_is_not_waited_for(
    seed: int, names: str, ends: str
) -> None:
    random = Random(seed)
    scene = ConnectScenario(seed, *names)
    slow = []
    for number in range(20):
        client_id = f"c{number}"
        terms: dict[str, object] = {"clean_start": True}
        for _ in range(3):
            scene.visit(random.choice(names), client_id)
            scene.cluster.run(random.choice((0, 0.003, 0.03)))
        if ends == "disconnect":
            scene.visit(random.choice(names), client_id, expiry_seconds=0)
            scene.cluster.run(random.choice((0, 0.003, 0.03)))
            terms = PERSISTENT
        seconds = scene.seconds_to_connect(random.choice(names), client_id, **terms)
        if seconds > WAIT_SECONDS_MAX:
            slow.append((client_id, round(seconds, 3)))
    assert slow == []


@pytest.mark.parametrize("moves", [False, True], ids=["new", "moves"])
@pytest.mark.parametrize("seed", range(4))
def test_a_broker_that_hangs_and_has_nothing_is_not_waited_for_longer(
    seed: int, moves: bool
) -> None:
    scene = ConnectScenario(seed, *"abc")
    if moves:
        scene.visit("a")
        scene.cluster.run(1)
    scene.cluster.pause("c", True)
    began_at = scene.cluster.clock.now
    _, connack = scene.connect("b", **PERSISTENT)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, moves)
    assert scene.cluster.clock.now - began_at < CLAIM_WAIT_SECONDS + WAIT_SECONDS_MAX


# Brokers that are cut off from each other, and not from a third one -------------------------------


@pytest.fixture(params=[False, True], ids=["cut after", "cut before"])
def parted(request: pytest.FixtureRequest) -> ConnectScenario:
    """A session that is at b, where c does not reach it."""
    scene = ConnectScenario(0, *"abc")
    scene.visit("a")
    if request.param:
        scene.cluster.part("b", "c")
    scene.visit("b")
    scene.cluster.run(8)
    scene.cluster.part("b", "c")
    return scene


def test_a_client_does_not_begin_without_a_session_that_another_broker_reaches(
    parted: ConnectScenario,
) -> None:
    began_at = parted.cluster.clock.now
    _, connack = parted.connect("c", **PERSISTENT)
    assert connack.reason == ReasonCode.SERVER_UNAVAILABLE
    assert parted.cluster.clock.now - began_at < WAIT_SECONDS_MAX
    _, connack = parted.connect("a", **PERSISTENT)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, True)


def test_it_gets_it_when_the_cut_is_healed(parted: ConnectScenario) -> None:
    parted.connect("c", **PERSISTENT)
    parted.cluster.heal()
    parted.cluster.run(1)
    _, connack = parted.connect("c", **PERSISTENT)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, True)


def test_who_starts_clean_needs_no_session(parted: ConnectScenario) -> None:
    parted.seconds_to_connect("c", clean_start=True)
    parted.cluster.run(1)
    assert "c" not in parted.cluster.nodes["b"].broker.sessions


def test_who_has_none_is_let_in(parted: ConnectScenario) -> None:
    assert parted.seconds_to_connect("c", "new", **PERSISTENT) < WAIT_SECONDS_MAX


def test_a_connection_that_breaks_while_its_broker_is_asked(parted: ConnectScenario) -> None:
    parted.cluster.heal()
    parted.cluster.run(1)
    node = parted.cluster.nodes["c"]
    node.wake()
    client = Client(node, "c", **PERSISTENT)
    client.open()
    client.send(client.connect_packet)
    parted.cluster.part("b", "c")
    parted.cluster.run(2 * CLAIM_WAIT_SECONDS + WAIT_SECONDS_MAX)
    (connack,) = client.take()
    assert isinstance(connack, Connack)
    assert connack.reason in (ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_BUSY)


def test_a_broker_that_nobody_reaches_is_down(parted: ConnectScenario) -> None:
    parted.cluster.kill("b")
    parted.cluster.run(1)
    _, connack = parted.connect("c", **PERSISTENT)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, False)
