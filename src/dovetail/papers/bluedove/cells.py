"""Cells of a run as Spark tasks: a configuration and a trial each.

What a cell draws comes from the run's seed and its trial alone: so systems meet the same boxes and
points, and the table is the same whatever the number of cores. Cells that take long begin first, so
that no core is left alone with one of them at the end.

Nothing here reads or writes: `measure` and `in_order` take a DataFrame and return one.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.papers.bluedove.configuration import (
    CHATTER,
    CONFIGURATION,
    CRASHES,
    FULL,
    GROWTH,
    OVERHEAD,
    ROWS,
    SCALED,
    Configuration,
    Effort,
)
from dovetail.papers.bluedove.runs import measure_configuration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = "place"
CELLS = pa.schema([pa.field(PLACE, pa.int32()), *list(ROWS)[: CONFIGURATION + 1]])
"""What a cell is, and which task of the run."""
_DDL = {"int32": "int", "int64": "bigint", "double": "double", "string": "string"}
ROWS_DDL = ", ".join(f"{field.name} {_DDL[str(field.type)]}" for field in ROWS)
_LONG = (SCALED, CRASHES, CHATTER, GROWTH, OVERHEAD)
"""Experiments that take long, the longest first."""


def cells(configurations: Sequence[Configuration], trials: int) -> pa.Table:
    """Every cell of a run, each once."""
    wanted = [
        (configuration, trial)
        for configuration in sorted(set(configurations), key=_turn)
        for trial in range(trials)
    ]
    rows = [
        {PLACE: place, **dataclasses.asdict(configuration), "trial": trial}
        for place, (configuration, trial) in enumerate(wanted)
    ]
    return pa.Table.from_pylist(rows, CELLS)


def _turn(one: Configuration) -> tuple[int, int, Configuration]:
    is_long = one.experiment in _LONG
    return _LONG.index(one.experiment) if is_long else len(_LONG), -one.matchers, one


def seed_of(seed: int, trial: int) -> int:
    return int(np.random.SeedSequence([seed, trial]).generate_state(1)[0])


def measure_cell(
    cell: dict[str, object], seed: int, effort: Effort = FULL
) -> list[dict[str, object]]:
    trial = cell["trial"]
    assert isinstance(trial, int)
    values = {name: value for name, value in cell.items() if name not in (PLACE, "trial")}
    configuration = Configuration(**values)  # type: ignore[arg-type]
    return [
        {**values, "trial": trial, "measure": measure, "at": at, "value": value}
        for measure, at, value in measure_configuration(configuration, seed_of(seed, trial), effort)
    ]


def measure_batches(
    batches: Iterator[pa.RecordBatch], *, seed: int, effort: Effort
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for cell in batch.to_pylist():
            yield pa.RecordBatch.from_pylist(measure_cell(cell, seed, effort), ROWS)


def measure(cells: "DataFrame", count: int, seed: int, effort: Effort = FULL) -> "DataFrame":
    """Cells in, their rows out. Each is a task, and tasks begin in the order of their places."""
    dealt = cells.repartitionById(count, PLACE)
    return dealt.mapInArrow(partial(measure_batches, seed=seed, effort=effort), ROWS_DDL)


def in_order(rows: "DataFrame") -> "DataFrame":
    """Sorted, in one partition, as in `wildcard.in_order`."""
    names = [name for name in ROWS.names if name != "value"]
    return rows.repartition(1).sortWithinPartitions(*names)
