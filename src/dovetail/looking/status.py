"""The nodes of a cluster as tables: who is there, what they carry, and what they are owed.

Brokers are in one table, matchers in another below it, if there are some.

Rates are between two reports of a node, by that node's own clock.
"""

import sys
import time
from collections.abc import Iterator, Mapping

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from dovetail.errors import DovetailError
from dovetail.looking.fetching import fetch
from dovetail.reports import ClusterReport, NodeEntry, NodeReport

_RATES: Mapping[str, str] = {
    "in": "publishes_received",
    "out": "publishes_sent",
    "fwd": "publishes_forwarded",
    "vain": "publishes_in_vain",
}
"""The columns, and the counters that they are the rates of."""

_MATCHER_RATES = {"points": "points_answered", "unsure": "points_unsure"}
"""Of matchers, and the fields of their report."""

_COLOURS = {
    "alive": "green",
    "suspect": "yellow",
    "no answer": "yellow",
    "dead": "red",
    "left": "dim",
}
_SAMPLE_SECONDS = 1.0
_WIDTH = 160


def show_status(url: str, *, once: bool, as_json: bool, interval_seconds: float) -> None:
    """Until Ctrl-C, or once."""
    before = _fetch(url)
    time.sleep(min(interval_seconds, _SAMPLE_SECONDS))
    now = _fetch(url)
    if as_json:
        print(to_json(now, before))
        return
    if once or not sys.stdout.isatty():
        width = None if sys.stdout.isatty() else _WIDTH  # a file has no edge
        Console(width=width).print(tables(now, before))
        return
    console = Console()
    try:
        _follow(url, now, before, interval_seconds, console)
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:  # also if the word to end came while the first table was drawn
        console.show_cursor()


def _follow(
    url: str,
    now: ClusterReport,
    before: ClusterReport,
    interval_seconds: float,
    console: Console,
) -> None:
    shown: RenderableType = tables(now, before)
    with Live(auto_refresh=False, console=console) as live:
        while True:
            live.update(shown, refresh=True)
            time.sleep(interval_seconds)
            try:
                before, now = now, _fetch(url)
                shown = tables(now, before)
            except DovetailError as error:  # it may be back in a moment
                shown = error.message


def _fetch(url: str) -> ClusterReport:
    return fetch(url, "/cluster", ClusterReport)


def to_json(now: ClusterReport, before: ClusterReport) -> str:
    """The report, with each node's rates and what it is owed."""
    document = msgspec.to_builtins(now)
    for entry, told in zip(now.nodes, document["nodes"], strict=True):
        told["rates"] = rates(entry, before)
        told["owed_messages"], told["owed_bytes"] = owed(now, entry.name)
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def rates(entry: NodeEntry, before: ClusterReport) -> dict[str, float] | None:
    """Per second; None if one of the two reports is missing, or is of another life."""
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
    """Messages and bytes that all others together owe this node: how far it lags behind."""
    found = [
        peer
        for entry in report.nodes
        if entry.report is not None
        for peer in entry.report.peers
        if peer.name == name
    ]
    return sum(peer.owed_messages for peer in found), sum(peer.owed_bytes for peer in found)


def tables(now: ClusterReport, before: ClusterReport) -> RenderableType:
    if all(entry.role == "broker" for entry in now.nodes):
        return table(now, before)
    return Group(table(now, before), "", matcher_table(now, before))


def table(now: ClusterReport, before: ClusterReport) -> Table:
    """Of brokers."""
    who = f"cluster {now.cluster}, asked: {now.asked}" if now.cluster else "a broker, alone"
    title = f"{who}; {', '.join(_RATES)} a second"
    shown = _empty(title)
    for name in ("clients", "subs", "sketch", "false+", *_RATES, "lag"):
        shown.add_column(name, justify="right")
    for entry in now.nodes:
        if entry.role == "broker":
            shown.add_row(*_cells(entry, now, before))
    return shown


def matcher_table(now: ClusterReport, before: ClusterReport) -> Table:
    shown = _empty(f"matchers; {', '.join(_MATCHER_RATES)} a second")
    shown.add_column("phase", no_wrap=True)
    for name in ("boxes", *_MATCHER_RATES, "queue", "busy"):
        shown.add_column(name, justify="right")
    for entry in now.nodes:
        if entry.role == "matcher":
            shown.add_row(*_matcher_cells(entry, before))
    return shown


def _empty(title: str) -> Table:
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("node", "role", "state"):
        shown.add_column(name, no_wrap=True)
    return shown


def _cells(entry: NodeEntry, now: ClusterReport, before: ClusterReport) -> Iterator[str]:
    yield from _who(entry)
    yield from _own_words(entry.report)
    per_second = rates(entry, before)
    for name in _RATES.values():
        yield "-" if per_second is None else _count(per_second[name])
    messages, size = owed(now, entry.name)
    yield f"{_count(messages)} ({_count(size)}B)" if messages else "0"


def _matcher_cells(entry: NodeEntry, before: ClusterReport) -> Iterator[str]:
    yield from _who(entry)
    matcher = None if entry.report is None else entry.report.matcher
    if matcher is None:
        yield from "-" * (4 + len(_MATCHER_RATES))
        return
    yield matcher.phase
    yield _count(matcher.boxes)
    per_second = rates(entry, before)
    for name in _MATCHER_RATES.values():
        yield "-" if per_second is None else _count(per_second[name])
    yield _count(matcher.points_waiting)
    yield f"{matcher.busy_share:.0%}"


def _who(entry: NodeEntry) -> Iterator[str]:
    yield entry.name
    is_matcher = entry.role == "matcher"
    yield "?" if entry.report is None and not is_matcher else entry.role
    is_silent = entry.report is None and entry.state in ("alive", "suspect")
    state = "no answer" if is_silent else entry.state
    yield f"[{_COLOURS[state]}]{state}[/]"


def _own_words(report: NodeReport | None) -> Iterator[str]:
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


def _count(number: float) -> str:
    """Short: 950, 12k, 1.5M."""
    if number < 1_000:
        return f"{number:.0f}"
    for unit in ("k", "M", "G"):
        number /= 1_000
        if number < 1_000 or unit == "G":
            break
    return f"{number:.1f}{unit}" if number < 10 else f"{number:,.0f}{unit}"
