"""The supervisor starts, watches and stops processes; scripted ones stand in for nodes."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dovetail.errors import DovetailError
from dovetail.fleet.child import ProcessSpec
from dovetail.fleet.supervisor import MatcherPool, supervise
from dovetail.matcher.autoscaler import MatcherProcess, ProcessState, ScalingDecision
from support.processes.broker_process import wait_until
from support.processes.checkout import ROOT

UP: dict[str, object] = {"up": []}
SERVES: dict[str, object] = {"load": ["serving", 0.5]}


class SupervisorHarness:
    """A folder where processes wait for each other, and what was announced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.announced: list[list[str]] = []

    def spec(self, name: str, *steps: object) -> ProcessSpec:
        told = {"folder": str(self.folder), "name": name, "steps": steps}
        return ProcessSpec(name, "support.processes.scripted_member", json.dumps(told).encode())

    def has(self, pattern: str, count: int = 1) -> bool:
        return len([*self.folder.glob(pattern)]) >= count

    def until(self, pattern: str, count: int = 1) -> None:
        wait_until(lambda: self.has(pattern, count), pattern)

    def go(self, name: str) -> None:
        (self.folder / name).touch()

    def lives(self, name: str) -> int:
        return len([*self.folder.glob(f"{name}.*.life")])

    def run(
        self,
        play: Callable[[], None],
        *specs: ProcessSpec,
        pool: MatcherPool | None = None,
        after: Sequence[ProcessSpec] = (),
    ) -> None:
        """`play` in a thread, while they are supervised here until it ends."""

        def perform() -> None:
            try:
                self.until("first.*.life")  # signals are heeded from now on
                play()
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        def announce(said: dict[str, object]) -> None:
            self.announced.append([*said])

        # Should they not be supervised any more, the signal ends nothing else.
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            with ThreadPoolExecutor(1) as threads:
                played = threads.submit(perform)
                supervise([self.spec("first", UP), *specs], announce, pool, after)
            played.result()
        finally:
            signal.signal(signal.SIGTERM, before)


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SupervisorHarness:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    return SupervisorHarness(tmp_path)


def test_who_is_not_up_yet_reloads_when_it_is(harness: SupervisorHarness) -> None:
    def play() -> None:
        harness.until("late.*.life")
        os.kill(os.getpid(), signal.SIGHUP)
        harness.go("begin")
        harness.until("late.hup")

    harness.run(play, harness.spec("late", "begin", UP))
    assert harness.announced in ([["first", "late"]], [])
    assert harness.has("late.term")


def test_who_is_drained_is_not_started_again(
    harness: SupervisorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def play() -> None:
        wait_until(lambda: "one: is drained, and stays away" in caplog.text, "it ends")
        wait_until(lambda: harness.announced, "all are up")

    drained = harness.spec("one", UP, {"drained": True}, {"error": "and ends"})
    harness.run(play, drained)
    assert harness.lives("one") == 1
    assert harness.announced == [["first", "one"]]


def test_who_needs_the_others_comes_after_them_and_goes_before(
    harness: SupervisorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def play() -> None:
        harness.until("late.*.life")
        assert not harness.has("needy.*.life")
        harness.go("begin")
        harness.until("needy.*.life")
        harness.until("failing.*.life", 2)

    needy, failing = harness.spec("needy", UP), harness.spec("failing", {"error": "no room"})
    harness.run(play, harness.spec("late", "begin", UP), after=[needy, failing])
    assert harness.announced == [["first", "late"]]
    assert "failing: cannot start, and tries again in 0.5 s: no room" in caplog.text
    ended = {
        name: (harness.folder / f"{name}.term").stat().st_mtime_ns for name in ("needy", "late")
    }
    assert ended["needy"] < ended["late"]


class Decisions:
    """Starts one process, has it leave once it serves, and records its states."""

    def __init__(self) -> None:
        self.seen: list[ProcessState] = []
        self.is_over = threading.Event()

    def decide(self, places: Sequence[MatcherProcess], _now: float) -> ScalingDecision | None:
        base, place = places
        assert (base.name, place.name) == ("base", "one")
        if not self.seen or place.state is not self.seen[-1]:
            self.seen.append(place.state)
        if self.seen == [ProcessState.AWAY]:
            return ScalingDecision("one", True, "it is needed")
        if self.seen[-1] is ProcessState.SERVING:
            assert place.busy_share == 0.5
            return ScalingDecision("one", False, "it is not")
        if self.seen[-1] is ProcessState.AWAY:
            self.is_over.set()
        return None


def test_one_of_a_pool_comes_and_goes(
    harness: SupervisorHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dovetail.fleet.supervisor.MATCHERS_LOOK_SECONDS", 0.01)
    caplog.set_level("INFO")
    decisions = Decisions()

    def play() -> None:
        harness.until("one.*.life")
        harness.go("serve")
        wait_until(decisions.is_over.is_set, "it has left")

    specs = (harness.spec("base", UP), harness.spec("one", UP, "serve", SERVES))
    harness.run(play, pool=MatcherPool(specs, 1, decisions.decide))
    assert harness.announced == [["first", "base"]]
    assert decisions.seen == [
        ProcessState.AWAY,
        ProcessState.COMING,
        ProcessState.SERVING,
        ProcessState.LEAVING,
        ProcessState.AWAY,
    ]
    assert harness.lives("one") == 1
    assert [record.getMessage() for record in caplog.records if "one: " in record.message] == [
        "one: is started: it is needed",
        "one: hands over and leaves: it is not",
        "one: has left",
    ]


def test_one_of_a_pool_that_cannot_start_is_tried_again(
    harness: SupervisorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def play() -> None:
        wait_until(lambda: harness.lives("one") > 1, "it is tried again")

    specs = (harness.spec("base", UP), harness.spec("one", {"error": "not now"}))
    harness.run(play, pool=MatcherPool(specs, 1, Decisions().decide))
    assert "one: cannot start, and tries again in 0.5 s: not now" in caplog.text


def test_one_of_the_first_that_cannot_start_ends_all(harness: SupervisorHarness) -> None:
    with pytest.raises(DovetailError, match="not now"):
        supervise(
            [harness.spec("a", UP), harness.spec("b", {"error": "not now"})], lambda _said: None
        )
    assert not harness.has("b.term")


def test_the_system_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of descriptors or memory, or because Python is being replaced."""
    monkeypatch.setattr(sys, "executable", "/there/is/no/python")
    with pytest.raises(DovetailError, match="the system starts no process for it: No such file"):
        supervise([ProcessSpec("first", "support.processes.scripted_member", b"")], print)


def test_the_system_starts_no_process_for_a_while(
    harness: SupervisorHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def play() -> None:
        harness.until("failing.*.life")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/there/is/no/python")
            harness.go("fail")
            wait_until(lambda: "starts no process for it" in caplog.text, "a failure")
        harness.until("failing.*.life", 2)

    harness.run(play, harness.spec("failing", UP, "fail", {"error": "not now"}))
    assert "failing: cannot start, and tries again in 1 s: the system starts" in caplog.text
