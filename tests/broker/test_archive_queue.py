"""The archive queue: which publications become rows, when they are stored, and the bounds."""

from collections.abc import Sequence

import pytest

from dovetail.attributes.space import Dimension, Space
from dovetail.broker.archive_queue import ArchiveQueue, Rows, WriteOutcome, size_of
from dovetail.broker.limits import ARCHIVE_TURN_ROWS
from dovetail.codec.packets import Ack, PacketType, Publish, Subscribe, SubscriptionRequest, Will
from dovetail.errors import ReasonCode
from support.brokers.harness import PERSISTENT, Client, Disk, World, attributes
from support.clusters.matchers import ClusterWithMatchers

FIRST = 1_000
TRAFFIC = Space("traffic", "traffic/#", (Dimension("speed", 0, 200),))


class ArchiveWorld(World):
    """One broker with an archive; `write` only notes what it was given."""

    def __init__(
        self,
        *topics: str,
        disk: Disk | None = None,
        bytes_max: int = 1 << 20,
        auto_commit: bool = True,
    ) -> None:
        self.topics: Sequence[str] = topics or ("a/#",)
        self.bytes_max = bytes_max
        self.given: list[Rows] = []
        super().__init__(disk, auto_commit=auto_commit)
        self.archive.restore(self.disk.state().archive)

    def make_archive(self) -> ArchiveQueue:
        stored = max(self.disk.tables["archive"], default=0)
        self.archive = ArchiveQueue(
            self.shared,
            "one",
            self.topics,
            bytes_max=self.bytes_max,
            next_sequence=max(stored + 100, FIRST),
        )
        return self.archive

    def waiting(self) -> list[tuple[bytes, bytes, int]]:
        """On disk: topic, payload and QoS, in the order of sequences."""
        rows = self.disk.tables["archive"]
        return [(row.topic, row.payload, row.qos) for _, row in sorted(rows.items())]

    def written(self, outcome: WriteOutcome) -> None:
        self.archive.written(outcome)
        while self.archive.delete_written():
            pass

    def flush(self) -> Rows:
        self.archive.flush(self.given.append)
        self.settle()
        return self.given.pop() if self.given else []


def test_what_is_archived() -> None:
    world = ArchiveWorld("a/#", "+/x")
    reader = world.client("reader")
    reader.subscribe("#", qos=2)
    client = world.client("c", will=Will(b"a/will", b"gone", 1))
    client.publish("a/0", b"0")
    client.publish("b/0", b"no")
    client.publish("b/x", b"1", 1)
    client.publish("a", b"2", 2)
    client.publish("a/kept", b"3", retain=True)
    client.lose()
    world.settle()
    expected = [(b"a/0", b"0", 0), (b"b/x", b"1", 1), (b"a", b"2", 2), (b"a/kept", b"3", 0)]
    assert world.waiting() == [*expected, (b"a/will", b"gone", 1)]
    assert sorted(world.disk.tables["archive"]) == [*range(FIRST, FIRST + 5)]
    (*_, kept, _) = world.disk.tables["archive"].values()
    assert kept.retain
    assert kept.broker == "one"
    assert kept.time_microseconds == round(world.now * 1e6)
    assert len(reader.messages()) == 6


def test_runs_are_passed_on_whole_and_archived_one_by_one() -> None:
    world = ArchiveWorld()
    reader = world.client("reader")
    reader.subscribe("#")
    client = world.client("c")
    for topic in ("a/1", "b/1", "a/2"):
        client.send(*(Publish(topic.encode(), b"%d" % number * 20) for number in range(100)))
    assert len(reader.messages()) == 300
    world.commit_all()
    assert [topic for topic, _, _ in world.waiting()] == [b"a/1"] * 100 + [b"a/2"] * 100


def answers(client: Client) -> list[tuple[int, int]]:
    return [(packet.type, packet.reason) for packet in client.take() if isinstance(packet, Ack)]


@pytest.mark.parametrize(("qos", "answer"), [(1, PacketType.PUBACK), (2, PacketType.PUBREC)])
def test_an_acknowledgement_waits_for_the_row(qos: int, answer: PacketType) -> None:
    world = ArchiveWorld(auto_commit=False)
    world.client("reader").subscribe("#", qos=2)  # without an archive, bytes would just pass
    client = world.client("c")
    world.commit_all()
    client.publish("a/1", b"", qos)
    assert answers(client) == []
    world.commit_all()
    assert [kind for kind, _ in answers(client)] == [answer]
    assert len(world.waiting()) == 1


