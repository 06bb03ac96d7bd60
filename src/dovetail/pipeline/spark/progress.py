"""Show the progress of a run: a bar with the time left on a terminal, or plain lines elsewhere.

A thread asks Spark's status tracker a few times a second; the job is not involved. It counts the
tasks of the stage that does the work, and recognizes that stage by its number of tasks. The stages
around it only move rows: they are short, and Spark may skip them. For several jobs in a row it
counts all tasks known so far. Work without Spark reports its own progress (`show_steps`).
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError
from pyspark import StatusTracker
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dovetail.process import terminal

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler

POLL_SECONDS = 0.25
LINE_SECONDS = 5.0
"""Interval of plain lines: short enough to show that the job runs, long enough for a log."""

IDLE_SECONDS = 15.0
"""A cluster that has started no task by then probably has no free worker."""


@dataclass(frozen=True)
class TaskCounts:
    """The numbers of tasks that are done, that run, and in total."""

    done: int
    running: int
    total: int


def count_tasks(tracker: StatusTracker, group: str, total: int | None) -> TaskCounts:
    """Count tasks over all jobs of a group: of stages with `total` tasks, or of all stages."""
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
    stages = (tracker.getStageInfo(stage) for stage in numbers)
    there = [stage for stage in stages if stage is not None]
    working = there if total is None else [one for one in there if one.numTasks == total]
    if total is None:
        total = max(sum(stage.numTasks for stage in working), 1)
    return TaskCounts(
        min(sum(stage.numCompletedTasks for stage in working), total),
        sum(stage.numActiveTasks for stage in working),
        total,
    )


def seconds_left(done: int, total: int, elapsed_seconds: float) -> float | None:
    return elapsed_seconds * (total - done) / done if done else None


@contextlib.contextmanager
def show_progress(
    spark: SparkSession, title: str, tasks: int | None, console: Console | None = None
) -> Iterator[None]:
    """Show the progress of the jobs started inside the block.

    The stage that does the work has this many tasks. None: count all tasks of all jobs.
    """
    console = console or terminal.console(stderr=True)
    if is_remote():
        with _show_server_progress(spark, title, tasks, console):
            yield
        return
    context = spark.sparkContext
    group = f"dovetail-{uuid.uuid4()}"
    context.setJobGroup(group, title)
    tracker = context.statusTracker()
    ended = threading.Event()
    display = _bar if console.is_terminal else _lines
    with display(console, title, tasks) as show:
        thread = threading.Thread(
            target=_watch,
            args=(lambda: count_tasks(tracker, group, tasks), show, ended),
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextlib.contextmanager
def _show_server_progress(
    spark: SparkSession, title: str, tasks: int | None, console: Console
) -> Iterator[None]:
    """Show the progress that a Spark Connect server reports to its client."""
    started = time.monotonic()
    display = _bar if console.is_terminal else _lines
    with display(console, title, tasks) as show:

        def on_progress(*, stages: Iterable[Any] | None, inflight_tasks: int, **_: object) -> None:
            there = [*(stages or ())]
            # The number of partitions of a table is not always known in advance.
            working = [stage for stage in there if stage.num_tasks == tasks] or there
            done = sum(stage.num_completed_tasks for stage in working)
            total = sum(stage.num_tasks for stage in working)
            show(TaskCounts(done, inflight_tasks, total or tasks or 1), time.monotonic() - started)

        handler = cast("ProgressHandler", on_progress)
        spark.registerProgressHandler(handler)
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)


@contextlib.contextmanager
def show_steps(
    title: str, steps: int, console: Console | None = None
) -> Iterator[Callable[[], None]]:
    """Show the progress of work without Spark. Yield a function to call after each step."""
    console = console or terminal.console(stderr=True)
    started = time.monotonic()
    done = 0
    with (_bar if console.is_terminal else _lines)(console, title, steps) as show:

        def step() -> None:
            nonlocal done
            done += 1
            show(TaskCounts(done, 0, steps), time.monotonic() - started)

        yield step


Show = Callable[[TaskCounts, float], None]


def _watch(count: Callable[[], TaskCounts], show: Show, ended: threading.Event) -> None:
    started = time.monotonic()
    # Spark may end before this thread: the main thread reports that.
    with contextlib.suppress(Py4JError, OSError):
        while not ended.wait(POLL_SECONDS):
            show(count(), time.monotonic() - started)


@contextlib.contextmanager
def _bar(console: Console, title: str, tasks: int | None) -> Iterator[Show]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(title, total=tasks, note="")

        def show(tally: TaskCounts, elapsed_seconds: float) -> None:
            note = _note(tally, elapsed_seconds)
            progress.update(bar, completed=tally.done, total=tally.total, note=note)

        yield show


@contextlib.contextmanager
def _lines(console: Console, title: str, _tasks: int | None) -> Iterator[Show]:
    shown_seconds = 0.0

    def show(tally: TaskCounts, elapsed_seconds: float) -> None:
        nonlocal shown_seconds
        if elapsed_seconds - shown_seconds < LINE_SECONDS:
            return
        shown_seconds = elapsed_seconds
        console.out(line(title, tally, elapsed_seconds), highlight=False)

    yield show


def line(title: str, tally: TaskCounts, elapsed_seconds: float) -> str:
    """Return a plain line of progress."""
    left = seconds_left(tally.done, tally.total, elapsed_seconds)
    share = tally.done * 100 // tally.total
    parts = [f"{title}: {share} % ({tally.done} of {tally.total} tasks)"]
    if left is not None:
        parts.append(f"about {left:.0f} s left")
    if note := _note(tally, elapsed_seconds):
        parts.append(note)
    return ", ".join(parts)


def _note(tally: TaskCounts, elapsed_seconds: float) -> str:
    if tally.done or tally.running or elapsed_seconds < IDLE_SECONDS:
        return ""
    return "waiting for the cluster to give this job a worker"
