"""Charts of a plan, as SVG text (pipeline/report/line_chart.py).

One shows values, boxes and segment borders along a dimension, the other one the work of matchers.
"""

from collections.abc import Sequence
from html import escape

import numpy as np

from dovetail.pipeline.plan.document import DimensionFigures
from dovetail.pipeline.plan.load import Floats
from dovetail.pipeline.report.line_chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    PlotArea,
    value_axis,
)

BINS = 96
SHOWN_SHARE = 0.998
"""A chart covers the values of this share of the publications."""

POINTS, BOXES, EVEN, PLANNED = 2, 1, 0, 3
"""Styles of the page."""


def dimension_chart(one: DimensionFigures) -> str:
    """Draw publications and boxes by value, with even and planned borders."""
    low, high = _shown(one)
    points, boxes = _binned(one, low, high)
    middle = (np.linspace(low, high, BINS + 1)[:-1] + (high - low) / BINS / 2).tolist()
    step = value_axis([(high - low) / 4 * 4]).ticks[1]
    ticks = tuple(
        tick for tick in (step * number for number in range(-400, 401)) if low <= tick <= high
    )
    area = PlotArea(Axis(low, high, ticks, log=False), Axis(0.0, 1.0, (0.0, 0.5, 1.0), log=False))
    title = f"Publications and boxes along {one.name}"
    parts = area.begin(title, one.name, "of the most")
    base, half = HEIGHT - BOTTOM, TOP + (HEIGHT - BOTTOM - TOP) / 8
    for border in one.even_borders:
        if low <= border <= high:
            parts.append(_line(area, border, TOP, half, EVEN, f"even: {border:.6g}"))
    for border in one.planned_borders:
        if low <= border <= high:
            parts.append(_line(area, border, half, base, PLANNED, f"planned: {border:.6g}"))
    parts.append(area.line(POINTS, middle, points))
    parts.append(area.line(BOXES, middle, boxes))
    return "".join([*parts, "</svg>"])


def _line(area: PlotArea, value: float, top: float, base: float, style: int, note: str) -> str:
    at = f"{area.x(value):.1f}"
    return (
        f'<line class="place series-{style + 1}" x1="{at}" x2="{at}" y1="{top:.1f}" '
        f'y2="{base:.1f}"><title>{escape(note)}</title></line>'
    )


def _shown(one: DimensionFigures) -> tuple[float, float]:
    """Return the range of values that nearly all publications have."""
    edges = [*(cell[0] for cell in one.cells), one.high]
    sums = np.concatenate(([0.0], np.cumsum([cell[1] for cell in one.cells])))
    if not sums[-1]:
        return one.low, one.high
    out = (1 - SHOWN_SHARE) / 2
    first = int(np.searchsorted(sums, out * sums[-1], side="right")) - 1
    last = int(np.searchsorted(sums, (1 - out) * sums[-1], side="left"))
    low, high = edges[max(first, 0)], edges[min(last, len(edges) - 1)]
    width = max(high - low, (one.high - one.low) * 1e-9)
    return max(low - 0.1 * width, one.low), min(high + 0.1 * width, one.high)


def _binned(one: DimensionFigures, low: float, high: float) -> tuple[list[float], list[float]]:
    """Return publications and boxes in bins of equal width, as shares of the largest bin."""
    edges = np.array([*(cell[0] for cell in one.cells), one.high])
    sums = np.concatenate(([0.0], np.cumsum([cell[1] for cell in one.cells])))
    borders = np.linspace(low, high, BINS + 1)
    points = np.diff(np.interp(borders, edges, sums))
    middles = (borders[:-1] + borders[1:]) / 2
    cells = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, len(one.cells) - 1)
    boxes = np.array([one.cells[cell][2] for cell in cells.tolist()], float)
    return _by_largest(points), _by_largest(boxes)


def _by_largest(values: Floats) -> list[float]:
    largest = float(values.max()) or 1.0
    return [value / largest for value in values.tolist()]


def shares_chart(title: str, shares: Sequence[tuple[str, int, Sequence[float]]]) -> str:
    """Draw bars of the work of each matcher, relative to an even share; the busiest first."""
    most = max((max(own) * len(own) for _, _, own in shares if own), default=1.0)
    area = PlotArea(Axis(0.0, 1.0, (), log=False), value_axis([0.0, most]))
    parts = area.begin(title, "matchers, the busiest first", "work, by an even share")
    base, count = HEIGHT - BOTTOM, max(len(own) for _, _, own in shares)
    slot = (WIDTH - LEFT - RIGHT) / max(count, 1)
    width = slot * 0.8 / len(shares)
    for number, (name, style, own) in enumerate(shares):
        for place, share in enumerate(sorted(own, reverse=True)):
            top = area.y(share * len(own))
            left = LEFT + slot * (place + 0.1) + width * number
            note = f"{name}: {share * len(own):.2f}"
            parts.append(
                f'<rect class="bar series-{style + 1}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{width:.1f}" height="{base - top:.1f}">'
                f"<title>{escape(note)}</title></rect>"
            )
    return "".join([*parts, "</svg>"])
