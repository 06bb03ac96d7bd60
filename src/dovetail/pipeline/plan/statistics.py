"""What a plan is made of, counted on Spark: DataFrames in, DataFrames out.

messages -> points      `space` and `values`: those that a space governs, and can be compared
points   -> values      how many are in each cell of each dimension, are missing or beyond it
boxes    -> ranges      how many begin and end in each cell, are narrow there, or open
messages -> topics      how often each was published to
topics   -> levels      topics and messages by number of levels
subscriptions -> elements   what of a broker's filters is in its sketch, hashed

Cells are between edges, which travel inside the functions that Spark ships.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from dovetail.attributes.space import Space
from dovetail.broker.router import with_clauses
from dovetail.matcher.layout import Layout
from dovetail.pipeline.match.arrow_arrays import Floats, matrix, points_of
from dovetail.pipeline.match.boxes import Reader
from dovetail.pipeline.match.cut import space_of_messages
from dovetail.pipeline.plan.borders import begins_and_ends, cell_of
from dovetail.topics.sketches.lines import LinesSketch
from dovetail.topics.topic_column import Column as Topics

MISSING, BELOW, ABOVE = -1, -2, -3
"""Cells of values that are none, or beyond the bounds; the latter are in the edge cells too."""

Batches = Iterable[pa.RecordBatch]
Edges = tuple[tuple[Floats, ...], ...]
"""Of each space and each of its dimensions, searchable or not."""

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
            values, is_bad = points_of(batch["attributes"].take(pa.array(rows)), names)
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
    """Of boxes as match/boxes.py has them. `narrow` and `open` are all in the first cell."""
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
    """The same space if all its dimensions were."""
    columns = tuple(range(len(layout.dimensions)))
    return Layout(layout.name, layout.dimensions, columns, names=layout.names)


def topics(messages: DataFrame) -> DataFrame:
    """`topic` and `messages`."""
    return messages.groupBy("topic").agg(sql.count(sql.lit(1)).alias("messages"))


def levels(of_topics: DataFrame) -> DataFrame:
    """`levels`, `topics` and `messages`; levels are null where the topic is."""
    counted = sql.when(sql.col("topic").isNotNull(), sql.size(sql.split("topic", "/")))
    return of_topics.groupBy(counted.alias("levels")).agg(
        sql.count(sql.lit(1)).alias("topics"), sql.sum("messages").alias("messages")
    )


def with_broker(subscriptions: DataFrame) -> DataFrame:
    """`filter`, `where` and `broker`, which is empty where it is not known."""
    there = subscriptions.columns
    where = sql.col("where") if "where" in there else sql.lit(None)
    broker = sql.col("broker") if "broker" in there else sql.lit(None)
    return subscriptions.select(
        "filter",
        where.cast("string").alias("where"),
        sql.coalesce(broker.cast("string"), sql.lit("")).alias("broker"),
    )


def elements(subscriptions: DataFrame, spaces: Sequence[Space]) -> DataFrame:
    """`broker` and `element`, maybe several times."""
    return with_broker(subscriptions).mapInArrow(
        partial(_elements, spaces=tuple(spaces)), "broker string, element long"
    )


def by_broker(frame: DataFrame, *wanted: Column) -> DataFrame:
    """Of each, and of all together, whose broker is null."""
    return frame.rollup("broker").agg(*wanted)


def _elements(batches: Batches, *, spaces: tuple[Space, ...]) -> Iterator[pa.RecordBatch]:
    reader = Reader(spaces)
    for batch in batches:
        by_broker: dict[str, set[bytes]] = {}
        rows = zip(
            *(batch[name].to_pylist() for name in ("filter", "where", "broker")), strict=True
        )
        for topic_filter, where, broker in rows:
            plain, _, boxes = reader.read(topic_filter, where)
            own = plain.encode()
            by_broker.setdefault(broker or "", set()).add(with_clauses(own) if boxes else own)
        for broker, filters in by_broker.items():
            found = np.unique(LinesSketch.elements_of(Topics.of([*filters]), 0))
            yield pa.RecordBatch.from_pydict(
                {
                    "broker": pa.array([broker] * len(found), pa.string()),
                    "element": pa.array(found.view(np.int64)),
                }
            )
