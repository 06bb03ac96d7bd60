"""A short run of the fuzzer: some thousand hostile packets from fixed seeds.

`scripts/fuzz` runs a million, from another seed every time.
"""

from pathlib import Path

import pytest

from dovetail.broker import client_link, packet_reader
from dovetail.broker.client_wire import NO_WIRE
from dovetail.broker.retained import RetainedMessages, _TopicNode
from dovetail.broker.timers import Timers
from dovetail.codec.packets import Publish, Subscribe, SubscriptionRequest, Unsubscribe, Will
from dovetail.messages import Message
from support.brokers.harness import Client, World
from support.processes import live_fuzzing
from support.strategies import fuzzing
from support.strategies.fuzzing import Arena, BrokerViolation, FuzzEvent, FuzzFailure, fails, shrink

CONNECT_5 = bytes.fromhex("10 0d 0004 4d515454 05 02 0000 00 0000")
PINGREQ = b"\xc0\x00"


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_hostile_packets_leave_the_core_as_it_was(seed: int) -> None:
    assert fuzzing.run(seed, 5_000) >= 5_000


def test_hostile_connections_leave_a_broker_alive() -> None:
    live_fuzzing.run_live(1, 1_000)


def test_a_run_follows_from_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[FuzzEvent]] = []
    clear = Arena.clear

    def record(arena: Arena) -> None:
        seen[-1].append(FuzzEvent("end", data=repr(arena.world.shared.counters).encode()))
        clear(arena)

    monkeypatch.setattr(Arena, "clear", record)
    for _ in range(2):
        seen.append([])
        fuzzing.run(5, 3_000)
    assert seen[0] == seen[1]


# The fuzzer finds what it is there to find --------------------------------------------------------


def test_an_exception_is_found_shrunk_and_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stumble(_reader: packet_reader.PacketReader, _packet: object) -> None:
        raise RuntimeError("stumbled")

    monkeypatch.setitem(packet_reader._HANDLERS, Unsubscribe, stumble)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with pytest.raises(FuzzFailure, match="stumbled"):
        fuzzing.run(1, 5_000)
    assert "RuntimeError: stumbled" in capsys.readouterr().out
    (file,) = tmp_path.iterdir()
    assert fuzzing.replay(file) == 1
    shown = capsys.readouterr().out.splitlines()
    assert len([line for line in shown if line.startswith("  bytes")]) <= 2
    monkeypatch.undo()
    assert fuzzing.replay(file) == 0


def test_what_is_left_behind_is_found() -> None:
    arena = Arena("open")
    arena.world.broker.timers.set("forgotten", arena.world.now + 1e9, lambda: None)
    with pytest.raises(BrokerViolation, match=r"'timers': \(0, 1\)"):
        arena.clear()


def test_an_end_without_a_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        FuzzEvent("open"),
        FuzzEvent("bytes", data=CONNECT_5),
        FuzzEvent("bytes", data=PINGREQ),
        FuzzEvent("bytes", data=b"\x00\x00"),
        FuzzEvent("time", value=1),
    ]
    assert fails("open", events) is None
    monkeypatch.setattr(
        client_link.ClientLink,
        "disconnect",
        lambda self, _reason, _why=None: self.close(with_will=True),
    )
    found = fails("open", events)
    assert isinstance(found, BrokerViolation)
    assert "without a word" in str(found)
    smaller = shrink(FuzzFailure("open", events, found))
    assert smaller.events == [events[0], events[1], events[3]]


def test_half_a_packet_to_a_client_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_reader, "_PINGRESP", b"\xd0")
    events = [
        FuzzEvent("open"),
        FuzzEvent("bytes", data=CONNECT_5),
        FuzzEvent("bytes", data=PINGREQ),
    ]
    found = fails("open", events)
    assert isinstance(found, BrokerViolation)
    assert "a part of a packet" in str(found)


# What it found, or what was found while it was written --------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"another"])
def test_the_timer_of_a_retained_message_goes_with_it(payload: bytes) -> None:
    world = World()
    publisher = world.client()
    publisher.publish("t", bytes(1_000), retain=True, expiry_seconds=0xFFFF_FFFF)
    assert len(world.broker.timers) == 1
    publisher.publish("t", payload, retain=True)
    assert len(world.broker.timers) == 0


def test_a_retained_message_that_is_refused_has_no_timer() -> None:
    world = World(retained_messages_max=0)
    client = Client(world, will=Will(b"t", b"x", retain=True, expiry_seconds=1_000))
    client.connect()
    client.lose()
    assert len(world.broker.timers) == 0


def test_times_that_are_moved_earlier_again_and_again_take_no_room() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.set("key", 1e9 - number, lambda: None)
    assert len(timers._heap) < 2_000


def test_a_closed_link_keeps_nothing_that_its_client_chose() -> None:
    """A timer may know the link until its keep alive would have been over."""
    world = World()
    client = world.client(keep_alive_seconds=65_535, alias_max=10)
    client.subscribe("#")
    client.publish("t" * 60_000, alias=1)
    closed = client.link
    assert closed is not None
    client.disconnect()
    client.lose()
    assert not closed._aliases.by_topic
    assert closed._wire is NO_WIRE  # which knows no reader


def test_topics_too_long_to_be_remembered_leave_no_routes() -> None:
    world = World(routes_max=10)
    client = world.client()
    client.subscribe(*(f"+/{number}" for number in range(40)))
    for number in range(40):
        client.publish(f"{'x' * 2_000}/{number}")
    assert len(client.messages()) == 40
    assert world.broker.router.cache.shared <= 10


def test_who_subscribes_faster_than_it_reads_is_owed_everything_once() -> None:
    world = World(backlog_bytes_max=1_024)
    publisher = world.client("p")
    for number in range(200):
        publisher.publish(f"t/{number}", bytes(20), retain=True)
    client = world.client("c")
    assert client.link is not None
    client.link.written(1_024)  # it has not read what went before
    for number in range(300):
        client.send(
            Subscribe(1, [SubscriptionRequest("t/#", 1), SubscriptionRequest(f"x/{number}")])
        )
        client.send(Unsubscribe(2, [f"x/{number}"]))
    publisher.publish("t/0", b"newer", 1, retain=True)
    (waiting,) = world.broker.retained_deliveries._waiting.values()
    assert len(waiting) < 150
    assert all(pending.messages is None for pending in waiting.values())
    messages: list[Publish] = []
    while packets := client.take():
        messages += (packet for packet in packets if isinstance(packet, Publish))
    assert len(messages) == 200
    assert {message.topic for message in messages} == {b"t/%d" % n for n in range(200)}
    assert [message.payload for message in messages if not message.retain] == [b"newer"]


def test_a_client_does_not_write_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "dovetail")
    client = World().client("me\n2026-01-01 ERROR all is lost")
    client.send_bytes(b"\x00\x00")
    assert client.is_closed
    messages = [record.getMessage() for record in caplog.records]
    assert any("all is lost" in message for message in messages)
    assert not any("\n" in message for message in messages)


def test_deep_topics_take_no_more_nodes_than_there_are_messages() -> None:
    """A dict for every level took 25 kB for a message of 130 bytes."""
    retained = RetainedMessages()
    for number in range(50):
        for last in b"xy":
            retained.put(Message(b"%d" % number + b"/" * 126 + bytes((last,)), b"."))
    nodes = [node for node in retained._root.values() if isinstance(node, _TopicNode)]
    assert len(nodes) == 50
    assert all(isinstance(child, bytes) for node in nodes for child in node.children.values())
