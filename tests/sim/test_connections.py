"""Simulated connections: ordered until they break, then redialed."""

from collections.abc import Callable
from random import Random

from dovetail.sim.clock import Clock
from dovetail.sim.connections import REDIAL_SECONDS, Connections


class RecordingNode:
    """Records its events, and sends every frame back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[object] = []

    def connected(self, name: str) -> None:
        self.events.append(("connected", name))

    def lost(self, name: str) -> None:
        self.events.append(("lost", name))

    def receive(
        self, name: str, kind: int, body: bytes, answer: Callable[[int, bytes], object]
    ) -> None:
        self.events.append((name, kind, body))
        answer(kind + 1, body)

    def answered(self, name: str, kind: int, body: bytes) -> None:
        self.events.append((name, kind, body))


def make_pair() -> tuple[Clock, Connections, RecordingNode, RecordingNode]:
    clock = Clock()
    connections = Connections(clock, Random(1))
    one, other = RecordingNode("one"), RecordingNode("other")
    connections.attach(one)
    connections.attach(other)
    return clock, connections, one, other


def test_frames_arrive_in_order_in_both_directions() -> None:
    clock, connections, one, other = make_pair()
    connections.dial(one, "other")
    for number in range(50):
        assert connections.send(one, "other", 7, bytes([number]))
    connections.answer(other, "one", 9, b"by itself")
    clock.run_until(1)
    assert other.events == [("one", 7, bytes([number])) for number in range(50)]
    came_back = [event for event in one.events if event != ("other", 9, b"by itself")]
    assert came_back == [
        ("connected", "other"),
        *(("other", 8, bytes([number])) for number in range(50)),
    ]
    assert len(one.events) == 52


def test_frames_on_their_way_are_lost_with_the_connection() -> None:
    clock, connections, one, other = make_pair()
    connections.dial(one, "other")
    connections.send(one, "other", 7, b"x")
    connections.break_("one", "other")
    assert not connections.send(one, "other", 7, b"y")
    clock.run_until(1)
    assert other.events == []
    assert one.events == [("connected", "other"), ("lost", "other"), ("connected", "other")]
    assert connections.pairs() == [("one", "other")]


def test_a_missing_node_is_dialed_until_it_is_there() -> None:
    clock, connections, one, other = make_pair()
    connections.detach(other)
    connections.dial(one, "other")
    clock.run_until(1)
    assert one.events == []
    assert not connections.send(one, "other", 7, b"x")
    again = RecordingNode("other")
    connections.attach(again)
    clock.run_until(1 + 2 * REDIAL_SECONDS)
    assert one.events == [("connected", "other")]
    connections.detach(one)
    clock.run_until(2)
    assert connections.pairs() == []
    assert one.events == [("connected", "other")]  # it is not there to hear of it


def test_no_connection_across_a_cut() -> None:
    clock, connections, one, _ = make_pair()
    connections.is_cut = lambda _one, _other: True
    connections.dial(one, "other")
    clock.run_until(1)
    assert one.events == []
    connections.is_cut = lambda _one, _other: False
    clock.run_until(2)
    assert one.events == [("connected", "other")]
