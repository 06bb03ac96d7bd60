"""Connections: in order, until they break, and then anew."""

from collections.abc import Callable
from random import Random

from dovetail.sim.clock import Clock
from dovetail.sim.connections import REDIAL_SECONDS, Links


class Node:
    """Writes down what happens to it; says everything back."""

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


def a_pair() -> tuple[Clock, Links, Node, Node]:
    clock = Clock()
    links = Links(clock, Random(1))
    one, other = Node("one"), Node("other")
    links.attach(one)
    links.attach(other)
    return clock, links, one, other


def test_in_order_there_and_back() -> None:
    clock, links, one, other = a_pair()
    links.dial(one, "other")
    for number in range(50):
        assert links.send(one, "other", 7, bytes([number]))
    links.answer(other, "one", 9, b"by itself")
    clock.run_until(1)
    assert other.events == [("one", 7, bytes([number])) for number in range(50)]
    came_back = [event for event in one.events if event != ("other", 9, b"by itself")]
    assert came_back == [
        ("connected", "other"),
        *(("other", 8, bytes([number])) for number in range(50)),
    ]
    assert len(one.events) == 52


def test_what_is_on_its_way_is_lost_with_the_connection() -> None:
    clock, links, one, other = a_pair()
    links.dial(one, "other")
    links.send(one, "other", 7, b"x")
    links.break_("one", "other")
    assert not links.send(one, "other", 7, b"y")
    clock.run_until(1)
    assert other.events == []
    assert one.events == [("connected", "other"), ("lost", "other"), ("connected", "other")]
    assert links.pairs() == [("one", "other")]


def test_who_is_not_there_is_dialed_until_it_is() -> None:
    clock, links, one, other = a_pair()
    links.detach(other)
    links.dial(one, "other")
    clock.run_until(1)
    assert one.events == []
    assert not links.send(one, "other", 7, b"x")
    again = Node("other")
    links.attach(again)
    clock.run_until(1 + 2 * REDIAL_SECONDS)
    assert one.events == [("connected", "other")]
    links.detach(one)
    clock.run_until(2)
    assert links.pairs() == []
    assert one.events == [("connected", "other")]  # it is not there to hear of it


def test_not_across_a_cut() -> None:
    clock, links, one, _ = a_pair()
    links.is_cut = lambda _one, _other: True
    links.dial(one, "other")
    clock.run_until(1)
    assert one.events == []
    links.is_cut = lambda _one, _other: False
    clock.run_until(2)
    assert one.events == [("connected", "other")]
