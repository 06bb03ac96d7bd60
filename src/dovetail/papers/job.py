"""The pipeline's commands, from options to files: the only place that knows a job end to end.

Everything that can be refused is refused before anything starts; what is written appears whole
(pipeline/spark/output_folder.py). Results and where they lie go to stdout; how it gets on goes to
stderr.
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
from dovetail.papers.bluedove import cells as bluedove_cells
from dovetail.papers.bluedove import configuration, numbers
from dovetail.papers.bluedove.figure_parts import Figure
from dovetail.papers.bluedove.figures import FIGURES, chosen
from dovetail.papers.bluedove.report import BlueDoveRun, render_bluedove
from dovetail.papers.figure7 import query_cost
from dovetail.papers.figure7.measurement import measure_point, prepared
from dovetail.papers.figure7.report import BrokerRun, render_broker
from dovetail.papers.wildcard import simulation
from dovetail.papers.wildcard.comparison import Comparison, averages, compare
from dovetail.papers.wildcard.report import Run, render
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
"""In the table's metadata: it tells an earlier result from a stranger's file."""
WILDCARD = b"wildcard"
BROKER = b"broker"
BLUEDOVE = b"bluedove"

TASKS_PER_CORE = 16
"""Fine enough for a bar that moves and for even work, coarse enough that Spark's cost per task
does not show."""

ROUNDS_MAX = 100
SECONDS_MIN, SECONDS_MAX = 0.1, 600.0
"""Of one measurement; the paper's takes 70 s."""


def reproduce_wildcard(
    *,
    figures: Sequence[int] = (4, 5, 6),
    trials: int = 10,
    seed: int = 1,
    master: str | None = None,
    out: Path | None = None,
) -> None:
    """Run the wildcard paper's simulation; leave a table and a report in a folder."""
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
        run = Run(seed, trials, figures, datetime.now(UTC), versions(spark_version))
        with write_errors(out):
            pq.write_table(rows, folder / TABLE_NAME)
            (folder / REPORT_NAME).write_text(render(run, measured, comparisons), "utf-8")
    terminal.say_text(summary(rows.num_rows, time.monotonic() - started, out, comparisons))


def check_options(figures: Sequence[int], trials: int, seed: int) -> tuple[int, ...]:
    """The figures in order, each once."""
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
    """The sweep as one Spark job; the whole table comes back, a few megabytes at most."""
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
    """Time our broker as the wildcard paper's figure 7 does; leave a table and a report."""
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
            query_cost.points(query_cost.stands_at(measured), swept), rounds, seconds, seed
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
    points: Sequence[query_cost.Point], rounds: int, seconds: float, seed: int
) -> pa.Table:
    """Every point once a round, one after the other: they share the machine."""
    console = terminal.console(stderr=True, highlight=False, soft_wrap=True)
    rows: list[dict[str, object]] = []
    with (
        prepared(seed) as bench,
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
    effort: configuration.Effort = configuration.FULL,
) -> None:
    """Run BlueDove's evaluation under the simulator; leave a table and a report in a folder."""
    shown = chosen(figures)
    if not 1 <= trials <= configuration.TRIALS_MAX:
        raise ConfigError(f"--trials is from 1 to {configuration.TRIALS_MAX}, not {trials:,}.")
    check_seed(seed)
    if master is not None:
        check_master(master)
    out = (out or BLUEDOVE_OUT).absolute()
    started = time.monotonic()
    with result_folder(out, lambda there: is_result(there, BLUEDOVE)) as folder:
        with open_session(master) as spark:
            rows = measure_bluedove(spark, shown, trials, seed, effort)
            spark_version = spark.version
        measured = configuration.Measured(rows)
        comparisons = numbers.compare(measured)
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
    effort: configuration.Effort,
) -> pa.Table:
    """One Spark task for each configuration and trial."""
    console = terminal.console(stderr=True, highlight=False, soft_wrap=True)
    announce(spark, console)
    wanted = [one for figure in figures for one in figure.configurations]
    cells = bluedove_cells.cells(wanted, trials)
    # One task alone could not be told from those of stages around it (pipeline/spark/progress.py).
    count = max(cells.num_rows, 2)
    dealt = bluedove_cells.measure(spark.createDataFrame(cells), count, seed, effort)
    rows = bluedove_cells.in_order(dealt)
    with show_progress(spark, "BlueDove figures", count, console):
        table = rows.toArrow()
    return table.cast(configuration.ROWS).replace_schema_metadata(metadata(BLUEDOVE, seed))


def metadata(experiment: bytes, seed: int) -> dict[bytes, bytes]:
    return {
        EXPERIMENT_KEY: experiment,
        b"dovetail.version": __version__.encode(),
        b"dovetail.seed": str(seed).encode(),
    }


def is_result(folder: Path, experiment: bytes) -> bool:
    """Whether a folder holds what this experiment's command writes, and nothing else."""
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
    """What a run prints at its end, in characters that every terminal has."""
    verdicts = {True: "agrees", False: "DIFFERS", None: ""}
    table = [("", "paper", "ours", "")]
    table += [
        (row.what, row.paper, row.ours.replace("±", "+/-"), verdicts[row.holds])
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
