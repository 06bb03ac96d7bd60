"""Who waits until all brokers know of a box; what is known of theirs."""

from collections import deque

import pytest

from dovetail.errors import PeerError
from dovetail.matcher.announcement import Announcing, Known, KnownBoxes
from dovetail.matcher.matcher_messages import BOXES, BoxesBody, BoxesKnownBody, BoxesRow, encode


class Pair:
    """Two brokers: `a` tells `b` of its boxes."""

    def __init__(self, life: int = 1) -> None:
        self.frames: deque[bytes] = deque()
        self.announcing = Announcing(life, self.send)
        self.known = KnownBoxes()
        self.is_connected = True

    def send(self, name: str, kind: int, body: bytes) -> bool:
        assert (name, kind) == ("b", BOXES)
        if self.is_connected:
            self.frames.append(body)
        return self.is_connected

    def carry(self) -> int | None:
        """One frame and its answer."""
        answer = encode(self.known.told("a", self.frames.popleft()))
        return self.announcing.answered("b", answer)


def test_known_when_every_live_peer_knows() -> None:
    pair = Pair()
    acts: list[str] = []
    pair.announcing.set({"s": (1, [3])})
    pair.announcing.when_known(9.0, lambda: acts.append("alone"))
    assert acts == ["alone"]  # there is nobody else
    pair.announcing.peer_is_live("b", True)
    pair.announcing.when_known(9.0, lambda: acts.append("first"))
    pair.announcing.peer_is_up("b")
    pair.announcing.flush()
    pair.announcing.set({"s": (2, [3, 1])})
    pair.announcing.when_known(9.0, lambda: acts.append("second"))
    pair.announcing.flush()
    assert len(pair.frames) == 1  # one at a time
    pair.carry()
    assert acts == ["alone", "first"]
    pair.announcing.flush()
    pair.carry()
    assert acts == ["alone", "first", "second"]
    assert pair.known.of("a", "s") == Known(1, 2, frozenset({1, 3}))
    pair.announcing.flush()
    assert not pair.frames


def test_nobody_waits_longer_than_told() -> None:
    pair = Pair()
    pair.announcing.peer_is_live("b", True)
    acts: list[str] = []
    pair.announcing.set({"s": (1, [3])})
    pair.announcing.when_known(5.0, lambda: acts.append("late"))
    assert pair.announcing.tick(4.9) == 0
    assert pair.announcing.tick(5.0) == 1
    assert acts == ["late"]


def test_late_waiters_are_released_in_their_order() -> None:
    pair = Pair()
    pair.announcing.peer_is_live("b", True)
    acts: list[str] = []
    pair.announcing.when_known(9.0, lambda: acts.append("first"))
    pair.announcing.when_known(5.0, lambda: acts.append("second"))
    pair.announcing.when_known(9.0, lambda: acts.append("third"))
    assert pair.announcing.tick(5.0) == 1
    assert acts == ["first", "second"]


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_nor_for_one_that_is_dead_or_forgotten(is_forgotten: bool) -> None:
    pair = Pair()
    pair.announcing.peer_is_live("b", True)
    acts: list[str] = []
    pair.announcing.when_known(5.0, lambda: acts.append("done"))
    assert not acts
    if is_forgotten:
        pair.announcing.forget("b")
    else:
        pair.announcing.peer_is_live("b", False)
    assert acts == ["done"]


def test_a_connection_that_comes_about_is_told_anew() -> None:
    pair = Pair()
    pair.announcing.set({"s": (1, [3])})
    pair.announcing.peer_is_up("b")
    pair.announcing.flush()
    pair.frames.clear()  # lost with the connection
    pair.announcing.peer_is_down("b")
    pair.announcing.flush()
    assert not pair.frames
    pair.announcing.peer_is_up("b")
    pair.announcing.flush()
    pair.carry()
    assert pair.known.of("a", "s") == Known(1, 1, frozenset({3}))


def test_news_of_an_earlier_life_are_old() -> None:
    pair = Pair(life=5)
    pair.known.put("a", BoxesBody(7, 3, [BoxesRow("s", 3, [1])]))
    pair.announcing.set({"s": (1, [3])})
    pair.announcing.peer_is_up("b")
    pair.announcing.flush()
    assert pair.carry() == 7
    assert pair.known.of("a", "s") == Known(7, 3, frozenset({1}))
    pair.announcing.outlive(8)
    pair.announcing.flush()
    assert pair.carry() is None
    assert pair.known.of("a", "s") == Known(8, 1, frozenset({3}))
    pair.known.forget("a")
    assert pair.known.of("a", "s") is None


def test_wide_boxes() -> None:
    assert Known(1, 1, frozenset({0, 3})).is_wide
    assert not Known(1, 1, frozenset({3})).is_wide


def test_what_cannot_be_read() -> None:
    with pytest.raises(PeerError, match="cannot be read"):
        KnownBoxes().told("a", b"\xc1")
    with pytest.raises(PeerError, match="cannot be read"):
        Announcing(1, lambda *_: True).answered("b", encode(BoxesKnownBody(1, 1))[:-1])
