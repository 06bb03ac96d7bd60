"""Announcements: waits until all brokers know a box, and what a broker knows of the others."""

from collections import deque

import pytest

from dovetail.errors import PeerError
from dovetail.matcher.announcement import AnnouncedBoxes, BoxAnnouncer, BoxDirectory
from dovetail.matcher.matcher_messages import (
    ANNOUNCEMENT,
    Announcement,
    AnnouncementAck,
    SpaceAnnouncement,
    encode,
)


class AnnouncerPair:
    """Two brokers: `a` announces its boxes to `b`."""

    def __init__(self, life: int = 1) -> None:
        self.frames: deque[bytes] = deque()
        self.announcer = BoxAnnouncer(life, self.send)
        self.known = BoxDirectory()
        self.is_connected = True

    def send(self, name: str, kind: int, body: bytes) -> bool:
        assert (name, kind) == ("b", ANNOUNCEMENT)
        if self.is_connected:
            self.frames.append(body)
        return self.is_connected

    def carry(self) -> int | None:
        """One frame and its answer."""
        answer = encode(self.known.receive("a", self.frames.popleft()))
        return self.announcer.answered("b", answer)


def test_known_when_every_live_peer_knows() -> None:
    pair = AnnouncerPair()
    acts: list[str] = []
    pair.announcer.set({"s": (1, [3])})
    pair.announcer.when_known(9.0, lambda: acts.append("alone"))
    assert acts == ["alone"]  # there is nobody else
    pair.announcer.peer_is_live("b", True)
    pair.announcer.when_known(9.0, lambda: acts.append("first"))
    pair.announcer.peer_is_up("b")
    pair.announcer.flush()
    pair.announcer.set({"s": (2, [3, 1])})
    pair.announcer.when_known(9.0, lambda: acts.append("second"))
    pair.announcer.flush()
    assert len(pair.frames) == 1  # one at a time
    pair.carry()
    assert acts == ["alone", "first"]
    pair.announcer.flush()
    pair.carry()
    assert acts == ["alone", "first", "second"]
    assert pair.known.of("a", "s") == AnnouncedBoxes(1, 2, frozenset({1, 3}))
    pair.announcer.flush()
    assert not pair.frames


def test_nobody_waits_longer_than_told() -> None:
    pair = AnnouncerPair()
    pair.announcer.peer_is_live("b", True)
    acts: list[str] = []
    pair.announcer.set({"s": (1, [3])})
    pair.announcer.when_known(5.0, lambda: acts.append("late"))
    assert pair.announcer.tick(4.9) == 0
    assert pair.announcer.tick(5.0) == 1
    assert acts == ["late"]


def test_late_waiters_are_released_in_their_order() -> None:
    pair = AnnouncerPair()
    pair.announcer.peer_is_live("b", True)
    acts: list[str] = []
    pair.announcer.when_known(9.0, lambda: acts.append("first"))
    pair.announcer.when_known(5.0, lambda: acts.append("second"))
    pair.announcer.when_known(9.0, lambda: acts.append("third"))
    assert pair.announcer.tick(5.0) == 1
    assert acts == ["first", "second"]


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_nor_for_one_that_is_dead_or_forgotten(is_forgotten: bool) -> None:
    pair = AnnouncerPair()
    pair.announcer.peer_is_live("b", True)
    acts: list[str] = []
    pair.announcer.when_known(5.0, lambda: acts.append("done"))
    assert not acts
    if is_forgotten:
        pair.announcer.forget("b")
    else:
        pair.announcer.peer_is_live("b", False)
    assert acts == ["done"]


def test_a_connection_that_comes_about_is_told_anew() -> None:
    pair = AnnouncerPair()
    pair.announcer.set({"s": (1, [3])})
    pair.announcer.peer_is_up("b")
    pair.announcer.flush()
    pair.frames.clear()  # lost with the connection
    pair.announcer.peer_is_down("b")
    pair.announcer.flush()
    assert not pair.frames
    pair.announcer.peer_is_up("b")
    pair.announcer.flush()
    pair.carry()
    assert pair.known.of("a", "s") == AnnouncedBoxes(1, 1, frozenset({3}))


def test_news_of_an_earlier_life_are_old() -> None:
    pair = AnnouncerPair(life=5)
    pair.known.put("a", Announcement(7, 3, [SpaceAnnouncement("s", 3, [1])]))
    pair.announcer.set({"s": (1, [3])})
    pair.announcer.peer_is_up("b")
    pair.announcer.flush()
    assert pair.carry() == 7
    assert pair.known.of("a", "s") == AnnouncedBoxes(7, 3, frozenset({1}))
    pair.announcer.outlive(8)
    pair.announcer.flush()
    assert pair.carry() is None
    assert pair.known.of("a", "s") == AnnouncedBoxes(8, 1, frozenset({3}))
    pair.known.forget("a")
    assert pair.known.of("a", "s") is None


def test_wide_boxes() -> None:
    assert AnnouncedBoxes(1, 1, frozenset({0, 3})).is_wide
    assert not AnnouncedBoxes(1, 1, frozenset({3})).is_wide


def test_what_cannot_be_read() -> None:
    with pytest.raises(PeerError, match="cannot be read"):
        BoxDirectory().receive("a", b"\xc1")
    with pytest.raises(PeerError, match="cannot be read"):
        BoxAnnouncer(1, lambda *_: True).answered("b", encode(AnnouncementAck(1, 1))[:-1])
