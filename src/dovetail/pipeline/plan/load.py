"""Estimate the load of matchers in given places, by distributing points as brokers do. No Spark.

The service's own tables name the candidates of a point (matcher/segment_tables.py). queue_model.py
distributes points at the highest rate that the matchers can take: then the work is where the
adaptive policy puts it when it matters.

A point costs a matcher a fixed time, plus a time for each box that it holds and for each match, in
seconds of its core. A matcher has one index, so boxes count whichever dimension they are held
along. The costs are measured (cost.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.box_index import BoxIndex
from dovetail.attributes.partition import Tokens
from dovetail.attributes.scheme import Scheme
from dovetail.matcher.layout import Layout
from dovetail.matcher.segment_tables import Placement
from dovetail.pipeline.plan.queue_model import QueueModel

Floats = npt.NDArray[np.float64]
Kinds = npt.NDArray[np.uint16]


class PointCosts(NamedTuple):
    """The costs of one point, in seconds of a matcher's core."""

    point_seconds: float = 1.2e-5
    box_seconds: float = 1.1e-10
    match_seconds: float = 2e-9
    is_by_dimension: bool = False
    """Count only boxes that are held along the question's dimension, as in BlueDove's matchers,
    which have an index for each dimension."""


@dataclass(frozen=True)
class SpaceSample:
    """A sample of one space: some of its points, and some of its boxes."""

    layout: Layout
    points: Floats
    """A value for each dimension, searchable or not; NaN where it is missing."""
    lows: Floats
    highs: Floats
    box_scale: float = 1.0
    """The number of boxes that each of these stands for."""

    @cached_property
    def kinds(self) -> Kinds:
        return self.layout.kinds(self.lows, self.highs)

    @cached_property
    def asked_kinds(self) -> frozenset[int]:
        """The kinds of boxes that matchers hold."""
        return frozenset(np.unique(self.kinds).tolist()) - {0}

    @cached_property
    def matches(self) -> Floats:
        """The estimated number of boxes that each point is in."""
        bounds = self.layout.dimensions
        index = BoxIndex([one.low for one in bounds], [one.high for one in bounds])
        if len(self.lows):
            index.insert(self.lows, self.highs)
        ends, _ = index.match(np.array(self.points))
        return np.diff(ends) * self.box_scale

    def of(self, columns: Sequence[int]) -> "SpaceSample":
        """Return the sample with these dimensions as the searchable ones."""
        return replace(self, layout=replace(self.layout, columns=tuple(columns)))

    def some(self, points: int, boxes: int | None = None) -> "SpaceSample":
        """Return a smaller sample, of the first points and boxes."""
        lows, highs = self.lows[:boxes], self.highs[:boxes]
        scale = self.box_scale * len(self.lows) / max(len(lows), 1)
        return replace(self, points=self.points[:points], lows=lows, highs=highs, box_scale=scale)


class MatcherLoad(NamedTuple):
    """The estimated load of all matchers of a space."""

    seconds: Floats
    """Work of each matcher, in the order of the places."""
    asked: npt.NDArray[np.bool_]
    """By point and dimension: was the point asked along it?"""
    spent: Floats
    """Seconds that each question about a point cost, without boxes."""
    boxes: Floats
    """Boxes that each matcher holds."""
    along: Floats
    """Work of each matcher along each dimension, in seconds."""
    points: int
    capacity: float
    """Publications a second above which the queue of a matcher grows."""
    is_exact: bool
    """The capacity follows from the sample alone: no point has a choice of matchers."""

    @property
    def unevenness(self) -> float:
        """The work of the busiest matcher, divided by the mean."""
        mean = float(self.seconds.mean())
        return float(self.seconds.max()) / mean if mean else 1.0

    @property
    def questions(self) -> float:
        """Questions for each publication."""
        return float(self.asked.sum()) / max(self.points, 1)


def estimate_load(sample: SpaceSample, places: Sequence[Tokens], costs: PointCosts) -> MatcherLoad:
    """Estimate the load of matchers in these places."""
    layout = sample.layout
    names = [f"{number:06d}" for number in range(len(places))]
    placement = Placement(layout, dict(zip(names, places, strict=True)))
    held = _held(sample, placement)
    boxes = np.array([np.count_nonzero(one) for one in held]) * sample.box_scale
    values = layout.values(sample.points)
    usable = np.ones(len(places), np.bool_)
    candidates = placement.candidates(values, usable, Random(0))
    spent = costs.point_seconds + costs.match_seconds * sample.matches
    each = np.repeat(boxes[:, np.newaxis], layout.searchable, axis=1)
    if costs.is_by_dimension:
        bits = np.arange(layout.searchable, dtype=np.uint16)
        each = np.array([(one[:, np.newaxis] >> bits & 1).sum(axis=0) for one in held])
        each = each * sample.box_scale
    each = costs.box_seconds * each
    kinds = sample.asked_kinds if layout.scheme is Scheme.MPARTITION else frozenset({1})
    best = QueueModel(candidates, kinds, spent, each).best_rate()
    asked, along = best.run.asked, best.run.along
    seconds = along.sum(axis=1)
    return MatcherLoad(seconds, asked, spent, boxes, along, len(values), best.rate, best.is_exact)


def copies(sample: SpaceSample, places: Sequence[Tokens]) -> float:
    """Return the mean number of copies of a box among matchers."""
    names = [f"{number:06d}" for number in range(len(places))]
    placement = Placement(sample.layout, dict(zip(names, places, strict=True)))
    boxes = int(np.count_nonzero(sample.kinds))
    held = sum(int(np.count_nonzero(one)) for one in _held(sample, placement))
    return held / boxes if boxes else 0.0


def _held(sample: SpaceSample, placement: Placement) -> list[Kinds]:
    """Return, for each matcher, the dimensions along which it holds each box of the sample."""
    return [
        sample.layout.along(sample.lows, sample.highs, sample.kinds, placement.cover(name))
        for name in placement.names
    ]
