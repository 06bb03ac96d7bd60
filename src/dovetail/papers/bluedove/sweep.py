"""Runs a sweep as Spark tasks: a cell is a configuration and a trial.

The random draws of a cell depend only on the run's seed and its trial. So systems meet the same
boxes and points, and the table is the same whatever the number of cores. Long cells start first, so
that no core works alone at the end.

Nothing here reads or writes: `measure` and `in_order` take a DataFrame and return one.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.papers.bluedove.run_configuration import (
    CHATTER,
    CONFIGURATION_COLUMNS,
    CRASHES,
    FULL,
    GROWTH,
    OVERHEAD,
    ROWS,
    SCALED,
    Configuration,
    Effort,
)
from dovetail.papers.bluedove.runner import measure_configuration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = "place"
CELLS = pa.schema([pa.field(PLACE, pa.int32()), *list(ROWS)[: CONFIGURATION_COLUMNS + 1]])
"""The number of a task, and the configuration and trial of its cell."""
_DDL = {"int32": "int", "int64": "bigint", "double": "double", "string": "string"}
ROWS_DDL = ", ".join(f"{field.name} {_DDL[str(field.type)]}" for field in ROWS)
_LONG = (SCALED, CRASHES, CHATTER, GROWTH, OVERHEAD)
"""Experiments with long cells, the longest first."""


def cells(configurations: Sequence[Configuration], trials: int) -> pa.Table:
    """Return every cell of a run, each once."""
    planned = [
        (configuration, trial)
        for configuration in sorted(set(configurations), key=_start_order)
        for trial in range(trials)
    ]
    rows = [
        {PLACE: place, **dataclasses.asdict(configuration), "trial": trial}
        for place, (configuration, trial) in enumerate(planned)
    ]
    return pa.Table.from_pylist(rows, CELLS)


def _start_order(configuration: Configuration) -> tuple[int, int, Configuration]:
    experiment = configuration.experiment
    rank = _LONG.index(experiment) if experiment in _LONG else len(_LONG)
    return rank, -configuration.matchers, configuration


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
    """Return the rows of cells. Each cell is a task; tasks start in the order of their places."""
    dealt = cells.repartitionById(count, PLACE)
    return dealt.mapInArrow(partial(measure_batches, seed=seed, effort=effort), ROWS_DDL)


def in_order(rows: "DataFrame") -> "DataFrame":
    """Sort rows in one partition, as in `wildcard.simulation.in_order`."""
    names = [name for name in ROWS.names if name != "value"]
    return rows.repartition(1).sortWithinPartitions(*names)
