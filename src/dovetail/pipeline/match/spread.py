"""A large set of subscriptions on Spark, as planned by cut.py: dealt out, matched.

Three small jobs come first: how many boxes each cell has, some boxes, and what a sample of the
messages would cost. Then boxes and messages are one table with the number of their task. A task
gets its boxes before its messages, so that it holds the boxes and lets the messages pass by.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from dovetail.attributes.space import Space
from dovetail.pipeline.match.arrow_arrays import Floats, Ints
from dovetail.pipeline.match.batch_matcher import Matcher, arrays, pairs
from dovetail.pipeline.match.boxes import boxes_schema
from dovetail.pipeline.match.cut import Grid, Plan, plan, work_of

BOXES_SAMPLED = 20_000
MESSAGES_SAMPLED = 0.1
MESSAGES_SAMPLED_MIN = 2_000
"""Where a tenth of the messages has fewer, all of them are looked at."""

Batches = Iterable[pa.RecordBatch]


def match_spread(
    messages: DataFrame,
    boxes: DataFrame,
    spaces: Sequence[Space],
    *,
    tasks: int,
    plain: pa.Table,
    as_pairs: bool,
    result: str,
) -> tuple[DataFrame, int]:
    """What is found, in how many tasks. `plain` are the boxes without borders, for all tasks."""
    dealt, count = deal(messages, boxes, spaces, tasks)
    answer = partial(
        match_part, plain=plain, spaces=tuple(spaces), answer=pairs if as_pairs else arrays
    )
    return dealt.mapInArrow(answer, result), count


def deal(
    messages: DataFrame, boxes: DataFrame, spaces: Sequence[Space], tasks: int
) -> tuple[DataFrame, int]:
    """Boxes with borders, and messages behind them, in parts that are tasks; how many there are."""
    bordered = boxes.where("space >= 0")
    made = plan_for(messages, bordered, spaces, tasks)
    to_task = "task int, " + ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}" for field in bordered.schema.fields
    )
    dealt_boxes = bordered.mapInArrow(partial(_deal_boxes, made=made), to_task)
    of_messages = "task int, " + ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}" for field in messages.schema.fields
    )
    dealt_messages = messages.mapInArrow(partial(_deal_messages, made=made), of_messages)
    both = dealt_boxes.select(
        "task", sql.lit(False).alias("is_message"), sql.struct(*bordered.columns).alias("box")
    ).unionByName(
        dealt_messages.select(
            "task",
            sql.lit(True).alias("is_message"),
            sql.struct(*messages.columns).alias("message"),
        ),
        allowMissingColumns=True,
    )
    ordered = both.repartitionById(made.tasks, "task").sortWithinPartitions("is_message")
    return ordered, made.tasks


def plan_for(messages: DataFrame, boxes: DataFrame, spaces: Sequence[Space], tasks: int) -> Plan:
    """Which task gets what."""
    grid = Grid(tuple(spaces))
    counted = boxes.mapInArrow(partial(_count_boxes, grid=grid), "rows long, cells array<long>")
    rows, sums = _sums(counted.toArrow(), grid.cells)
    boxes_in = sums.astype(np.int64)
    share = min(BOXES_SAMPLED / max(rows, 1), 1.0)
    sample = boxes.sample(fraction=share, seed=0).toArrow()
    scale = rows / max(len(sample), 1)
    weigh = partial(_weigh, grid=grid, boxes_in=boxes_in, sample=sample, scale=scale)
    for fraction in (MESSAGES_SAMPLED, 1.0):
        some = messages.sample(fraction=fraction, seed=0) if fraction < 1 else messages
        weighed = some.mapInArrow(weigh, "rows long, cells array<double>").toArrow()
        seen, work = _sums(weighed, grid.cells)
        if seen >= MESSAGES_SAMPLED_MIN:
            break
    return plan(grid, boxes_in, work / fraction, tasks)


def _sums(table: pa.Table, cells: int) -> tuple[int, Floats]:
    """Of rows, and of each cell."""
    rows = int(sum(table["rows"].to_pylist()))
    flat = table["cells"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return rows, flat.reshape(-1, cells).sum(axis=0).astype(np.float64)


def _row(rows: int, cells: Ints | Floats) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rows": pa.array([rows]), "cells": pa.array([cells])})


def _count_boxes(batches: Batches, *, grid: Grid) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield _row(len(batch), grid.count_boxes(batch))


def _weigh(
    batches: Batches, *, grid: Grid, boxes_in: Ints, sample: pa.Table, scale: float
) -> Iterator[pa.RecordBatch]:
    matcher = Matcher(sample, grid.spaces)
    for batch in batches:
        counts = [np.diff(offsets) for _, offsets, _ in matcher.match(batch)]
        matches = np.concatenate([np.zeros(0, np.int64), *counts])
        cells = grid.cell_of_messages(batch, boxes_in)
        yield _row(len(batch), work_of(cells, matches, boxes_in, scale, grid.cells))


def _deal_boxes(batches: Batches, *, made: Plan) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows, tasks = made.tasks_of_boxes(batch)
        yield _with_task(batch.take(pa.array(rows)), tasks)


def _deal_messages(batches: Batches, *, made: Plan) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    # Each task begins elsewhere, so that the first of many tasks get no more than others.
    turn = 0 if context is None else context.partitionId() * 7919
    for batch in batches:
        yield _with_task(batch, made.task_of_messages(batch, turn))
        turn += len(batch)


def _with_task(batch: pa.RecordBatch, tasks: Ints) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(tasks, pa.int32()), *batch.columns], ["task", *batch.schema.names]
    )


def match_part(
    batches: Batches,
    *,
    plain: pa.Table,
    spaces: tuple[Space, ...],
    answer: Callable[[Matcher, pa.RecordBatch, pa.DataType], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Boxes come first, then messages."""
    id_type = plain.schema.field("id").type
    schema = boxes_schema(id_type)
    held: list[pa.RecordBatch] = []
    matcher: Matcher | None = None
    for batch in batches:
        kinds = batch["is_message"].to_numpy(zero_copy_only=False)
        first = len(kinds) - int(kinds.sum())
        if first:
            held.append(pa.RecordBatch.from_struct_array(batch["box"].slice(0, first)))
        if first == len(kinds):
            continue
        if matcher is None:
            own = pa.Table.from_batches(held).cast(schema) if held else schema.empty_table()
            matcher = Matcher(pa.concat_tables([plain.cast(schema), own]), spaces)
            held.clear()
        messages = pa.RecordBatch.from_struct_array(batch["message"].slice(first))
        yield from answer(matcher, messages, id_type)
