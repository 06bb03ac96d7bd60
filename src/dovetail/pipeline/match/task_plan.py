"""Plan how mPartition cuts a large set of subscriptions into tasks. No Spark.

Each searchable dimension of a space is cut into segments (attributes/partition.py). A segment of
one dimension is a *cell*, and holds every box that overlaps it, including boxes that are open
there. So one cell has all boxes of a point that falls in it. A message may go to any one of its
cells, and goes to the one with the fewest boxes (BlueDove III-B). A message without any of the
numbers goes to any cell: the boxes that it can match are open everywhere, and so in every cell.
Messages outside all spaces are distributed among all tasks.

Cells are not tasks yet: some get most of the messages, and some most of the boxes. A task first
indexes its boxes. Then each message has a fixed cost, a cost for each box in the index, and a cost
for each match, which a sample estimates. A cell with more work than a task should have becomes
several tasks with the same boxes, which share its messages. Cells with little work share a task,
which has the boxes of all of them, each once. No task can be smaller than the index of the largest
cell, so no task should be smaller: then all but one are at least half as large.

Subscriptions without a clause are not cut: they go to every task.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.attributes.partition import Segments
from dovetail.attributes.space import Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.pipeline.match.arrow_arrays import Floats, GroupedValues, Ints, matrix, point_matrix
from dovetail.pipeline.match.boxes import NO_SPACE

SEGMENTS = 16
"""Segments of a dimension. More of them help only while segments are wider than boxes."""

COST_MESSAGE = 1.0
"""Of looking for a message's boxes: the unit of these costs, about a microsecond here."""

COST_MESSAGE_BOX = 5e-5
"""Of a message, for each box in the index."""

COST_MATCH = 0.017
"""Of a message, for each match."""

COST_HELD = 1.0
"""Of a box that a task holds: transporting and indexing it."""

_LARGEST_TIMES = 1.25
"""The cost of a task by the cost of holding the largest cell, at most: it has messages, too."""


class SpaceCells(NamedTuple):
    """The cells of one space: the segments of its searchable dimensions."""

    space: int
    names: tuple[str, ...]
    columns: tuple[int, ...]
    """Positions of the searchable dimensions among all dimensions of the space."""
    segments: tuple[Segments, ...]
    first: int
    """The number of the first cell."""

    @property
    def cells(self) -> int:
        return sum(len(one.owners) for one in self.segments)

    def starts(self) -> Iterator[int]:
        """Yield the number of each dimension's first cell."""
        start = self.first
        for one in self.segments:
            yield start
            start += len(one.owners)


