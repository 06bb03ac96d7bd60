"""Match with a large set of subscriptions on Spark: distribute it as task_plan.py plans.

Three small jobs come first: they count the boxes of each cell, sample boxes, and estimate the cost
of a sample of the messages. Then boxes and messages form one table with the number of their task. A
task gets its boxes before its messages, so it holds the boxes and streams the messages.
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
from dovetail.pipeline.match.batch_matcher import BatchMatcher, match_arrays, match_pairs
from dovetail.pipeline.match.boxes import boxes_schema
from dovetail.pipeline.match.task_plan import CellGrid, TaskPlan, plan_tasks, work_by_cell

BOXES_SAMPLED = 20_000
MESSAGES_SAMPLED = 0.1
MESSAGES_SAMPLED_MIN = 2_000
"""If a tenth of the messages has fewer, all messages are used."""

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
    """Return the matches, and the number of tasks. All tasks get `plain`: boxes without borders."""
    distributed, count = distribute(messages, boxes, spaces, tasks)
    answer = partial(
        match_task,
        plain=plain,
        spaces=tuple(spaces),
        answer=match_pairs if as_pairs else match_arrays,
    )
    return distributed.mapInArrow(answer, result), count


def distribute(
    messages: DataFrame, boxes: DataFrame, spaces: Sequence[Space], tasks: int
) -> tuple[DataFrame, int]:
    """Return boxes with borders followed by messages, in one partition for each task.

    Also return the number of tasks.
    """
    bordered = boxes.where("space >= 0")
    plan = plan_for(messages, bordered, spaces, tasks)
    to_task = "task int, " + ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}" for field in bordered.schema.fields
    )
    box_rows = bordered.mapInArrow(partial(_distribute_boxes, plan=plan), to_task)
    of_messages = "task int, " + ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}" for field in messages.schema.fields
    )
    message_rows = messages.mapInArrow(partial(_distribute_messages, plan=plan), of_messages)
    both = box_rows.select(
        "task", sql.lit(False).alias("is_message"), sql.struct(*bordered.columns).alias("box")
    ).unionByName(
        message_rows.select(
            "task",
            sql.lit(True).alias("is_message"),
            sql.struct(*messages.columns).alias("message"),
        ),
        allowMissingColumns=True,
    )
    ordered = both.repartitionById(plan.tasks, "task").sortWithinPartitions("is_message")
    return ordered, plan.tasks


def plan_for(
    messages: DataFrame, boxes: DataFrame, spaces: Sequence[Space], tasks: int
) -> TaskPlan:
    """Plan which task gets which boxes and messages."""
    grid = CellGrid(tuple(spaces))
    counted = boxes.mapInArrow(partial(_count_boxes, grid=grid), "rows long, cells array<long>")
    rows, sums = _sums(counted.toArrow(), grid.cells)
    boxes_in = sums.astype(np.int64)
    share = min(BOXES_SAMPLED / max(rows, 1), 1.0)
    sample = boxes.sample(fraction=share, seed=0).toArrow()
    scale = rows / max(len(sample), 1)
    measure = partial(_measure_work, grid=grid, boxes_in=boxes_in, sample=sample, scale=scale)
    for fraction in (MESSAGES_SAMPLED, 1.0):
        some = messages.sample(fraction=fraction, seed=0) if fraction < 1 else messages
        weighed = some.mapInArrow(measure, "rows long, cells array<double>").toArrow()
        seen, work = _sums(weighed, grid.cells)
        if seen >= MESSAGES_SAMPLED_MIN:
            break
    return plan_tasks(grid, boxes_in, work / fraction, tasks)


def _sums(table: pa.Table, cells: int) -> tuple[int, Floats]:
    """Return the sum of the rows, and the sum for each cell."""
    rows = int(sum(table["rows"].to_pylist()))
    flat = table["cells"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return rows, flat.reshape(-1, cells).sum(axis=0).astype(np.float64)


def _row(rows: int, cells: Ints | Floats) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rows": pa.array([rows]), "cells": pa.array([cells])})


def _count_boxes(batches: Batches, *, grid: CellGrid) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield _row(len(batch), grid.count_boxes(batch))


def _measure_work(
    batches: Batches, *, grid: CellGrid, boxes_in: Ints, sample: pa.Table, scale: float
) -> Iterator[pa.RecordBatch]:
    matcher = BatchMatcher(sample, grid.spaces)
    for batch in batches:
        counts = [np.diff(offsets) for _, offsets, _ in matcher.match(batch)]
        matches = np.concatenate([np.zeros(0, np.int64), *counts])
        cells = grid.cell_of_messages(batch, boxes_in)
        yield _row(len(batch), work_by_cell(cells, matches, boxes_in, scale, grid.cells))


def _distribute_boxes(batches: Batches, *, plan: TaskPlan) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows, tasks = plan.tasks_of_boxes(batch)
        yield _with_task(batch.take(pa.array(rows)), tasks)


def _distribute_messages(batches: Batches, *, plan: TaskPlan) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    # Each partition begins with another task, so that the first tasks do not get more than others.
    turn = 0 if context is None else context.partitionId() * 7919
    for batch in batches:
        yield _with_task(batch, plan.task_of_messages(batch, turn))
        turn += len(batch)


def _with_task(batch: pa.RecordBatch, tasks: Ints) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(tasks, pa.int32()), *batch.columns], ["task", *batch.schema.names]
    )


def match_task(
    batches: Batches,
    *,
    plain: pa.Table,
    spaces: tuple[Space, ...],
    answer: Callable[[BatchMatcher, pa.RecordBatch, pa.DataType], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Match the rows of one task: its boxes come first, then its messages."""
    id_type = plain.schema.field("id").type
    schema = boxes_schema(id_type)
    held: list[pa.RecordBatch] = []
    matcher: BatchMatcher | None = None
    for batch in batches:
        kinds = batch["is_message"].to_numpy(zero_copy_only=False)
        first = len(kinds) - int(kinds.sum())
        if first:
            held.append(pa.RecordBatch.from_struct_array(batch["box"].slice(0, first)))
        if first == len(kinds):
            continue
        if matcher is None:
            own = pa.Table.from_batches(held).cast(schema) if held else schema.empty_table()
            matcher = BatchMatcher(pa.concat_tables([plain.cast(schema), own]), spaces)
            held.clear()
        messages = pa.RecordBatch.from_struct_array(batch["message"].slice(first))
        yield from answer(matcher, messages, id_type)
