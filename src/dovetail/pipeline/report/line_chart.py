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
    """A scale from values to the interval 0..1, with its ticks.

    A logarithmic axis that has to begin with 0 adds `shift` to all values.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool
    shift: float = 0.0

    def at(self, value: float) -> float:
        if self.log:
            low = self.low + self.shift
            return math.log((value + self.shift) / low) / math.log((self.high + self.shift) / low)
        return (value - self.low) / (self.high - self.low)


def value_axis(values: Sequence[float]) -> Axis:
    """Return an axis for values of at least 0: linear from 0, or logarithmic from 1."""
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


def decade_axis(values: Sequence[float]) -> Axis:
    """Return a logarithmic axis for values above 0, from the decade of the smallest."""
    first, last = (math.floor(math.log10(value)) for value in (min(values), max(values)))
    steps = (1, 2, 5) if last - first < 2 else (1,)
    high = _round_step(1.2 * max(values))
    ticks = (step * 10.0**power for power in range(first, last + 2) for step in steps)
    return Axis(10.0**first, high, tuple(tick for tick in ticks if tick <= high), log=True)


def count_axis(values: Sequence[float]) -> Axis:
    """Return an axis for counts over several decades: 0, then decades."""
    powers = range(math.floor(math.log10(max(*values, 1))) + 1)
    return Axis(0.0, max(*values, 1), (0.0, *(10.0**power for power in powers)), log=True, shift=1)


@dataclass(frozen=True)
class PlotArea:
    """The area of a chart between its axes: maps values to coordinates, and draws."""

    x_axis: Axis
    y_axis: Axis

    def x(self, value: float) -> float:
        return LEFT + 12 + self.x_axis.at(value) * (WIDTH - LEFT - RIGHT - 24)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.y_axis.at(value) * (HEIGHT - TOP - BOTTOM)

    def begin(self, title: str, x_label: str, y_label: str) -> list[str]:
        """The parts of a drawing up to its axes."""
        box, name = f"0 0 {WIDTH} {HEIGHT}", escape(title)
        parts = [f'<svg class="chart" viewBox="{box}" role="img" aria-label="{name}">']
        for tick in self.y_axis.ticks:
            at = f"{self.y(tick):.1f}"
            parts += [
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>',
                f'<text class="tick" x="{LEFT - 8}" y="{at}" dy="4" text-anchor="end">',
                f"{number(tick)}</text>",
            ]
        base = HEIGHT - BOTTOM
        parts.append(
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>'
        )
        parts += [
            f'<text class="tick" x="{self.x(tick):.1f}" y="{base + 20}" text-anchor="middle">'
            f"{number(tick)}</text>"
            for tick in self.x_axis.ticks
        ]
        parts.append(
            f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" '
            f'text-anchor="middle">{escape(x_label)}</text>'
            f'<text class="label" transform="translate(13 {(TOP + base) / 2}) rotate(-90)" '
            f'text-anchor="middle">{escape(y_label)}</text>'
        )
        return parts

    def line(self, index: int, x_values: Sequence[float], values: Sequence[float]) -> str:
        places = zip(x_values, values, strict=True)
        path = " ".join(f"{self.x(where):.1f},{self.y(value):.1f}" for where, value in places)
        return f'<polyline class="line series-{index + 1}" points="{path}"/>'

    def point(self, index: int, where: float, value: float, note: str) -> str:
        shape = marker(MARKERS[index % len(MARKERS)], self.x(where), self.y(value))
        return f'<g class="mark series-{index + 1}"><title>{escape(note)}</title>{shape}</g>'


def line_chart(
    title: str, x_label: str, y_label: str, x_values: Sequence[float], series: Sequence[Series]
) -> str:
    """Draw a line chart. The page defines the colours; screen readers read `title`."""
    area = PlotArea(
        Axis(min(x_values), max(x_values), tuple(x_values), log=False),
        value_axis([value for line in series for value in line.values]),
    )
    parts = area.begin(title, x_label, y_label)
    parts += [area.line(index, x_values, line.values) for index, line in enumerate(series)]
    parts += [
        area.point(index, where, value, note)
        for index, line in enumerate(series)
        for where, value, note in zip(x_values, line.values, line.notes, strict=True)
    ]
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class NamedPoint:
    """A labelled position on the x axis of a curve, with a value of its own."""

    name: str
    where: float
    value: float
    note: str


def sweep_chart(
    title: str,
    x_label: str,
    y_label: str,
    x_values: Sequence[float],
    curve: Series,
    marks: Sequence[NamedPoint],
) -> str:
    """Draw one curve over counts of several decades, with labelled points along it."""
    area = PlotArea(
        count_axis([*x_values, *(mark.where for mark in marks)]),
        decade_axis([*curve.values, *(mark.value for mark in marks)]),
    )
    parts = area.begin(title, x_label, y_label)
    top, base = TOP, HEIGHT - BOTTOM
    for index, mark in enumerate(marks):
        at = area.x(mark.where)
        # The name stands where the curve is not, and each in a row of its own.
        is_low = area.y(mark.value) > (top + base) / 2
        row = top + 12 + 15 * index if is_low else base - 8 - 15 * (len(marks) - 1 - index)
        parts.append(
            f'<line class="place series-{index + 1}" x1="{at:.1f}" x2="{at:.1f}" '
            f'y1="{top}" y2="{base}"/>'
            f'<text class="name series-{index + 1}" x="{at - 5:.1f}" y="{row}" '
            f'text-anchor="end">{escape(mark.name)}</text>'
        )
    own = len(MARKERS)
    parts.append(area.line(own, x_values, curve.values))
    parts += [
        f'<g class="mark series-{own + 1}"><title>{escape(note)}</title>'
        f"{marker('dot', area.x(where), area.y(value))}</g>"
        for where, value, note in zip(x_values, curve.values, curve.notes, strict=True)
    ]
    parts += [
        area.point(index, mark.where, mark.value, mark.note) for index, mark in enumerate(marks)
    ]
    return "".join([*parts, "</svg>"])


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
    """Draw the key of a series for a legend."""
    shape = marker(MARKERS[index % len(MARKERS)], 20, 10)
    return (
        '<svg class="key" viewBox="0 0 40 20" aria-hidden="true">'
        f'<line class="line series-{index + 1}" x1="1" x2="39" y1="10" y2="10"/>'
        f'<g class="mark series-{index + 1}">{shape}</g></svg>'
    )


def number(value: float) -> str:
    """Return a short form: 6,000 or 0.25 or 5."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
