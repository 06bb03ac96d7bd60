"""What matchers would have to do with these places: points are dealt out as brokers do it.

No Spark. Who is a point's candidate is the service's own table (matcher/segment_tables.py); dealing
out is queue_model.py, at the highest rate that matchers can take: there work is where the adaptive
policy has it when it matters.

What a point costs a matcher, in seconds of its core, is a fixed part, and some for each box that it
holds (along whichever dimension: a matcher has one index of all) and for each match. The figures
are measured (cost.py).
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
from dovetail.pipeline.plan.queue_model import Dealing

Floats = npt.NDArray[np.float64]
Kinds = npt.NDArray[np.uint16]


class Costs(NamedTuple):
    """Of one point, in seconds of a matcher's core."""

    point_seconds: float = 1.2e-5
    box_seconds: float = 1.1e-10
    match_seconds: float = 2e-9
    is_by_dimension: bool = False
    """Only boxes that are held along the dimension that is asked along cost something, as with
    BlueDove's matchers, which have an index for each."""


@dataclass(frozen=True)
class Sample:
    """Of one space: some points, and some of the boxes."""

    layout: Layout
    points: Floats
    """A value for each dimension, searchable or not; NaN where it is missing."""
    lows: Floats
    highs: Floats
    box_scale: float = 1.0
    """Boxes that each of these stands for."""

    @cached_property
    def kinds(self) -> Kinds:
        return self.layout.kinds(self.lows, self.highs)

    @cached_property
    def asked_kinds(self) -> frozenset[int]:
        """Kinds that matchers answer for."""
        return frozenset(np.unique(self.kinds).tolist()) - {0}

    @cached_property
    def matches(self) -> Floats:
        """Boxes that each point is likely to be in."""
        bounds = self.layout.dimensions
        index = BoxIndex([one.low for one in bounds], [one.high for one in bounds])
        if len(self.lows):
            index.insert(self.lows, self.highs)
        ends, _ = index.match(np.array(self.points))
        return np.diff(ends) * self.box_scale

    def of(self, columns: Sequence[int]) -> "Sample":
        """If these dimensions were the searchable ones."""
        return replace(self, layout=replace(self.layout, columns=tuple(columns)))

    def some(self, points: int, boxes: int | None = None) -> "Sample":
        """The first of them."""
        lows, highs = self.lows[:boxes], self.highs[:boxes]
        scale = self.box_scale * len(self.lows) / max(len(lows), 1)
        return replace(self, points=self.points[:points], lows=lows, highs=highs, box_scale=scale)


class Load(NamedTuple):
    """What came out."""

    seconds: Floats
    """Of each matcher, in the order of the places."""
    asked: npt.NDArray[np.bool_]
    """Along which dimensions each point was asked."""
    spent: Floats
    """Seconds that each point cost, each time it was asked about."""
    boxes: Floats
    """That each matcher holds."""
    along: Floats
    """Seconds of each matcher along each dimension."""
    points: int
    capacity: float
    """Publications a second, above which somebody's queue grows."""
    is_exact: bool
    """That follows from the sample alone: no point has a choice of matchers."""

    @property
    def unevenness(self) -> float:
        """The busiest matcher's share, by an even one."""
        mean = float(self.seconds.mean())
        return float(self.seconds.max()) / mean if mean else 1.0

    @property
    def questions(self) -> float:
        """For each publication."""
        return float(self.asked.sum()) / max(self.points, 1)


def load_of(sample: Sample, places: Sequence[Tokens], costs: Costs) -> Load:
    """Of matchers in these places."""
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
    best = Dealing(candidates, kinds, spent, each).best_rate()
    asked, along = best.dealt.asked, best.dealt.along
    seconds = along.sum(axis=1)
    return Load(seconds, asked, spent, boxes, along, len(values), best.rate, best.is_exact)


def copies(sample: Sample, places: Sequence[Tokens]) -> float:
    """Of a box that matchers hold, on average."""
    names = [f"{number:06d}" for number in range(len(places))]
    placement = Placement(sample.layout, dict(zip(names, places, strict=True)))
    boxes = int(np.count_nonzero(sample.kinds))
    held = sum(int(np.count_nonzero(one)) for one in _held(sample, placement))
    return held / boxes if boxes else 0.0


def _held(sample: Sample, placement: Placement) -> list[Kinds]:
    """At each matcher, along which dimensions it holds each box of the sample."""
    return [
        sample.layout.along(sample.lows, sample.highs, sample.kinds, placement.cover(name))
        for name in placement.names
    ]
