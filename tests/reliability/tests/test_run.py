"""A short run with real brokers, as a user starts it: everything but its length is real.

The seed below is one whose schedule has a fault of almost every kind within the first seconds.
"""

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from reliability import history, schedule
from reliability.builder import build
from reliability.checker import check, check_record
from reliability.history import Event
from reliability.record import Record
from reliability.tests.mutations import MUTATIONS, Mutation
from reliability.verdict import Verdict
from support.processes.checkout import ROOT

SEED = 16335
SECONDS = 12
END_SECONDS_MAX = 280
"""The time for a run to end, on a busy machine."""


def start(folder: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "reliability", "--folder", str(folder), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_behind(folder: Path) -> list[str]:
    """Return the processes and mounts that remain after a run."""
    found = [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command and str(os.getpid()) != process.parent.name:
            found.append(command)
    return found


@dataclass(frozen=True)
class Finished:
    folder: Path
    code: int
    printed: str
    logged: str
    events: list[Event]
    record: Record
    verdicts: dict[str, Verdict]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("soak") / "run"
    process = start(folder, "--seed", str(SEED), "--minutes", str(SECONDS / 60))
    try:
        printed, logged = process.communicate(timeout=END_SECONDS_MAX)
    finally:
        process.kill()
    events = [*history.read(folder / "history.jsonl")]
    record = build(events)
    verdicts = {one.promise.name: one for one in check_record(record)}
    return Finished(folder, process.returncode, printed, logged, events, record, verdicts)


def test_every_promise_is_kept(finished: Finished) -> None:
    assert finished.code == 0, finished.printed + finished.logged


def test_every_promise_is_tested(finished: Finished) -> None:
    assert [name for name, verdict in finished.verdicts.items() if not verdict.judged] == []
    assert finished.verdicts["delivered"].judged > 1_000


def test_nobody_is_left_out(finished: Finished) -> None:
    """Each persistent subscriber had messages to get."""
    judged = finished.verdicts["delivered"].judged_by_client
    expected = {
        client.name
        for client in finished.record.clients.values()
        if client.is_persistent
        and any(one.qos and not one.group for one in client.subscriptions)
        and not client.name.startswith("watcher")
    }
    assert len(expected) > 10
    assert expected <= judged.keys()


def test_faults_come_as_scheduled(finished: Finished) -> None:
    record = finished.record
    assert record.run is not None
    planned = {one.kind for one in schedule.plan(SEED, SECONDS, record.run.nodes)}
    happened = {one.fault for one in record.disturbances}
    assert all(one.ended_at < record.until for one in record.disturbances)
    if "namespaces" in record.run.network:
        # On a busy machine a broker may be starting when its next fault is due, which is skipped.
        assert happened <= planned
        assert len(happened) >= len(planned) - 2
        return
    assert happened < {*schedule.KINDS}
    assert "NOT TESTED HERE" in finished.logged
    (reason,) = re.findall(r"NO NETWORK NAMESPACES HERE: (.+)\.$", finished.logged, re.MULTILINE)
    pytest.skip(reason)


def test_a_report_and_logs_are_left_and_nothing_else(finished: Finished) -> None:
    names = {path.name for path in finished.folder.iterdir()}
    assert {"history.jsonl", "report.html", "one", "two", "three"} <= names
    assert (
        "All 14 promises that were tested were kept."
        in (finished.folder / "report.html").read_text()
    )
    assert f"seed {SEED}" in finished.logged
    assert left_behind(finished.folder) == []


def test_the_history_can_be_checked_again(finished: Finished) -> None:
    again = start(finished.folder, "--check", str(finished.folder / "history.jsonl"))
    printed, _ = again.communicate(timeout=END_SECONDS_MAX)
    assert again.returncode == 0
    assert printed.splitlines()[0] in finished.printed


@pytest.mark.parametrize(("promise", "mutate"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutation_of_a_real_history_is_noticed(
    finished: Finished, promise: str, mutate: Mutation
) -> None:
    events = mutate(finished.events, Random(SEED))
    assert events is not None, "the history has nothing to falsify"
    assert promise in {one.promise.name for one in check(events) if not one.holds}


def test_an_interrupt_heals_checks_and_cleans_up(tmp_path: Path) -> None:
    """Relays replace namespaces, as on a machine without them."""
    folder = tmp_path / "run"
    process = start(folder, "--seed", "1", "--network", "relays", "--faults", "cut,disk")
    try:
        assert process.stderr is not None
        logged = ""
        while " faults (now" not in logged:
            line = process.stderr.readline()
            assert line, logged
            logged += line
        process.send_signal(signal.SIGINT)
        printed, rest = process.communicate(timeout=END_SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 0, printed + logged + rest
    assert "NOT TESTED HERE: disk" in logged
    assert "The run ends early" in rest
    assert (folder / "report.html").exists()
    assert left_behind(folder) == []
