"""A broker's part and a matcher, joined in memory: several spaces, and frames that are none."""

from collections import deque
from random import Random

import numpy as np
import pytest

from dovetail.attributes.partition import Bounds
from dovetail.attributes.scheme import Scheme
from dovetail.errors import PeerError
from dovetail.matcher.broker_side import Front
from dovetail.matcher.layout import Layout, layouts_of
from dovetail.matcher.matcher_messages import (
    ANSWERED,
    ASKED,
    BOXES,
    BOXES_KNOWN,
    FEED,
    BoxesBody,
    BoxesKnownBody,
    encode,
)
from dovetail.matcher.matcher_side import Back
from dovetail.matcher.segment_tables import Phase

ROADS = Layout("roads", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
SHIPS = Layout("ships", (Bounds(0, 1),), (0,))


class Pair:
    """A broker `b`, and a matcher `m`; frames go at once when `settle` is called."""

    def __init__(self, known_to_broker: list[Layout], known_to_matcher: list[Layout]) -> None:
        self.frames: deque[tuple[int, bytes]] = deque()
        self.front: Front[str] = Front(
            "b", layouts_of(known_to_broker), 1, self._send, Random(1), is_listing=True
        )
        self.back = Back("m", layouts_of(known_to_matcher), 0.0)
        self.back.join(0.0)
        self.front.matcher_is_up("m")

    def _send(self, name: str, kind: int, body: bytes) -> bool:
        assert name == "m"
        self.frames.append((kind, body))
        return True

    def _answer(self, kind: int, body: bytes) -> None:
        self.front.answered("m", kind, body, 0.0)

    def settle(self, now: float) -> None:
        for _ in range(5):
            _, record = self.back.tick(now, ["b"])
            if record is not None:
                self.front.matcher_tells("m", record, now)
            self.front.turn(now)
            while self.frames:
                self.back.receive("b", *self.frames.popleft(), self._answer, now)
            while (job := self.back.answering.next_job(now)) is not None:
                for _, body in self.back.answering.finish(job, 0.001):
                    self._answer(ANSWERED, body)

    def ask(self, layout: Layout, *values: float) -> tuple[tuple[str, ...], dict[str, list[int]]]:
        self.front.asking.submit(layout.id, values, ["b"], "tag")
        self.settle(1.0)
        (one,) = self.front.asking.take_verdicts()
        return one.broad, {name: told.boxes.tolist() for name, told in one.narrow.items()}


def phase(pair: Pair) -> Phase | None:
    return None if pair.back.joining is None else pair.back.joining.phase


def test_spaces_do_not_mix() -> None:
    pair = Pair([ROADS, SHIPS], [ROADS, SHIPS])
    pair.front.put(ROADS.id, 7, (0, 0), (10, 1))
    numbers = np.array([3, 4])
    pair.front.put_many(SHIPS.id, numbers, np.array([[0.1], [0.5]]), np.array([[0.2], [0.6]]))
    pair.settle(0.5)
    assert phase(pair) is Phase.SERVING
    assert pair.ask(ROADS, 5, 0.5) == ((), {"b": [7]})
    assert pair.ask(SHIPS, 0.15) == ((), {"b": [3]})
    pair.front.discard(SHIPS.id, 3)
    assert pair.ask(SHIPS, 0.15) == ((), {})


def test_other_settings_of_a_space_cost_needless_work_and_no_match() -> None:
    pair = Pair([ROADS], [Layout("roads", ROADS.dimensions, (0,), Scheme.P2P, 1.0)])
    pair.front.put(ROADS.id, 7, (0, 0), (10, 1))
    pair.settle(20.0)
    assert phase(pair) is Phase.SERVING
    assert pair.ask(ROADS, 5, 0.5) == (("b",), {})


def test_who_waits_for_others_to_know() -> None:
    pair = Pair([ROADS], [ROADS])
    acts: list[str] = []
    pair.front.put(ROADS.id, 7, (0, 0), (10, 1))
    pair.front.when_known(1.0, lambda: acts.append("nobody else"))
    pair.front.announcing.peer_is_live("c", True)
    pair.front.when_known(1.0, lambda: acts.append("late"))
    assert pair.front.turn(0.9) == 0
    assert pair.front.turn(1.0) == 1
    assert acts == ["nobody else", "late"]
    pair.front.forget("c")


def test_a_later_life_that_others_know_is_outlived() -> None:
    pair = Pair([ROADS], [ROADS])
    pair.front.announcing.peer_is_up("c")
    known = encode(BoxesKnownBody(9, 1))
    pair.frames.clear()
    pair.front.answered("c", BOXES_KNOWN, known, 0.0)
    assert pair.front.life == 10
    sent: list[str] = []
    pair.front.announcing._send = lambda name, _kind, _body: not sent.append(name)  # type: ignore[func-returns-value]
    pair.front.turn(0.0)
    assert sent == ["c"]
    told = pair.front.known.of("b", ROADS.id)
    assert told is not None
    assert told.life == 10


def test_frames_for_somebody_else() -> None:
    pair = Pair([ROADS], [ROADS])
    with pytest.raises(PeerError, match="this is a broker"):
        pair.front.receive("c", ASKED, b"", lambda _kind, _body: None)
    with pytest.raises(PeerError, match="as an answer"):
        pair.front.answered("m", FEED, b"", 0.0)
    with pytest.raises(PeerError, match="this is a matcher"):
        pair.back.receive("b", BOXES, b"", lambda _kind, _body: None, 0.0)


def test_what_brokers_tell_is_acknowledged() -> None:
    pair = Pair([ROADS], [ROADS])
    answers: list[tuple[int, bytes]] = []
    body = encode(BoxesBody(3, 4, []))
    pair.front.receive("c", BOXES, body, lambda kind, body: answers.append((kind, body)))
    assert answers == [(BOXES_KNOWN, encode(BoxesKnownBody(3, 4)))]


def test_a_record_that_cannot_be_read_is_none() -> None:
    pair = Pair([ROADS], [ROADS])
    pair.settle(0.5)
    assert pair.front.view.now(ROADS.id).names == ("m",)
    pair.front.matcher_tells("m", b"\xc1", 1.0)
    assert pair.front.view.now(ROADS.id).names == ()
    pair.back.matcher_tells("n", b"\xc1")
    assert "n" not in pair.back.view.records
