"""`plan` from files to a page and JSON, on a real Spark."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from dovetail.api.reports import (
    ClusterReport,
    MatcherReport,
    NodeEntry,
    NodeReport,
    PartReport,
    SegmentReport,
)
from dovetail.attributes.partition import Bounds, even_tokens
from dovetail.errors import ConfigError, DovetailError
from dovetail.matcher.layout import Layout, layout_of
from dovetail.pipeline.match.bulk import spaces_of
from dovetail.pipeline.plan import job, statistics
from dovetail.pipeline.plan.document import SCHEMA, order_of, read_document
from dovetail.pipeline.plan.job import plan_files
from support.html_pages import check_balanced

CONFIG = """
[spaces.traffic]
topics = "traffic/#"
[spaces.traffic.dimensions]
lat = [-90, 90]
lon = [-180, 180]
speed = { bounds = [0, 200], searchable = false }
[spaces.copied]
topics = "copied/#"
scheme = "full"
[spaces.copied.dimensions]
x = [0, 1]
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A city: all publications are in a hundredth of the bounds."""
    rng = np.random.default_rng(0)
    lat, lon = rng.normal(48, 0.1, 900), rng.normal(11, 0.1, 900)
    messages = [
        {"id": n, "topic": f"traffic/A{n % 3}", "attributes": {"lat": lat[n], "lon": lon[n]}}
        for n in range(900)
    ]
    messages += [{"id": n, "topic": "home/x/y", "attributes": {}} for n in range(100)]
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in messages))
    rows = ["id,filter,where"]
    rows += [
        f"{n},traffic/#,{lat[n]:.3f} <= lat < {lat[n] + 0.05:.3f} and lon < {lon[n]:.3f}"
        for n in range(200)
    ]
    rows += [f"h{n},home/{n}/+," for n in range(50)]
    (tmp_path / "s.csv").write_text("\n".join(rows))
    (tmp_path / "dovetail.toml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def own_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def open_session(_master: str | None) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(job, "open_session", open_session)


def a_cluster(layout: Layout, matchers: int) -> ClusterReport:
    """With even segments."""
    nodes = []
    names = [f"m{number}" for number in range(matchers)]
    for number, tokens in enumerate(even_tokens(names, layout.bounds).values()):
        parts = tuple(
            PartReport(
                layout.name,
                layout.name_of(place),
                SegmentReport(token if number else None, None),
                0, 0, 0.0, 0.0,
            )
            for place, token in enumerate(tokens)
        )  # fmt: skip
        matcher = MatcherReport("serving", 0, 0, 0, 0, 0.0, parts)
        told = NodeReport(names[number], "1", ("matcher",), 1.0, {}, {}, matcher=matcher)
        nodes.append(NodeEntry(names[number], "", "alive", told, "matcher"))
    return ClusterReport("c", "m0", tuple(nodes))


@pytest.mark.usefixtures("own_spark")
def test_a_plan(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traffic, _ = spaces_of(files / "dovetail.toml")
    order = plan_files(
        messages=str(files / "m.jsonl"),
        subscriptions=str(files / "s.csv"),
        config=files / "dovetail.toml",
        rate=1_000,
        out=files / "plan.html",
        cluster=a_cluster(layout_of(traffic), 4),
        is_applied=True,
    )
    plan = read_document(files / "plan.json")
    assert (plan.schema, plan.messages, plan.subscriptions, plan.matchers) == (SCHEMA, 1000, 250, 4)
    (one,) = plan.spaces
    assert (one.space, one.messages, one.boxes, one.wide_boxes) == ("traffic", 900, 200, 0)
    assert one.layout == layout_of(traffic).id
    assert one.now == one.even
    assert one.even.unevenness > 1.9
    assert one.planned.unevenness < 1.1
    assert one.planned.capacity is not None
    assert one.even.capacity is not None
    assert one.planned.capacity > 1.7 * one.even.capacity
    assert order == order_of(plan)
    assert order is not None
    assert [len(own.places) for own in order.spaces] == [4]
    lat, lon, speed = one.dimensions
    assert (lat.narrow_share, lat.open_share, lon.narrow_share) == (1.0, 0.0, 0.0)
    assert (speed.missing_share, speed.open_share, speed.planned_borders) == (1.0, 1.0, ())
    assert sum(cell[1] for cell in lat.cells) == 900
    assert lat.skew == pytest.approx(4.0)
    assert all(47 < border < 49 for border in lat.planned_borders)
    assert lat.even_borders == (-45.0, 0.0, 45.0)
    assert one.recommended == ("lat", "lon")
    assert one.why.endswith("On lon no box is narrow: nobody is asked along it.")
    assert [(hot.topic, hot.messages) for hot in plan.topics.hot][:2] == [
        ("traffic/A0", 300),
        ("traffic/A1", 300),
    ]
    assert [(row.levels, row.topics, row.messages) for row in plan.topics.levels] == [
        (2, 3, 900),
        (3, 1, 100),
    ]
    (sketch,) = plan.sketches
    assert (sketch.broker, sketch.filters) == ("", 51)
    assert plan.need is not None
    assert plan.need.matchers == 1
    printed = capsys.readouterr().out
    assert "space   traffic: 4 matchers take about" in printed
    check_balanced((files / "plan.html").read_text())


def test_ranges_and_values(spark: SparkSession) -> None:
    """By cell, against a look at each box."""
    layout = Layout("s", (Bounds(0, 10),), (0,), names=("x",))
    edges = ((np.array([0.0, 2.0, 5.0, 10.0]),),)
    points = spark.createDataFrame(
        [(0, [value]) for value in (-1.0, 0.0, 2.0, 4.9, 10.0, float("nan"))],
        "space int, values array<double>",
    )
    counted = statistics.values(points, edges).toArrow().to_pylist()
    assert {row["cell"]: row["points"] for row in counted if row["points"]} == {
        -1: 1, -2: 1, -3: 1, 0: 2, 1: 2, 2: 1,
    }  # fmt: skip
    infinite = float("inf")
    boxes = spark.createDataFrame(
        [(0, [1.0], [2.0]), (0, [1.0], [6.0]), (0, [-infinite], [infinite])],
        "space int, lows array<double>, highs array<double>",
    )
    found = statistics.ranges(boxes, [layout], edges).orderBy("cell").toArrow().to_pylist()
    assert [tuple(row.values())[2:] for row in found] == [(0, 3, 1, 2, 1), (2, 0, 2, 0, 0)]


def test_invalid_options_are_refused_before_spark_starts(files: Path) -> None:
    messages, subscriptions = str(files / "m.jsonl"), str(files / "s.csv")
    page = files / "plan.html"
    with pytest.raises(ConfigError, match="it takes the name of a page"):
        plan_files(messages=messages, subscriptions=subscriptions, out=files / "plan.json")
    with pytest.raises(ConfigError, match="there is no file or folder"):
        plan_files(messages=str(files / "none"), out=page)
    two = a_cluster(Layout("s", (Bounds(0, 10),), (0,), names=("x",)), 2)
    with pytest.raises(ConfigError, match="for 3 matchers, and the cluster has 2"):
        plan_files(messages=messages, out=page, matchers=3, cluster=two, is_applied=True)
    with pytest.raises(ConfigError, match="no matchers in the cluster"):
        plan_files(messages=messages, out=page, cluster=ClusterReport("", "", ()), is_applied=True)


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    for text, words in (
        ("{}", f"is no plan of this version ({SCHEMA})"),
        ("[", "is no plan"),
        (f'{{"schema": "{SCHEMA}"}}', "is no plan: "),
    ):
        (tmp_path / "p.json").write_text(text)
        with pytest.raises(DovetailError) as caught:
            read_document(tmp_path / "p.json")
        assert words in str(caught.value)
    with pytest.raises(ConfigError, match="cannot read"):
        read_document(tmp_path / "none")
