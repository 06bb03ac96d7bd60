"""Retained publications that are taken together, against the same ones packet by packet."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import codec
from dovetail.attributes.space import Dimension, Space
from dovetail.codec.limits import RETAINED_RUN_PACKETS_MAX
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Ack, Publish
from dovetail.codec.properties import forwardable_properties
from dovetail.errors import ReasonCode
from dovetail.settings import AccessRule
from support.brokers.harness import PERSISTENT, World

TOPICS = [b"a", b"a/b", b"b/c", b"b/c/d", b"s/1", "ü".encode(), b"$own/x"]
SPACE = Space("s", "s/#", (Dimension("speed", 0, 100),))
SCANNED = codec.encode(MQTT_5, Publish(b"plain", b"so that a kernel scans the read"))
EXPIRY_SECONDS = 10

versions = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])


class Stage(NamedTuple):
    """The state of a broker before the publications come."""

    version: int
    filters: frozenset[str]
    kept_filters: frozenset[str]
    messages_max: int
    is_restricted: bool
    disk_works: bool


stages = st.builds(
    Stage,
    version=st.sampled_from([MQTT_3_1_1, MQTT_5]),
    filters=st.frozensets(st.sampled_from(["a", "+/c", "b/#"]), max_size=1),
    kept_filters=st.frozensets(st.sampled_from(["a/b", "b/c"]), max_size=1),
    messages_max=st.sampled_from([3, 1_000, 1_000]),
    is_restricted=st.booleans(),
    disk_works=st.sampled_from([True, True, False]),
)
publications = st.builds(
    Publish,
    topic=st.sampled_from(TOPICS),
    payload=st.sampled_from([b"", b"one", b"two", b"three" * 60]),
    qos=st.sampled_from([0, 0, 0, 1, 1, 1, 2]),
    retain=st.sampled_from([True] * 7 + [False]),
    properties=st.sampled_from([b""] * 5 + [forwardable_properties(content_type="t")]),
    expiry_seconds=st.sampled_from([None] * 5 + [EXPIRY_SECONDS]),
)


def outcome(stage: Stage, reads: list[list[Publish]], *, are_whole: bool) -> dict[str, object]:
    """Return what follows from these reads, or from their packets one by one."""
    rules = (
        AccessRule(publish=("a/#", "b/#", "plain"), subscribe=("#",)),
    ) if stage.is_restricted else ()  # fmt: skip
    world = World(spaces=[SPACE], rules=rules, retained_messages_max=stage.messages_max)
    live = world.client("live")
    kept = world.client("kept", **PERSISTENT)
    for topic_filter in stage.filters:
        live.subscribe(topic_filter, qos=1)
    for topic_filter in stage.kept_filters:
        kept.subscribe(topic_filter, qos=1)
    sender = world.client("sender", version=stage.version)
    scanned = codec.encode(stage.version, Publish(b"plain", b"x"))
    world.disk_works = stage.disk_works
    for packets in reads:
        data = [scanned, *(codec.encode(stage.version, packet) for packet in packets)]
        for part in [b"".join(data)] if are_whole else data:
            if sender.is_closed:
                break
            world.auto_commit = False  # a read is in one batch of the journal
            sender.send_bytes(part)
        world.auto_commit = True
        world.settle()
    world.disk_works = True
    world.settle()
    counters = world.shared.counters
    found: dict[str, object] = {
        "acknowledgements": sender.take(),
        "closed": sender.is_closed,
        "live": live.take(),
        "kept": kept.take(),
        "retained": retained(world),
        "counters": (
            counters.publishes_received, counters.packets_received, counters.publishes_dropped,
        ),
    }  # fmt: skip
    found["after a crash"] = retained(world.crash(retained_messages_max=stage.messages_max))
    world.pass_time(EXPIRY_SECONDS + 1)
    found["after the expiry"] = retained(world)
    return found


def retained(world: World) -> list[tuple[object, ...]]:
    return sorted(
        (one.topic, one.payload, one.qos, one.properties, one.expires_at, one.origin)
        for one in world.broker.retained
    )


def numbered(reads: list[list[Publish]]) -> list[list[Publish]]:
    """Give packet identifiers to publications at QoS 1 and 2."""
    number = 0
    for packet in (packet for packets in reads for packet in packets):
        if packet.qos:
            number += 1
            packet.packet_id = number
    return reads


@settings(max_examples=300)
@given(
    stage=stages,
    reads=st.lists(st.lists(publications, max_size=12), min_size=1, max_size=3).map(numbered),
)
def test_together_and_packet_by_packet(stage: Stage, reads: list[list[Publish]]) -> None:
    if stage.version == MQTT_3_1_1:
        for packet in (packet for packets in reads for packet in packets):
            packet.properties, packet.expiry_seconds = b"", None
    assert outcome(stage, reads, are_whole=True) == outcome(stage, reads, are_whole=False)


@versions
@pytest.mark.parametrize("qos", [0, 1])
def test_more_than_one_run_has_room_for(version: int, qos: int) -> None:
    world = World()
    sender = world.client("sender", version=version)
    count = 3 * RETAINED_RUN_PACKETS_MAX + 1
    sender.send(
        *(
            Publish(b"t/%d" % number, b"%d" % number, qos, True, packet_id=qos * (number + 1))
            for number in range(count)
        )
    )
    assert {one.topic: one.payload for one in world.broker.retained} == {
        b"t/%d" % number: b"%d" % number for number in range(count)
    }
    answers = [(one.packet_id, one.reason) for one in sender.take() if isinstance(one, Ack)]
    reason = ReasonCode.NO_MATCHING_SUBSCRIBERS if version == MQTT_5 else 0
    assert answers == [(number + 1, reason) for number in range(count if qos else 0)]


@versions
def test_they_are_on_disk_before_their_acknowledgement(version: int) -> None:
    world = World(auto_commit=False)
    sender = world.client("sender", version=version)
    world.commit_all()
    packets = [Publish(b"t/%d" % number, bytes(64), 1, True, packet_id=number + 1)
               for number in range(20)]  # fmt: skip
    sender.send(*packets)
    assert sender.take() == []
    assert len(world.broker.retained) == 20
    assert not world.disk.tables["messages"]
    world.commit_all()
    assert len(sender.take()) == 20
    assert len(world.disk.tables["messages"]) == 20


def test_a_message_that_replaces_another_takes_over_its_row() -> None:
    world = World()
    sender = world.client("sender")
    for payload in (b"one", b"two"):
        sender.send(*(Publish(b"t/%d" % number, payload * 30, retain=True) for number in range(20)))
        rows = world.disk.tables["messages"]
        assert sorted(rows) == sorted(one.number for one in world.broker.retained)
        assert {row.payload for row in rows.values()} == {payload * 30}
        first = min(rows)
        assert first == 1
