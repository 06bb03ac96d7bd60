"""Turn counts into the figures of a plan. No Spark.

For each space: its dimensions, which of them to search, places for the matchers, and the load with
even, current and planned places. For all spaces: sketches, and the number of matchers for a rate.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.api.reports import ClusterReport
from dovetail.attributes.partition import Tokens
from dovetail.broker.peering.limits import SKETCH_ELEMENTS_START, SKETCH_GROWTH, SKETCH_PEER_RATE
from dovetail.limits import MATCHERS_ADD_ABOVE
from dovetail.matcher.layout import Layout
from dovetail.pipeline.plan.dimensions import DimensionSet, recommend, why
from dovetail.pipeline.plan.document import (
    DimensionFigures,
    LoadFigures,
    NeedFigures,
    SetFigures,
    SketchFigures,
    SketchSize,
    SpaceFigures,
)
from dovetail.pipeline.plan.load import (
    Floats,
    MatcherLoad,
    PointCosts,
    SpaceSample,
    copies,
    estimate_load,
)
from dovetail.pipeline.plan.placement import PlannedPlaces, even_places, plan_places
from dovetail.topics.sketches.lines import LinesSketch

RATES = (0.01, 0.001, 0.0001)
"""False positive rates for which a plan lists sizes of sketches."""

MATCHERS_TRIED_MAX = 256
"""The largest number of matchers that is tried for a rate."""

NOBODY = "Nobody has subscribed there with a where-clause: matchers have nothing to do."
"""Explains a plan without boxes."""

NEED_POINTS, NEED_BOXES = 1_500, 2_000
"""The part of the sample that is used to find the number of matchers for a rate."""


@dataclass(frozen=True)
class DimensionCounts:
    """Counts along one dimension of a space, over the whole archive and all subscriptions."""

    edges: Floats
    points: Floats
    begins: Floats
    ends: Floats
    missing: int = 0
    below: int = 0
    above: int = 0
    narrow: int = 0
    open: int = 0

    @property
    def overlapping(self) -> Floats:
        """Boxes that overlap each cell."""
        before = np.concatenate(([0.0], np.cumsum(self.ends)[:-1]))
        return np.cumsum(self.begins) - before

    def skew(self, segments: int) -> float:
        """Return the points in the fullest of this many even segments, divided by the mean."""
        low, high = self.edges[0], self.edges[-1]
        borders = np.linspace(low, high, segments + 1)
        sums = np.concatenate(([0.0], np.cumsum(self.points)))
        below = np.interp(borders, self.edges, sums)
        total = sums[-1]
        return float(np.diff(below).max() * segments / total) if total else 1.0


@dataclass(frozen=True)
class SpaceCounts:
    sample: SpaceSample
    messages: int
    boxes: int
    dimensions: Sequence[DimensionCounts]


def space_figures(
    counted: SpaceCounts,
    total: int,
    matchers: int,
    costs: PointCosts,
    now: Sequence[Tokens] | None = None,
) -> SpaceFigures:
    """Plan a space. `total`: the number of all messages. `now`: the current places of matchers."""
    sample, layout = counted.sample, counted.sample.layout
    names = [layout.names[column] for column in range(len(layout.dimensions))]
    planned = plan_places(sample, matchers, costs)
    even = even_places(sample, matchers)
    best, evaluated = recommend(sample, matchers, costs)
    present = next(one for one in evaluated if one.columns == layout.columns)
    wide = float(np.mean(sample.kinds == 0)) if len(sample.kinds) else 0.0
    return SpaceFigures(
        space=layout.name,
        layout=layout.id,
        messages=counted.messages,
        share=counted.messages / max(total, 1),
        boxes=counted.boxes,
        wide_boxes=round(wide * counted.boxes),
        sampled_points=len(sample.points),
        sampled_boxes=len(sample.lows),
        dimensions=tuple(
            _dimension(counted, column, matchers, planned) for column in range(len(names))
        ),
        sets=tuple(_set(one, names) for one in evaluated),
        recommended=tuple(names[column] for column in best.columns),
        why=why(best, present, names, matchers) + _unused_dimensions(sample, names)
        if counted.boxes
        else NOBODY,
        even=_load(sample, even, estimate_load(sample, even, costs)),
        now=None if not now else _load(sample, now, estimate_load(sample, now, costs)),
        planned=_load(sample, planned.places, planned.load),
        places=tuple(planned.places),
    )


def _unused_dimensions(sample: SpaceSample, names: Sequence[str]) -> str:
    """Name the searchable dimensions on which no box is narrow."""
    used = int(np.bitwise_or.reduce(sample.kinds)) if len(sample.kinds) else 0
    idle = [
        names[column] for place, column in enumerate(sample.layout.columns) if not used >> place & 1
    ]
    return f" On {', '.join(idle)} no box is narrow: nobody is asked along it." if idle else ""


def _dimension(
    counted: SpaceCounts, column: int, matchers: int, planned: PlannedPlaces
) -> DimensionFigures:
    layout, own = counted.sample.layout, counted.dimensions[column]
    bound = layout.dimensions[column]
    is_searchable = column in layout.columns
    lows, highs = counted.sample.lows[:, column], counted.sample.highs[:, column]
    is_open = np.isneginf(lows) & np.isposinf(highs)
    widths = np.minimum(highs, bound.high) - np.maximum(lows, bound.low)
    widths = widths[~is_open] / (bound.high - bound.low)
    place = layout.columns.index(column) if is_searchable else 0
    borders = sorted(tokens[place] for tokens in planned.places)[1:] if is_searchable else []
    even: list[float] = []
    if is_searchable:
        even = np.linspace(bound.low, bound.high, matchers + 1)[1:-1].tolist()
    messages, boxes = max(counted.messages, 1), max(counted.boxes, 1)
    cells = zip(
        own.edges[:-1].tolist(),
        own.points.astype(int).tolist(),
        own.overlapping.astype(int).tolist(),
        strict=True,
    )
    return DimensionFigures(
        name=layout.names[column],
        low=bound.low,
        high=bound.high,
        is_searchable=is_searchable,
        missing_share=own.missing / messages,
        outside_share=(own.below + own.above) / messages,
        narrow_share=own.narrow / boxes,
        open_share=own.open / boxes,
        width_median=float(np.median(np.maximum(widths, 0.0))) if len(widths) else 0.0,
        skew=own.skew(matchers),
        cells=tuple(cells),
        even_borders=tuple(even),
        planned_borders=tuple(borders),
    )


def _load(sample: SpaceSample, places: Sequence[Tokens], load: MatcherLoad) -> LoadFigures:
    total = float(load.seconds.sum())
    return LoadFigures(
        _finite(load.capacity),
        load.unevenness,
        load.questions,
        copies(sample, places),
        tuple((load.seconds / total).tolist()) if total else (),
    )


def _set(one: DimensionSet, names: Sequence[str]) -> SetFigures:
    return SetFigures(
        tuple(names[column] for column in one.columns),
        one.wide_share,
        _finite(one.capacity),
        _finite(one.even_capacity),
        one.questions,
        one.copies,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# Matchers for a rate ------------------------------------------------------------------------------


def need_figures(
    spaces: Sequence[tuple[SpaceSample, float]], rate: float, costs: PointCosts
) -> NeedFigures:
    """Find how many matchers a rate needs. `spaces` has each space's share of all messages."""
    thin = [(sample.some(NEED_POINTS, NEED_BOXES), share) for sample, share in spaces]

    def planned(matchers: int) -> float:
        return _total(
            [
                (plan_places(one, matchers, costs, rounds=1).load.capacity, share)
                for one, share in thin
            ]
        )

    def even(matchers: int) -> float:
        return _total(
            [
                (estimate_load(one, even_places(one, matchers), costs).capacity, share)
                for one, share in thin
            ]
        )

    wanted = rate / MATCHERS_ADD_ABOVE
    return NeedFigures(
        rate,
        MATCHERS_ADD_ABOVE,
        _least(planned, wanted),
        _least(even, wanted),
        MATCHERS_TRIED_MAX,
    )


