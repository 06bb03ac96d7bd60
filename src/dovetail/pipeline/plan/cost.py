"""What a point costs a matcher's core here: measured with the real one, in this process. No Spark.

A matcher without its connections is fed the sample's boxes, and asked about its points, as frames:
what comes in is decoded, matched and encoded as in the service. Times are those of the processor,
the least of some rounds. Of questions with few and with many points follows what a question costs,
and what a point; of points that are in no box, with all boxes and with half of them, what a box
that is held costs, and what a match.
"""

import time
from typing import NamedTuple

import numpy as np

from dovetail.matcher.answers import Answering
from dovetail.matcher.layout import Layout
from dovetail.matcher.matcher_messages import AskedBody, FeedBody, Subject, encode
from dovetail.pipeline.plan.load import Costs, Floats, Sample

QUESTION_POINTS = 16
"""Publications that are asked about together, of which follows what a question adds to each. At low
rates they are fewer and cost more, when there is time; at high rates they are more."""

_POINTS = 512
_ROUNDS = 5
_SMALL = 1


class Measured(NamedTuple):
    """In seconds of a core."""

    question_seconds: float
    point_seconds: float
    box_seconds: float
    match_seconds: float
    boxes: int
    """With which it was measured."""

    @property
    def costs(self) -> Costs:
        fixed = self.point_seconds + self.question_seconds / QUESTION_POINTS
        return Costs(fixed, self.box_seconds, self.match_seconds)


def measure(sample: Sample) -> Measured:
    """With the sample's boxes and points."""
    layout = sample.layout
    points = _some(sample.points)
    far = np.array([[bound.high + 1.0 for bound in layout.dimensions]] * _POINTS)
    half = len(sample.lows) // 2
    with_all = _Asked(layout, sample.lows, sample.highs)
    with_half = _Asked(layout, sample.lows[:half], sample.highs[:half])
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
    return Measured(question, fixed, box, match, len(sample.lows))


def _some(points: Floats) -> Floats:
    """So many, again and again if there are fewer."""
    if not len(points):
        return np.zeros((_POINTS, points.shape[1]))
    return np.resize(points[:_POINTS], (_POINTS, points.shape[1]))


class _Asked:
    """A matcher with these boxes."""

    def __init__(self, layout: Layout, lows: Floats, highs: Floats) -> None:
        self._answering = Answering({layout.id: layout}, 0.0)
        self._layout = layout
        held = np.flatnonzero(layout.kinds(lows, highs)) if len(lows) else np.zeros(0, np.int64)
        edges = np.stack((lows[held], highs[held]), axis=1)
        everything = [[(-np.inf, np.inf)]] * layout.searchable
        # Straight into what it holds: as one step it would be too long for a frame.
        self._answering.spaces[layout.id].take(
            "broker",
            FeedBody(
                layout.id, 0, 0, 0, 0, everything,
                np.arange(len(held)).astype("<u4").tobytes(), edges.astype("<f8").tobytes(), b"",
            ),
        )  # fmt: skip
        self._kinds = [*range(1, 1 << layout.searchable)][:1_024]

    def seconds(self, points: Floats) -> float:
        subjects = [Subject("broker", 0, 0)]
        body = encode(
            AskedBody(1, self._layout.id, 0, self._kinds, subjects, points.astype("<f8").tobytes())
        )
        self._once(body)
        return min(self._once(body) for _ in range(_ROUNDS))

    def _once(self, body: bytes) -> float:
        repeats = 8
        began = time.thread_time()
        for _ in range(repeats):
            self._answering.asked("broker", body, 0.0)
            job = self._answering.next_job(0.0)
            assert job is not None
            self._answering.answers(job)
        return (time.thread_time() - began) / repeats
