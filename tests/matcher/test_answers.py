"""Question queues, waits for feeds, and answers without a search."""

import numpy as np
import pytest

from dovetail.attributes.partition import Bounds
from dovetail.errors import PeerError
from dovetail.matcher.answers import MatcherAnswers
from dovetail.matcher.kernels.grouping import UNSURE
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import ASKING_SECONDS_MAX, FEED_WAIT_SECONDS_MAX, MATCHING_POINTS_MAX
from dovetail.matcher.matcher_messages import (
    BrokerVersion,
    FeedReply,
    FeedStep,
    LoadsMessage,
    MatcherQuestion,
    answer_decoder,
    decoded,
    encode,
    feed_reply_decoder,
    loads_decoder,
    numbers_of,
)

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
SPACE = LAYOUT.id
EVERYWHERE = [[(-np.inf, np.inf)]] * 2


def floats(*rows: tuple[float, ...]) -> bytes:
    return np.array(rows, "<f8").tobytes()


def a_step(version: int, *boxes: tuple[float, ...], sequence: int = 0) -> bytes:
    """Boxes numbered from 100 times the step on."""
    numbers = np.arange(len(boxes), dtype="<u4") + np.uint32(100 * sequence)
    return encode(
        FeedStep(SPACE, 1, 1, sequence, version, EVERYWHERE, numbers.tobytes(), floats(*boxes), b"")
    )


def a_question(
    *points: tuple[float, ...],
    version: int = 1,
    number: int = 1,
    dimension: int = 0,
    is_listing: bool = True,
) -> bytes:
    subjects = [BrokerVersion("b", 1, version)]
    return encode(
        MatcherQuestion(number, SPACE, dimension, [0b11], subjects, floats(*points), is_listing)
    )


def answers(matcher: MatcherAnswers, now: float) -> list[tuple[str, int, list[int], list[int]]]:
    found = []
    while (job := matcher.next_job(now)) is not None:
        for asker, body in matcher.finish_job(job, 0.001):
            one = decoded(answer_decoder, body)
            counts, numbers = numbers_of(one.counts), numbers_of(one.numbers)
            found.append((asker, one.number, counts.tolist(), numbers.tolist()))
    return found


def a_matcher() -> MatcherAnswers:
    matcher = MatcherAnswers({SPACE: LAYOUT}, 0.0)
    matcher.receive_feed("b", a_step(1, (0, 0, 10, 1), (5, 0, 10, 1)))
    return matcher


def test_questions_are_answered_together() -> None:
    matcher = a_matcher()
    assert matcher.receive_question("p", a_question((1, 0.5), (7, 0.5)), 0.0) is None
    assert matcher.receive_question("q", a_question((50, 5), number=2), 0.0) is None
    job = matcher.next_job(0.0)
    assert job is not None
    assert (job.space, job.dimension, job.points, job.boxes) == (SPACE, 0, 3, 2)
    matcher.finish_job(job, 0.001)
    matcher.receive_question("p", a_question((1, 0.5), (7, 0.5)), 0.0)
    matcher.receive_question("q", a_question((50, 5), number=2), 0.0)
    assert answers(matcher, 0.0) == [("p", 1, [1, 2], [0, 0, 1]), ("q", 2, [0], [])]
    assert matcher.points_waiting == 0


def test_boxes_are_counted_where_they_are_not_listed() -> None:
    matcher = a_matcher()
    matcher.receive_question("p", a_question((1, 0.5), (7, 0.5), (50, 5), is_listing=False), 0.0)
    assert answers(matcher, 0.0) == [("p", 1, [1, 2, 0], [])]


