"""`dovetail status`: shows the nodes of a cluster in tables: state, load and backlog.

Brokers, their archives, and matchers each have a table. Another one has the matchers' parts of each
dimension, unless there are too many to read.

Rates are between two reports of a node, by that node's own clock.
"""

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dovetail.api.http_client import fetch
from dovetail.api.reports import ClusterReport, NodeEntry, NodeReport, PartReport
from dovetail.errors import DovetailError
from dovetail.inspect.segments import segment_words
from dovetail.process.terminal import console, printable, say_json

_RATES: Mapping[str, str] = {
    "in": "publishes_received",
    "out": "publishes_sent",
    "fwd": "publishes_forwarded",
    "vain": "publishes_in_vain",
}
"""The columns with rates of brokers, and the counter of each."""

_MATCHER_RATES = {"points": "points_answered", "unsure": "points_unsure"}
"""The columns with rates of matchers, and the field of their report."""

_COLOURS = {
    "alive": "green",
    "suspect": "yellow",
    "no answer": "yellow",
    "dead": "red",
    "left": "dim",
}
_SAMPLE_SECONDS = 1.0
_PARTS_SHOWN = 24
_WIDTH = 160


def show_status(
    url: str, *, once: bool, as_json: bool, interval_seconds: float, all_parts: bool = False
) -> None:
    """Show the status until Ctrl-C, or once. `all_parts`: show all parts of matchers."""
    before = _fetch(url)
    time.sleep(min(interval_seconds, _SAMPLE_SECONDS))
    now = _fetch(url)
    if as_json:
        say_json(to_json(now, before))
        return
    if once or not sys.stdout.isatty():
        width = None if sys.stdout.isatty() else _WIDTH  # a file has no edge
        console(width=width).print(tables(now, before, all_parts=all_parts))
        return
    screen = console()
    try:
        _follow(url, now, before, interval_seconds, screen, all_parts=all_parts)
    except KeyboardInterrupt:
        pass  # the user ends it so
    finally:  # also if Ctrl-C came while the first table was drawn
        screen.show_cursor()


def _follow(
    url: str,
    now: ClusterReport,
    before: ClusterReport,
    interval_seconds: float,
    screen: Console,
    *,
    all_parts: bool,
) -> None:
    shown: RenderableType = tables(now, before, all_parts=all_parts)
    with Live(auto_refresh=False, console=screen) as live:
        while True:
            live.update(shown, refresh=True)
            time.sleep(interval_seconds)
            try:
                before, now = now, _fetch(url)
                shown = tables(now, before, all_parts=all_parts)
            except DovetailError as error:  # it may be back in a moment
                shown = error.message


def _fetch(url: str) -> ClusterReport:
    return fetch(url, "/cluster", ClusterReport)


def to_json(now: ClusterReport, before: ClusterReport) -> str:
    """Return the report as JSON, with the rates and the backlog of each node."""
    document = msgspec.to_builtins(now)
    for entry, node in zip(now.nodes, document["nodes"], strict=True):
        node["rates"] = rates(entry, before)
        node["owed_messages"], node["owed_bytes"] = owed(now, entry.name)
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def rates(entry: NodeEntry, before: ClusterReport) -> dict[str, float] | None:
    """Return rates per second. None if a report is missing, or the node has restarted."""
    earlier = next((one.report for one in before.nodes if one.name == entry.name), None)
    now = entry.report
    if now is None or earlier is None:
        return None
    seconds = now.uptime_seconds - earlier.uptime_seconds
    if seconds <= 0:
        return None
    if now.matcher is not None and earlier.matcher is not None:
        return {
            name: max(getattr(now.matcher, name) - getattr(earlier.matcher, name), 0) / seconds
            for name in _MATCHER_RATES.values()
        }
    return {
        name: max(now.counters.get(name, 0) - earlier.counters.get(name, 0), 0) / seconds
        for name in _RATES.values()
    }


def owed(report: ClusterReport, name: str) -> tuple[int, int]:
    """Return the messages and bytes that all other nodes have queued for this node."""
    found = [
        peer
        for entry in report.nodes
        if entry.report is not None
        for peer in entry.report.peers
        if peer.name == name
    ]
    return sum(peer.owed_messages for peer in found), sum(peer.owed_bytes for peer in found)


def tables(now: ClusterReport, before: ClusterReport, *, all_parts: bool = False) -> RenderableType:
    archives = [entry.report for entry in now.nodes if _has_archive(entry.report)]
    brokers: list[RenderableType] = [table(now, before)]
    if archives:
        brokers += ["", archive_table(archives)]
    if all(entry.role == "broker" for entry in now.nodes):
        return Group(*brokers) if archives else brokers[0]
    parts = [(entry.name, part) for entry in now.nodes for part in _parts(entry)]
    shown = [*brokers, "", matcher_table(now, before)]
    if all_parts or len(parts) <= _PARTS_SHOWN:
        shown += ["", part_table(parts)] if parts else []
    else:
        shown += ["", f"They have {len(parts):,} parts of dimensions: --matchers shows them."]
    return Group(*shown)


def table(now: ClusterReport, before: ClusterReport) -> Table:
    """Return the table of brokers."""
    who = f"cluster {now.cluster}, asked: {now.asked}" if now.cluster else "a broker, alone"
    title = f"{who}; {', '.join(_RATES)} a second"
    shown = _empty(title)
    for name in ("clients", "subs", "sketch", "false+", *_RATES, "lag"):
        shown.add_column(name, justify="right")
    for entry in now.nodes:
        if entry.role == "broker":
            shown.add_row(*_cells(entry, now, before))
    return shown


