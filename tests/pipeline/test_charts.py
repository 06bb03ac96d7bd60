"""Charts: scales, and well-formed drawings that hold every point."""

import xml.etree.ElementTree as ET

import pytest

from dovetail.pipeline.charts import (
    HEIGHT,
    MARKERS,
    WIDTH,
    Series,
    legend_key,
    line_chart,
    number,
    value_axis,
)


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([1, 1, 1], False, (0, 0.5, 1, 1.5)),
        ([8, 18, 127], False, (0, 50, 100, 150)),
        ([1, 127], True, (1, 10, 100)),
        ([4, 2047], True, (1, 10, 100, 1000)),
        ([0, 500], False, (0, 200, 400, 600)),
        ([0], False, (0, 1)),
    ],
)
def test_value_axis(values: list[float], log: bool, ticks: tuple[float, ...]) -> None:
    axis = value_axis(values)
    assert (axis.log, axis.ticks) == (log, ticks)
    assert all(0 <= axis.at(value) <= 1 for value in values)


def chart(values: list[float]) -> ET.Element:
    series = [
        Series(f"<{name}>", values, [f"{name} & {value}" for value in values])
        for name in ("one", "two", "three", "four")
    ]
    return ET.fromstring(line_chart('a "title" & more', "x", "y", [1, 2, 3], series))  # noqa: S314


def test_every_point_has_a_tooltip_and_lies_inside() -> None:
    drawing = chart([1, 40, 2000])
    notes = [mark.findtext("title") for mark in drawing.iter("g")]
    assert len(notes) == 12
    assert notes[0] == "one & 1"
    for line in drawing.iter("polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 < x < WIDTH
            assert 0 < y < HEIGHT


def test_is_named_for_those_who_cannot_see_it() -> None:
    drawing = chart([1, 1, 1])
    assert drawing.attrib["role"] == "img"
    assert drawing.attrib["aria-label"] == 'a "title" & more'


def test_series_differ_by_more_than_colour() -> None:
    keys = [legend_key(index).replace(f"series-{index + 1}", "") for index in range(len(MARKERS))]
    assert len(set(keys)) == len(MARKERS)


@pytest.mark.parametrize(("value", "text"), [(6000, "6,000"), (0.25, "0.25"), (5.0, "5"), (0, "0")])
def test_number(value: float, text: str) -> None:
    assert number(value) == text
