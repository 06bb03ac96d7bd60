"""The owner of a session, and other users who connect with its client identifier."""

import pytest

from dovetail.broker.auth.session_owner import OwnershipRules
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Will
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, World

STRICT = OwnershipRules()
TAKEOVER = OwnershipRules(allows_takeover=True)
NAMED = OwnershipRules(needs_name=True)

both = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])


@pytest.mark.parametrize(
    ("ownership", "owner", "user", "may_connect", "may_resume"),
    [
        (STRICT, "a", "a", True, True),
        (STRICT, "a", "b", False, False),
        (STRICT, None, None, True, True),
        (STRICT, None, "a", False, False),
        (STRICT, "a", None, False, False),
        (STRICT, "", None, False, False),
        (TAKEOVER, "a", "a", True, True),
        (TAKEOVER, "a", "b", True, False),
        (TAKEOVER, None, "b", True, False),
        (NAMED, None, "a", True, True),
        (NAMED, "a", "b", False, False),
    ],
)
def test_who_may_have_whose(
    ownership: OwnershipRules,
    owner: str | None,
    user: str | None,
    may_connect: bool,
    may_resume: bool,
) -> None:
    assert ownership.may_connect(owner, user) == may_connect
    assert ownership.may_resume(owner, user) == may_resume


def refusal(world: World, user: str | None, **terms: object) -> ReasonCode:
    client = Client(world, "c", user=user, **terms)
    return ReasonCode(client.connect().reason)


def alice_with_a_message(world: World) -> None:
    alice = world.client("c", user="alice", **PERSISTENT)
    alice.subscribe("t", qos=1)
    alice.lose()
    world.client("p").publish("t", b"for alice", 1)


def assert_hers(world: World) -> None:
    alice = world.client("c", user="alice", **PERSISTENT)
    assert alice.connack is not None
    assert alice.connack.session_present
    (message,) = alice.early
    assert message.payload == b"for alice"  # type: ignore[union-attr]


@both
@pytest.mark.parametrize("clean_start", [False, True])
@pytest.mark.parametrize("user", ["bob", None])
def test_another_user_is_refused_and_leaves_all_as_it_was(
    user: str | None, clean_start: bool, version: int
) -> None:
    world = World()
    alice_with_a_message(world)
    reason = refusal(world, user, version=version, clean_start=clean_start)
    assert reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert_hers(world)


def test_so_it_is_after_a_restart() -> None:
    world = World()
    alice_with_a_message(world)
    world = world.crash()
    assert refusal(world, "bob") == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert_hers(world)


@pytest.mark.parametrize("terms", [{}, PERSISTENT], ids=["not kept", "kept"])
def test_a_client_that_is_connected_stays_so(terms: dict[str, object]) -> None:
    world = World()
    watcher = world.client("w")
    watcher.subscribe("will")
    alice = world.client("c", user="alice", will=Will(b"will", b"gone"), **terms)
    for clean_start in (False, True):
        reason = refusal(world, "bob", clean_start=clean_start)
        assert reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert not alice.is_closed
    assert watcher.payloads() == []


def test_a_will_that_waits_goes_on_waiting() -> None:
    world = World()
    watcher = world.client("w")
    watcher.subscribe("will")
    world.client(
        "c", user="alice", will=Will(b"will", b"gone", delay_seconds=10), **PERSISTENT
    ).lose()
    refusal(world, "bob")
    world.pass_time(9)
    assert watcher.payloads() == []
    world.pass_time(1)
    assert watcher.payloads() == [b"gone"]


@pytest.mark.parametrize("ends", ["expiry", "disconnect", "clean start"])
def test_a_session_that_is_over_is_nobodys(ends: str) -> None:
    world = World()
    alice = world.client("c", user="alice", **PERSISTENT)
    if ends == "expiry":
        alice.lose()
        world.pass_time(1_001)
    elif ends == "disconnect":
        alice.disconnect(session_expiry_seconds=0)
    else:
        world.client("c", user="alice", clean_start=True).disconnect()
    assert refusal(world, "bob") == ReasonCode.SUCCESS


def test_nobody_comes_in_between_while_a_clean_start_waits_for_the_disk() -> None:
    world = World()
    alice_with_a_message(world)
    world.auto_commit = False
    alice = Client(world, "c", user="alice", clean_start=True)
    alice.open()
    alice.send(alice.connect_packet)
    assert alice.take() == []
    assert refusal(world, "bob", clean_start=True) == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    world.commit_all()
    (connack,) = alice.take()
    assert connack.reason == ReasonCode.SUCCESS  # type: ignore[union-attr]


@pytest.mark.parametrize("clean_start", [False, True])
def test_who_may_take_over_ends_the_session(clean_start: bool) -> None:
    world = World(ownership=TAKEOVER)
    alice_with_a_message(world)
    bob = world.client("c", user="bob", **(PERSISTENT | {"clean_start": clean_start}))
    assert bob.connack is not None
    assert (bob.connack.reason, bob.connack.session_present) == (ReasonCode.SUCCESS, False)
    assert bob.early == []
    world.shared.ownership = STRICT  # as with SIGHUP
    assert refusal(world, "alice") == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def test_a_session_from_before_there_were_names_becomes_the_first_users() -> None:
    world = World()
    nobody = world.client("c", **PERSISTENT)
    nobody.subscribe("t", qos=1)
    nobody.lose()
    world.client("p").publish("t", b"for whoever has the client", 1)
    assert refusal(world, "alice", **PERSISTENT) == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    world = world.crash(ownership=NAMED)
    alice = world.client("c", user="alice", **PERSISTENT)
    assert alice.connack is not None
    assert alice.connack.session_present
    assert len(alice.early) == 1
    alice.lose()
    world = world.crash(ownership=NAMED)
    assert refusal(world, "bob", **PERSISTENT) == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
