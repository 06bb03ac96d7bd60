"""Who is asked, and what happens when nobody answers."""

import math
from random import Random

import numpy as np
import pytest

from dovetail.attributes import policies
from dovetail.attributes.partition import Bounds
from dovetail.attributes.scheme import Scheme
from dovetail.errors import PeerError
from dovetail.matcher.announcement import KnownBoxes
from dovetail.matcher.kernels.grouping import UNSURE
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    MATCHER_ANSWER_SECONDS_MAX,
    PASSED_OVER_SECONDS,
    QUESTION_POINTS_MAX,
)
from dovetail.matcher.matcher_messages import (
    ASKED,
    AnsweredBody,
    AskedBody,
    BoxesBody,
    BoxesRow,
    LoadRow,
    LoadsBody,
    asked_decoder,
    decoded,
    encode,
    floats_of,
)
from dovetail.matcher.questions import Asking
from dovetail.matcher.segment_tables import MatcherRecord, Phase, View

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
SPACE = LAYOUT.id
HERE = (10.0, 9.0)
"""`low` is its candidate on the first dimension, `high` on the second."""


class Desk:
    """A broker that asks, and its matchers' mail."""

    def __init__(
        self, policy: policies.Policy = policies.adaptive, *, is_listing: bool = True
    ) -> None:
        self.view = View({SPACE: LAYOUT})
        self.known = KnownBoxes()
        self.mail: list[tuple[str, AskedBody]] = []
        self.unreachable: set[str] = set()
        self.asking: Asking[object] = Asking(
            self.view,
            self.known,
            self.send,
            Random(1),
            policy=policy,
            open_points_max=5_000,
            is_listing=is_listing,
        )
        self.serve("low", 0.0, 0.0)
        self.serve("high", 50.0, 5.0)
        self.knows("b", 0b11)

    def serve(self, name: str, *tokens: float) -> None:
        self.view.put(name, MatcherRecord(Phase.SERVING, {SPACE: tokens}))

    def knows(self, broker: str, *kinds: int) -> None:
        self.known.put(broker, BoxesBody(1, 1, [BoxesRow(SPACE, 7, list(kinds))]))

    def send(self, name: str, kind: int, body: bytes) -> bool:
        assert kind == ASKED
        if name not in self.unreachable:
            self.mail.append((name, decoded(asked_decoder, body)))
        return name not in self.unreachable

    def publish(self, *broad: str, values: tuple[float, ...] = HERE, now: float = 0.0) -> None:
        self.asking.submit(SPACE, values, broad, "tag")
        self.asking.flush(now)

    def answer(self, *counts: int, numbers: tuple[int, ...] = (), place: int = 0) -> None:
        name, question = self.mail.pop(place)
        body = AnsweredBody(
            question.number,
            np.array(counts, "<u4").tobytes(),
            np.array(numbers, "<u4").tobytes(),
        )
        self.asking.answered(name, encode(body))

    def verdict(self) -> tuple[tuple[str, ...], dict[str, list[int]]]:
        (one,) = self.asking.take_verdicts()
        assert one.tag == "tag"
        assert one.wanted == {*one.broad, *one.narrow}
        return one.broad, {name: told.boxes.tolist() for name, told in one.narrow.items()}

    def loads(self, now: float = 0.0, **queues: int) -> None:
        for name, queue in queues.items():
            rows = [LoadRow(SPACE, dimension, queue, 1.0, 100.0, queue) for dimension in (0, 1)]
            self.asking.told(name, encode(LoadsBody(rows)), now)


def test_one_candidate_is_asked_and_its_answer_counts() -> None:
    desk = Desk()
    desk.knows("c", 0b11)
    desk.loads(low=100, high=1)
    desk.publish("b", "c")
    ((name, question),) = desk.mail
    assert (name, question.dimension, question.kinds) == ("high", 1, [0b11])
    assert [(one.broker, one.life, one.version) for one in question.subjects] == [
        ("b", 1, 7),
        ("c", 1, 7),
    ]
    assert floats_of(question.points, 2).tolist() == [[10.0, 9.0]]
    assert desk.asking.open_points == 1
    desk.answer(2, 0, numbers=(4, 5))
    assert desk.verdict() == ((), {"b": [4, 5]})
    assert desk.asking.open_points == 0


def test_unsure_is_broad() -> None:
    desk = Desk()
    desk.knows("c", 0b11)
    desk.publish("b", "c")
    desk.answer(UNSURE, 1, numbers=(9,))
    assert desk.verdict() == (("b",), {"c": [9]})


def test_kinds_that_share_no_dimension_are_asked_for_at_two() -> None:
    desk = Desk()
    desk.knows("b", 0b01, 0b10)
    desk.publish("b")
    asked = {(name, one.dimension, tuple(one.kinds)) for name, one in desk.mail}
    assert asked == {("low", 0, (0b01,)), ("high", 1, (0b10,))}
    desk.answer(1, numbers=(3,))
    assert desk.asking.take_verdicts() == []
    desk.answer(1, numbers=(4,))
    broad, narrow = desk.verdict()
    assert not broad
    assert sorted(narrow["b"]) == [3, 4]


def test_who_is_not_asked_about() -> None:
    desk = Desk()
    desk.knows("wide", 0, 0b11)
    desk.knows("empty")
    desk.publish("wide", "empty", "unknown")
    assert not desk.mail
    assert desk.verdict() == (("unknown", "wide"), {})


def test_a_point_without_a_value() -> None:
    desk = Desk()
    desk.knows("b", 0b01)
    desk.publish("b", values=(math.nan, 1.0))
    assert desk.verdict() == ((), {})  # no box that asks for the attribute can match


