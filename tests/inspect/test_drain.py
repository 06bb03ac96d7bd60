"""`dovetail drain` against an HTTP server with scripted answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import msgspec
import pytest

from dovetail.api.reports import ClusterReport, DrainReport, MatcherReport, NodeEntry, NodeStatus
from dovetail.errors import DovetailError
from dovetail.inspect import drain
from support.brokers.web_views import MATCHER, cluster
from support.http_answers import Answers, answering
from support.processes.ports import ReservedPort

OTHER = NodeEntry("other", "", "alive", MATCHER, "matcher")


def entry(phase: str, state: NodeStatus = "alive", uptime_seconds: float = 10.0) -> NodeEntry:
    report = msgspec.structs.replace(
        MATCHER,
        uptime_seconds=uptime_seconds,
        matcher=msgspec.structs.replace(cast("MatcherReport", MATCHER.matcher), phase=phase),
    )
    return NodeEntry("m", "", state, report, "matcher")


def seen(*entries: NodeEntry) -> ClusterReport:
    return ClusterReport("dovetail", "one", (*cluster().nodes, *entries))


@contextmanager
def broker(told: object, *looks: ClusterReport, status: int = 202) -> Iterator[str]:
    """Answers a drain with the first, and then each look with the next; at the end with nothing."""
    left = iter(looks)

    class Handler(Answers):
        def post(self) -> None:
            order = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert (self.path, order) == ("/drain", {"name": "m"})
            assert self.headers["content-type"] == "application/json"
            asked.append(self.headers.get("authorization"))
            self.say(status, msgspec.json.encode(told))

        def get(self) -> None:
            look = next(left, None)
            self.say(500 if look is None else 200, msgspec.json.encode(look))

    asked.clear()
    with answering(Handler) as place:
        yield place


asked: list[str | None] = []
LEAVES = DrainReport("m", "leaves", ("other",))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_LOOK_SECONDS", 0.0)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_it_is_watched_until_it_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    looks = [seen(entry(phase), OTHER) for phase in ("leaving", "leaving", "away", "away")]
    with broker(LEAVES, *looks, seen(entry("away", "left"), OTHER)) as place:
        drain.drain(place, "m")
    *said, last = lines(capsys)
    assert said == [
        "m leaves, once others have what it answers for: other.",
        "  leaving: it answers until others have what it holds (11 boxes)",
        "  away: others are asked, and it answers what is still on its way",
    ]
    assert last.startswith("m has left after 0.")
    assert last.endswith(" s. 1 matcher is there: other.")
    assert asked == [None]


def test_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    with broker(DrainReport("m", "leaves", ()), seen()) as place:
        drain.drain(place, "m", ("anna", "secret"))
    first, last = lines(capsys)
    assert first == "m leaves. It is the last matcher."
    assert last.endswith("No matcher is there now: brokers look through where-clauses themselves.")
    assert asked == ["Basic YW5uYTpzZWNyZXQ="]


def test_one_that_dies_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    silent = NodeEntry("m", "", "suspect", None, "matcher")
    looks = (seen(silent), seen(NodeEntry("m", "", "dead", None, "matcher"), OTHER, entry("x")))
    with broker(LEAVES, *looks) as place:
        drain.drain(place, "m")
    said = lines(capsys)
    assert said[1] == "  it does not answer"
    assert said[2].startswith("m has ended before it had handed over; nothing is lost by that. 2 ")


def test_one_that_comes_back() -> None:
    again = entry("joining", uptime_seconds=1.0)
    with (
        broker(LEAVES, seen(entry("leaving")), seen(again)) as place,
        pytest.raises(DovetailError, match="and was started again"),
    ):
        drain.drain(place, "m")


def test_one_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "DRAIN_SECONDS_MAX", 0.0)
    with (
        broker(LEAVES, seen(entry("serving"))) as place,
        pytest.raises(DovetailError, match="is still there after 0 s: serving"),
    ):
        drain.drain(place, "m")


def test_it_cannot_be_watched() -> None:
    with (
        broker(LEAVES) as place,
        pytest.raises(DovetailError, match="m leaves, but cannot be watched any more"),
    ):
        drain.drain(place, "m")


def test_what_the_broker_says_against_it() -> None:
    with (
        broker({"error": "m has left already"}, status=409) as place,
        pytest.raises(DovetailError, match=r"^m has left already\.$"),
    ):
        drain.drain(place, "m")
    with (
        broker({"error": "a name is needed"}, status=401) as place,
        pytest.raises(DovetailError, match=r"^a name is needed\.\n--user NAME says who"),
    ):
        drain.drain(place, "m")
    with (
        broker({"error": "Not Found"}, status=404) as place,
        pytest.raises(DovetailError, match="has no /drain"),
    ):
        drain.drain(place, "m")


def test_nobody_is_there() -> None:
    with ReservedPort() as nobody, pytest.raises(DovetailError, match="no node answers at"):
        drain.drain(f"127.0.0.1:{nobody.port}", "m")
