"""Counting tasks, and the plain lines for logs."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from dovetail.pipeline.spark import progress
from dovetail.pipeline.spark.progress import (
    TaskCounts,
    count_tasks,
    line,
    seconds_left,
    show_progress,
    show_steps,
)
from support.processes.broker_process import WAIT_SECONDS


class FakeTracker:
    """Two jobs: a short stage before and after the one that works, which the second job skips."""

    def getJobIdsForGroup(self, group: str) -> list[int]:  # noqa: N802
        return [0, 1] if group == "ours" else []

    def getJobInfo(self, job: int) -> SimpleNamespace | None:  # noqa: N802
        return SimpleNamespace(stageIds=[[0, 1], [2, 3, 9]][job])

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:  # noqa: N802
        counts = {0: (2, 2, 0), 1: (32, 20, 2), 2: (32, 0, 0), 3: (1, 0, 0)}.get(stage)
        if counts is None:
            return None
        total, done, running = counts
        return SimpleNamespace(numTasks=total, numCompletedTasks=done, numActiveTasks=running)


def test_counts_the_stage_that_works() -> None:
    tracker = FakeTracker()
    assert count_tasks(tracker, "ours", 32) == TaskCounts(20, 2, 32)  # type: ignore[arg-type]
    assert count_tasks(tracker, "another", 32) == TaskCounts(0, 0, 32)  # type: ignore[arg-type]


def test_time_left() -> None:
    assert seconds_left(0, 10, 5.0) is None
    assert seconds_left(5, 20, 10.0) == 30.0


def test_line() -> None:
    assert line("Work", TaskCounts(8, 2, 32), 10.0) == "Work: 25 % (8 of 32 tasks), about 30 s left"
    assert line("Work", TaskCounts(0, 0, 32), 1.0) == "Work: 0 % (0 of 32 tasks)"
    assert line("Work", TaskCounts(0, 0, 32), 60.0).endswith(
        "waiting for the cluster to give this job a worker"
    )


class Output(io.StringIO):
    """Makes a file when the first line of tasks is written."""

    def __init__(self, shown: Path) -> None:
        super().__init__()
        self._shown = shown

    def write(self, text: str) -> int:
        if "of 8 tasks" in text:
            self._shown.touch()
        return super().write(text)


def test_a_log_gets_lines_and_no_escapes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown_file = tmp_path / "shown"
    output = Output(shown_file)

    def work_until_shown(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        import time

        for batch in batches:
            for _ in range(WAIT_SECONDS * 100):
                if shown_file.exists():
                    break
                time.sleep(0.01)
            yield batch

    console = Console(file=output, force_terminal=False)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with show_progress(spark, "Counting", 8, console):
        assert spark.range(80).repartition(8).mapInArrow(work_until_shown, "id long").count() == 80
    shown = output.getvalue().splitlines()
    assert shown
    assert all(text.startswith("Counting: ") and "\x1b" not in text for text in shown)
    assert any("of 8 tasks" in text for text in shown)


def test_steps_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with show_steps("Timing", 4, Console(file=output, force_terminal=False)) as step:
        for _ in range(4):
            step()
    shown = output.getvalue().splitlines()
    assert [text.partition(",")[0] for text in shown] == [
        f"Timing: {25 * done} % ({done} of 4 tasks)" for done in range(1, 5)
    ]