def test_without_matchers_everything_is_broad() -> None:
    desk = Desk()
    desk.view.gone("low")
    desk.view.gone("high")
    desk.publish("b")
    assert desk.verdict() == (("b",), {})


def test_no_answer_then_the_next_candidate_then_broad() -> None:
    desk = Desk()
    desk.loads(low=1, high=100)
    desk.publish("b")
    assert desk.mail[0][0] == "low"
    desk.asking.tick(MATCHER_ANSWER_SECONDS_MAX - 0.01)
    assert len(desk.mail) == 1
    desk.asking.tick(MATCHER_ANSWER_SECONDS_MAX)
    assert desk.mail[1][0] == "high"
    desk.answer(1, numbers=(1,))  # late: it was given up
    assert desk.asking.take_verdicts() == []
    desk.asking.tick(2 * MATCHER_ANSWER_SECONDS_MAX)
    assert desk.verdict() == (("b",), {})
    assert 2 * MATCHER_ANSWER_SECONDS_MAX <= ASKING_SECONDS_MAX


def test_who_did_not_answer_is_passed_over_for_a_while() -> None:
    desk = Desk()
    desk.loads(low=1, high=100)
    desk.publish("b")
    desk.asking.tick(MATCHER_ANSWER_SECONDS_MAX)
    desk.publish("b", now=1.0)
    assert [name for name, _ in desk.mail] == ["low", "high", "high"]
    desk.loads(low=1, high=100, now=1.0)
    desk.publish("b", now=1.0 + PASSED_OVER_SECONDS)
    assert desk.mail[-1][0] == "low"


def test_who_cannot_be_reached_is_not_waited_for() -> None:
    desk = Desk()
    desk.loads(low=1, high=100)
    desk.unreachable.add("low")
    desk.publish("b")
    assert [name for name, _ in desk.mail] == ["high"]
    desk.unreachable.add("high")
    desk.asking.matcher_is_gone("high", 0.1)
    assert desk.verdict() == (("b",), {})
    desk.unreachable.clear()
    desk.asking.matcher_is_up("low")
    desk.publish("b", now=0.2)
    assert desk.mail[-1][0] == "low"


def test_too_much_at_once_is_broad() -> None:
    desk = Desk()
    for number in range(6_000):
        desk.asking.submit(SPACE, HERE, ["b"], number)
    desk.asking.flush(0.0)
    assert all(len(one.points) <= 16 * QUESTION_POINTS_MAX for _, one in desk.mail)
    verdicts = desk.asking.take_verdicts()
    # Four whole questions and what was left at the end fit in.
    assert [one.tag for one in verdicts] == list(range(4 * 1_024, 5 * 1_024))
    assert all(one.broad == ("b",) for one in verdicts)
    assert desk.asking.open_points == 6_000 - len(verdicts)


@pytest.mark.parametrize(
    ("counts", "numbers"), [((1,), ()), ((1, 1), (1, 2)), ((), ()), ((0,), (5,))]
)
def test_answers_that_do_not_fit_their_question(
    counts: tuple[int, ...], numbers: tuple[int, ...]
) -> None:
    desk = Desk()
    desk.publish("b")
    desk.answer(*counts, numbers=numbers)
    assert desk.verdict() == (("b",), {})


@pytest.mark.parametrize(
    ("counts", "wanted", "broad"),
    [
        ((3, 0), {"b"}, ()),
        ((0, 2), {"c"}, ()),
        ((0, 0), set(), ()),
        ((UNSURE, 1), {"b", "c"}, ("b",)),
        ((1,), {"b", "c"}, ("b", "c")),
    ],
)
def test_boxes_are_counted_where_they_are_not_listed(
    counts: tuple[int, ...], wanted: set[str], broad: tuple[str, ...]
) -> None:
    desk = Desk(is_listing=False)
    desk.knows("c", 0b11)
    for _ in range(2):
        desk.publish("b", "c")
        assert not desk.mail[0][1].is_listing
        desk.answer(*counts)
        (one,) = desk.asking.take_verdicts()
        assert (set(one.wanted), one.broad) == (wanted, broad)
        assert not one.narrow


def test_answers_that_cannot_be_read() -> None:
    desk = Desk()
    desk.publish("b")
    with pytest.raises(PeerError):
        desk.asking.answered("low", b"\xc1")


def test_the_random_policy_asks_everybody() -> None:
    desk = Desk(policies.random)
    desk.loads(low=1, high=100)
    for _ in range(100):
        desk.asking.submit(SPACE, HERE, ["b"], "tag")
    desk.asking.flush(0.0)
    assert {name for name, _ in desk.mail} == {"low", "high"}


def test_the_policy_of_boxes_asks_whoever_has_fewest() -> None:
    desk = Desk(policies.subscription_amount)
    desk.loads(low=100, high=1)
    desk.publish("b")
    assert desk.mail[0][0] == "high"


def test_full_replication_spreads_points_over_all() -> None:
    layout = Layout("s", LAYOUT.dimensions, (0,), Scheme.FULL, 1.0)
    desk = Desk()
    view = View({layout.id: layout})
    for name in ("m", "n"):
        view.put(name, MatcherRecord(Phase.SERVING, {layout.id: (0.0,)}))
    desk.known.put("b", BoxesBody(1, 2, [BoxesRow(layout.id, 7, [1])]))
    asking: Asking[int] = Asking(view, desk.known, desk.send, Random(1))
    for number in range(50):
        asking.submit(layout.id, HERE, ["b"], number)
    asking.flush(0.0)
    assert {name for name, _ in desk.mail} == {"m", "n"}
