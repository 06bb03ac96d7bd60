"""A matcher's report of its segments, compared with its feeds and questions."""

import numpy as np
import pytest

from dovetail.api.reports import PartReport, SegmentReport
from dovetail.attributes.limits import LOAD_WINDOW_SECONDS
from dovetail.attributes.partition import Bounds
from dovetail.attributes.scheme import Scheme
from dovetail.matcher.layout import Layout, layouts_of
from dovetail.matcher.matcher_messages import (
    FEED,
    QUESTION,
    BrokerVersion,
    FeedStep,
    MatcherQuestion,
    encode,
)
from dovetail.matcher.matcher_side import MatcherSide
from dovetail.matcher.segment_report import parts_of
from dovetail.matcher.segment_tables import MatcherRecord, Phase, encode_record

LAYOUT = Layout("roads", (Bounds(0, 100), Bounds(0, 10)), (0, 1), names=("lat", "speed"))
SPACE = LAYOUT.id
FULL = Layout("ships", (Bounds(0, 1),), (0,), Scheme.FULL, 1.0, ("length",))


def a_matcher(*others: tuple[str, tuple[float, ...]], layout: Layout = LAYOUT) -> MatcherSide:
    side = MatcherSide("m", layouts_of([layout]), 0.0)
    for name, tokens in others:
        record = MatcherRecord(Phase.SERVING, {layout.id: tokens})
        side.receive_record(name, encode_record(record))
    side.join(0.0)
    return side


def feed(side: MatcherSide, *boxes: tuple[float, float, float, float]) -> None:
    """Low and high of each dimension."""
    edges = np.array([(lat, speed, to_lat, to_speed) for lat, to_lat, speed, to_speed in boxes])
    everything = [(float("-inf"), float("inf"))]
    step = FeedStep(
        SPACE,
        1,
        1,
        0,
        1,
        [everything, everything],
        np.arange(len(boxes), dtype="<u4").tobytes(),
        edges.astype("<f8").tobytes(),
        b"",
    )
    side.receive("b", FEED, encode(step), lambda _kind, _body: None, 0.0)


def test_one_that_is_alone_has_all() -> None:
    side = a_matcher()
    assert [*parts_of(side)] == [
        PartReport("roads", "lat", SegmentReport(), 0, 0, 0.0, 0.0),
        PartReport("roads", "speed", SegmentReport(), 0, 0, 0.0, 0.0),
    ]


def test_who_joins_tells_what_will_be_its_own() -> None:
    side = a_matcher(("a", (0.0, 0.0)))
    assert [part.segment for part in parts_of(side)] == [
        SegmentReport(50.0, None),
        SegmentReport(5.0, None),
    ]
    side.receive_record("z", encode_record(MatcherRecord(Phase.SERVING, {SPACE: (75.0, 5.0)})))
    lat, speed = parts_of(side)
    assert lat.segment == SegmentReport(50.0, 75.0)
    assert speed.segment is None  # another one has that place


def test_boxes_queues_and_rates() -> None:
    side = a_matcher()
    feed(side, (0, 1, 0, 1), (0, 1, 0, 9), (0, 1, 2, 3))
    points = np.array([[0.5, 0.5]] * 4).astype("<f8").tobytes()
    question = MatcherQuestion(1, SPACE, 1, [3], [BrokerVersion("b", 1, 1)], points)
    side.receive("b", QUESTION, encode(question), lambda _kind, _body: None, 0.0)
    lat, speed = parts_of(side)
    assert (lat.boxes, speed.boxes) == (3, 2)  # one of them is wide
    assert (lat.queue, speed.queue) == (0, 4)
    job = side.answers.next_job(0.0)
    assert job is not None
    side.answers.finish_job(job, 0.5)
    side.tick(2 * LOAD_WINDOW_SECONDS, ["b"])
    lat, speed = parts_of(side)
    assert (speed.queue, lat.matching_rate) == (0, 0.0)
    assert speed.arrival_rate == pytest.approx(2 / LOAD_WINDOW_SECONDS)
    assert speed.matching_rate == pytest.approx(8.0)


def test_where_each_has_everything() -> None:
    side = a_matcher(("a", (0.0,)), layout=FULL)
    assert [*parts_of(side)] == [PartReport("ships", "", SegmentReport(), 0, 0, 0.0, 0.0)]


def test_who_is_away_has_nothing() -> None:
    side = a_matcher()
    side.leave(0.0)
    assert [part.segment for part in parts_of(side)] == [None, None]
