"""Collect from Spark all that a plan needs to know of messages and subscriptions.

Samples of points and boxes come first, because they determine the cells. Then all points and boxes
are counted by cell. The results are of bounded size, however large the archive is.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from dovetail.attributes.space import Space
from dovetail.matcher.layout import Layout, layout_of
from dovetail.pipeline.match.arrow_arrays import Floats, matrix
from dovetail.pipeline.match.bulk import message_columns, subscription_boxes, subscription_errors
from dovetail.pipeline.plan import statistics as stats
from dovetail.pipeline.plan.borders import edges_of
from dovetail.pipeline.plan.document import HotTopic, Level, SketchFigures, TopicFigures
from dovetail.pipeline.plan.load import SpaceSample
from dovetail.pipeline.plan.placement import CELLS
from dovetail.pipeline.plan.planner import DimensionCounts, SpaceCounts, cell_arrays, sketch_figures

POINTS_SAMPLED = 10_000
BOXES_SAMPLED = 20_000
"""Sample sizes, for each space."""

HOT_TOPICS = 20
BROKERS_SHOWN_MAX = 64


class ArchiveCounts(NamedTuple):
    messages: int
    subscriptions: int
    topics: TopicFigures
    sketches: tuple[SketchFigures, ...]
    spaces: tuple[SpaceCounts, ...]


def count(messages: DataFrame, subscriptions: DataFrame, spaces: Sequence[Space]) -> ArchiveCounts:
    total, topics = _topics(messages)
    with subscription_errors():
        wanted, sketches = _sketches(subscriptions, spaces)
        counted = _spaces(messages, subscriptions, spaces) if spaces else ()
    return ArchiveCounts(total, wanted, topics, sketches, counted)


# Topics and filters -------------------------------------------------------------------------------


def _topics(messages: DataFrame) -> tuple[int, TopicFigures]:
    # Counted twice instead of cached: a cached table has as many partitions as a shuffle.
    counted = stats.topics(messages)
    levels = stats.levels(counted).toArrow().to_pylist()
    hot = counted.orderBy(sql.desc("messages"), "topic").limit(HOT_TOPICS).toArrow().to_pylist()
    total = sum(row["messages"] for row in levels)
    named = sorted((row for row in levels if row["levels"]), key=lambda row: int(row["levels"]))
    return total, TopicFigures(
        sum(row["topics"] for row in named),
        tuple(
            HotTopic(row["topic"], row["messages"], row["messages"] / total)
            for row in hot
            if row["topic"] is not None
        ),
        tuple(Level(row["levels"], row["topics"], row["messages"]) for row in named),
    )


def _sketches(
    subscriptions: DataFrame, spaces: Sequence[Space]
) -> tuple[int, tuple[SketchFigures, ...]]:
    """Return the number of subscriptions, and sketches: of all together, and of each broker."""
    elements = {
        row["broker"]: row["elements"]
        for row in stats.by_broker(
            stats.elements(subscriptions, spaces), sql.count_distinct("element").alias("elements")
        )
        .toArrow()
        .to_pylist()
    }
    filters = {
        row["broker"]: row
        for row in stats.by_broker(
            stats.with_broker(subscriptions),
            sql.count_distinct("filter").alias("filters"),
            sql.count(sql.lit(1)).alias("subscriptions"),
        )
        .toArrow()
        .to_pylist()
    }
    brokers = sorted(name for name in elements if name)[:BROKERS_SHOWN_MAX]
    found = [
        sketch_figures(name or "", filters[name]["filters"], elements[name])
        for name in (None, *brokers)
        if name in elements and name in filters
    ]
    return filters[None]["subscriptions"] if None in filters else 0, tuple(found)


# Spaces -------------------------------------------------------------------------------------------


def _spaces(
    messages: DataFrame, subscriptions: DataFrame, spaces: Sequence[Space]
) -> tuple[SpaceCounts, ...]:
    layouts = [layout_of(space) for space in spaces]
    points = stats.points(message_columns(messages, spaces), spaces)
    boxes = subscription_boxes(subscriptions, spaces).where("space >= 0").persist()
    try:
        points_in = _by_space(points, len(spaces))
        boxes_in = _by_space(boxes, len(spaces))
        some_points = _sampled(points, points_in, POINTS_SAMPLED).toArrow()
        some_boxes = _sampled(boxes, boxes_in, BOXES_SAMPLED).toArrow()
        samples = [
            _sample(number, layout, some_points, some_boxes, boxes_in[number])
            for number, layout in enumerate(layouts)
        ]
        edges = tuple(_edges(sample) for sample in samples)
        values = stats.values(points, edges).toArrow().to_pylist()
        ranges = stats.ranges(boxes, layouts, edges).toArrow().to_pylist()
    finally:
        boxes.unpersist()
    return tuple(
        SpaceCounts(
            sample,
            points_in[number],
            boxes_in[number],
            [
                _counted(
                    edges[number][place], _of(values, number, place), _of(ranges, number, place)
                )
                for place in range(len(sample.layout.dimensions))
            ],
        )
        for number, sample in enumerate(samples)
    )


def _by_space(frame: DataFrame, count: int) -> list[int]:
    rows = frame.groupBy("space").count().toArrow().to_pylist()
    found = {row["space"]: row["count"] for row in rows}
    return [found.get(number, 0) for number in range(count)]


def _sampled(frame: DataFrame, counts: Sequence[int], wanted: int) -> DataFrame:
    shares = {number: min(wanted / count, 1.0) for number, count in enumerate(counts) if count}
    return frame.sampleBy("space", shares, seed=0)


def _sample(
    number: int, layout: Layout, points: pa.Table, boxes: pa.Table, boxes_in: int
) -> SpaceSample:
    width = len(layout.dimensions)
    taken = np.flatnonzero(points["space"].to_numpy() == number)
    # Rows may come sorted by something. Shuffled, the first few represent all of them.
    taken = np.random.default_rng(0).permutation(taken)
    values = matrix(points["values"].take(pa.array(taken)), width)
    held = pa.array(np.flatnonzero(boxes["space"].to_numpy() == number))
    return SpaceSample(
        layout,
        values,
        matrix(boxes["lows"].take(held), width),
        matrix(boxes["highs"].take(held), width),
        boxes_in / len(held) if len(held) else 1.0,
    )


def _edges(sample: SpaceSample) -> tuple[Floats, ...]:
    return tuple(
        edges_of(column[~np.isnan(column)], bound.low, bound.high, CELLS)
        for column, bound in zip(sample.points.T, sample.layout.dimensions, strict=True)
    )


def _of(rows: Sequence[dict[str, int]], space: int, dimension: int) -> dict[int, dict[str, int]]:
    return {
        row["cell"]: row for row in rows if (row["space"], row["dimension"]) == (space, dimension)
    }


def _counted(
    edges: Floats, values: dict[int, dict[str, int]], ranges: dict[int, dict[str, int]]
) -> DimensionCounts:
    points, begins, ends = cell_arrays(
        edges,
        {cell: row["points"] for cell, row in values.items()},
        {cell: (row["begins"], row["ends"]) for cell, row in ranges.items()},
    )
    beyond = {
        name: values[cell]["points"] if cell in values else 0
        for name, cell in (
            ("missing", stats.MISSING),
            ("below", stats.BELOW),
            ("above", stats.ABOVE),
        )
    }
    return DimensionCounts(
        edges,
        points,
        begins,
        ends,
        **beyond,
        narrow=sum(row["narrow"] for row in ranges.values()),
        open=sum(row["open"] for row in ranges.values()),
    )
