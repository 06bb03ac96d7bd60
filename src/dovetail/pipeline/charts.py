"""Line charts as SVG text: no script, no style of their own beyond class names.

Colours come from the page's custom properties (`--series-1` and so on), so a chart follows the
reader's light or dark theme. Series differ by marker and by dash as well as by colour, and their
markers shrink from the first to the last, so that points in one place all show. Each point
carries its value as a tooltip; the page gives the same values as a table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 18, 14, 54

LOG_RATIO_MIN = 20
"""Where the largest value is this many times the smallest, a linear axis hides the small ones."""

MARKERS = ("circle", "square", "triangle", "dot")


@dataclass(frozen=True)
class Series:
    """One line: a name, a value for each x, and the tooltip of each."""

    name: str
    values: Sequence[float]
    notes: Sequence[str]


@dataclass(frozen=True)
class Axis:
    """A scale from values to the interval 0..1, with its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool

    def at(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def value_axis(values: Sequence[float]) -> Axis:
    """For values of 0 and more: linear from 0, or logarithmic from 1."""
    smallest, largest = min(values), max(values)
    if smallest >= 1 and largest >= LOG_RATIO_MIN * smallest:
        decades = math.floor(math.log10(largest))
        high = _round_step(1.2 * largest)
        # A little room below 1, so that the many ones do not lie on the axis.
        return Axis(0.7, high, tuple(10.0**power for power in range(decades + 1)), log=True)
    step = _round_step(largest / 4)
    count = math.floor(largest / step) + 1
    return Axis(0.0, step * count, tuple(step * index for index in range(count + 1)), log=False)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def line_chart(
    title: str, x_label: str, y_label: str, x_values: Sequence[float], series: Sequence[Series]
) -> str:
    """A chart for a page that defines the colours; `title` is for those who cannot see it."""
    x_axis = Axis(min(x_values), max(x_values), tuple(x_values), log=False)
    y_axis = value_axis([value for line in series for value in line.values])

    def x(value: float) -> float:
        return LEFT + 12 + x_axis.at(value) * (WIDTH - LEFT - RIGHT - 24)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - y_axis.at(value) * (HEIGHT - TOP - BOTTOM)

    box, name = f"0 0 {WIDTH} {HEIGHT}", escape(title)
    parts = [f'<svg class="chart" viewBox="{box}" role="img" aria-label="{name}">']
    for tick in y_axis.ticks:
        at = f"{y(tick):.1f}"
        parts += [
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>',
            f'<text class="tick" x="{LEFT - 8}" y="{at}" dy="4" text-anchor="end">',
            f"{number(tick)}</text>",
        ]
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    parts += [
        f'<text class="tick" x="{x(tick):.1f}" y="{base + 20}" text-anchor="middle">'
        f"{number(tick)}</text>"
        for tick in x_axis.ticks
    ]
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" '
        f'text-anchor="middle">{escape(x_label)}</text>'
        f'<text class="label" transform="translate(13 {(TOP + base) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>'
    )
    places = [
        [(x(where), y(value)) for where, value in zip(x_values, line.values, strict=True)]
        for line in series
    ]
    for index, points in enumerate(places):
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline class="line series-{index + 1}" points="{path}"/>')
    for index, (line, points) in enumerate(zip(series, places, strict=True)):
        for (px, py), note in zip(points, line.notes, strict=True):
            shape = marker(MARKERS[index % len(MARKERS)], px, py)
            parts.append(
                f'<g class="mark series-{index + 1}"><title>{escape(note)}</title>{shape}</g>'
            )
    parts.append("</svg>")
    return "".join(parts)


def marker(kind: str, x: float, y: float) -> str:
    match kind:
        case "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8"/>'
        case "square":
            return f'<rect x="{x - 5.2:.1f}" y="{y - 5.2:.1f}" width="10.4" height="10.4"/>'
        case "triangle":
            return f'<path d="M{x:.1f} {y - 4.6:.1f}l4.6 8h-9.2z"/>'
        case _:
            return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'


def legend_key(index: int) -> str:
    """The little picture beside a series' name."""
    shape = marker(MARKERS[index % len(MARKERS)], 20, 10)
    return (
        '<svg class="key" viewBox="0 0 40 20" aria-hidden="true">'
        f'<line class="line series-{index + 1}" x1="1" x2="39" y1="10" y2="10"/>'
        f'<g class="mark series-{index + 1}">{shape}</g></svg>'
    )


def number(value: float) -> str:
    """As short as it goes: 6,000 and 0.25 and 5."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
