"""The tables of `dovetail status`, made of two reports."""

import io
import json

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from dovetail.api.reports import ClusterReport, NodeEntry, NodeReport, SegmentReport
from dovetail.inspect.status import owed, rates, table, tables, to_json
from support.brokers.web_views import MATCHER, cluster

BEFORE = cluster(10.0, publishes_received=100, publishes_forwarded=7)
NOW = cluster(12.0, publishes_received=2_100, publishes_forwarded=7)


def shown(now: ClusterReport, before: ClusterReport, width: int = 160) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(table(now, before))
    return captured.get()


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return line.split()


def test_rates_are_by_the_nodes_own_clock() -> None:
    one, silent, _ = NOW.nodes
    found = rates(one, BEFORE)
    assert found is not None
    assert (found["publishes_received"], found["publishes_forwarded"]) == (1_000.0, 0.0)
    assert rates(silent, BEFORE) is None
    assert rates(one, NOW) is None
    again = cluster(1.0, publishes_received=5)  # another life of it
    assert rates(again.nodes[0], NOW) is None


def test_lag_is_what_others_owe_a_node() -> None:
    assert owed(NOW, "other") == (3, 2_500)
    assert owed(NOW, "one") == (0, 0)


def test_every_node_has_a_row_whether_it_answers_or_not() -> None:
    text = shown(NOW, BEFORE)
    assert "cluster dovetail, asked: one" in text
    assert row(text, "one") == [
        *("one", "broker", "alive", "4", "5.0k", "25.0%", "0.001"),
        *("1.0k", "0", "0", "0", "0"),
    ]
    assert row(text, "other")[:3] == ["other", "?", "no"]
    assert row(text, "other")[-2:] == ["3", "(2.5kB)"]
    assert row(text, "third")[2] == "dead"


def test_it_fits_a_narrow_screen() -> None:
    lines = shown(NOW, BEFORE, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert row("\n".join(lines), "other")[-2:] == ["3", "(2.5kB)"]
    assert not any("…" in line for line in lines)


def test_a_broker_alone() -> None:
    (first, *_) = NOW.nodes
    assert "a broker, alone" in shown(ClusterReport("", "one", (first,)), BEFORE)


def test_archives_are_shown_where_there_are_some() -> None:
    assert "archives" not in printed(NOW)
    (first, *others) = NOW.nodes
    assert first.report is not None
    report = replace(
        first.report,
        counters={**first.report.counters, "archive_rows": 1_500, "archive_rows_dropped": 7},
        gauges={**first.report.gauges, "archive_rows_waiting": 20, "archive_failing": 1},
    )
    text = printed(replace(NOW, nodes=(replace(first, report=report), *others)))
    (line,) = [line for line in text.splitlines() if "takes no files" in line]
    assert line.split() == ["one", "takes", "no", "files", "1.5k", "20", "7"]


def test_all_of_it_as_json() -> None:
    document = json.loads(to_json(NOW, BEFORE))
    one, other, _ = document["nodes"]
    assert one["rates"]["publishes_received"] == 1_000.0
    assert one["report"]["counters"]["publishes_received"] == 2_100
    assert other["rates"] is None
    assert (other["owed_messages"], other["owed_bytes"]) == (3, 2_500)


# Matchers ---------------------------------------------------------------------------------------


def with_matchers(seconds: float, points: int) -> ClusterReport:
    report = MATCHER
    assert report.matcher is not None
    matcher = replace(report.matcher, points_answered=points)
    told: NodeReport = replace(report, uptime_seconds=seconds, matcher=matcher)
    return replace(
        NOW,
        nodes=(
            *NOW.nodes,
            NodeEntry("m-1", "127.0.0.1:7886", "alive", told, "matcher"),
            NodeEntry("m-2", "127.0.0.1:7887", "dead", None, "matcher"),
        ),
    )


def test_matchers_have_a_table_of_their_own() -> None:
    before, now = with_matchers(10.0, 33), with_matchers(12.0, 6_033)
    console = Console(width=160, file=io.StringIO())
    with console.capture() as captured:
        console.print(tables(now, before))
    text = captured.get()
    expected = ["m-1", "matcher", "alive", "serving", "11", "3.0k", "0", "22", "50%"]
    assert row(text, "m-1") == expected
    assert row(text, "m-2") == ["m-2", "matcher", "dead", *"------"]
    assert "m-1" not in shown(now, before)
    assert isinstance(tables(NOW, BEFORE), Table)


def printed(now: ClusterReport, *, all_parts: bool = False, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(tables(now, now, all_parts=all_parts))
    return captured.get()


def test_parts_are_in_the_order_of_values() -> None:
    text = printed(with_parts(3))
    lines = [line.split() for line in text[text.index("parts of matchers") :].splitlines()]
    assert lines[1:] == [
        ["space", "dimension", "values", "matcher", "boxes", "queue", "arrive", "match"],
        ["traffic", "lat", "below", "10", "m-0", "7", "20", "150", "2.5k"],
        ["traffic", "lat", "10", "to", "20", "m-1", "7", "20", "150", "2.5k"],
        ["traffic", "lat", "20", "and", "above", "m-2", "7", "20", "150", "2.5k"],
        *(["traffic", "lon", "none", f"m-{number}", "4", "2", "0", "-"] for number in range(3)),
    ]
    assert max(map(len, text.splitlines())) <= 100


def test_many_parts_are_shown_to_who_asks() -> None:
    many = with_parts(13)
    assert "They have 26 parts of dimensions: --matchers shows them." in printed(many)
    assert "dimension  values" not in printed(many)
    assert "m-12" in printed(many, all_parts=True).partition("parts of matchers")[2]


def test_names_are_no_markup() -> None:
    report = with_parts(1)
    *others, entry = report.nodes
    assert entry.report is not None
    assert entry.report.matcher is not None
    part = replace(entry.report.matcher.parts[0], space="[bold]", dimension="[/]")
    matcher = replace(entry.report.matcher, parts=(part,))
    told = replace(entry, report=replace(entry.report, matcher=matcher))
    assert "[bold] [/]" in printed(replace(report, nodes=(*others, told)))


def with_parts(matchers: int) -> ClusterReport:
    """Each has ten of one dimension, in the order of their numbers; and none of another."""
    report = MATCHER.matcher
    assert report is not None
    nodes = []
    for number in range(matchers):
        low = 10.0 * number if number else None
        high = 10.0 * (number + 1) if number < matchers - 1 else None
        lat, lon = report.parts
        lat = replace(lat, segment=SegmentReport(low, high))
        told = replace(MATCHER, matcher=replace(report, parts=(lon, lat)))
        nodes.append(NodeEntry(f"m-{number}", "127.0.0.1:7886", "alive", told, "matcher"))
    return replace(NOW, nodes=(*NOW.nodes, *nodes))


def test_matchers_as_json() -> None:
    before, now = with_matchers(10.0, 33), with_matchers(12.0, 6_033)
    told = {node["name"]: node for node in json.loads(to_json(now, before))["nodes"]}
    assert told["m-1"]["role"] == "matcher"
    assert told["m-1"]["rates"] == {"points_answered": 3_000.0, "points_unsure": 0.0}
    assert told["m-2"]["rates"] is None
    assert told["m-1"]["report"]["matcher"]["parts"][0]["segment"] == {"low": None, "high": 12.5}
    assert told["one"]["role"] == "broker"
