"""Serving a space without Spark: deliveries are those of the oracle, and none is lost."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from dovetail.api.engine import ClauseChanges, ClauseSubscription, DeliveryBatch
from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.limits import ENGINE_BODY_BYTES, SERVE_CHANGES_MIN
from dovetail.pipeline.serve import clause_shipment
from dovetail.pipeline.serve.broker_client import DeliveryTarget
from dovetail.pipeline.serve.clause_shipment import ClusterClauses
from dovetail.pipeline.serve.state_file import FILE, load
from dovetail.pipeline.source.checkpoint import BatchOffsets
from support.brokers.harness import PERSISTENT, Client, attributes
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
    client = broker(world, at).client(name, **PERSISTENT)
    client.subscribe("traffic/#", where=where, qos=1)
    return client


def publish(world: ServingWorld, at: str = "b1", number: int = 0) -> None:
    client = broker(world, at).client(f"publisher-at-{at}")
    client.publish("traffic/1", b'{"n": %d}' % number, 1, properties=attributes(x=5))


def numbers(client: Client) -> list[int]:
    """Return the numbers that the client has received. They are not acknowledged."""
    return [int(one.payload[6:-1]) for one in client.messages()]


# The same as the oracle ---------------------------------------------------------------------------


def change_clauses(world: ServingWorld, random: Random, subscribed: list[tuple[str, str]]) -> None:
    """Change subscriptions at random brokers. Some groups have members at both."""
    for _ in range(random.randint(0, 12)):
        low = random.randint(0, 8)
        where = f"{low} <= x < {low + random.randint(1, 5)}"
        if random.random() < 0.3:
            where += f' and road == "{random.choice("ab")}"'
        if random.random() < 0.3:
            where += f" or y >= {random.randint(5, 12)}"
        topics = random.choice(["traffic/#", "traffic/+", "traffic/1", "$share/g/traffic/#"])
        for name in NAMES if "$share" in topics else [random.choice(NAMES)]:
            client = broker(world, name).client(f"{name}-{random.randint(0, 5)}", **PERSISTENT)
            client.subscribe(topics, where=where)
            subscribed.append((topics, where))
    for topics, where in random.sample(subscribed, len(subscribed) // 4):
        for name in NAMES:
            for number in range(6):
                client = broker(world, name).client(f"{name}-{number}", **PERSISTENT)
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
    handovers: list[tuple[str, DeliveryBatch]],
) -> Iterator[tuple[str, str, int, set[int]]]:
    for owner, batch in handovers:
        for one in batch.matched:
            assert len(one.ids) == len({*one.ids})
            yield owner, one.broker, one.sequence, {*one.ids}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("few", [0, SERVE_CHANGES_MIN])
def test_deliveries_are_those_of_the_oracle(
    world: ServingWorld, seed: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clauses come and go meanwhile, and changes are shipped separately or in a new base."""
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
    clauses = ClusterClauses()
    clauses.change_spaces([STREAMED])
    many = [
        ClauseSubscription(number, "traffic/#", f"x >= {number / 100}") for number in range(2_000)
    ]
    target = DeliveryTarget("traffic", "b1")
    listed = _listed(1, 2_000, many, is_whole=True)
    clauses.apply(target, listed)
    first = clauses.shipment()
    assert clauses.shipment() is first
    clauses.apply(
        target, _listed(1, 2_001, [ClauseSubscription(-1, "traffic/1", "x < 1")], gone=[7])
    )
    second = clauses.shipment()
    assert second.base is first.base
    assert (second.changes.ids, second.stale) == ((-1,), (7,))


def _listed(
    life: int,
    version: int,
    put: list[ClauseSubscription],
    *,
    is_whole: bool = False,
    gone: list[int] | None = None,
) -> ClauseChanges:
    return ClauseChanges("b1", life, version, is_whole, False, 0, put, gone or [])


# No delivery is lost ------------------------------------------------------------------------------


def test_a_broker_that_is_away_delays_nobody_and_gets_its_deliveries_later(
    world: ServingWorld,
) -> None:
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
    world.driver.poll()
    world.driver.poll()
    world.batch()
    assert numbers(there) == [2, 3, 4, 5]
    assert numbers(here) == [4, 5]
    assert load(world.checkpoint).owed == {}


def test_a_broker_that_dies_during_a_delivery_gets_it_later(world: ServingWorld) -> None:
    there = reader(world, "there", "b2")
    publish(world, number=1)
    original = world.brokers.deliver

    def deliver(name: str, batch: DeliveryBatch) -> object:
        world.brokers.away.add("b2")
        return original(name, batch)

    world.brokers.deliver = deliver  # type: ignore[method-assign,assignment]
    world.batch()
    world.brokers.deliver = original  # type: ignore[method-assign]
    assert numbers(there) == []
    world.brokers.away.clear()
    world.driver.poll()
    world.driver.poll()
    assert numbers(there) == [1]


