"""Matchers move to the places of a plan: given to any broker, and watched until all are there.

Nothing hangs on who watches: Ctrl-C ends that, and matchers move all the same. Where they are is
what `dovetail status` shows: each one's segments.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from dovetail.api.http_client import Login, fetch, post
from dovetail.api.reports import ClusterReport, MatcherReport, PlanOrder, PlanReport, SegmentReport
from dovetail.attributes.partition import Segments
from dovetail.errors import DovetailError
from dovetail.inspect.limits import PLAN_SECONDS_MAX
from dovetail.process.terminal import console, moving_line, say

_LOOK_SECONDS = 0.2

Segment = tuple[str, int]
"""A space, and the place of a dimension among its searchable ones."""


def apply(
    url: str, order: PlanOrder, login: Login | None = None, seconds_max: float = PLAN_SECONDS_MAX
) -> None:
    began_at = time.monotonic()
    told = post(url, "/plan", order, PlanReport, login)
    say(first_words(told))
    wanted = planned_segments(told)
    before: tuple[str, ...] | None = None
    with _shown("matchers move") as shown:
        while missing := not_there(_look(url), wanted):
            passed = time.monotonic() - began_at
            if passed > seconds_max:
                raise DovetailError(
                    f"after {passed:.0f} s {words_of(missing)}.",
                    hint="Nothing is lost by that: each answers where it is. `dovetail status` "
                    "shows them; the same plan may be given again.",
                )
            words = f"{len(told.places) - len(missing)} of {len(told.places)} are there"
            if shown is not None:
                shown(f"{words} ({passed:.0f} s)")
            elif before != (before := tuple(missing)):
                say(f"  {words}")
            time.sleep(_LOOK_SECONDS)
    passed = time.monotonic() - began_at
    say(f"All {len(told.places)} matchers are in their places after {passed:.1f} s.")


def first_words(told: PlanReport) -> str:
    words = f"Plan {told.number} is given to {', '.join(sorted(told.places))}."
    if told.silent:
        words += f" No answer yet of {', '.join(told.silent)}."
    return words


def words_of(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {why}" for name, why in missing.items())


def planned_segments(told: PlanReport) -> dict[str, dict[Segment, SegmentReport | None]]:
    """Of each matcher."""
    found: dict[str, dict[Segment, SegmentReport | None]] = {name: {} for name in told.places}
    spaces = sorted({space for own in told.places.values() for space in own})
    for space in spaces:
        tokens = {name: own[space] for name, own in told.places.items() if space in own}
        for dimension in range(len(next(iter(tokens.values())))):
            cut = Segments({name: own[dimension] for name, own in tokens.items()})
            for name in tokens:
                low, high = cut.segment(name)
                found[name][space, dimension] = _told(low, high)
    return found


def _told(low: float, high: float) -> SegmentReport | None:
    if low >= high:
        return None
    return SegmentReport(None if math.isinf(low) else low, None if math.isinf(high) else high)


def not_there(
    report: ClusterReport, wanted: Mapping[str, Mapping[Segment, SegmentReport | None]]
) -> dict[str, str]:
    """Who is not in its place yet, and why."""
    entries = {entry.name: entry for entry in report.nodes}
    found = {}
    for name, segments in wanted.items():
        entry = entries.get(name)
        if entry is None or entry.state not in ("alive", "suspect"):
            found[name] = "is not there any more"
        elif entry.report is None or entry.report.matcher is None:
            found[name] = "does not answer"
        elif not _is_at(entry.report.matcher, segments):
            is_moving = entry.report.matcher.is_moving
            found[name] = "is on its way" if is_moving else "is elsewhere, and does not move"
    return found


def _is_at(matcher: MatcherReport, wanted: Mapping[Segment, SegmentReport | None]) -> bool:
    has = dict(_segments(matcher))
    return not matcher.is_moving and all(
        has.get(where) == segment for where, segment in wanted.items()
    )


def _segments(matcher: MatcherReport) -> Iterator[tuple[Segment, SegmentReport | None]]:
    """Parts come in the order of dimensions."""
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
    """A line that moves, where somebody looks."""
    return moving_line(console(), words) if sys.stdout.isatty() else nullcontext()
