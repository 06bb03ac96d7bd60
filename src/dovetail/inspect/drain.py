"""Drains a matcher through any broker, and watches it until it has left.

Ctrl-C ends only the watching: the matcher leaves all the same.
"""

import sys
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext

from dovetail.api.http_client import Login, fetch, post
from dovetail.api.reports import ClusterReport, DrainReport, DrainRequest, NodeEntry
from dovetail.errors import DovetailError
from dovetail.inspect.limits import DRAIN_SECONDS_MAX
from dovetail.process.terminal import console, moving_line, say

_LOOK_SECONDS = 0.2
_THERE = ("alive", "suspect")


def drain(url: str, name: str, login: Login | None = None) -> None:
    began_at = time.monotonic()
    report = post(url, "/drain", DrainRequest(name), DrainReport, login)
    say(first_words(report))
    with _shown(f"{name} leaves") as shown:
        last = _watch(url, name, began_at, shown)
    say(last_words(last, name, time.monotonic() - began_at))


# Words --------------------------------------------------------------------------------------------


def first_words(report: DrainReport) -> str:
    if not report.others:
        return f"{report.name} leaves. It is the last matcher."
    return (
        f"{report.name} leaves, once others have what it answers for: {', '.join(report.others)}."
    )


def phase_words(entry: NodeEntry) -> str:
    """Say how far the matcher is with leaving."""
    matcher = None if entry.report is None else entry.report.matcher
    if matcher is None:
        return "it does not answer"
    if matcher.phase == "leaving":
        return f"leaving: it answers until others have what it holds ({matcher.boxes:,} boxes)"
    if matcher.phase == "away":
        return "away: others are asked, and it answers what is still on its way"
    return matcher.phase


def last_words(last: ClusterReport, name: str, seconds: float) -> str:
    words = f"{name} has left after {seconds:.1f} s."
    entry = _entry(last, name)
    if entry is not None and entry.state == "dead":
        words = f"{name} has ended before it had handed over; nothing is lost by that."
    others = [one.name for one in last.nodes if one.role == "matcher" and one.state in _THERE]
    if not others:
        return f"{words} No matcher is there now: brokers look through where-clauses themselves."
    return f"{words} {_counted(others)} there: {', '.join(others)}."


def _counted(others: Collection[str]) -> str:
    return "1 matcher is" if len(others) == 1 else f"{len(others)} matchers are"


# Watching -----------------------------------------------------------------------------------------


def _watch(
    url: str, name: str, began_at: float, shown: Callable[[str], None] | None
) -> ClusterReport:
    """Watch a matcher until it is gone. Return the last report of the cluster."""
    phase = None
    uptime_seconds = 0.0
    while True:
        report = _look(url, name)
        entry = _entry(report, name)
        if entry is None or entry.state not in _THERE:
            return report
        if entry.report is not None:
            if entry.report.uptime_seconds < uptime_seconds:
                raise DovetailError(
                    f"{name} has ended before it had handed over, and was started again.",
                    hint="Nothing is lost by that. To have it leave, drain it once more.",
                )
            uptime_seconds = entry.report.uptime_seconds
        words = phase_words(entry)
        passed = time.monotonic() - began_at
        if passed > DRAIN_SECONDS_MAX:
            raise DovetailError(
                f"{name} was told to leave, and is still there after {passed:.0f} s: {words}.",
                hint="If it hangs, end its process: nothing is lost by that.",
            )
        if shown is not None:
            shown(f"{words} ({passed:.0f} s)")
        elif phase != (phase := words.partition(":")[0]):
            say(f"  {words}")
        time.sleep(_LOOK_SECONDS)


def _look(url: str, name: str) -> ClusterReport:
    try:
        return fetch(url, "/cluster", ClusterReport)
    except DovetailError as error:
        raise DovetailError(
            f"{name} leaves, but cannot be watched any more: {error.message}",
            hint="`dovetail status` at another broker shows it.",
        ) from None


def _entry(report: ClusterReport, name: str) -> NodeEntry | None:
    return next((one for one in report.nodes if one.name == name), None)


def _shown(words: str) -> AbstractContextManager[Callable[[str], None] | None]:
    """Return a context that shows a line of progress, if standard output is a terminal."""
    return moving_line(console(), words) if sys.stdout.isatty() else nullcontext()
