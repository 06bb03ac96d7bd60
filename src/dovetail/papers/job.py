"""Runs the commands of `dovetail reproduce`: from options to files.

Options are checked before anything starts. Results appear whole or not at all
(pipeline/spark/output_folder.py). Results and their paths go to stdout, progress to stderr.
"""

import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from dovetail import __version__
from dovetail.errors import ConfigError
from dovetail.papers.bluedove import paper_numbers, run_configuration, sweep
from dovetail.papers.bluedove.figure_model import Figure
from dovetail.papers.bluedove.figures import FIGURES, select_figures
from dovetail.papers.bluedove.report import BlueDoveRun, render_bluedove
from dovetail.papers.comparison_table import Comparison
from dovetail.papers.figure7 import query_cost
from dovetail.papers.figure7.measurement import measure_point, start_bench
from dovetail.papers.figure7.report import BrokerRun, render_broker
from dovetail.papers.wildcard import simulation
from dovetail.papers.wildcard.comparison import averages, compare
from dovetail.papers.wildcard.report import WildcardRun, render
from dovetail.pipeline.spark.output_folder import result_folder, write_errors
from dovetail.pipeline.spark.progress import show_progress, show_steps
from dovetail.pipeline.spark.resources import announce, cores_of
from dovetail.pipeline.spark.spark_session import check_master, open_session
from dovetail.process import terminal

WILDCARD_OUT = Path("wildcard-results")
BROKER_OUT = Path("broker-results")
BLUEDOVE_OUT = Path("bluedove-results")
TABLE_NAME = "results.parquet"
REPORT_NAME = "report.html"

EXPERIMENT_KEY = b"dovetail.experiment"
"""A key in the table's metadata, which distinguishes an earlier result from other files."""
WILDCARD = b"wildcard"
BROKER = b"broker"
BLUEDOVE = b"bluedove"

TASKS_PER_CORE = 16
"""Enough tasks for a moving progress bar and even work, few enough that Spark's cost per task does
not matter."""

ROUNDS_MAX = 100
SECONDS_MIN, SECONDS_MAX = 0.1, 600.0
"""The bounds of one measurement. The paper's takes 70 s."""


def reproduce_wildcard(
    *,
    figures: Sequence[int] = (4, 5, 6),
    trials: int = 10,
    seed: int = 1,
    master: str | None = None,
    out: Path | None = None,
) -> None:
    """Run the wildcard paper's simulation, and write a table and a report to a folder."""
    figures = check_options(figures, trials, seed)
    if master is not None:
        check_master(master)
    out = (out or WILDCARD_OUT).absolute()
    started = time.monotonic()
    with result_folder(out, lambda there: is_result(there, WILDCARD)) as folder:
        with open_session(master) as spark:
            rows = measure_wildcard(spark, figures, trials, seed)
            spark_version = spark.version
        measured = averages(rows)
        comparisons = compare(measured)
        run = WildcardRun(seed, trials, figures, datetime.now(UTC), versions(spark_version))
        with write_errors(out):
            pq.write_table(rows, folder / TABLE_NAME)
            (folder / REPORT_NAME).write_text(render(run, measured, comparisons), "utf-8")
    terminal.say_text(summary(rows.num_rows, time.monotonic() - started, out, comparisons))


def check_options(figures: Sequence[int], trials: int, seed: int) -> tuple[int, ...]:
    """Check the options, and return the figures in order, each once."""
    unknown = sorted(set(figures) - set(simulation.FIGURES))
    if unknown or not figures:
        named = ", ".join(map(str, unknown)) or "none"
        raise ConfigError(f"the wildcard figures are 4, 5 and 6; asked for: {named}.")
    if not 1 <= trials <= simulation.TRIALS_MAX:
        raise ConfigError(f"--trials is from 1 to {simulation.TRIALS_MAX:,}, not {trials:,}.")
    check_seed(seed)
    return tuple(sorted(set(figures)))


def check_seed(seed: int) -> None:
    if not 0 <= seed <= simulation.SEED_MAX:
        raise ConfigError(f"--seed is from 0 to {simulation.SEED_MAX}, not {seed}.")


def measure_wildcard(
    spark: SparkSession, figures: Sequence[int], trials: int, seed: int
) -> pa.Table:
    """Run the sweep as one Spark job, and return the table: a few megabytes at most."""
    console = terminal.console(stderr=True, highlight=False, soft_wrap=True)
    announce(spark, console)
    cells = simulation.cells(figures, trials)
    partitions = min(cells.num_rows, TASKS_PER_CORE * cores_of(spark))
    rows = simulation.in_order(simulation.measure(spark.createDataFrame(cells), seed, partitions))
    with show_progress(spark, "Wildcard figures", partitions, console):
        table = rows.toArrow()
    return table.cast(simulation.ROWS).replace_schema_metadata(metadata(WILDCARD, seed))