def archive_table(reports: Iterable[NodeReport | None]) -> Table:
    """Return the table of archives."""
    shown = _titled("archives; publications")
    for name in ("node", "folder"):
        shown.add_column(name, no_wrap=True)
    for name in ("in files", "waiting", "not archived"):
        shown.add_column(name, justify="right")
    for report in reports:
        assert report is not None
        is_failing = report.gauges.get("archive_failing", 0)
        dropped = report.counters.get("archive_rows_dropped", 0)
        shown.add_row(
            _text(report.name),
            Text("takes no files", "red") if is_failing else Text("well", "green"),
            _count(report.counters.get("archive_rows", 0)),
            _count(report.gauges.get("archive_rows_waiting", 0)),
            Text(_count(dropped), "red") if dropped else "0",
        )
    return shown


def _has_archive(report: NodeReport | None) -> bool:
    """Has the broker ever had a row for an archive?"""
    if report is None:
        return False
    return any(
        count
        for values in (report.counters, report.gauges)
        for name, count in values.items()
        if name.startswith("archive_")
    )


def matcher_table(now: ClusterReport, before: ClusterReport) -> Table:
    shown = _empty(f"matchers; {', '.join(_MATCHER_RATES)} a second")
    shown.add_column("phase", no_wrap=True)
    for name in ("boxes", *_MATCHER_RATES, "queue", "busy"):
        shown.add_column(name, justify="right")
    for entry in now.nodes:
        if entry.role == "matcher":
            shown.add_row(*_matcher_cells(entry, before))
    return shown


def part_table(parts: Iterable[tuple[str, PartReport]]) -> Table:
    """Return the table of parts, by dimension, from low to high."""
    shown = _titled("parts of matchers; arrivals, and what they can match, a second")
    for name in ("space", "dimension", "values", "matcher"):
        shown.add_column(name, overflow="fold")
    for name in ("boxes", "queue", "arrive", "match"):
        shown.add_column(name, justify="right", no_wrap=True)
    for name, part in sorted(parts, key=_part_order):
        shown.add_row(
            _text(part.space),
            _text(part.dimension or "-"),
            segment_words(part.segment),
            _text(name),
            *map(_count, (part.boxes, part.queue, part.arrival_rate)),
            _count(part.matching_rate) if part.matching_rate else "-",
        )
    return shown


def _parts(entry: NodeEntry) -> tuple[PartReport, ...]:
    matcher = None if entry.report is None else entry.report.matcher
    return () if matcher is None else matcher.parts


def _part_order(named: tuple[str, PartReport]) -> tuple[str, str, bool, float, str]:
    name, part = named
    low = None if part.segment is None else part.segment.low
    is_none = part.segment is None
    return part.space, part.dimension, is_none, -math.inf if low is None else low, name


def _empty(title: str) -> Table:
    shown = _titled(title)
    for name in ("node", "role", "state"):
        shown.add_column(name, no_wrap=True)
    return shown


def _titled(title: str) -> Table:
    """Return an empty table. Its title may be wider than the columns."""
    text = Text(printable(title), no_wrap=True, overflow="ignore")
    return Table(title=text, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))


def _cells(entry: NodeEntry, now: ClusterReport, before: ClusterReport) -> Iterator[str | Text]:
    yield from _name_cells(entry)
    yield from _load_cells(entry.report)
    per_second = rates(entry, before)
    for name in _RATES.values():
        yield "-" if per_second is None else _count(per_second[name])
    messages, size = owed(now, entry.name)
    yield f"{_count(messages)} ({_count(size)}B)" if messages else "0"


def _matcher_cells(entry: NodeEntry, before: ClusterReport) -> Iterator[str | Text]:
    yield from _name_cells(entry)
    matcher = None if entry.report is None else entry.report.matcher
    if matcher is None:
        yield from "-" * (4 + len(_MATCHER_RATES))
        return
    yield "moving" if matcher.is_moving else _text(matcher.phase)
    yield _count(matcher.boxes)
    per_second = rates(entry, before)
    for name in _MATCHER_RATES.values():
        yield "-" if per_second is None else _count(per_second[name])
    yield _count(matcher.points_waiting)
    yield f"{matcher.busy_share:.0%}"


def _name_cells(entry: NodeEntry) -> Iterator[str | Text]:
    yield _text(entry.name)
    is_matcher = entry.role == "matcher"
    yield "?" if entry.report is None and not is_matcher else entry.role
    is_silent = entry.report is None and entry.state in ("alive", "suspect")
    state = "no answer" if is_silent else entry.state
    yield Text(state, _COLOURS[state])


def _load_cells(report: NodeReport | None) -> Iterator[str]:
    if report is None:
        yield from ("-", "-", "-", "-")
        return
    yield _count(report.gauges.get("clients_connected", 0))
    yield _count(report.gauges.get("subscriptions", 0))
    sketch = report.sketch
    if sketch is None:
        yield from ("-", "-")
    else:
        yield f"{sketch.fill:.1%}"
        yield f"{sketch.false_positive_rate:.1g}"


def _text(text: str) -> Text:
    """Return text from a node. It is not interpreted as markup."""
    return Text(printable(text))


def _count(number: float) -> str:
    """Return a short number: 950, 12k, 1.5M."""
    if number < 1_000:
        return f"{number:.0f}"
    for unit in ("k", "M", "G"):
        number /= 1_000
        if number < 1_000 or unit == "G":
            break
    return f"{number:.1f}{unit}" if number < 10 else f"{number:,.0f}{unit}"