def test_a_broker_that_dies_with_rows_of_a_batch_delays_nobody(world: ServingWorld) -> None:
    there = reader(world, "there", "b2")
    publish(world, number=1)
    offsets = BatchOffsets({}, {"b1": max(broker(world).rows())})
    world.row_source.gone.add("b1")
    world.driver.serve(0, offsets)
    world.offsets, world.number = offsets.end, 1
    publish(world, at="b2", number=2)
    world.batch()
    assert numbers(there) == [2]
    world.driver.poll()
    assert numbers(there) == []
    world.row_source.gone.clear()
    publish(world, number=3)
    world.batch()
    assert numbers(there) == [1, 3]
    assert load(world.checkpoint).owed == {}


def test_pending_deliveries_are_dropped_when_the_cluster_forgets_a_broker(
    world: ServingWorld,
) -> None:
    reader(world, "there", "b2")
    world.brokers.away.add("b2")
    publish(world)
    world.batch()
    assert load(world.checkpoint).owed
    world.brokers.forgotten.add("b2")
    world.driver.poll()
    assert load(world.checkpoint).owed == {}


@pytest.mark.parametrize("answers_lost", [0, 1])
def test_a_session_that_moves_during_a_delivery_gets_it_once(
    world: ServingWorld, answers_lost: int
) -> None:
    """Also if the answer is lost that names the unknown ids."""
    before = reader(world, "mover", "b1")
    publish(world, at="b2")
    original = world.brokers.deliver
    after: list[Client] = []

    def deliver(name: str, batch: DeliveryBatch) -> object:
        if not after:
            after.append(reader(world, "mover", "b2"))
            before.unsubscribe("traffic/#", where="x >= 5")
            world.brokers.answers_lost = answers_lost
        return original(name, batch)

    world.brokers.deliver = deliver  # type: ignore[method-assign,assignment]
    world.batch()
    assert numbers(before) == []
    assert numbers(after[0]) == [0]


def test_a_killed_driver_repeats_deliveries_and_brokers_take_them_once(world: ServingWorld) -> None:
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


def test_a_new_history_begins_where_the_last_one_ended(world: ServingWorld, tmp_path: Path) -> None:
    here = reader(world, "here", "b1")
    publish(world, number=1)
    world.batch()
    world.driver.poll()
    publish(world, number=2)
    later = ServingWorld(world.brokers.worlds, tmp_path / "another")
    assert later.begin["b1"] == world.offsets["b1"]
    later.batch()  # of the whole archive: what was served is passed over
    assert numbers(here) == [1, 2]


def test_brokers_learn_the_offsets_reached(world: ServingWorld) -> None:
    publish(world)
    world.batch()
    world.driver.poll()
    one = broker(world)
    one.pass_time(1)
    assert one.shared.gauges.engine_rows_waiting == 0
    *_, (_, last) = world.brokers.handed
    assert last.ends == world.offsets


# Spaces -------------------------------------------------------------------------------------------

ROOMS = Space("rooms", "rooms/#", (Dimension("x", 0, 10),), is_streamed=True)


def test_a_space_that_is_declared_while_the_stream_runs(world: ServingWorld) -> None:
    for one in world.brokers.worlds.values():
        one.broker.change_spaces(SpaceRegistry([STREAMED, ROOMS]))
    client = broker(world, "b2").client("rooms")
    client.subscribe("rooms/#", where="x >= 5")
    here = reader(world, "here", "b1")
    broker(world).client("c").publish("rooms/1", b'{"n": 7}', properties=attributes(x=6))
    publish(world)
    world.batch()
    assert numbers(client) == [7]
    assert numbers(here) == [0]


def test_rows_of_a_space_that_is_live_again_are_served(world: ServingWorld, tmp_path: Path) -> None:
    for one in world.brokers.worlds.values():
        one.broker.change_spaces(SpaceRegistry([STREAMED, ROOMS]))
    here = reader(world, "here", "b1")
    publish(world)
    for one in world.brokers.worlds.values():
        one.broker.change_spaces(SpaceRegistry([LIVE, ROOMS]))
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
    sizes = [len(batch.matched) for _, batch in world.brokers.handed]
    assert sizes == [5, 5, 1]


def test_a_checkpoint_of_another_stream(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(ConfigError, match="another stream"):
        load(tmp_path)
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(DovetailError, match="cannot be read"):
        load(tmp_path)