def test_a_disk_that_fails_refuses_what_it_would_have_to_keep() -> None:
    world = ArchiveWorld()
    client = world.client("c")
    world.disk_works = False
    client.publish("a/1", b"", 1)
    world.settle()
    assert answers(client) == [(PacketType.PUBACK, ReasonCode.QUOTA_EXCEEDED)]
    client.publish("a/1", b"", 1)
    client.publish("b/1", b"", 1)
    assert [reason for _, reason in answers(client)] == [
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.NO_MATCHING_SUBSCRIBERS,
    ]


def test_a_publication_at_qos_2_is_one_row_whatever_crashes() -> None:
    world = ArchiveWorld()
    client = world.client("c", **PERSISTENT)
    packet = Publish(b"a/1", b"once", 2, packet_id=7)
    client.send(packet)
    again = ArchiveWorld(disk=world.disk)
    back = again.client("c", **PERSISTENT)
    packet.duplicate = True
    back.send(packet)
    again.settle()
    assert [kind for kind, _ in answers(back)] == [PacketType.PUBREC]
    assert again.waiting() == [(b"a/1", b"once", 2)]


def test_rows_go_when_they_are_in_a_file() -> None:
    world = ArchiveWorld()
    client = world.client("c")
    assert world.flush() == []
    for number in range(4):
        client.publish("a/1", b"%d" % number, 1)
    rows = world.flush()
    assert [(sequence, row.payload) for sequence, row in rows] == [
        (FIRST + number, b"%d" % number) for number in range(4)
    ]
    client.publish("a/1", b"later", 1)
    assert world.flush() == []  # one at a time
    world.written(WriteOutcome(FIRST + 2, 1, OSError("no room")))
    world.settle()
    assert [payload for _, payload, _ in world.waiting()] == [b"3", b"later"]
    assert world.shared.gauges.archive_failing == 1
    assert [sequence for sequence, _ in world.flush()] == [FIRST + 3, FIRST + 4]
    world.written(WriteOutcome(FIRST + 4, 1))
    world.settle()
    assert world.waiting() == []
    counters, gauges = world.shared.counters, world.shared.gauges
    assert (counters.archive_rows, counters.archive_files, counters.archive_failures) == (5, 2, 1)
    assert (gauges.archive_rows_waiting, gauges.archive_bytes_waiting) == (0, 0)
    assert not gauges.archive_failing


def test_only_what_is_on_disk_goes_into_a_file() -> None:
    world = ArchiveWorld()
    world.client("c").publish("a/1", b"")
    world.disk_works = False
    world.archive.flush(world.given.append)
    world.settle()
    assert world.given == []
    world.disk_works = True
    world.settle()
    assert len(world.flush()) == 1


