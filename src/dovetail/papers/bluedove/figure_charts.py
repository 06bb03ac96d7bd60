"""Charts of BlueDove's figures that pipeline/report/line_chart.py does not draw.

Axes are linear and start at 0, as in the paper, except in `decades`. The first curve of a chart is
Dovetail's; it is drawn as a solid line.
"""

from collections.abc import Sequence
from html import escape

from dovetail.pipeline.report.line_chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MARKERS,
    TOP,
    WIDTH,
    Axis,
    PlotArea,
    Series,
    decade_axis,
    number,
    value_axis,
)

TICKS = 6
TICKS_MAX = 10
_OURS = len(MARKERS) - 1


def style_of(index: int) -> int:
    """Return the style of a chart's curve among the styles of the page."""
    return (index + _OURS) % len(MARKERS)


def curves(
    title: str, x_label: str, y_label: str, x_values: Sequence[float], series: Sequence[Series]
) -> str:
    """Draw curves with a value for each of a few x."""
    area = PlotArea(
        Axis(
            min(x_values),
            max(x_values),
            tuple(x_values[:: 1 + len(x_values) // TICKS_MAX]),
            log=False,
        ),
        _axis([value for line in series for value in line.values]),
    )
    return _lines_and_points(area, area.begin(title, x_label, y_label), x_values, series)


def _lines_and_points(
    area: PlotArea, parts: Sequence[str], x_values: Sequence[float], series: Sequence[Series]
) -> str:
    """Draw lines, and points with their values as notes."""
    lines = [
        area.line(style_of(index), x_values[: len(line.values)], line.values)
        for index, line in enumerate(series)
    ]
    points = [
        area.point(style_of(index), where, value, note)
        for index, line in enumerate(series)
        for where, value, note in zip(x_values, line.values, line.notes, strict=False)
    ]
    return "".join([*parts, *lines, *points, "</svg>"])


def decades(
    title: str, x_label: str, y_label: str, x_values: Sequence[float], series: Sequence[Series]
) -> str:
    """Draw curves over several powers of ten. Values are above 0; a curve may end early."""
    area = PlotArea(
        Axis(min(x_values), max(x_values), tuple(x_values), log=True),
        decade_axis([value for line in series for value in line.values]),
    )
    return _lines_and_points(area, area.begin(title, x_label, y_label), x_values, series)


def time_curves(
    title: str,
    x_label: str,
    y_label: str,
    x_values: Sequence[float],
    series: Sequence[Series],
    events: Sequence[tuple[float, str]] = (),
) -> str:
    """Draw curves with many x, such as seconds. Vertical lines mark events."""
    last = max(x_values)
    step = value_axis([last / TICKS * 4]).ticks[1]
    ticks = tuple(step * count for count in range(int(last / step) + 1))
    area = PlotArea(
        Axis(0.0, last, ticks, log=False),
        _axis([value for line in series for value in line.values]),
    )
    parts = area.begin(title, x_label, y_label)
    for where, note in events:
        at = f"{area.x(where):.1f}"
        parts.append(
            f'<line class="place series-5" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">'
            f"<title>{escape(note)}</title></line>"
        )
    parts += [
        area.line(style_of(index), x_values, line.values) for index, line in enumerate(series)
    ]
    return "".join([*parts, "</svg>"])


def bars(title: str, y_label: str, series: Sequence[Series]) -> str:
    """Draw one bar for each series, which has one value."""
    area = PlotArea(
        Axis(0.0, 1.0, (), log=False), _axis([value for one in series for value in one.values])
    )
    parts = area.begin(title, "", y_label)
    base, slot = HEIGHT - BOTTOM, (WIDTH - LEFT) / len(series)
    for index, one in enumerate(series):
        left, top = LEFT + slot * (index + 0.15), area.y(one.values[0])
        middle = f"{left + slot * 0.35:.1f}"
        parts.append(
            f'<rect class="bar series-{style_of(index) + 1}" x="{left:.1f}" y="{top:.1f}" '
            f'width="{slot * 0.7:.1f}" height="{base - top:.1f}"><title>{escape(one.notes[0])}'
            f'</title></rect><text class="tick" x="{middle}" y="{top - 5:.1f}" '
            f'text-anchor="middle">{number(float(f"{one.values[0]:.3g}"))}</text>'
        )
        words = one.name.replace("-", " ").split(" ")
        parts += [
            f'<text class="tick" x="{middle}" y="{base + 18 + 15 * row}" text-anchor="middle">'
            f"{escape(word)}</text>"
            for row, word in enumerate(words)
        ]
    return "".join([*parts, "</svg>"])


def _axis(values: Sequence[float]) -> Axis:
    """Return a linear axis that starts at 0."""
    return value_axis([0.0, *values])
