"""Count messages and subscriptions for a plan on Spark: DataFrames to DataFrames.

messages -> points      `space` and `values` of messages in a space that are comparable
points   -> values      points by cell of each dimension, including missing values and outliers
boxes    -> ranges      boxes that begin or end in each cell, are narrow there, or open
messages -> topics      messages by topic
topics   -> levels      topics and messages by number of levels
subscriptions -> elements   the hashed elements of each broker's sketch

The functions that Spark ships carry the edges of the cells.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from dovetail.attributes.space import Space
from dovetail.broker.route import clause_topic
from dovetail.matcher.layout import Layout
from dovetail.pipeline.match.arrow_arrays import Floats, matrix, point_matrix
from dovetail.pipeline.match.boxes import BoxReader
from dovetail.pipeline.match.task_plan import space_of_messages
from dovetail.pipeline.plan.borders import begins_and_ends, cell_of
from dovetail.topics.sketches.lines import LinesSketch
from dovetail.topics.topic_column import TopicColumn as Topics

MISSING, BELOW, ABOVE = -1, -2, -3
"""Pseudo-cells that count missing values and outliers. Outliers are in the edge cells as well."""

Batches = Iterable[pa.RecordBatch]
Edges = tuple[tuple[Floats, ...], ...]
"""The edges of cells, by space and by dimension, searchable or not."""

_VALUES = "space int, dimension int, cell int, points long"
_RANGES = "space int, dimension int, cell int, begins long, ends long, narrow long, open long"


def points(messages: DataFrame, spaces: Sequence[Space]) -> DataFrame:
    return messages.select("topic", "attributes").mapInArrow(
        partial(_points, spaces=tuple(spaces)), "space int, values array<double>"
    )


def _points(batches: Batches, *, spaces: tuple[Space, ...]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        of_rows = space_of_messages(batch, spaces)
        for number, space in enumerate(spaces):
            rows = np.flatnonzero(of_rows == number)
            names = pa.array([one.name for one in space.dimensions])
            values, is_bad = point_matrix(batch["attributes"].take(pa.array(rows)), names)
            values = values[~is_bad]
            if len(values):
                flat = pa.array(values.ravel())
                ends = np.arange(len(values) + 1, dtype=np.int32) * len(names)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(np.full(len(values), number, np.int32)),
                        pa.ListArray.from_arrays(pa.array(ends), flat),
                    ],
                    ["space", "values"],
                )


def values(of_points: DataFrame, edges: Edges) -> DataFrame:
    counted = of_points.mapInArrow(partial(_values, edges=edges), _VALUES)
    return counted.groupBy("space", "dimension", "cell").agg(sql.sum("points").alias("points"))


def _values(batches: Batches, *, edges: Edges) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        of_rows = batch["space"].to_numpy()
        for space, dimensions in enumerate(edges):
            rows = np.flatnonzero(of_rows == space)
            if not len(rows):
                continue
            found = matrix(batch["values"].take(pa.array(rows)), len(dimensions))
            for dimension, own in enumerate(dimensions):
                column = found[:, dimension]
                there = column[~np.isnan(column)]
                counts = {
                    MISSING: len(column) - len(there),
                    BELOW: int(np.count_nonzero(there < own[0])),
                    ABOVE: int(np.count_nonzero(there >= own[-1])),
                }
                cells, points_in = np.unique(cell_of(own, there), return_counts=True)
                counts |= dict(zip(cells.tolist(), points_in.tolist(), strict=True))
                yield _rows(space, dimension, counts)


def _rows(space: int, dimension: int, counts: dict[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "space": pa.array([space] * len(counts), pa.int32()),
            "dimension": pa.array([dimension] * len(counts), pa.int32()),
            "cell": pa.array([*counts], pa.int32()),
            "points": pa.array([*counts.values()], pa.int64()),
        }
    )


def ranges(boxes: DataFrame, layouts: Sequence[Layout], edges: Edges) -> DataFrame:
    """Count boxes (match/boxes.py) by cell. The first cell has all of `narrow` and `open`."""
    counted = boxes.where("space >= 0").select("space", "lows", "highs")
    counted = counted.mapInArrow(partial(_ranges, layouts=tuple(layouts), edges=edges), _RANGES)
    columns = ("begins", "ends", "narrow", "open")
    return counted.groupBy("space", "dimension", "cell").agg(
        *(sql.sum(name).alias(name) for name in columns)
    )


def _ranges(
    batches: Batches, *, layouts: tuple[Layout, ...], edges: Edges
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        of_rows = batch["space"].to_numpy(zero_copy_only=False)
        for space, dimensions in enumerate(edges):
            rows = np.flatnonzero(of_rows == space)
            if not len(rows):
                continue
            taken = pa.array(rows)
            lows = matrix(batch["lows"].take(taken), len(dimensions))
            highs = matrix(batch["highs"].take(taken), len(dimensions))
            everywhere = everywhere_searchable(layouts[space])
            kinds = everywhere.kinds(lows, highs)
            for dimension, own in enumerate(dimensions):
                begins, ends = begins_and_ends(own, lows[:, dimension], highs[:, dimension])
                narrow, is_open = np.zeros_like(begins), np.zeros_like(begins)
                narrow[0] = np.count_nonzero(kinds >> np.uint16(dimension) & 1)
                is_open[0] = np.count_nonzero(
                    np.isneginf(lows[:, dimension]) & np.isposinf(highs[:, dimension])
                )
                used = np.flatnonzero((begins + ends + narrow + is_open) > 0)
                yield pa.RecordBatch.from_pydict(
                    {
                        "space": pa.array([space] * len(used), pa.int32()),
                        "dimension": pa.array([dimension] * len(used), pa.int32()),
                        "cell": pa.array(used, pa.int32()),
                        "begins": pa.array(begins[used].astype(np.int64)),
                        "ends": pa.array(ends[used].astype(np.int64)),
                        "narrow": pa.array(narrow[used].astype(np.int64)),
                        "open": pa.array(is_open[used].astype(np.int64)),
                    }
                )


def everywhere_searchable(layout: Layout) -> Layout:
    """Return the layout with all its dimensions searchable."""
    columns = tuple(range(len(layout.dimensions)))
    return Layout(layout.name, layout.dimensions, columns, names=layout.names)


def topics(messages: DataFrame) -> DataFrame:
    """Return rows of `topic` and `messages`."""
    return messages.groupBy("topic").agg(sql.count(sql.lit(1)).alias("messages"))


def levels(of_topics: DataFrame) -> DataFrame:
    """Return rows of `levels`, `topics` and `messages`. A null topic has null levels."""
    counted = sql.when(sql.col("topic").isNotNull(), sql.size(sql.split("topic", "/")))
    return of_topics.groupBy(counted.alias("levels")).agg(
        sql.count(sql.lit(1)).alias("topics"), sql.sum("messages").alias("messages")
    )


def with_broker(subscriptions: DataFrame) -> DataFrame:
    """Return rows of `filter`, `where` and `broker`; an unknown broker is empty."""
    there = subscriptions.columns
    where = sql.col("where") if "where" in there else sql.lit(None)
    broker = sql.col("broker") if "broker" in there else sql.lit(None)
    return subscriptions.select(
        "filter",
        where.cast("string").alias("where"),
        sql.coalesce(broker.cast("string"), sql.lit("")).alias("broker"),
    )


def elements(subscriptions: DataFrame, spaces: Sequence[Space]) -> DataFrame:
    """Return rows of `broker` and `element`, possibly repeated."""
    return with_broker(subscriptions).mapInArrow(
        partial(_elements, spaces=tuple(spaces)), "broker string, element long"
    )


def by_broker(frame: DataFrame, *wanted: Column) -> DataFrame:
    """Aggregate by broker, and over all brokers in a row whose broker is null."""
    return frame.rollup("broker").agg(*wanted)


def _elements(batches: Batches, *, spaces: tuple[Space, ...]) -> Iterator[pa.RecordBatch]:
    reader = BoxReader(spaces)
    for batch in batches:
        by_broker: dict[str, set[bytes]] = {}
        rows = zip(
            *(batch[name].to_pylist() for name in ("filter", "where", "broker")), strict=True
        )
        for topic_filter, where, broker in rows:
            plain, _, boxes = reader.read(topic_filter, where)
            own = plain.encode()
            by_broker.setdefault(broker or "", set()).add(clause_topic(own) if boxes else own)
        for broker, filters in by_broker.items():
            found = np.unique(LinesSketch.elements_of(Topics.of([*filters]), 0))
            yield pa.RecordBatch.from_pydict(
                {
                    "broker": pa.array([broker] * len(found), pa.string()),
                    "element": pa.array(found.view(np.int64)),
                }
            )
