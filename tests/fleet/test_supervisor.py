"""Processes that are started, watched and stopped, with small ones in the place of nodes."""

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
from dovetail.fleet.child import Part
from dovetail.fleet.supervisor import Pool, supervise
from dovetail.matcher.autoscaler import Change, Place, Standing
from support.processes.broker_process import wait_until
from support.processes.checkout import ROOT

UP: dict[str, object] = {"up": []}
SERVES: dict[str, object] = {"load": ["serving", 0.5]}


class Stage:
    """A folder where parts wait for each other, and what was announced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.announced: list[list[str]] = []

    def part(self, name: str, *steps: object) -> Part:
        told = {"folder": str(self.folder), "name": name, "steps": steps}
        return Part(name, "support.processes.scripted_member", json.dumps(told).encode())

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
        *parts: Part,
        pool: Pool | None = None,
        after: Sequence[Part] = (),
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
                supervise([self.part("first", UP), *parts], announce, pool, after)
            played.result()
        finally:
            signal.signal(signal.SIGTERM, before)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    return Stage(tmp_path)


def test_who_is_not_up_yet_reloads_when_it_is(stage: Stage) -> None:
    def play() -> None:
        stage.until("late.*.life")
        os.kill(os.getpid(), signal.SIGHUP)
        stage.go("begin")
        stage.until("late.hup")

    stage.run(play, stage.part("late", "begin", UP))
    assert stage.announced in ([["first", "late"]], [])
    assert stage.has("late.term")


def test_who_is_drained_is_not_started_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def play() -> None:
        wait_until(lambda: "one: is drained, and stays away" in caplog.text, "it ends")

    drained = stage.part("one", UP, {"drained": True}, {"error": "and ends"})
    stage.run(play, drained)
    assert stage.lives("one") == 1
    assert stage.announced == [["first", "one"]]


def test_who_needs_the_others_comes_after_them_and_goes_before(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def play() -> None:
        stage.until("late.*.life")
        assert not stage.has("needy.*.life")
        stage.go("begin")
        stage.until("needy.*.life")
        stage.until("failing.*.life", 2)

    needy, failing = stage.part("needy", UP), stage.part("failing", {"error": "no room"})
    stage.run(play, stage.part("late", "begin", UP), after=[needy, failing])
    assert stage.announced == [["first", "late"]]
    assert "failing: cannot start, and tries again in 0.5 s: no room" in caplog.text
    ended = {name: (stage.folder / f"{name}.term").stat().st_mtime_ns for name in ("needy", "late")}
    assert ended["needy"] < ended["late"]


class Decisions:
    """One is started, and leaves when it serves; what was seen of it on the way."""

    def __init__(self) -> None:
        self.seen: list[Standing] = []
        self.is_over = threading.Event()

    def decide(self, places: Sequence[Place], _now: float) -> Change | None:
        base, place = places
        assert (base.name, place.name) == ("base", "one")
        if not self.seen or place.standing is not self.seen[-1]:
            self.seen.append(place.standing)
        if self.seen == [Standing.AWAY]:
            return Change("one", True, "it is needed")
        if self.seen[-1] is Standing.SERVING:
            assert place.busy_share == 0.5
            return Change("one", False, "it is not")
        if self.seen[-1] is Standing.AWAY:
            self.is_over.set()
        return None


def test_one_of_a_pool_comes_and_goes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dovetail.fleet.supervisor.MATCHERS_LOOK_SECONDS", 0.01)
    caplog.set_level("INFO")
    decisions = Decisions()

    def play() -> None:
        stage.until("one.*.life")
        stage.go("serve")
        wait_until(decisions.is_over.is_set, "it has left")

    parts = (stage.part("base", UP), stage.part("one", UP, "serve", SERVES))
    stage.run(play, pool=Pool(parts, 1, decisions.decide))
    assert stage.announced == [["first", "base"]]
    assert decisions.seen == [
        Standing.AWAY,
        Standing.COMING,
        Standing.SERVING,
        Standing.LEAVING,
        Standing.AWAY,
    ]
    assert stage.lives("one") == 1
    assert [record.getMessage() for record in caplog.records if "one: " in record.message] == [
        "one: is started: it is needed",
        "one: hands over and leaves: it is not",
        "one: has left",
    ]


def test_one_of_a_pool_that_cannot_start_is_tried_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def play() -> None:
        wait_until(lambda: stage.lives("one") > 1, "it is tried again")

    parts = (stage.part("base", UP), stage.part("one", {"error": "not now"}))
    stage.run(play, pool=Pool(parts, 1, Decisions().decide))
    assert "one: cannot start, and tries again in 0.5 s: not now" in caplog.text


def test_one_of_the_first_that_cannot_start_ends_all(stage: Stage) -> None:
    with pytest.raises(DovetailError, match="not now"):
        supervise([stage.part("a", UP), stage.part("b", {"error": "not now"})], lambda _said: None)
    assert not stage.has("b.term")


def test_the_system_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of descriptors or memory, or because Python is being replaced."""
    monkeypatch.setattr(sys, "executable", "/there/is/no/python")
    with pytest.raises(DovetailError, match="the system starts no process for it: No such file"):
        supervise([Part("first", "support.processes.scripted_member", b"")], print)


def test_the_system_starts_no_process_for_a_while(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def play() -> None:
        stage.until("failing.*.life")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/there/is/no/python")
            stage.go("fail")
            wait_until(lambda: "starts no process for it" in caplog.text, "a failure")
        stage.until("failing.*.life", 2)

    stage.run(play, stage.part("failing", UP, "fail", {"error": "not now"}))
    assert "failing: cannot start, and tries again in 1 s: the system starts" in caplog.text