def test_what_waits_is_bounded_and_nobody_is_kept_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = ArchiveWorld(bytes_max=1_000)
    client = world.client("c")
    for _ in range(10):
        client.publish("a/1", b"x" * 50, 1)
    assert len(answers(client)) == 10
    rows = world.flush()
    assert len(rows) == 3
    assert sum(size_of(row) for _, row in rows) == world.archive.bytes_waiting <= 1_000
    assert world.shared.counters.archive_rows_dropped == 7
    world.written(WriteOutcome(rows[-1][0], 1))
    client.publish("a/1", b"again", 1)
    world.settle()
    assert [payload for _, payload, _ in world.waiting()] == [b"again"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "7 were not" in caplog.text


def test_what_waits_goes_on_in_the_next_life() -> None:
    world = ArchiveWorld()
    world.client("c").publish("a/1", b"before", 1)
    again = ArchiveWorld(disk=world.disk)
    again.client("c").publish("a/1", b"after", 1)
    assert [(sequence, row.payload) for sequence, row in again.flush()] == [
        (FIRST, b"before"),
        (FIRST + 100, b"after"),
    ]


def test_many_rows_go_in_several_turns() -> None:
    world = ArchiveWorld(bytes_max=1 << 30)
    client = world.client("c")
    for _ in range(ARCHIVE_TURN_ROWS // 100 + 1):
        client.send(*(Publish(b"a/1", b"") for _ in range(100)))
    rows = world.flush()
    assert len(rows) == ARCHIVE_TURN_ROWS + 100
    world.archive.written(WriteOutcome(rows[-1][0], 1))
    assert world.archive.delete_written()
    assert world.flush() == []
    client.publish("a/1", b"later")
    assert not world.archive.delete_written()
    world.settle()
    assert [payload for _, payload, _ in world.waiting()] == [b"later"]


def test_what_waits_for_matchers_is_a_row_when_it_goes_on() -> None:
    """With its packet identifier, so that a kill leaves both or neither; and at one broker."""
    cluster = ClusterWithMatchers(1, "a", "b", spaces=[TRAFFIC], archived=["traffic/#"])
    for name in ("m", "n"):
        cluster.add_matcher(name)
    cluster.run(8)
    here, there = cluster.nodes["a"], cluster.nodes["b"]
    there.wake()
    reader = there.client()
    reader.send(Subscribe(1, [SubscriptionRequest("traffic/#?speed>=5&speed<7", 2)]))
    cluster.run(8)
    reader.take()
    here.wake()
    publisher = Client(here, "publisher", **PERSISTENT)
    publisher.open()
    publisher.send(publisher.connect_packet)
    cluster.run(1)  # the other broker is asked for its session
    publisher.take()
    for name in cluster.matchers:
        cluster.pause_matcher(name, True)
    here.wake()
    publisher.publish("traffic/1", b"", 2, properties=attributes(speed=6))
    here.settle()
    cluster.run(0.03)
    tables = here.disk.tables
    assert (tables["archive"], tables["incoming"]) == ({}, {})
    cluster.run(3)  # they are given up
    assert [row.topic for row in tables["archive"].values()] == [b"traffic/1"]
    assert len(tables["incoming"]) == 1
    assert [packet.type for packet in publisher.take() if isinstance(packet, Ack)] == [
        PacketType.PUBREC
    ]
    assert len(reader.messages()) == 1
    assert there.disk.tables["archive"] == {}


def test_readers_see_what_is_on_disk() -> None:
    world = ArchiveWorld(auto_commit=False)
    archive = world.archive
    client = world.client("c")
    world.commit()
    assert (archive.stored_upto, archive.first_waiting) == (FIRST - 1, FIRST)
    client.publish("a/1", b"1", 1)
    client.publish("a/1", b"2", 1)
    assert archive.stored_upto == FIRST - 1
    world.commit()
    client.publish("a/1", b"3", 1)
    assert archive.stored_upto == FIRST + 1
    world.disk_works = False
    world.commit()
    world.disk_works = True
    assert archive.stored_upto == FIRST + 1
    world.commit()
    assert archive.stored_upto == FIRST + 2
    rows, upto = archive.rows_waiting(FIRST, FIRST + 2, rows_max=9, bytes_max=1 << 20)
    assert [row.payload for _, row in rows] == [b"2", b"3"]
    assert upto == FIRST + 2
    rows, upto = archive.rows_waiting(0, FIRST + 2, rows_max=2, bytes_max=1 << 20)
    assert [sequence for sequence, _ in rows] == [FIRST, FIRST + 1]
    assert upto == FIRST + 1
    assert len(archive.rows_waiting(0, FIRST + 2, rows_max=9, bytes_max=1)[0]) == 1
    world.archive.flush(world.given.append)
    world.commit()
    world.written(WriteOutcome(FIRST + 1, 1))
    assert archive.first_waiting == FIRST + 2


def test_what_waited_at_the_start_is_known_by_its_runs() -> None:
    world = ArchiveWorld()
    world.client("c").publish("a/1", b"1", 1)
    world.client("d").publish("a/1", b"2", 1)
    again = ArchiveWorld(disk=world.disk)
    again.client("c").publish("a/1", b"3", 1)
    third = ArchiveWorld(disk=world.disk)
    assert third.archive.restored == [(FIRST, FIRST + 1), (FIRST + 101, FIRST + 101)]
    assert third.archive.stored_upto == third.archive.first_of_process - 1
