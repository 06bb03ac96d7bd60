"""Applies a plan through any broker, and watches matchers until all are in their places.

Ctrl-C ends only the watching: matchers move all the same. `dovetail status` shows where they are:
the segments of each.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from dovetail.api.http_client import Login, fetch, post
from dovetail.api.reports import (
    ClusterReport,
    MatcherReport,
    PlanReport,
    PlanRequest,
    SegmentReport,
)
from dovetail.attributes.partition import Segments
from dovetail.errors import DovetailError
from dovetail.inspect.limits import PLAN_SECONDS_MAX
from dovetail.process.terminal import console, moving_line, say

_LOOK_SECONDS = 0.2

Segment = tuple[str, int]
"""A space, and the index of a dimension among its searchable ones."""


def apply(
    url: str, order: PlanRequest, login: Login | None = None, seconds_max: float = PLAN_SECONDS_MAX
) -> None:
    began_at = time.monotonic()
    answer = post(url, "/plan", order, PlanReport, login)
    say(first_words(answer))
    planned = planned_segments(answer)
    before: tuple[str, ...] | None = None
    with _shown("matchers move") as shown:
        while missing := not_there(_look(url), planned):
            passed = time.monotonic() - began_at
            if passed > seconds_max:
                raise DovetailError(
                    f"after {passed:.0f} s {words_of(missing)}.",
                    hint="Nothing is lost by that: each answers where it is. `dovetail status` "
                    "shows them; the same plan may be given again.",
                )
            words = f"{len(answer.places) - len(missing)} of {len(answer.places)} are there"
            if shown is not None:
                shown(f"{words} ({passed:.0f} s)")
            elif before != (before := tuple(missing)):
                say(f"  {words}")
            time.sleep(_LOOK_SECONDS)
    passed = time.monotonic() - began_at
    say(f"All {len(answer.places)} matchers are in their places after {passed:.1f} s.")


def first_words(answer: PlanReport) -> str:
    words = f"Plan {answer.number} is given to {', '.join(sorted(answer.places))}."
    if answer.silent:
        words += f" No answer yet of {', '.join(answer.silent)}."
    return words


def words_of(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {why}" for name, why in missing.items())


def planned_segments(answer: PlanReport) -> dict[str, dict[Segment, SegmentReport | None]]:
    """Return the planned segments of each matcher, by space and dimension."""
    found: dict[str, dict[Segment, SegmentReport | None]] = {name: {} for name in answer.places}
    spaces = sorted({space for own in answer.places.values() for space in own})
    for space in spaces:
        tokens = {name: own[space] for name, own in answer.places.items() if space in own}
        for dimension in range(len(next(iter(tokens.values())))):
            cut = Segments({name: own[dimension] for name, own in tokens.items()})
            for name in tokens:
                low, high = cut.segment(name)
                found[name][space, dimension] = _segment_report(low, high)
    return found


def _segment_report(low: float, high: float) -> SegmentReport | None:
    if low >= high:
        return None
    return SegmentReport(None if math.isinf(low) else low, None if math.isinf(high) else high)


def not_there(
    report: ClusterReport, planned: Mapping[str, Mapping[Segment, SegmentReport | None]]
) -> dict[str, str]:
    """Return the matchers that are not in their places yet, and why."""
    entries = {entry.name: entry for entry in report.nodes}
    found = {}
    for name, segments in planned.items():
        entry = entries.get(name)
        if entry is None or entry.state not in ("alive", "suspect"):
            found[name] = "is not there any more"
        elif entry.report is None or entry.report.matcher is None:
            found[name] = "does not answer"
        elif not _is_at(entry.report.matcher, segments):
            is_moving = entry.report.matcher.is_moving
            found[name] = "is on its way" if is_moving else "is elsewhere, and does not move"
    return found


def _is_at(matcher: MatcherReport, planned: Mapping[Segment, SegmentReport | None]) -> bool:
    segments_now = dict(_segments(matcher))
    return not matcher.is_moving and all(
        segments_now.get(where) == segment for where, segment in planned.items()
    )


def _segments(matcher: MatcherReport) -> Iterator[tuple[Segment, SegmentReport | None]]:
    """Yield a matcher's segments. Its parts are in the order of dimensions."""
    counts: dict[str, int] = {}
    for part in matcher.parts:
        place = counts.get(part.space, 0)
        counts[part.space] = place + 1
        yield (part.space, place), part.segment


def _look(url: str) -> ClusterReport:
    try:
        return fetch(url, "/cluster", ClusterReport)
    except DovetailError as error:
        raise DovetailError(
            f"matchers move, but cannot be watched any more: {error.message}",
            hint="`dovetail status` at another broker shows them.",
        ) from None


def _shown(words: str) -> AbstractContextManager[Callable[[str], None] | None]:
    """Return a context that shows a line of progress, if standard output is a terminal."""
    return moving_line(console(), words) if sys.stdout.isatty() else nullcontext()
