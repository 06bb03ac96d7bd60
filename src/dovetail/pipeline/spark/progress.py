"""How far a run is: a bar with the time left, or plain lines when nobody watches a terminal.

A thread asks Spark's status tracker a few times a second; the job itself knows nothing of it. What
is counted is the tasks of the stage that does the work, known by their number. The stages around it
only move rows: they are short, and Spark may skip them. Of several jobs in a row all tasks are
counted that are known so far. Work that needs no Spark says itself how far it is (`show_steps`).
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
"""Between plain lines: often enough to see life, seldom enough for a log."""

IDLE_SECONDS = 15.0
"""A cluster that has started no task by then has probably no room for any."""


@dataclass(frozen=True)
class Tally:
    """Tasks that have ended, that are running, and that there are."""

    done: int
    running: int
    total: int


def count_tasks(tracker: StatusTracker, group: str, total: int | None) -> Tally:
    """Over the stages with this number of tasks, or all, of every job of the group."""
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
    stages = (tracker.getStageInfo(stage) for stage in numbers)
    there = [stage for stage in stages if stage is not None]
    working = there if total is None else [one for one in there if one.numTasks == total]
    if total is None:
        total = max(sum(stage.numTasks for stage in working), 1)
    return Tally(
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
    """Show how the jobs started inside the block get on; the working stage has so many tasks.

    None: there are several jobs, and all of their tasks count.
    """
    console = console or terminal.console(stderr=True)
    if is_remote():
        with _told_by_server(spark, title, tasks, console):
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
def _told_by_server(
    spark: SparkSession, title: str, tasks: int | None, console: Console
) -> Iterator[None]:
    """A Spark Connect server says by itself how far it is, and the client hands it on."""
    started = time.monotonic()
    display = _bar if console.is_terminal else _lines
    with display(console, title, tasks) as show:

        def told(*, stages: Iterable[Any] | None, inflight_tasks: int, **_: object) -> None:
            there = [*(stages or ())]
            # In how many parts a table comes is not always known before.
            working = [stage for stage in there if stage.num_tasks == tasks] or there
            done = sum(stage.num_completed_tasks for stage in working)
            total = sum(stage.num_tasks for stage in working)
            show(Tally(done, inflight_tasks, total or tasks or 1), time.monotonic() - started)

        handler = cast("ProgressHandler", told)
        spark.registerProgressHandler(handler)
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)


@contextlib.contextmanager
def show_steps(
    title: str, steps: int, console: Console | None = None
) -> Iterator[Callable[[], None]]:
    """For work of our own: the block calls what it is given after each step."""
    console = console or terminal.console(stderr=True)
    started = time.monotonic()
    done = 0
    with (_bar if console.is_terminal else _lines)(console, title, steps) as show:

        def step() -> None:
            nonlocal done
            done += 1
            show(Tally(done, 0, steps), time.monotonic() - started)

        yield step


Show = Callable[[Tally, float], None]


def _watch(count: Callable[[], Tally], show: Show, ended: threading.Event) -> None:
    started = time.monotonic()
    # Spark may be gone before this thread is: that is for the main thread to report.
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

        def show(tally: Tally, elapsed_seconds: float) -> None:
            note = _note(tally, elapsed_seconds)
            progress.update(bar, completed=tally.done, total=tally.total, note=note)

        yield show


@contextlib.contextmanager
def _lines(console: Console, title: str, _tasks: int | None) -> Iterator[Show]:
    shown_seconds = 0.0

    def show(tally: Tally, elapsed_seconds: float) -> None:
        nonlocal shown_seconds
        if elapsed_seconds - shown_seconds < LINE_SECONDS:
            return
        shown_seconds = elapsed_seconds
        console.out(line(title, tally, elapsed_seconds), highlight=False)

    yield show


def line(title: str, tally: Tally, elapsed_seconds: float) -> str:
    """One plain line."""
    left = seconds_left(tally.done, tally.total, elapsed_seconds)
    share = tally.done * 100 // tally.total
    parts = [f"{title}: {share} % ({tally.done} of {tally.total} tasks)"]
    if left is not None:
        parts.append(f"about {left:.0f} s left")
    if note := _note(tally, elapsed_seconds):
        parts.append(note)
    return ", ".join(parts)


def _note(tally: Tally, elapsed_seconds: float) -> str:
    if tally.done or tally.running or elapsed_seconds < IDLE_SECONDS:
        return ""
    return "waiting for the cluster to give this job a worker"
