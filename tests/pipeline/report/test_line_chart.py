"""Charts: scales, and well-formed drawings that contain every point."""

import xml.etree.ElementTree as ET

import pytest

from dovetail.pipeline.report.line_chart import (
    HEIGHT,
    MARKERS,
    WIDTH,
    NamedPoint,
    Series,
    count_axis,
    decade_axis,
    legend_key,
    line_chart,
    number,
    sweep_chart,
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


def test_a_chart_has_a_label_for_screen_readers() -> None:
    drawing = chart([1, 1, 1])
    assert drawing.attrib["role"] == "img"
    assert drawing.attrib["aria-label"] == 'a "title" & more'


def test_series_differ_by_more_than_colour() -> None:
    keys = [legend_key(index).replace(f"series-{index + 1}", "") for index in range(len(MARKERS))]
    assert len(set(keys)) == len(MARKERS)


@pytest.mark.parametrize(("value", "text"), [(6000, "6,000"), (0.25, "0.25"), (5.0, "5"), (0, "0")])
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([3_688, 152_405], (1_000, 10_000, 100_000)),
        ([0.2, 0.9], (0.1, 0.2, 0.5, 1.0, 2.0)),
        ([40, 40], (10, 20, 50)),
    ],
)
def test_decade_axis(values: list[float], ticks: tuple[float, ...]) -> None:
    axis = decade_axis(values)
    assert axis.ticks == pytest.approx(ticks)
    assert all(0 <= axis.at(value) <= 1 for value in [*values, *axis.ticks])


def test_count_axis_begins_with_zero() -> None:
    axis = count_axis([0, 3_000])
    assert list(axis.ticks) == [0, 1, 10, 100, 1_000]
    assert [axis.at(0), axis.at(3_000)] == [0, 1]
    assert count_axis([0]).ticks == (0, 1)


def test_named_points_are_at_their_positions() -> None:
    curve = Series("rate", [90_000, 80_000, 900], ["first", "second", "third"])
    marks = [
        NamedPoint("<left>", 9, 70_000, "of the left one"),
        NamedPoint("right", 1_500, 2_000, "of the right one"),
    ]
    drawing = ET.fromstring(  # noqa: S314
        sweep_chart("title", "x", "y", [0, 10, 3_000], curve, marks)
    )
    notes = [mark.findtext("title") for mark in drawing.iter("g")]
    assert notes == ["first", "second", "third", "of the left one", "of the right one"]
    names = [text for text in drawing.iter("text") if "name" in text.attrib["class"]]
    left, right = names
    assert (left.text, right.text) == ("<left>", "right")
    # Each name is where its point is not.
    assert float(left.attrib["y"]) > HEIGHT / 2 > float(right.attrib["y"])
    places = [line for line in drawing.iter("line") if "place" in line.attrib["class"]]
    assert float(places[0].attrib["x1"]) < WIDTH / 2 < float(places[1].attrib["x1"])
