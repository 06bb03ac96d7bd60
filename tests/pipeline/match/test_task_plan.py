"""Large sets cut into tasks: every message meets all its boxes, and tasks have similar work."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from dovetail.attributes.space import Dimension, Space
from dovetail.pipeline.match.batch_matcher import BatchMatcher
from dovetail.pipeline.match.boxes import boxes_schema
from dovetail.pipeline.match.task_plan import (
    COST_HELD,
    COST_MATCH,
    COST_MESSAGE,
    COST_MESSAGE_BOX,
    CellGrid,
    plan_tasks,
    work_by_cell,
)
from dovetail.sim import workload

NAMES = ("x0", "x1", "x2", "x3")
PAPER = Space("paper", "p/#", tuple(Dimension(name, 0, 1_000) for name in NAMES))
Floats = npt.NDArray[np.float64]


def boxes_batch(lows: Floats, highs: Floats) -> pa.RecordBatch:
    count = len(lows)
    columns = {
        "number": pa.array(np.arange(count)),
        "id": pa.array(np.arange(count)),
        "filter": pa.array(["p/#"] * count),
        "space": pa.array(np.zeros(count, np.int32)),
        "lows": pa.array(lows.tolist(), pa.list_(pa.float64())),
        "highs": pa.array(highs.tolist(), pa.list_(pa.float64())),
        "texts": pa.nulls(count, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns, boxes_schema(pa.int64()))


def messages_batch(points: Floats) -> pa.RecordBatch:
    attributes = [
        [(name, value) for name, value in zip(NAMES, point, strict=True) if value == value]  # noqa: PLR0124
        for point in points.tolist()
    ]
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(np.arange(len(points))),
            "topic": pa.array(["p/a"] * len(points)),
            "attributes": pa.array(attributes, pa.map_(pa.string(), pa.float64())),
        }
    )


def matches_of(matcher: BatchMatcher, messages: pa.RecordBatch) -> list[set[int]]:
    return [
        set(places[low:high].tolist())
        for _, offsets, places in matcher.match(messages)
        for low, high in pairwise(offsets)
    ]


@pytest.mark.parametrize("skewed", [0, 1, 4])
def test_no_task_has_twice_the_median(skewed: int) -> None:
    """The paper's boxes, and points that follow their hot spots in some dimensions."""
    boxes = boxes_batch(*workload.boxes(4_000))
    messages = messages_batch(workload.points(6_000, skewed=skewed))
    grid = CellGrid((PAPER,))
    boxes_in = grid.count_boxes(boxes)
    cells = grid.cell_of_messages(messages, boxes_in)
    matched = matches_of(BatchMatcher(pa.Table.from_batches([boxes]), (PAPER,)), messages)
    counts = np.array([len(one) for one in matched])
    some = np.arange(0, len(messages), 3)
    work = 3 * work_by_cell(cells[some], counts[some], boxes_in, 1.0, grid.cells)
    made = plan_tasks(grid, boxes_in, work, 24)
    tasks = made.task_of_messages(messages, 0)
    rows, box_tasks = made.tasks_of_boxes(boxes)
    held = [set(rows[box_tasks == task].tolist()) for task in range(made.tasks)]
    sizes = np.array([*map(len, held)])
    each = COST_MESSAGE + COST_MESSAGE_BOX * sizes[tasks] + COST_MATCH * counts
    work = COST_HELD * sizes + np.bincount(tasks, weights=each, minlength=made.tasks)
    assert work.max() <= 2 * np.median(work)
    assert 20 <= made.tasks <= 48
    # A message's task has every box that the message is in.
    assert all(found <= held[task] for found, task in zip(matched, tasks.tolist(), strict=True))
    # And not all boxes are everywhere.
    assert sum(map(len, held)) < 0.7 * made.tasks * len(boxes)


def test_open_ranges_and_missing_values() -> None:
    boxes = boxes_batch(*workload.boxes(1_500, open_share=0.4))
    messages = messages_batch(workload.points(1_500, missing_share=0.4))
    grid = CellGrid((PAPER,), segments=5)
    boxes_in = grid.count_boxes(boxes)
    cells = grid.cell_of_messages(messages, boxes_in)
    none = np.zeros(len(messages), np.int64)
    made = plan_tasks(grid, boxes_in, work_by_cell(cells, none, boxes_in, 1.0, grid.cells), 9)
    tasks = made.task_of_messages(messages, 17)
    rows, box_tasks = made.tasks_of_boxes(boxes)
    held = [set(rows[box_tasks == task].tolist()) for task in range(made.tasks)]
    matched = matches_of(BatchMatcher(pa.Table.from_batches([boxes]), (PAPER,)), messages)
    assert sum(map(len, matched)) > 1_000
    assert all(found <= held[task] for found, task in zip(matched, tasks.tolist(), strict=True))


def test_messages_outside_all_spaces_are_distributed() -> None:
    grid = CellGrid((PAPER,))
    none = np.zeros(grid.cells, np.int64)
    made = plan_tasks(grid, none, np.full(grid.cells, 2.0), 8)
    messages = messages_batch(workload.points(80))
    others = messages.set_column(1, "topic", pa.array(["q", None] * 40))
    assert np.bincount(made.task_of_messages(others, 3)).tolist() == [80 // made.tasks] * made.tasks


def test_without_a_sample_boxes_decide() -> None:
    grid = CellGrid((PAPER,))
    made = plan_tasks(grid, np.zeros(grid.cells, np.int64), np.zeros(grid.cells), 8)
    assert made.tasks == 1
    assert made.task_of_messages(messages_batch(workload.points(5)), 0).tolist() == [0] * 5
