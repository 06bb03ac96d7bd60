"""A broker side and a matcher side linked in memory: several spaces, and invalid frames."""

from collections import deque
from random import Random

import numpy as np
import pytest

from dovetail.attributes.partition import Bounds
from dovetail.attributes.scheme import Scheme
from dovetail.errors import PeerError
from dovetail.matcher.broker_side import BrokerSide
from dovetail.matcher.layout import Layout, layouts_of
from dovetail.matcher.matcher_messages import (
    ANNOUNCEMENT,
    ANNOUNCEMENT_ACK,
    ANSWER,
    FEED,
    QUESTION,
    Announcement,
    AnnouncementAck,
    encode,
)
from dovetail.matcher.matcher_side import MatcherSide
from dovetail.matcher.segment_tables import Phase

ROADS = Layout("roads", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
SHIPS = Layout("ships", (Bounds(0, 1),), (0,))


class BrokerAndMatcher:
    """A broker `b`, and a matcher `m`; frames go at once when `settle` is called."""

    def __init__(self, known_to_broker: list[Layout], known_to_matcher: list[Layout]) -> None:
        self.frames: deque[tuple[int, bytes]] = deque()
        self.broker: BrokerSide[str] = BrokerSide(
            "b", layouts_of(known_to_broker), 1, self._send, Random(1), is_listing=True
        )
        self.matcher = MatcherSide("m", layouts_of(known_to_matcher), 0.0)
        self.matcher.join(0.0)
        self.broker.matcher_is_up("m")

    def _send(self, name: str, kind: int, body: bytes) -> bool:
        assert name == "m"
        self.frames.append((kind, body))
        return True

    def _answer(self, kind: int, body: bytes) -> None:
        self.broker.answered("m", kind, body, 0.0)

    def settle(self, now: float) -> None:
        for _ in range(5):
            _, record = self.matcher.tick(now, ["b"])
            if record is not None:
                self.broker.receive_record("m", record, now)
            self.broker.turn(now)
            while self.frames:
                self.matcher.receive("b", *self.frames.popleft(), self._answer, now)
            while (job := self.matcher.answers.next_job(now)) is not None:
                for _, body in self.matcher.answers.finish_job(job, 0.001):
                    self._answer(ANSWER, body)

    def ask(self, layout: Layout, *values: float) -> tuple[tuple[str, ...], dict[str, list[int]]]:
        self.broker.questions.submit(layout.id, values, ["b"], "tag")
        self.settle(1.0)
        (one,) = self.broker.questions.take_verdicts()
        return one.unsure, {name: told.boxes.tolist() for name, told in one.boxes.items()}


def phase(pair: BrokerAndMatcher) -> Phase | None:
    return None if pair.matcher.lifecycle is None else pair.matcher.lifecycle.phase


def test_spaces_do_not_mix() -> None:
    pair = BrokerAndMatcher([ROADS, SHIPS], [ROADS, SHIPS])
    pair.broker.put(ROADS.id, 7, (0, 0), (10, 1))
    numbers = np.array([3, 4])
    pair.broker.put_many(SHIPS.id, numbers, np.array([[0.1], [0.5]]), np.array([[0.2], [0.6]]))
    pair.settle(0.5)
    assert phase(pair) is Phase.SERVING
    assert pair.ask(ROADS, 5, 0.5) == ((), {"b": [7]})
    assert pair.ask(SHIPS, 0.15) == ((), {"b": [3]})
    pair.broker.discard(SHIPS.id, 3)
    assert pair.ask(SHIPS, 0.15) == ((), {})


def test_other_settings_of_a_space_cost_needless_work_and_no_match() -> None:
    pair = BrokerAndMatcher([ROADS], [Layout("roads", ROADS.dimensions, (0,), Scheme.P2P, 1.0)])
    pair.broker.put(ROADS.id, 7, (0, 0), (10, 1))
    pair.settle(20.0)
    assert phase(pair) is Phase.SERVING
    assert pair.ask(ROADS, 5, 0.5) == (("b",), {})


def test_who_waits_for_others_to_know() -> None:
    pair = BrokerAndMatcher([ROADS], [ROADS])
    acts: list[str] = []
    pair.broker.put(ROADS.id, 7, (0, 0), (10, 1))
    pair.broker.when_known(1.0, lambda: acts.append("nobody else"))
    pair.broker.announcer.peer_is_live("c", True)
    pair.broker.when_known(1.0, lambda: acts.append("late"))
    assert pair.broker.turn(0.9) == 0
    assert pair.broker.turn(1.0) == 1
    assert acts == ["nobody else", "late"]
    pair.broker.forget("c")


def test_a_later_life_that_others_know_is_outlived() -> None:
    pair = BrokerAndMatcher([ROADS], [ROADS])
    pair.broker.announcer.peer_is_up("c")
    known = encode(AnnouncementAck(9, 1))
    pair.frames.clear()
    pair.broker.answered("c", ANNOUNCEMENT_ACK, known, 0.0)
    assert pair.broker.life == 10
    sent: list[str] = []
    pair.broker.announcer._send = lambda name, _kind, _body: not sent.append(name)  # type: ignore[func-returns-value]
    pair.broker.turn(0.0)
    assert sent == ["c"]
    told = pair.broker.announced.of("b", ROADS.id)
    assert told is not None
    assert told.life == 10


def test_frames_for_somebody_else() -> None:
    pair = BrokerAndMatcher([ROADS], [ROADS])
    with pytest.raises(PeerError, match="this is a broker"):
        pair.broker.receive("c", QUESTION, b"", lambda _kind, _body: None)
    with pytest.raises(PeerError, match="as an answer"):
        pair.broker.answered("m", FEED, b"", 0.0)
    with pytest.raises(PeerError, match="this is a matcher"):
        pair.matcher.receive("b", ANNOUNCEMENT, b"", lambda _kind, _body: None, 0.0)


def test_what_brokers_tell_is_acknowledged() -> None:
    pair = BrokerAndMatcher([ROADS], [ROADS])
    answers: list[tuple[int, bytes]] = []
    body = encode(Announcement(3, 4, []))
    pair.broker.receive("c", ANNOUNCEMENT, body, lambda kind, body: answers.append((kind, body)))
    assert answers == [(ANNOUNCEMENT_ACK, encode(AnnouncementAck(3, 4)))]


def test_a_record_that_cannot_be_read_is_none() -> None:
    pair = BrokerAndMatcher([ROADS], [ROADS])
    pair.settle(0.5)
    assert pair.broker.directory.now(ROADS.id).names == ("m",)
    pair.broker.receive_record("m", b"\xc1", 1.0)
    assert pair.broker.directory.now(ROADS.id).names == ()
    pair.matcher.receive_record("n", b"\xc1")
    assert "n" not in pair.matcher.directory.records
