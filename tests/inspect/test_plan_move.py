"""`dovetail plan --apply` against scripted reports."""

import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from dovetail.api.reports import (
    ClusterReport,
    MatcherReport,
    NodeEntry,
    PartReport,
    PlanReport,
    PlanRequest,
    SegmentReport,
    SpacePlaces,
)
from dovetail.errors import DovetailError
from dovetail.inspect import plan_move
from support.brokers.web_views import MATCHER

TOLD = PlanReport(7, {"a": {"s": (0.0, 9.0)}, "b": {"s": (5.0, 0.0)}}, ())
ORDER = PlanRequest([SpacePlaces("s", "s#1", [[0.0, 9.0], [5.0, 0.0]])])
THERE = {
    "a": (SegmentReport(None, 5.0), SegmentReport(9.0, None)),
    "b": (SegmentReport(5.0, None), SegmentReport(None, 9.0)),
}


def entry(name: str, *segments: SegmentReport, is_moving: bool = False) -> NodeEntry:
    parts = tuple(
        PartReport("s", dimension, segment, 0, 0, 0.0, 0.0)
        for dimension, segment in zip("xy", segments, strict=True)
    )
    matcher = MatcherReport("serving", 0, 0, 0, 0, 0.0, parts, 7, is_moving)
    return NodeEntry(name, "", "alive", replace(MATCHER, name=name, matcher=matcher), "matcher")


def seen(*entries: NodeEntry) -> ClusterReport:
    return ClusterReport("dovetail", "one", entries)


def watch(monkeypatch: pytest.MonkeyPatch, *looks: ClusterReport, told: PlanReport = TOLD) -> None:
    left: Iterator[ClusterReport] = iter(looks)
    monkeypatch.setattr(plan_move, "post", lambda *_: told)
    monkeypatch.setattr(plan_move, "fetch", lambda *_: next(left))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    plan_move.apply("url", ORDER, seconds_max=0.0 if len(looks) == 1 else 100.0)


def test_until_all_are_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_its_way = entry("a", SegmentReport(None, 3.0), SegmentReport(9.0, None), is_moving=True)
    is_there = [entry(name, *own) for name, own in THERE.items()]
    watch(
        monkeypatch,
        seen(on_its_way, replace(is_there[1], report=None)),
        seen(on_its_way, is_there[1]),
        seen(*is_there),
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Plan 7 is given to a, b.", "  0 of 2 are there", "  1 of 2 are there"]
    assert lines[3].startswith("All 2 matchers are in their places after 0.")


def test_who_is_not_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = entry("a", SegmentReport(None, 3.0), SegmentReport(9.0, None))
    with pytest.raises(DovetailError) as caught:
        watch(monkeypatch, seen(elsewhere), told=replace(TOLD, silent=("b",)))
    assert caught.value.message == (
        "after 0 s a is elsewhere, and does not move; b is not there any more."
    )
    assert "No answer yet of b." in capsys.readouterr().out
