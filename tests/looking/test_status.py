"""The table of a cluster, made of two reports."""

import io
import json

from rich.console import Console

from dovetail.looking.status import owed, rates, table, to_json
from dovetail.reports import ClusterReport
from web_views import cluster

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


def test_all_of_it_as_json() -> None:
    document = json.loads(to_json(NOW, BEFORE))
    one, other, _ = document["nodes"]
    assert one["rates"]["publishes_received"] == 1_000.0
    assert one["report"]["counters"]["publishes_received"] == 2_100
    assert other["rates"] is None
    assert (other["owed_messages"], other["owed_bytes"]) == (3, 2_500)