def reproduce_broker(
    *,
    rounds: int = 3,
    seconds: float = 1.0,
    seed: int = 1,
    out: Path | None = None,
    swept: Sequence[int] = query_cost.SWEPT,
) -> None:
    """Measure our broker as in the wildcard paper's figure 7; write a table and a report."""
    if not 1 <= rounds <= ROUNDS_MAX:
        raise ConfigError(f"--rounds is from 1 to {ROUNDS_MAX}, not {rounds:,}.")
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise ConfigError(f"--seconds is from {SECONDS_MIN} to {SECONDS_MAX:g}, not {seconds:g}.")
    check_seed(seed)
    out = (out or BROKER_OUT).absolute()
    started = time.monotonic()
    with result_folder(out, lambda there: is_result(there, BROKER)) as folder:
        measured = query_cost.counts(seed)
        rows = measure_broker(
            query_cost.points(query_cost.mean_queries(measured), swept), rounds, seconds, seed
        )
        timings = query_cost.medians(rows)
        comparisons = query_cost.compare(measured, timings)
        run = BrokerRun(seed, rounds, seconds, datetime.now(UTC), versions())
        with write_errors(out):
            pq.write_table(rows, folder / TABLE_NAME)
            page = render_broker(run, measured, timings, comparisons)
            (folder / REPORT_NAME).write_text(page, "utf-8")
    terminal.say_text(summary(rows.num_rows, time.monotonic() - started, out, comparisons))


def measure_broker(
    points: Sequence[query_cost.SearchPoint], rounds: int, seconds: float, seed: int
) -> pa.Table:
    """Measure each point once per round, one after the other: they share the machine."""
    console = terminal.console(stderr=True, highlight=False, soft_wrap=True)
    rows: list[dict[str, object]] = []
    with (
        start_bench(seed) as bench,
        show_steps("Broker figure", rounds * len(points), console) as step,
    ):
        for number in range(rounds):
            for point in points:
                rows.append({"round": number, **measure_point(bench, point, seconds)})
                step()
    return pa.Table.from_pylist(rows, query_cost.ROWS).replace_schema_metadata(
        metadata(BROKER, seed)
    )


def reproduce_bluedove(
    *,
    figures: Sequence[str] = tuple(FIGURES),
    trials: int = 1,
    seed: int = 1,
    master: str | None = None,
    out: Path | None = None,
    effort: run_configuration.Effort = run_configuration.FULL,
) -> None:
    """Run BlueDove's evaluation in the simulator, and write a table and a report to a folder."""
    shown = select_figures(figures)
    if not 1 <= trials <= run_configuration.TRIALS_MAX:
        raise ConfigError(f"--trials is from 1 to {run_configuration.TRIALS_MAX}, not {trials:,}.")
    check_seed(seed)
    if master is not None:
        check_master(master)
    out = (out or BLUEDOVE_OUT).absolute()
    started = time.monotonic()
    with result_folder(out, lambda there: is_result(there, BLUEDOVE)) as folder:
        with open_session(master) as spark:
            rows = measure_bluedove(spark, shown, trials, seed, effort)
            spark_version = spark.version
        measured = run_configuration.TrialMeans(rows)
        comparisons = paper_numbers.compare(measured)
        run = BlueDoveRun(seed, trials, shown, datetime.now(UTC), versions(spark_version))
        with write_errors(out):
            pq.write_table(rows, folder / TABLE_NAME)
            page = render_bluedove(run, measured, comparisons)
            (folder / REPORT_NAME).write_text(page, "utf-8")
    terminal.say_text(summary(rows.num_rows, time.monotonic() - started, out, comparisons))


def measure_bluedove(
    spark: SparkSession,
    figures: Sequence[Figure],
    trials: int,
    seed: int,
    effort: run_configuration.Effort,
) -> pa.Table:
    """One Spark task for each run_configuration and trial."""
    console = terminal.console(stderr=True, highlight=False, soft_wrap=True)
    announce(spark, console)
    planned = [one for figure in figures for one in figure.configurations]
    cells = sweep.cells(planned, trials)
    # The progress bar cannot tell a single task from other stages (pipeline/spark/progress.py).
    count = max(cells.num_rows, 2)
    dealt = sweep.measure(spark.createDataFrame(cells), count, seed, effort)
    rows = sweep.in_order(dealt)
    with show_progress(spark, "BlueDove figures", count, console):
        table = rows.toArrow()
    return table.cast(run_configuration.ROWS).replace_schema_metadata(metadata(BLUEDOVE, seed))


def metadata(experiment: bytes, seed: int) -> dict[bytes, bytes]:
    return {
        EXPERIMENT_KEY: experiment,
        b"dovetail.version": __version__.encode(),
        b"dovetail.seed": str(seed).encode(),
    }


def is_result(folder: Path, experiment: bytes) -> bool:
    """Return whether a folder holds exactly what this experiment's command writes."""
    if {path.name for path in folder.iterdir()} != {TABLE_NAME, REPORT_NAME}:
        return False
    try:
        found = pq.read_schema(folder / TABLE_NAME).metadata
    except (OSError, pa.ArrowException):
        return False
    return bool(found and found.get(EXPERIMENT_KEY) == experiment)


def versions(spark_version: str | None = None) -> dict[str, str]:
    return {
        "Dovetail": __version__,
        "Python": platform.python_version(),
        **({"Spark": spark_version} if spark_version else {}),
        "NumPy": version("numpy"),
        "Numba": version("numba"),
    }


def summary(rows: int, seconds: float, out: Path, comparisons: Sequence[Comparison]) -> str:
    """Return the text that a run prints at its end, in characters that every terminal has."""
    verdicts = {True: "agrees", False: "DIFFERS", None: ""}
    table = [("", "paper", "ours", "")]
    table += [
        (row.quantity, row.paper, row.ours.replace("±", "+/-"), verdicts[row.agrees])
        for row in comparisons
    ]
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]
    return "\n".join(
        [
            f"{rows:,} rows in {seconds:.0f} s",
            f"table   {out / TABLE_NAME}",
            f"report  {out / REPORT_NAME}",
            "",
            *lines,
        ]
    )
