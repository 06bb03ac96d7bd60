"""Which matcher is asked, and what happens when none answers."""

import math
from random import Random

import numpy as np
import pytest

from dovetail.attributes import policies
from dovetail.attributes.partition import Bounds
from dovetail.attributes.scheme import Scheme
from dovetail.errors import PeerError
from dovetail.matcher.announcement import BoxDirectory
from dovetail.matcher.kernels.grouping import UNSURE
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    ASKING_SECONDS_MAX,
    MATCHER_ANSWER_SECONDS_MAX,
    PASSED_OVER_SECONDS,
    QUESTION_POINTS_MAX,
)
from dovetail.matcher.matcher_messages import (
    QUESTION,
    Announcement,
    LoadRow,
    LoadsMessage,
    MatcherAnswer,
    MatcherQuestion,
    SpaceAnnouncement,
    decoded,
    encode,
    floats_of,
    question_decoder,
)
from dovetail.matcher.questions import MatcherQuestions
from dovetail.matcher.segment_tables import MatcherDirectory, MatcherRecord, Phase

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
SPACE = LAYOUT.id
HERE = (10.0, 9.0)
"""`low` is its candidate on the first dimension, `high` on the second."""


class QuestionHarness:
    """A broker's questions, and the frames that its matchers get."""

    def __init__(
        self, policy: policies.Policy = policies.adaptive, *, is_listing: bool = True
    ) -> None:
        self.directory = MatcherDirectory({SPACE: LAYOUT})
        self.known = BoxDirectory()
        self.mail: list[tuple[str, MatcherQuestion]] = []
        self.unreachable: set[str] = set()
        self.questions: MatcherQuestions[object] = MatcherQuestions(
            self.directory,
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
        self.directory.put(name, MatcherRecord(Phase.SERVING, {SPACE: tokens}))

    def knows(self, broker: str, *kinds: int) -> None:
        self.known.put(broker, Announcement(1, 1, [SpaceAnnouncement(SPACE, 7, list(kinds))]))

    def send(self, name: str, kind: int, body: bytes) -> bool:
        assert kind == QUESTION
        if name not in self.unreachable:
            self.mail.append((name, decoded(question_decoder, body)))
        return name not in self.unreachable

    def publish(self, *broad: str, values: tuple[float, ...] = HERE, now: float = 0.0) -> None:
        self.questions.submit(SPACE, values, broad, "tag")
        self.questions.flush(now)

    def answer(self, *counts: int, numbers: tuple[int, ...] = (), place: int = 0) -> None:
        name, question = self.mail.pop(place)
        body = MatcherAnswer(
            question.number,
            np.array(counts, "<u4").tobytes(),
            np.array(numbers, "<u4").tobytes(),
        )
        self.questions.answered(name, encode(body))

    def verdict(self) -> tuple[tuple[str, ...], dict[str, list[int]]]:
        (one,) = self.questions.take_verdicts()
        assert one.tag == "tag"
        assert one.receivers == {*one.unsure, *one.boxes}
        return one.unsure, {name: numbers.boxes.tolist() for name, numbers in one.boxes.items()}

    def loads(self, now: float = 0.0, **queues: int) -> None:
        for name, queue in queues.items():
            rows = [LoadRow(SPACE, dimension, queue, 1.0, 100.0, queue) for dimension in (0, 1)]
            self.questions.receive_loads(name, encode(LoadsMessage(rows)), now)


def test_one_candidate_is_asked_and_its_answer_counts() -> None:
    harness = QuestionHarness()
    harness.knows("c", 0b11)
    harness.loads(low=100, high=1)
    harness.publish("b", "c")
    ((name, question),) = harness.mail
    assert (name, question.dimension, question.kinds) == ("high", 1, [0b11])
    assert [(one.broker, one.life, one.version) for one in question.brokers] == [
        ("b", 1, 7),
        ("c", 1, 7),
    ]
    assert floats_of(question.points, 2).tolist() == [[10.0, 9.0]]
    assert harness.questions.open_points == 1
    harness.answer(2, 0, numbers=(4, 5))
    assert harness.verdict() == ((), {"b": [4, 5]})
    assert harness.questions.open_points == 0


def test_unsure_is_broad() -> None:
    harness = QuestionHarness()
    harness.knows("c", 0b11)
    harness.publish("b", "c")
    harness.answer(UNSURE, 1, numbers=(9,))
    assert harness.verdict() == (("b",), {"c": [9]})


def test_kinds_that_share_no_dimension_are_asked_for_at_two() -> None:
    harness = QuestionHarness()
    harness.knows("b", 0b01, 0b10)
    harness.publish("b")
    asked = {(name, one.dimension, tuple(one.kinds)) for name, one in harness.mail}
    assert asked == {("low", 0, (0b01,)), ("high", 1, (0b10,))}
    harness.answer(1, numbers=(3,))
    assert harness.questions.take_verdicts() == []
    harness.answer(1, numbers=(4,))
    broad, narrow = harness.verdict()
    assert not broad
    assert sorted(narrow["b"]) == [3, 4]


def test_who_is_not_asked_about() -> None:
    harness = QuestionHarness()
    harness.knows("wide", 0, 0b11)
    harness.knows("empty")
    harness.publish("wide", "empty", "unknown")
    assert not harness.mail
    assert harness.verdict() == (("unknown", "wide"), {})


def test_a_point_without_a_value() -> None:
    harness = QuestionHarness()
    harness.knows("b", 0b01)
    harness.publish("b", values=(math.nan, 1.0))
    assert harness.verdict() == ((), {})  # no box that asks for the attribute can match


def test_without_matchers_everything_is_broad() -> None:
    harness = QuestionHarness()
    harness.directory.gone("low")
    harness.directory.gone("high")
    harness.publish("b")
    assert harness.verdict() == (("b",), {})


def test_no_answer_then_the_next_candidate_then_broad() -> None:
    harness = QuestionHarness()
    harness.loads(low=1, high=100)
    harness.publish("b")
    assert harness.mail[0][0] == "low"
    harness.questions.tick(MATCHER_ANSWER_SECONDS_MAX - 0.01)
    assert len(harness.mail) == 1
    harness.questions.tick(MATCHER_ANSWER_SECONDS_MAX)
    assert harness.mail[1][0] == "high"
    harness.answer(1, numbers=(1,))  # late: it was given up
    assert harness.questions.take_verdicts() == []
    harness.questions.tick(2 * MATCHER_ANSWER_SECONDS_MAX)
    assert harness.verdict() == (("b",), {})
    assert 2 * MATCHER_ANSWER_SECONDS_MAX <= ASKING_SECONDS_MAX


def test_who_did_not_answer_is_passed_over_for_a_while() -> None:
    harness = QuestionHarness()
    harness.loads(low=1, high=100)
    harness.publish("b")
    harness.questions.tick(MATCHER_ANSWER_SECONDS_MAX)
    harness.publish("b", now=1.0)
    assert [name for name, _ in harness.mail] == ["low", "high", "high"]
    harness.loads(low=1, high=100, now=1.0)
    harness.publish("b", now=1.0 + PASSED_OVER_SECONDS)
    assert harness.mail[-1][0] == "low"


def test_who_cannot_be_reached_is_not_waited_for() -> None:
    harness = QuestionHarness()
    harness.loads(low=1, high=100)
    harness.unreachable.add("low")
    harness.publish("b")
    assert [name for name, _ in harness.mail] == ["high"]
    harness.unreachable.add("high")
    harness.questions.matcher_is_gone("high", 0.1)
    assert harness.verdict() == (("b",), {})
    harness.unreachable.clear()
    harness.questions.matcher_is_up("low")
    harness.publish("b", now=0.2)
    assert harness.mail[-1][0] == "low"


def test_too_much_at_once_is_broad() -> None:
    harness = QuestionHarness()
    for number in range(6_000):
        harness.questions.submit(SPACE, HERE, ["b"], number)
    harness.questions.flush(0.0)
    assert all(len(one.points) <= 16 * QUESTION_POINTS_MAX for _, one in harness.mail)
    verdicts = harness.questions.take_verdicts()
    # Four whole questions and what was left at the end fit in.
    assert [one.tag for one in verdicts] == list(range(4 * 1_024, 5 * 1_024))
    assert all(one.unsure == ("b",) for one in verdicts)
    assert harness.questions.open_points == 6_000 - len(verdicts)


@pytest.mark.parametrize(
    ("counts", "numbers"), [((1,), ()), ((1, 1), (1, 2)), ((), ()), ((0,), (5,))]
)
def test_answers_that_do_not_fit_their_question(
    counts: tuple[int, ...], numbers: tuple[int, ...]
) -> None:
    harness = QuestionHarness()
    harness.publish("b")
    harness.answer(*counts, numbers=numbers)
    assert harness.verdict() == (("b",), {})


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
    harness = QuestionHarness(is_listing=False)
    harness.knows("c", 0b11)
    for _ in range(2):
        harness.publish("b", "c")
        assert not harness.mail[0][1].is_listing
        harness.answer(*counts)
        (one,) = harness.questions.take_verdicts()
        assert (set(one.receivers), one.unsure) == (wanted, broad)
        assert not one.boxes


def test_publications_that_were_submitted_together_share_a_verdict() -> None:
    harness = QuestionHarness(is_listing=False)
    harness.knows("c", 0b11)
    harness.known.put("wide", Announcement(1, 1, [SpaceAnnouncement(SPACE, 7, [0])]))
    harness.loads(low=100, high=1)
    brokers = ("wide", "c", "b")
    harness.questions.submit_many(SPACE, np.array([HERE] * 3), brokers, "run")
    harness.questions.submit(SPACE, HERE, brokers, "alone")
    harness.questions.submit_many(SPACE, np.array([HERE] * 2), brokers, "later run")
    harness.questions.flush(0.0)
    harness.answer(1, 0, 0, UNSURE, 0, 0, 2, 0, 0, 3, 0, 1)
    first, alone, later = harness.questions.take_verdicts()
    assert (first.tag, alone.tag, later.tag) == ("run", "alone", "later run")
    assert first.brokers == ("b", "c", "wide")
    assert (first.states > 0).tolist() == [
        [True, False, True],
        [False, True, True],
        [False, False, True],
    ]
    assert alone.receivers == {"b", "wide"}
    assert alone.unsure == ("wide",)
    assert (later.states > 0).tolist() == [[False, True, True]] * 2
    assert [one.rows.tolist() for one in (first, alone, later)] == [[0, 1, 2], [0], [0, 1]]


def test_a_verdict_comes_when_its_publications_are_answered_for() -> None:
    harness = QuestionHarness(is_listing=False)
    harness.loads(low=1, high=1)
    here, there = (10.0, math.nan), (60.0, math.nan)  # of `low`, and of `high`
    harness.questions.submit_many(SPACE, np.array([here, there, here]), ["b"], "run")
    harness.knows("b", 0b01)
    harness.questions.flush(0.0)
    assert [name for name, _ in harness.mail] == ["high", "low"]
    harness.answer(1, 0, place=1)
    (one,) = harness.questions.take_verdicts()
    assert (one.rows.tolist(), (one.states > 0).tolist()) == ([0, 2], [[True], [False]])
    harness.answer(1)
    (one,) = harness.questions.take_verdicts()
    assert (one.rows.tolist(), (one.states > 0).tolist()) == ([1], [[True]])


def test_a_run_may_need_several_questions() -> None:
    harness = QuestionHarness(is_listing=False)
    harness.loads(low=100, high=1)
    harness.questions.submit(SPACE, HERE, ["b"], "alone")
    points = np.array([HERE] * (QUESTION_POINTS_MAX + 1))
    harness.questions.submit_many(SPACE, points, ["b"], "run")
    harness.questions.flush(0.0)
    harness.answer(*[1] * QUESTION_POINTS_MAX)
    harness.answer(0, 1)
    found = [(one.tag, one.rows.tolist()) for one in harness.questions.take_verdicts()]
    last = [QUESTION_POINTS_MAX - 1, QUESTION_POINTS_MAX]
    assert found == [("alone", [0]), ("run", [*range(last[0])]), ("run", last)]


def test_answers_that_cannot_be_read() -> None:
    harness = QuestionHarness()
    harness.publish("b")
    with pytest.raises(PeerError):
        harness.questions.answered("low", b"\xc1")


def test_the_random_policy_asks_everybody() -> None:
    harness = QuestionHarness(policies.random)
    harness.loads(low=1, high=100)
    for _ in range(100):
        harness.questions.submit(SPACE, HERE, ["b"], "tag")
    harness.questions.flush(0.0)
    assert {name for name, _ in harness.mail} == {"low", "high"}


def test_the_policy_of_boxes_asks_whoever_has_fewest() -> None:
    harness = QuestionHarness(policies.subscription_amount)
    harness.loads(low=100, high=1)
    harness.publish("b")
    assert harness.mail[0][0] == "high"


def test_full_replication_spreads_points_over_all() -> None:
    layout = Layout("s", LAYOUT.dimensions, (0,), Scheme.FULL, 1.0)
    harness = QuestionHarness()
    directory = MatcherDirectory({layout.id: layout})
    for name in ("m", "n"):
        directory.put(name, MatcherRecord(Phase.SERVING, {layout.id: (0.0,)}))
    harness.known.put("b", Announcement(1, 2, [SpaceAnnouncement(layout.id, 7, [1])]))
    questions: MatcherQuestions[int] = MatcherQuestions(
        directory, harness.known, harness.send, Random(1)
    )
    for number in range(50):
        questions.submit(layout.id, HERE, ["b"], number)
    questions.flush(0.0)
    assert {name for name, _ in harness.mail} == {"m", "n"}
