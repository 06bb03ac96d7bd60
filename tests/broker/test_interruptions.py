"""Events between two slices of long work: clients leave and return, brokers stop.

`world.works = False` keeps works from going on by themselves, as if other clients had all turns.
"""

import pytest

from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.limits import ENTRIES_PER_PIECE
from dovetail.codec.packets import Publish, Subscribe, SubscriptionRequest, Will
from support.brokers.harness import PERSISTENT, Client, World, attributes

RECEIVERS = 600
"""More than one piece of a search takes."""


def receivers(world: World, **options: object) -> list[Client]:
    clients = [world.client(f"r{number}") for number in range(RECEIVERS)]
    for client in clients:
        client.subscribe("t", **options)  # type: ignore[arg-type]
    return clients


def payloads(client: Client) -> list[bytes]:
    packets = [*client.early, *client.take()]
    client.early = []
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


def run_pieces(world: World, count: int) -> None:
    for _ in range(count):
        world.broker.slices.run(lambda: True)


def go_on(world: World) -> None:
    world.works = True
    world.settle()


@pytest.mark.parametrize("pieces", range(5))
def test_qos_2_that_is_sent_again_over_another_connection_comes_once(pieces: int) -> None:
    world = World()
    readers = receivers(world, qos=2)
    first = world.client("p", **PERSISTENT)
    world.works = False
    packet = Publish(b"t", b"once", 2, packet_id=7)
    first.send(packet)
    run_pieces(world, pieces)
    again = world.client("p", **PERSISTENT)
    packet.duplicate = True
    again.send(packet)
    go_on(world)
    assert {tuple(payloads(reader)) for reader in readers} == {(b"once",)}


@pytest.mark.parametrize("pieces", range(5))
def test_a_publication_whose_client_is_lost_comes_to_all_or_to_nobody(pieces: int) -> None:
    world = World()
    readers = receivers(world)
    publisher = world.client("p", will=Will(b"t", b"offline", 0, retain=False))
    world.works = False
    publisher.send(Publish(b"t", b"online", 1, packet_id=7))
    run_pieces(world, pieces)
    publisher.lose()
    go_on(world)
    (seen,) = {tuple(payloads(reader)) for reader in readers}
    assert seen in {(b"offline",), (b"online", b"offline")}


@pytest.mark.parametrize("topic_filter", ["t", "#"])
@pytest.mark.parametrize("pieces", range(5))
def test_who_subscribes_while_a_retained_message_is_routed_gets_it(
    pieces: int, topic_filter: str
) -> None:
    world = World()
    receivers(world)
    publisher, late = world.client("p"), world.client("late")
    world.works = False
    publisher.send(Publish(b"t", b"new", retain=True))
    run_pieces(world, pieces)
    late.send(Subscribe(9, [SubscriptionRequest(topic_filter)]))
    go_on(world)
    assert payloads(late) == [b"new"]


@pytest.mark.parametrize("pieces", range(4))
def test_what_a_group_is_owed_outlives_a_crash_while_a_member_is_cleared_away(pieces: int) -> None:
    count = 2 * ENTRIES_PER_PIECE + 1
    world = World()
    member, publisher = world.client("a", **PERSISTENT), world.client("p")
    member.subscribe("$share/g/t", qos=1)
    member.disconnect()
    for number in range(count):
        publisher.publish("t", b"%d" % number, 1)
    other = world.client("b", **PERSISTENT)
    other.subscribe("$share/g/t", qos=1)
    other.disconnect()
    world.works = world.auto_commit = False
    clean = Client(world, "a", clean_start=True)
    clean.open()
    clean.send(clean.connect_packet)
    for _ in range(pieces):
        world.commit()
        run_pieces(world, 1)
    world.commit()
    world = world.crash()
    found = [
        payload for name in "ab" for payload in payloads(world.client(name, **PERSISTENT))
    ]  # fmt: skip
    assert sorted(found, key=int) == [b"%d" % number for number in range(count)]


def test_a_client_that_we_do_not_listen_to_is_not_silent() -> None:
    world = World()
    receivers(world)
    publisher = world.client("p", keep_alive_seconds=1)
    world.works = False
    publisher.send(Publish(b"t", b"x", 1, packet_id=5))
    for _ in range(20):
        world.now += 0.1
        world.broker.tick(world.now)
    assert not publisher.is_closed


@pytest.mark.parametrize("pieces", range(4))
def test_a_client_that_leaves_behind_a_long_subscribe(pieces: int) -> None:
    world = World()
    client = world.client("c")
    world.works = False
    client.send(Subscribe(1, [SubscriptionRequest(f"some/filter/{n}") for n in range(3_000)]))
    run_pieces(world, pieces)
    client.lose()
    go_on(world)
    assert not world.broker.slices
    assert world.broker.router.boxes == 0


@pytest.mark.parametrize("pieces", range(4))
def test_a_route_that_is_searched_while_spaces_change_is_not_kept(pieces: int) -> None:
    def spaces(high: float) -> list[Space]:
        return [Space("s", "t", (Dimension("x", 0, high),))]

    world = World(spaces=spaces(10))
    receivers(world)
    chooser = world.client("chooser")
    chooser.subscribe("t", where="x > 5")
    publisher = world.client("p")
    world.works = False
    publisher.send(Publish(b"t", b"0", properties=attributes(x=1)))
    run_pieces(world, pieces)
    world.broker.change_spaces(SpaceRegistry(spaces(20)))
    go_on(world)
    payloads(chooser)
    publisher.send(Publish(b"t", b"1", properties=attributes(x=7)))
    assert payloads(chooser) == [b"1"]
