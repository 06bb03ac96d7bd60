"""A large set of subscriptions, cut by mPartition into what tasks can hold. No Spark.

Each searchable dimension of a space is cut into segments (attributes/partition.py). A segment of
one dimension is a *cell*, and holds every box that overlaps it, those that are open there too. So a
cell alone has all boxes of a point that falls in it: any one of a message's cells will do, and it
goes to the one with the fewest boxes (BlueDove III-B). A message without any of the numbers goes to
any: what it can match is open everywhere, and so in every cell. Messages outside all spaces are
dealt out among all tasks.

Cells are no tasks yet, as some get most of the messages, and some most of the boxes. A task makes
an index of its boxes, whatever comes then; a message costs so much, and more for each box in the
index and for each match, which a sample tells. A cell with more work than a task should have
becomes several tasks with the same boxes, among which its messages are dealt out; cells with little
share a task, which has the boxes of all, each once. No task can be smaller than the index of the
largest cell, so none should be: then all are at least half as large, but for one.

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
from dovetail.attributes.space_registry import Spaces
from dovetail.pipeline.match.arrow_arrays import Floats, Ints, Lists, matrix, points_of
from dovetail.pipeline.match.boxes import NO_SPACE

SEGMENTS = 16
"""Of a dimension. More make cells smaller only as long as they are wider than boxes are."""

COST_MESSAGE = 1.0
"""Looking for a message's boxes, about a microsecond here; the others are in proportion to it."""

COST_MESSAGE_BOX = 5e-5
"""For each box that is in the index, more."""

COST_MATCH = 0.017
"""For each that is found."""

COST_HELD = 1.0
"""A box that a task holds: bringing it there, and its place in the index."""

_LARGEST_TIMES = 1.25
"""A task may cost so many times what holding the largest cell does: it has messages, too."""


class Cells(NamedTuple):
    """Of one space: the segments of its searchable dimensions, and where its cells begin."""

    space: int
    names: tuple[str, ...]
    columns: tuple[int, ...]
    """Among all dimensions of the space."""
    segments: tuple[Segments, ...]
    first: int

    @property
    def cells(self) -> int:
        return sum(len(one.owners) for one in self.segments)

    def starts(self) -> Iterator[int]:
        """Where each dimension's cells begin."""
        start = self.first
        for one in self.segments:
            yield start
            start += len(one.owners)


@dataclass(frozen=True)
class Grid:
    """The cells of all spaces, numbered."""

    spaces: tuple[Space, ...]
    segments: int = SEGMENTS

    @cached_property
    def parts(self) -> tuple[Cells, ...]:
        made: list[Cells] = []
        first = 0
        for number, space in enumerate(self.spaces):
            searchable = [
                (column, one) for column, one in enumerate(space.dimensions) if one.is_searchable
            ]
            cut = tuple(self._cut(one.low, one.high) for _, one in searchable)
            names = tuple(one.name for _, one in searchable)
            columns = tuple(column for column, _ in searchable)
            made.append(Cells(number, names, columns, cut, first))
            first += made[-1].cells
        return tuple(made)

    def _cut(self, low: float, high: float) -> Segments:
        width = (high - low) / self.segments
        return Segments({f"{place:04}": low + place * width for place in range(self.segments)})

    @property
    def cells(self) -> int:
        return sum(part.cells for part in self.parts)

    def cells_of_boxes(self, boxes: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Rows with borders, and the cells that each overlaps, as pairs."""
        spaces = boxes["space"].to_numpy(zero_copy_only=False)
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for part in self.parts:
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
        """How many each cell has."""
        _, cells = self.cells_of_boxes(boxes)
        return np.bincount(cells, minlength=self.cells)

    def cell_of_messages(self, messages: pa.RecordBatch, boxes_in: Ints) -> Ints:
        """The cell with the fewest boxes for each; -1 where no space governs the topic."""
        spaces = space_of_messages(messages, self.spaces)
        chosen = np.full(len(messages), -1, np.int64)
        for part in self.parts:
            rows = np.flatnonzero(spaces == part.space)
            if not len(rows):
                continue
            points, _ = points_of(messages["attributes"].take(pa.array(rows)), pa.array(part.names))
            chosen[rows] = _cheapest(part, points, boxes_in)
        return chosen


def space_of_messages(messages: pa.RecordBatch, spaces: Sequence[Space]) -> Ints:
    """The number of the space that governs each one's topic, or NO_SPACE."""
    topics = messages["topic"].dictionary_encode()
    known = Spaces(spaces)
    governing = [known.governing(topic.encode()) for topic in topics.dictionary.to_pylist()]
    numbers = {space.name: number for number, space in enumerate(spaces)}
    of_topic = [NO_SPACE if one is None else numbers[one.name] for one in governing]
    of_topics = np.array([*of_topic, NO_SPACE])
    found: Ints = of_topics[topics.indices.fill_null(len(of_topic)).to_numpy(zero_copy_only=False)]
    return found


def _cheapest(part: Cells, points: Floats, boxes_in: Ints) -> Ints:
    best = np.full(len(points), part.first, np.int64)
    fewest = np.full(len(points), np.iinfo(np.int64).max)
    for place, (one, start) in enumerate(zip(part.segments, part.starts(), strict=True)):
        cells = start + one.places(points[:, place])
        # Who has no value there is not in any of these cells.
        boxes = np.where(np.isnan(points[:, place]), np.iinfo(np.int64).max, boxes_in[cells])
        better = boxes < fewest
        best[better], fewest[better] = cells[better], boxes[better]
    return best


@dataclass(frozen=True)
class Plan:
    """Which tasks a cell's boxes and messages go to."""

    grid: Grid
    boxes_in: Ints
    tasks: int
    tasks_of: tuple[tuple[int, ...], ...]
    """By cell."""

    @cached_property
    def _lists(self) -> Lists:
        counts = np.array([len(tasks) for tasks in self.tasks_of], np.int64)
        return Lists.of(counts, np.array([one for own in self.tasks_of for one in own], np.int64))

    def tasks_of_boxes(self, boxes: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Rows with borders, and the tasks that each goes to, each once."""
        rows, cells = self.grid.cells_of_boxes(boxes)
        rows, tasks = self._lists.joined(rows, cells)
        unique = np.unique(rows * self.tasks + tasks)
        return unique // self.tasks, unique % self.tasks

    def task_of_messages(self, messages: pa.RecordBatch, first: int) -> Ints:
        """Rows are dealt out in turn, the first one as the row of this number."""
        cells = self.grid.cell_of_messages(messages, self.boxes_in)
        turn = np.arange(first, first + len(messages))
        counts = self._lists.counts[cells]
        within = self._lists.values[
            np.minimum(self._lists.starts[cells] + turn % counts, len(self._lists.values) - 1)
        ]
        return np.where(cells < 0, turn % self.tasks, within)


def plan(grid: Grid, boxes_in: Ints, work: Floats, tasks: int) -> Plan:
    """Cells shared out so that tasks have about the same to do; `work` is that of all messages.

    There are at most about so many `tasks`.
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
    return Plan(grid, boxes_in, max(len(loads), 1), tuple(tasks_of))


def work_of(cells: Ints, matches: Ints, boxes_in: Ints, scale: float, count: int) -> Floats:
    """What messages of a sample cost, by cell, where one match stands for `scale` of them."""
    governed = cells >= 0
    each = COST_MESSAGE + COST_MESSAGE_BOX * boxes_in[cells[governed]]
    each += COST_MATCH * scale * matches[governed]
    return np.bincount(cells[governed], each, count).astype(np.float64)
