"""Measure what a point costs a matcher's core, with the real matcher in this process. No Spark.

A matcher without connections gets the sample's boxes, and questions about the sample's points, as
frames. It decodes, matches and encodes them as in the service. Times are processor times, the least
of several rounds. Questions with few and with many points give the cost of a question and of a
point. Points in no box, with all boxes and with half of them, give the cost of a box. Points in
boxes give the cost of a match.
"""

import time
from typing import NamedTuple

import numpy as np

from dovetail.matcher.answers import MatcherAnswers
from dovetail.matcher.layout import Layout
from dovetail.matcher.matcher_messages import BrokerVersion, FeedStep, MatcherQuestion, encode
from dovetail.pipeline.plan.load import Floats, PointCosts, SpaceSample

QUESTION_POINTS = 16
"""Publications in one question, which share its cost. At low rates a question has fewer points,
which cost more while there is time to spare; at high rates it has more."""

_POINTS = 512
_ROUNDS = 5
_SMALL = 1


class MeasuredCosts(NamedTuple):
    """Measured costs, in seconds of a core."""

    question_seconds: float
    point_seconds: float
    box_seconds: float
    match_seconds: float
    boxes: int
    """The number of boxes in the measurement."""

    @property
    def costs(self) -> PointCosts:
        fixed = self.point_seconds + self.question_seconds / QUESTION_POINTS
        return PointCosts(fixed, self.box_seconds, self.match_seconds)


def measure(sample: SpaceSample) -> MeasuredCosts:
    """Measure the costs with the sample's boxes and points."""
    layout = sample.layout
    points = _some(sample.points)
    far = np.array([[bound.high + 1.0 for bound in layout.dimensions]] * _POINTS)
    half = len(sample.lows) // 2
    with_all = _MeasuredMatcher(layout, sample.lows, sample.highs)
    with_half = _MeasuredMatcher(layout, sample.lows[:half], sample.highs[:half])
    one = with_all.seconds(far[:_SMALL])
    many = with_all.seconds(far)
    point = (many - one) / (_POINTS - _SMALL)
    question = max(one - point * _SMALL, 0.0)
    point_half = (with_half.seconds(far) - question) / _POINTS
    box = max(point - point_half, 0.0) / max(len(sample.lows) - half, 1)
    matches = float(sample.some(_POINTS).matches.mean()) / sample.box_scale if len(points) else 0.0
    matched = (with_all.seconds(points) - question) / _POINTS
    match = max(matched - point, 0.0) / matches if matches else 0.0
    fixed = max(point - box * len(sample.lows), 0.0)
    return MeasuredCosts(question, fixed, box, match, len(sample.lows))


def _some(points: Floats) -> Floats:
    """Return `_POINTS` points; repeat them if there are fewer."""
    if not len(points):
        return np.zeros((_POINTS, points.shape[1]))
    return np.resize(points[:_POINTS], (_POINTS, points.shape[1]))


class _MeasuredMatcher:
    """A matcher that holds these boxes, and answers questions."""

    def __init__(self, layout: Layout, lows: Floats, highs: Floats) -> None:
        self._answering = MatcherAnswers({layout.id: layout}, 0.0)
        self._layout = layout
        held = np.flatnonzero(layout.kinds(lows, highs)) if len(lows) else np.zeros(0, np.int64)
        edges = np.stack((lows[held], highs[held]), axis=1)
        everything = [[(-np.inf, np.inf)]] * layout.searchable
        # Bypass the frames: all boxes in one step would be too long for a frame.
        self._answering.spaces[layout.id].take(
            "broker",
            FeedStep(
                layout.id, 0, 0, 0, 0, everything,
                np.arange(len(held)).astype("<u4").tobytes(), edges.astype("<f8").tobytes(), b"",
            ),
        )  # fmt: skip
        self._kinds = [*range(1, 1 << layout.searchable)][:1_024]

    def seconds(self, points: Floats) -> float:
        subjects = [BrokerVersion("broker", 0, 0)]
        body = encode(
            MatcherQuestion(
                1, self._layout.id, 0, self._kinds, subjects, points.astype("<f8").tobytes()
            )
        )
        self._once(body)
        return min(self._once(body) for _ in range(_ROUNDS))

    def _once(self, body: bytes) -> float:
        repeats = 8
        began = time.thread_time()
        for _ in range(repeats):
            self._answering.receive_question("broker", body, 0.0)
            job = self._answering.next_job(0.0)
            assert job is not None
            self._answering.answer(job)
        return (time.thread_time() - began) / repeats