@dataclass(frozen=True)
class CellGrid:
    """The cells of all spaces, numbered."""

    spaces: tuple[Space, ...]
    segments: int = SEGMENTS

    @cached_property
    def space_cells(self) -> tuple[SpaceCells, ...]:
        made: list[SpaceCells] = []
        first = 0
        for number, space in enumerate(self.spaces):
            searchable = [
                (column, one) for column, one in enumerate(space.dimensions) if one.is_searchable
            ]
            cut = tuple(self._cut(one.low, one.high) for _, one in searchable)
            names = tuple(one.name for _, one in searchable)
            columns = tuple(column for column, _ in searchable)
            made.append(SpaceCells(number, names, columns, cut, first))
            first += made[-1].cells
        return tuple(made)

    def _cut(self, low: float, high: float) -> Segments:
        width = (high - low) / self.segments
        return Segments({f"{place:04}": low + place * width for place in range(self.segments)})

    @property
    def cells(self) -> int:
        return sum(part.cells for part in self.space_cells)

    def cells_of_boxes(self, boxes: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Return pairs of a row with borders and a cell that it overlaps."""
        spaces = boxes["space"].to_numpy(zero_copy_only=False)
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for part in self.space_cells:
            rows = np.flatnonzero(spaces == part.space)
            if not len(rows):
                continue
            width = len(self.spaces[part.space].dimensions)
            lows = matrix(boxes["lows"].take(pa.array(rows)), width)
            highs = matrix(boxes["highs"].take(pa.array(rows)), width)
            for column, one, start in zip(part.columns, part.segments, part.starts(), strict=True):
                first = one.places(lows[:, column])
                # The end is not in the range.
                last = one.places(np.nextafter(highs[:, column], -np.inf))
                counts = last - first + 1
                within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
                found.append((np.repeat(rows, counts), start + np.repeat(first, counts) + within))
        return np.concatenate([rows for rows, _ in found]), np.concatenate(
            [cells for _, cells in found]
        )

    def count_boxes(self, boxes: pa.RecordBatch) -> Ints:
        """Return the number of boxes in each cell."""
        _, cells = self.cells_of_boxes(boxes)
        return np.bincount(cells, minlength=self.cells)

    def cell_of_messages(self, messages: pa.RecordBatch, boxes_in: Ints) -> Ints:
        """Return each message's cell with the fewest boxes; -1 if no space governs its topic."""
        spaces = space_of_messages(messages, self.spaces)
        chosen = np.full(len(messages), -1, np.int64)
        for part in self.space_cells:
            rows = np.flatnonzero(spaces == part.space)
            if not len(rows):
                continue
            points, _ = point_matrix(
                messages["attributes"].take(pa.array(rows)), pa.array(part.names)
            )
            chosen[rows] = _cheapest_cells(part, points, boxes_in)
        return chosen


def space_of_messages(messages: pa.RecordBatch, spaces: Sequence[Space]) -> Ints:
    """Return the number of the space that governs each message's topic, or NO_SPACE."""
    topics = messages["topic"].dictionary_encode()
    known = SpaceRegistry(spaces)
    governing = [known.space_of_topic(topic.encode()) for topic in topics.dictionary.to_pylist()]
    numbers = {space.name: number for number, space in enumerate(spaces)}
    of_topic = [NO_SPACE if one is None else numbers[one.name] for one in governing]
    of_topics = np.array([*of_topic, NO_SPACE])
    found: Ints = of_topics[topics.indices.fill_null(len(of_topic)).to_numpy(zero_copy_only=False)]
    return found


def _cheapest_cells(part: SpaceCells, points: Floats, boxes_in: Ints) -> Ints:
    best = np.full(len(points), part.first, np.int64)
    fewest = np.full(len(points), np.iinfo(np.int64).max)
    for place, (one, start) in enumerate(zip(part.segments, part.starts(), strict=True)):
        cells = start + one.places(points[:, place])
        # A message without a value here is in none of these cells.
        boxes = np.where(np.isnan(points[:, place]), np.iinfo(np.int64).max, boxes_in[cells])
        better = boxes < fewest
        best[better], fewest[better] = cells[better], boxes[better]
    return best


@dataclass(frozen=True)
class TaskPlan:
    """The tasks that each cell's boxes and messages go to."""

    grid: CellGrid
    boxes_in: Ints
    tasks: int
    tasks_of: tuple[tuple[int, ...], ...]
    """By cell."""

    @cached_property
    def _tasks_by_cell(self) -> GroupedValues:
        counts = np.array([len(tasks) for tasks in self.tasks_of], np.int64)
        return GroupedValues.of(
            counts, np.array([one for own in self.tasks_of for one in own], np.int64)
        )

    def tasks_of_boxes(self, boxes: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Return pairs of a row with borders and a task that it goes to, each once."""
        rows, cells = self.grid.cells_of_boxes(boxes)
        rows, tasks = self._tasks_by_cell.joined(rows, cells)
        unique = np.unique(rows * self.tasks + tasks)
        return unique // self.tasks, unique % self.tasks

    def task_of_messages(self, messages: pa.RecordBatch, first: int) -> Ints:
        """Return each message's task. Messages of a cell take turns, from turn `first` on."""
        cells = self.grid.cell_of_messages(messages, self.boxes_in)
        turn = np.arange(first, first + len(messages))
        counts = self._tasks_by_cell.counts[cells]
        within = self._tasks_by_cell.values[
            np.minimum(
                self._tasks_by_cell.starts[cells] + turn % counts,
                len(self._tasks_by_cell.values) - 1,
            )
        ]
        return np.where(cells < 0, turn % self.tasks, within)


def plan_tasks(grid: CellGrid, boxes_in: Ints, work: Floats, tasks: int) -> TaskPlan:
    """Assign cells to about `tasks` tasks at most, so that tasks have about equal work.

    `work` is the cost of all messages by cell.
    """
    held = COST_HELD * boxes_in
    cost = work + held
    target = max(float(cost.sum()) / tasks, _LARGEST_TIMES * float(held.max(initial=0.0)), 1e-9)
    tasks_of: list[tuple[int, ...]] = [()] * grid.cells
    loads: list[float] = []
    for cell in np.argsort(-cost, kind="stable").tolist():
        if cost[cell] > target:
            share = int(np.ceil(work[cell] / (target - held[cell])))
            tasks_of[cell] = tuple(range(len(loads), len(loads) + share))
            loads += [work[cell] / share + held[cell]] * share
            continue
        # The fullest task that has room, so that few stay half empty.
        room = [(load, number) for number, load in enumerate(loads) if load + cost[cell] <= target]
        if room:
            _, number = max(room)
        else:
            number = len(loads)
            loads.append(0.0)
        loads[number] += float(cost[cell])
        tasks_of[cell] = (number,)
    return TaskPlan(grid, boxes_in, max(len(loads), 1), tuple(tasks_of))


def work_by_cell(cells: Ints, matches: Ints, boxes_in: Ints, scale: float, count: int) -> Floats:
    """Return the cost of messages by cell. A match with the sample stands for `scale` matches."""
    governed = cells >= 0
    each = COST_MESSAGE + COST_MESSAGE_BOX * boxes_in[cells[governed]]
    each += COST_MATCH * scale * matches[governed]
    return np.bincount(cells[governed], each, count).astype(np.float64)