def test_dimensions_take_turns() -> None:
    matcher = a_matcher()
    for number in range(4):
        points = [(1.0, 0.5)] * MATCHING_POINTS_MAX
        matcher.receive_question(
            "p", a_question(*points, number=number, dimension=number // 3), 0.0
        )
    order = []
    while (job := matcher.next_job(0.0)) is not None:
        order.append(job.dimension)
        matcher.finish_job(job, 0.001)
    assert order == [0, 1, 0, 0]


def test_dimensions_share_the_time() -> None:
    """One on which matching takes long does not hold up the other."""
    matcher = a_matcher()
    points = [(1.0, 0.5)] * MATCHING_POINTS_MAX
    for number in range(40):
        matcher.receive_question("p", a_question(*points, number=number, dimension=number % 2), 0.0)
    order = []
    for _ in range(16):
        job = matcher.next_job(0.0)
        assert job is not None
        order.append(job.dimension)
        matcher.finish_job(job, 3.0 if job.dimension else 1.0)
    assert order.count(0) == 12


def test_who_had_nothing_to_do_has_not_saved_it_up() -> None:
    matcher = a_matcher()
    points = [(1.0, 0.5)] * MATCHING_POINTS_MAX
    order = []
    for dimensions in ([0] * 10, [0, 1] * 2):
        for number, dimension in enumerate(dimensions):
            matcher.receive_question(
                "p", a_question(*points, number=number, dimension=dimension), 0.0
            )
        while (job := matcher.next_job(0.0)) is not None:
            order.append(job.dimension)
            matcher.finish_job(job, 1.0)
    assert order[10:] == [1, 0, 1, 0]


def test_boxes_that_are_on_their_way_are_waited_for() -> None:
    matcher = a_matcher()
    matcher.receive_question("p", a_question((1, 0.5), version=2), 0.0)
    assert answers(matcher, 0.0) == []
    assert matcher.next_wake() == FEED_WAIT_SECONDS_MAX
    matcher.receive_feed("b", a_step(2, (0, 0, 2, 1), sequence=1))
    assert answers(matcher, 0.01) == [("p", 1, [2], [0, 100])]
    assert matcher.next_wake() is None


def test_and_not_for_ever() -> None:
    matcher = a_matcher()
    matcher.receive_question("p", a_question((1, 0.5), version=2), 0.0)
    assert answers(matcher, 0.0) == []
    assert answers(matcher, FEED_WAIT_SECONDS_MAX) == [("p", 1, [UNSURE], [])]


def test_who_was_never_fed_is_unsure_of() -> None:
    matcher = MatcherAnswers({SPACE: LAYOUT}, 0.0)
    matcher.receive_question("p", a_question((1, 0.5)), 0.0)
    assert answers(matcher, 1.0) == [("p", 1, [UNSURE], [])]


def test_of_another_life() -> None:
    matcher = a_matcher()
    question = MatcherQuestion(1, SPACE, 0, [0b11], [BrokerVersion("b", 2, 0)], floats((1, 0.5)))
    matcher.receive_question("p", encode(question), 0.0)
    assert answers(matcher, 1.0) == [("p", 1, [UNSURE], [])]


def test_outside_the_cover() -> None:
    matcher = MatcherAnswers({SPACE: LAYOUT}, 0.0)
    cover = [[(0.0, 50.0)], [(5.0, 10.0)]]
    numbers = np.array([7], "<u4").tobytes()
    matcher.receive_feed(
        "b", encode(FeedStep(SPACE, 1, 1, 0, 1, cover, numbers, floats((0, 0, 9, 1)), b""))
    )
    matcher.receive_question("p", a_question((1, 0.5), (50, 0.5), (-1, 7)), 0.0)
    matcher.receive_question("p", a_question((1, 0.5), (50, 5), number=2, dimension=1), 0.0)
    assert answers(matcher, 0.0) == [
        ("p", 1, [1, UNSURE, UNSURE], [7]),
        ("p", 2, [UNSURE, 0], []),
    ]


def test_what_is_stale_or_too_much_is_not_searched_for() -> None:
    matcher = MatcherAnswers({SPACE: LAYOUT}, 0.0, queue_points_max=2)
    matcher.receive_feed("b", a_step(1, (0, 0, 10, 1)))
    matcher.receive_question("p", a_question((1, 0.5), (1, 0.5)), 0.0)
    at_once = matcher.receive_question("p", a_question((1, 0.5), number=2), 0.0)
    assert at_once is not None
    assert numbers_of(decoded(answer_decoder, at_once).counts).tolist() == [UNSURE]
    late = ASKING_SECONDS_MAX + 1
    assert answers(matcher, late) == [("p", 1, [UNSURE, UNSURE], [])]


def test_a_space_that_is_not_known_here() -> None:
    matcher = MatcherAnswers({}, 0.0)
    body, _ = matcher.receive_feed("b", a_step(1))
    taken = decoded(feed_reply_decoder, body)
    assert taken == FeedReply(SPACE, 1, 1, 0, is_unknown=True)
    answer = matcher.receive_question("p", a_question((1, 0.5)), 0.0)
    assert answer is not None
    assert decoded(answer_decoder, answer).counts == b""


def test_forgotten_brokers() -> None:
    matcher = a_matcher()
    assert matcher.spaces[SPACE].boxes_along() == (2, 2)
    matcher.forget("b")
    assert matcher.spaces[SPACE].boxes_along() == (0, 0)
    matcher.receive_question("p", a_question((1, 0.5)), 0.0)
    assert answers(matcher, 1.0) == [("p", 1, [UNSURE], [])]


def test_loads_are_told_when_they_change() -> None:
    matcher = a_matcher()
    matcher.receive_question("p", a_question((1, 0.5), (1, 0.5)), 0.0)
    assert matcher.tick(0.5) is None
    job = matcher.next_job(0.5)
    assert job is not None
    matcher.finish_job(job, 0.25)
    matcher.record_other_work(0.125)
    told = matcher.tick(1.0)
    assert told is not None
    rows = {row.dimension: row for row in decoded(loads_decoder, told).rows}
    assert (rows[0].arrival_rate, rows[0].matching_rate, rows[0].boxes) == (2.0, 8.0, 2)
    assert (rows[1].arrival_rate, rows[1].matching_rate, rows[1].boxes) == (0.0, 0.0, 2)
    assert matcher.busy_share == 0.375
    told = matcher.tick(2.0)
    assert isinstance(decoded(loads_decoder, told or b""), LoadsMessage)
    assert matcher.tick(3.0) is None
    # Whoever comes now is told, too.
    everything = decoded(loads_decoder, matcher.loads())
    assert {row.dimension: row.boxes for row in everything.rows} == {0: 2, 1: 2}
    assert matcher.receive_feed("c", a_step(1))[1]
    assert not matcher.receive_feed("c", a_step(2, sequence=1))[1]


@pytest.mark.parametrize(
    "step",
    [
        FeedStep(SPACE, 1, 1, 0, 1, EVERYWHERE, b"\0\0\0\0", b"", b""),
        FeedStep(SPACE, 1, 1, 0, 1, EVERYWHERE, b"\0", b"", b""),
        FeedStep(SPACE, 1, 1, 0, 1, EVERYWHERE, b"", b"\0", b""),
        FeedStep(SPACE, 1, 1, 0, 1, EVERYWHERE[:1], b"", b"", b""),
        FeedStep(SPACE, 1, 1, 0, 1, EVERYWHERE, b"\0" * 4, floats((0, 0, np.nan, 1)), b""),
        FeedStep(SPACE, 1, 1, 0, 1, EVERYWHERE, b"\0" * 8, floats((0, 0, 1, 1), (0, 0, 1, 1)), b""),
    ],
)
def test_feeds_that_are_none(step: FeedStep) -> None:
    with pytest.raises(PeerError):
        MatcherAnswers({SPACE: LAYOUT}, 0.0).receive_feed("b", encode(step))


@pytest.mark.parametrize(
    "body",
    [
        encode(MatcherQuestion(1, SPACE, 2, [1], [], floats((1, 2)))),
        encode(MatcherQuestion(1, SPACE, 0, [1], [], b"\0" * 9)),
        a_question((1, 2))[:-3],
    ],
)
def test_questions_that_are_none(body: bytes) -> None:
    with pytest.raises(PeerError):
        MatcherAnswers({SPACE: LAYOUT}, 0.0).receive_question("p", body, 0.0)


def test_how_long_the_oldest_question_waits() -> None:
    matcher = a_matcher()
    assert matcher.waited_seconds(1.0) == 0
    matcher.receive_question("p", a_question((1, 0.5), dimension=1), 1.0)
    matcher.receive_question("p", a_question((1, 0.5), number=2), 2.0)
    assert matcher.waited_seconds(3.0) == 2.0
    assert len(answers(matcher, 3.0)) == 2
    assert matcher.waited_seconds(3.0) == 0
