"""Serving a space, without Spark: the ids that the oracle finds, and nobody loses anything."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from dovetail.api.engine import Entry, Handover, Listed
from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import Spaces
from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.limits import ENGINE_BODY_BYTES, SERVE_CHANGES_MIN
from dovetail.pipeline.serve import clause_shipment
from dovetail.pipeline.serve.broker_client import Target
from dovetail.pipeline.serve.clause_shipment import Clauses
from dovetail.pipeline.serve.state_file import FILE, load
from dovetail.pipeline.source.checkpoint import BatchOffsets
from support.brokers.harness import KEPT, Client, attributes
from support.brokers.streamed_world import LIVE, STREAMED, StreamedWorld
from support.clusters.serving_world import ServingWorld
from support.oracles.engine import OracleEngine

NAMES = ("b1", "b2")


@pytest.fixture
def world(tmp_path: Path) -> ServingWorld:
    worlds = {name: StreamedWorld(name=name, bytes_max=1 << 30) for name in NAMES}
    return ServingWorld(worlds, tmp_path / "checkpoint")


def broker(world: ServingWorld, name: str = "b1") -> StreamedWorld:
    return world.brokers.worlds[name]


def reader(world: ServingWorld, name: str, at: str, where: str = "x >= 5") -> Client:
    client = broker(world, at).client(name, **KEPT)
    client.subscribe("traffic/#", where=where, qos=1)
    return client


def publish(world: ServingWorld, at: str = "b1", number: int = 0) -> None:
    client = broker(world, at).client(f"publisher-at-{at}")
    client.publish("traffic/1", b'{"n": %d}' % number, 1, properties=attributes(x=5))


def numbers(client: Client) -> list[int]:
    """What came; it is not acknowledged."""
    return [int(one.payload[6:-1]) for one in client.messages()]


# The same as the oracle ---------------------------------------------------------------------------


def change_clauses(world: ServingWorld, random: Random, subscribed: list[tuple[str, str]]) -> None:
    """At random brokers, some of them groups' that are at both."""
    for _ in range(random.randint(0, 12)):
        low = random.randint(0, 8)
        where = f"{low} <= x < {low + random.randint(1, 5)}"
        if random.random() < 0.3:
            where += f' and road == "{random.choice("ab")}"'
        if random.random() < 0.3:
            where += f" or y >= {random.randint(5, 12)}"
        topics = random.choice(["traffic/#", "traffic/+", "traffic/1", "$share/g/traffic/#"])
        for name in NAMES if "$share" in topics else [random.choice(NAMES)]:
            client = broker(world, name).client(f"{name}-{random.randint(0, 5)}", **KEPT)
            client.subscribe(topics, where=where)
            subscribed.append((topics, where))
    for topics, where in random.sample(subscribed, len(subscribed) // 4):
        for name in NAMES:
            for number in range(6):
                client = broker(world, name).client(f"{name}-{number}", **KEPT)
                client.unsubscribe(topics, where=where)


def expected(world: ServingWorld, before: dict[str, int]) -> list[tuple[str, str, int, set[int]]]:
    oracle = OracleEngine(STREAMED, dict(world.brokers.worlds))
    oracle.follow()
    found = []
    for name, one in world.brokers.worlds.items():
        for sequence, row in sorted(one.rows().items()):
            if not row.stream or sequence <= before.get(name, 0):
                continue
            groups: set[int] = set()
            for owner in NAMES:
                entries = oracle.entries[owner].values()
                ids = {
                    entry.id
                    for entry in entries
                    if entry.id not in groups and oracle.wants(entry, row)
                }
                groups |= {entry.id for entry in entries if entry.is_group and entry.id in ids}
                if ids:
                    found.append((owner, name, sequence, ids))
    return found


def handed(
    handovers: list[tuple[str, Handover]],
) -> Iterator[tuple[str, str, int, set[int]]]:
    for owner, handover in handovers:
        for one in handover.matched:
            assert len(one.ids) == len({*one.ids})
            yield owner, one.broker, one.sequence, {*one.ids}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("few", [0, SERVE_CHANGES_MIN])
def test_the_ids_that_the_oracle_finds(
    world: ServingWorld, seed: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while clauses come and go; whether what changes is shipped apart or not."""
    monkeypatch.setattr(clause_shipment, "SERVE_CHANGES_MIN", few)
    random = Random(seed)
    subscribed: list[tuple[str, str]] = []
    handed_over = 0
    for number in range(5):
        change_clauses(world, random, subscribed)
        for name in NAMES:
            client = broker(world, name).client("publisher")
            for _ in range(random.randint(0, 10)):
                fields = {"x": random.randint(0, 12), "y": random.randint(0, 12)}
                client.publish(
                    random.choice(["traffic/1", "traffic/2/3"]),
                    b'{"n": %d}' % number,
                    properties=attributes(**fields, road=random.choice("abc")),
                )
        wanted = expected(world, world.offsets)
        world.brokers.handed.clear()
        world.batch()
        found = list(handed(world.brokers.handed))
        handed_over += len(found)
        assert sorted(found, key=str) == sorted(wanted, key=str)
        for owner in NAMES:
            for publisher in NAMES:
                order = [one[2] for one in found if one[:2] == (owner, publisher)]
                assert order == sorted(order)
    assert handed_over > 10


def test_unchanged_clauses_are_shipped_as_they_were() -> None:
    clauses = Clauses()
    clauses.change_spaces([STREAMED])
    many = [Entry(number, "traffic/#", f"x >= {number / 100}") for number in range(2_000)]
    target = Target("traffic", "b1")
    listed = _listed(1, 2_000, many, is_whole=True)
    clauses.take(target, listed)
    first = clauses.shipment()
    assert clauses.shipment() is first
    clauses.take(target, _listed(1, 2_001, [Entry(-1, "traffic/1", "x < 1")], gone=[7]))
    second = clauses.shipment()
    assert second.base is first.base
    assert (second.more.ids, second.void) == ((-1,), (7,))


def _listed(
    life: int,
    version: int,
    put: list[Entry],
    *,
    is_whole: bool = False,
    gone: list[int] | None = None,
) -> Listed:
    return Listed("b1", life, version, is_whole, False, 0, put, gone or [])


# Nobody loses anything ----------------------------------------------------------------------------


def test_a_broker_that_is_away_holds_up_nobody_and_gets_its_share(world: ServingWorld) -> None:
    here, there = reader(world, "here", "b1"), reader(world, "there", "b2")
    publish(world, number=1)
    world.batch()
    assert numbers(there) == [1]
    world.brokers.away.add("b2")
    for number in (2, 3):
        publish(world, number=number)
        world.batch()
    assert numbers(here) == [1, 2, 3]
    assert load(world.checkpoint).owed["b2"]["b1"] == min(world.brokers.worlds["b1"].rows())
    waited = world.now
    world.restart()  # also a stream that is started meanwhile knows it
    publish(world, number=4)
    world.batch()
    assert world.now <= 2 * waited
    world.brokers.away.clear()
    publish(world, number=5)
    world.engine.beat()
    world.engine.beat()
    world.batch()
    assert numbers(there) == [2, 3, 4, 5]
    assert numbers(here) == [4, 5]
    assert load(world.checkpoint).owed == {}


def test_a_broker_that_goes_while_it_is_handed_something(world: ServingWorld) -> None:
    there = reader(world, "there", "b2")
    publish(world, number=1)
    original = world.brokers.take

    def take(name: str, handover: Handover) -> object:
        world.brokers.away.add("b2")
        return original(name, handover)

    world.brokers.take = take  # type: ignore[method-assign,assignment]
    world.batch()
    world.brokers.take = original  # type: ignore[method-assign]
    assert numbers(there) == []
    world.brokers.away.clear()
    world.engine.beat()
    world.engine.beat()
    assert numbers(there) == [1]


def test_a_broker_that_goes_with_rows_of_a_batch(world: ServingWorld) -> None:
    there = reader(world, "there", "b2")
    publish(world, number=1)
    offsets = BatchOffsets({}, {"b1": max(broker(world).rows())})
    world.place.gone.add("b1")
    world.engine.serve(0, offsets)
    world.offsets, world.number = offsets.end, 1
    publish(world, at="b2", number=2)
    world.batch()
    assert numbers(there) == [2]
    world.engine.beat()
    assert numbers(there) == []
    world.place.gone.clear()
    publish(world, number=3)
    world.batch()
    assert numbers(there) == [1, 3]
    assert load(world.checkpoint).owed == {}


def test_what_a_broker_is_owed_is_forgotten_with_it(world: ServingWorld) -> None:
    reader(world, "there", "b2")
    world.brokers.away.add("b2")
    publish(world)
    world.batch()
    assert load(world.checkpoint).owed
    world.brokers.forgotten.add("b2")
    world.engine.beat()
    assert load(world.checkpoint).owed == {}


@pytest.mark.parametrize("answers_lost", [0, 1])
def test_a_session_that_moves_while_it_is_handed_over(
    world: ServingWorld, answers_lost: int
) -> None:
    """Also where the answer is lost that says so."""
    before = reader(world, "mover", "b1")
    publish(world, at="b2")
    original = world.brokers.take
    after: list[Client] = []

    def take(name: str, handover: Handover) -> object:
        if not after:
            after.append(reader(world, "mover", "b2"))
            before.unsubscribe("traffic/#", where="x >= 5")
            world.brokers.answers_lost = answers_lost
        return original(name, handover)

    world.brokers.take = take  # type: ignore[method-assign,assignment]
    world.batch()
    assert numbers(before) == []
    assert numbers(after[0]) == [0]


def test_a_killed_driver_hands_over_again_and_brokers_take_it_once(world: ServingWorld) -> None:
    here = reader(world, "here", "b1")
    other = reader(world, "other", "b2")
    publish(world)
    world.batch(is_killed=True)
    assert numbers(other) == [0]
    mover = reader(world, "other", "b1")  # whose session moves in this moment
    other.unsubscribe("traffic/#", where="x >= 5")
    world.restart()
    world.batch()
    assert numbers(here) == [0]
    assert numbers(mover) == [0]
    publish(world, number=1)
    world.batch()
    assert numbers(here) == numbers(mover) == [1]


def test_a_new_history_begins_where_the_last_one_was(world: ServingWorld, tmp_path: Path) -> None:
    here = reader(world, "here", "b1")
    publish(world, number=1)
    world.batch()
    world.engine.beat()
    publish(world, number=2)
    later = ServingWorld(world.brokers.worlds, tmp_path / "another")
    assert later.begin["b1"] == world.offsets["b1"]
    later.batch()  # of the whole archive: what was served is passed over
    assert numbers(here) == [1, 2]


def test_brokers_are_told_how_far_it_is(world: ServingWorld) -> None:
    publish(world)
    world.batch()
    world.engine.beat()
    one = broker(world)
    one.pass_time(1)
    assert one.shared.gauges.engine_rows_waiting == 0
    *_, (_, last) = world.brokers.handed
    assert last.ends == world.offsets


# Spaces -------------------------------------------------------------------------------------------

ROOMS = Space("rooms", "rooms/#", (Dimension("x", 0, 10),), is_streamed=True)


def test_spaces_that_come_while_it_runs(world: ServingWorld) -> None:
    for one in world.brokers.worlds.values():
        one.broker.change_spaces(Spaces([STREAMED, ROOMS]))
    client = broker(world, "b2").client("rooms")
    client.subscribe("rooms/#", where="x >= 5")
    here = reader(world, "here", "b1")
    broker(world).client("c").publish("rooms/1", b'{"n": 7}', properties=attributes(x=6))
    publish(world)
    world.batch()
    assert numbers(client) == [7]
    assert numbers(here) == [0]


def test_what_waits_for_a_space_that_is_live_again(world: ServingWorld, tmp_path: Path) -> None:
    for one in world.brokers.worlds.values():
        one.broker.change_spaces(Spaces([STREAMED, ROOMS]))
    here = reader(world, "here", "b1")
    publish(world)
    for one in world.brokers.worlds.values():
        one.broker.change_spaces(Spaces([LIVE, ROOMS]))
    later = ServingWorld(world.brokers.worlds, tmp_path / "another")
    later.batch()
    assert numbers(here) == [0]


def test_a_cluster_without_such_a_space(tmp_path: Path) -> None:
    worlds = {"b1": StreamedWorld(name="b1", space=replace(LIVE))}
    with pytest.raises(DovetailError, match='engine = "spark"'):
        ServingWorld(worlds, tmp_path)


# Bounds and files ---------------------------------------------------------------------------------


def test_requests_are_bounded(world: ServingWorld) -> None:
    reader(world, "here", "b1")
    client = broker(world).client("c")
    large = b'{"n": "%s"}' % (b" " * (ENGINE_BODY_BYTES // 5))
    for _ in range(11):
        client.publish("traffic/1", large, properties=attributes(x=5))
    world.batch()
    sizes = [len(handover.matched) for _, handover in world.brokers.handed]
    assert sizes == [5, 5, 1]


def test_a_checkpoint_of_another_stream(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(ConfigError, match="another stream"):
        load(tmp_path)
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(DovetailError, match="cannot be read"):
        load(tmp_path)