def _total(spaces: Sequence[tuple[float, float]]) -> float:
    """Return the capacity for all spaces, if the busiest matcher of each were the same one."""
    seconds = sum(share / capacity for capacity, share in spaces)
    return 1 / seconds if seconds else math.inf


def _least(capacity: Callable[[int], float], wanted: float) -> int | None:
    low, high = 0, 1
    while capacity(high) < wanted:
        low, high = high, high * 2
        if high > MATCHERS_TRIED_MAX:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if capacity(middle) < wanted:
            low = middle
        else:
            high = middle
    return high


# Sketches -----------------------------------------------------------------------------------------


def sketch_figures(broker: str, filters: int, elements: int) -> SketchFigures:
    room = SKETCH_ELEMENTS_START
    steps = 0
    while room < elements:
        steps += 1
        room = int(SKETCH_ELEMENTS_START * SKETCH_GROWTH**steps)
    sizes = [_size(room, SKETCH_PEER_RATE)]
    sizes += [_size(max(elements, 1), rate) for rate in RATES]
    return SketchFigures(broker, filters, elements, tuple(sizes))


def _size(elements: int, rate: float) -> SketchSize:
    bits, _ = LinesSketch.plan(elements, rate)
    return SketchSize(rate, bits, bits // 8)


# The cluster as it is -----------------------------------------------------------------------------


def places_now(report: ClusterReport, layout: Layout) -> list[Tokens]:
    """Return the matchers' current places; none if they have another definition of the space."""
    found = []
    for entry in report.nodes:
        matcher = None if entry.report is None else entry.report.matcher
        if matcher is None or entry.state not in ("alive", "suspect"):
            continue
        parts = [part for part in matcher.parts if part.space == layout.name]
        names = [part.dimension for part in parts]
        if names != [layout.name_of(place) for place in range(layout.searchable)]:
            return []
        if any(part.segment is None for part in parts):
            continue  # another matcher has its place, and it will choose a new one
        found.append(
            tuple(
                bound.low if part.segment is None or part.segment.low is None else part.segment.low
                for part, bound in zip(parts, layout.bounds, strict=True)
            )
        )
    return found


def matchers_in(report: ClusterReport) -> int:
    return sum(
        entry.role == "matcher" and entry.state in ("alive", "suspect") for entry in report.nodes
    )


def cell_arrays(
    edges: Floats, points: Mapping[int, int], ranges: Mapping[int, tuple[int, int]]
) -> tuple[Floats, Floats, Floats]:
    """Return counts by cell as arrays over all cells."""
    size = len(edges) - 1
    found = np.zeros(size), np.zeros(size), np.zeros(size)
    for cell, count in points.items():
        if cell >= 0:
            found[0][cell] = count
    for cell, (begins, ends) in ranges.items():
        found[1][cell], found[2][cell] = begins, ends
    return found
