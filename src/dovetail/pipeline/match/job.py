"""`dovetail match`: read tables, match them, and write a result that appears whole.

Wrong options are refused before Spark starts. An existing result is never replaced. A local result
is written to a hidden folder and renamed at the end (pipeline/spark/output_folder.py). Elsewhere
Spark's own writer does what the storage allows, and marks a complete result with a file `_SUCCESS`.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql
from rich.console import Console

from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.match.bulk import prepare, spaces_of
from dovetail.pipeline.spark.output_folder import result_folder
from dovetail.pipeline.spark.progress import show_progress
from dovetail.pipeline.spark.resources import announce, cores_of, parts_of
from dovetail.pipeline.spark.spark_session import check_master, open_session
from dovetail.pipeline.spark.table_files import (
    check_messages,
    check_path,
    local,
    read_messages,
    read_subscriptions,
)
from dovetail.process import terminal

TASKS_PER_CORE = 4
"""A table with fewer partitions than there are cores is repartitioned into this many."""

TASKS_CUT_PER_CORE = 16
"""Tasks per core if a large set of subscriptions is cut."""


class MatchCounts(NamedTuple):
    """Rows in and rows out."""

    messages: int
    subscriptions: int
    rows: int
    pairs: int


def match_files(
    *,
    messages: str,
    subscriptions: str,
    out: str,
    as_pairs: bool = False,
    config: Path | None = None,
    master: str | None = None,
) -> None:
    """Write which subscriptions match each message, from files to files."""
    if master is not None:
        check_master(master)
    spaces = () if config is None else spaces_of(config)
    check_messages(messages)
    check_path(subscriptions)
    started = time.monotonic()
    with _result(out) as target, open_session(master) as spark:
        console = terminal.console(stderr=True, highlight=False, soft_wrap=True)
        announce(spark, console)
        seen = {name: Observation(name) for name in ("messages", "out")}
        given = read_messages(spark, messages)
        tasks = parts_of(given)
        cores = cores_of(spark)
        if tasks < cores:
            tasks = TASKS_PER_CORE * cores
            given = given.repartition(tasks)
        console.print("Reading subscriptions")
        wanted = read_subscriptions(spark, subscriptions)
        # Counted separately: matching does not read a large set to its end at first.
        wanted_count = wanted.count()
        prepared = prepare(
            _counted(given, seen["messages"]),
            wanted,
            spaces=spaces,
            as_pairs=as_pairs,
            tasks=TASKS_CUT_PER_CORE * cores,
        )
        size = sql.lit(1) if as_pairs else sql.size("subscriptions")
        found = prepared.found.observe(
            seen["out"], sql.count(sql.lit(1)).alias("rows"), sql.sum(size).alias("pairs")
        )
        tasks = prepared.tasks or tasks
        _write(spark, found, target, tasks, console)
        rows = seen["out"].get["rows"]
        if isinstance(target, Path):
            check_all_there(target, rows, out)
        counts = MatchCounts(
            seen["messages"].get["rows"],
            wanted_count,
            rows,
            seen["out"].get["pairs"] or 0,
        )
    terminal.say_text(summary(counts, time.monotonic() - started, out))


def _write(
    spark: SparkSession, found: DataFrame, target: str | Path, tasks: int, console: Console
) -> None:
    # The folder for a local result exists already, and is empty.
    mode = "append" if isinstance(target, Path) else "errorifexists"
    where = local(target) if isinstance(target, Path) else target
    with show_progress(spark, "Matching", tasks, console):
        found.write.mode(mode).parquet(where)


def check_all_there(folder: Path, rows: int, out: str) -> None:
    """Raise an error if rows are missing here: workers without this disk wrote to their own."""
    there = sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
    if there != rows:
        raise DovetailError(
            f"Spark has written {rows:,} rows, and {there:,} of them are in {out} on this machine: "
            "its workers have disks of their own.",
            hint="Name a folder that all of them share with --out, or an address (hdfs://...).",
        )


def _counted(frame: DataFrame, seen: Observation) -> DataFrame:
    return frame.observe(seen, sql.count(sql.lit(1)).alias("rows"))


@contextmanager
def _result(out: str) -> Iterator[str | Path]:
    """Yield where to write. It becomes `out` if the block succeeds."""
    if "://" in out:
        yield out
        return
    path = Path(out).absolute()
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise ConfigError(
            f"{path} is there already, and is left as it is.",
            hint="Name another folder with --out.",
        )
    with result_folder(path, lambda _: False) as folder:
        yield folder


def summary(counts: MatchCounts, seconds: float, out: str) -> str:
    where = out if "://" in out else Path(out).absolute()
    return "\n".join(
        [
            f"in      {counts.messages:,} messages, {counts.subscriptions:,} subscriptions",
            f"out     {counts.rows:,} rows, {counts.pairs:,} pairs of message and subscription",
            f"time    {seconds:.0f} s",
            f"output  {where}",
        ]
    )
