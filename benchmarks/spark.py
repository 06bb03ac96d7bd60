"""Compares bulk matching on Spark with Spark's own SQL, in one run.

    ranges     BlueDove's 40,000 boxes against Spark SQL's range join: CPU and wall time a message
    topics     10,000 filters with wildcards against a join by regular expressions
    scaling    messages, subscriptions and cores (1 and 2), by messages a second
    large      sets of subscriptions that are too large for a worker
    evenness   whether tasks of a cut set have equal work

After each part it prints the most memory that a Python worker has used.

Slow methods get fewer messages; a ratio is that of times a message, within a round. Preparing the
clauses is not part of the measured query: boxes are prepared, and so are the join's columns. CPU
time is that of Java, its workers and this process. On a busy machine it is steadier than elapsed
time; both are shown.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from _measure import PAPER, filters, finish, table, verdict
from _spark_cut import cut, tasks_of
from _spark_tables import NAMES, SPACE, Meter, boxes_table, done, kept, messages_table, ours
from dovetail.pipeline.match.boxes import boxes_of
from dovetail.pipeline.spark.spark_session import open_session
from dovetail.sim import workload

TIMES_MIN = 25
TASK_TIMES_MAX = 2
TASKS = 32
PARTS = ["ranges", "topics", "scaling", "large", "evenness"]


def compare(
    title: str,
    contenders: dict[str, tuple[int, Callable[[], object]]],
    rounds: int,
    meter: Meter,
) -> None:
    """Measure contenders in turn, ours first, each with its number of messages."""
    each: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, (count, work) in contenders.items():
            seconds, cpu = meter.run(work)
            if turn:
                each[name].append((seconds / count, cpu / count))
    *_, other = contenders
    rows = [
        [
            name,
            f"{count:,}",
            f"{1 / statistics.median(one for one, _ in each[name]):,.0f}",
            f"{statistics.median(cpu for _, cpu in each[name]) * 1e6:,.1f}",
            f"{times(each[other], each[name], 0):,.1f}",
            f"{times(each[other], each[name], 1):,.1f}",
        ]
        for name, (count, _) in contenders.items()
    ]
    head = ["engine", "messages", "messages/s", "CPU µs/message", "x, time", "x, CPU time"]
    table(f"{title}; medians of {rounds} rounds", head, rows)
    first = next(iter(contenders))
    for place, what in ((0, "time"), (1, "CPU time")):
        value = times(each[other], each[first], place)
        verdict(f"{title}: {first}, times {other}, by {what}", value, TIMES_MIN, at_most=False)


def times(slow: list[tuple[float, float]], fast: list[tuple[float, float]], place: int) -> float:
    return statistics.median(one[place] / two[place] for one, two in zip(slow, fast, strict=True))


def ranges(spark: Any, options: argparse.Namespace, cores: int, meter: Meter) -> None:  # noqa: ANN401
    from pyspark.sql.functions import broadcast, expr

    boxes = boxes_table(workload.BOXES, options.seed)
    many = kept(spark, messages_table(options.messages, options.seed), 2 * cores)
    few_count = max(options.messages // 20, 1)
    few_messages = kept(spark, messages_table(few_count, options.seed), 2 * cores)
    few = few_messages.select("id", *NAMES)
    lows, highs = workload.boxes(workload.BOXES, options.seed)
    columns = {"box": np.arange(len(lows))}
    columns |= {f"low{i}": lows[:, i] for i in range(len(NAMES))}
    columns |= {f"high{i}": highs[:, i] for i in range(len(NAMES))}
    sql_boxes = kept(spark, pa.table(columns), 2 * cores)
    on = " and ".join(f"low{i} <= {name} and {name} < high{i}" for i, name in enumerate(NAMES))
    joined = sql_boxes.join(broadcast(few), expr(on)).select("id", "box")
    messages = many.select("id", "topic", "attributes")
    arrays = ours(messages, boxes, (SPACE,))
    pairs = ours(messages, boxes, (SPACE,), as_pairs=True)
    small = ours(few_messages.select("id", "topic", "attributes"), boxes, (SPACE,), as_pairs=True)
    assert small.count() == joined.count(), "the join finds other pairs"
    compare(
        f"{workload.BOXES:,} boxes",
        {
            "dovetail": (options.messages, lambda: done(arrays)),
            "dovetail, pairs": (options.messages, lambda: done(pairs)),
            "Spark SQL range join": (few_count, lambda: done(joined)),
        },
        options.rounds,
        meter,
    )


def topics(spark: Any, options: argparse.Namespace, cores: int, meter: Meter) -> None:  # noqa: ANN401
    from pyspark.sql.functions import broadcast, expr

    rng = np.random.default_rng(options.seed)
    wanted = [one.decode() for one in filters(rng, PAPER, options.filters)]
    names = topics_near(rng, wanted, options.messages)
    many = kept(spark, pa.table({"id": np.arange(len(names)), "topic": names}), 2 * cores)
    few_count = max(options.messages // 200, 1)
    few = many.where(f"id < {few_count}").repartition(2 * cores).cache()
    few.count()
    given = pa.table(
        {"id": np.arange(len(wanted)), "filter": wanted, "where": pa.nulls(len(wanted), "string")}
    )
    patterns = pa.table({"box": np.arange(len(wanted)), "pattern": [*map(as_pattern, wanted)]})
    sql_filters = kept(spark, patterns, 2 * cores)
    joined = sql_filters.join(broadcast(few), expr("topic rlike pattern")).select("id", "box")
    boxes = boxes_of(given, ())
    arrays, pairs = ours(many, boxes), ours(many, boxes, as_pairs=True)
    small = ours(few, boxes, as_pairs=True)
    assert small.count() == joined.count(), "the join finds other pairs"
    compare(
        f"{len(wanted):,} filters with wildcards",
        {
            "dovetail": (len(names), lambda: done(arrays)),
            "dovetail, pairs": (len(names), lambda: done(pairs)),
            "join by regular expression": (few_count, lambda: done(joined)),
        },
        options.rounds,
        meter,
    )


def topics_near(rng: np.random.Generator, wanted: list[str], count: int) -> list[str]:
    """Return topics that often match: filters whose wildcards are filled in."""
    chosen = rng.integers(len(wanted), size=count).tolist()
    words = rng.integers(1_000, size=count).tolist()
    return [
        wanted[one].replace("+", f"w{word}").replace("#", f"v{word}")
        for one, word in zip(chosen, words, strict=True)
    ]


def as_pattern(topic_filter: str) -> str:
    """Return a regular expression for a filter, valid for topics that do not begin with `$`."""
    levels = topic_filter.split("/")
    ends = ""
    if levels[-1] == "#":
        levels.pop()
        ends = "(/.*)?" if levels else ".*"
    body = "/".join("[^/]*" if level == "+" else f"\\Q{level}\\E" for level in levels)
    return f"^{body}{ends}$"


def scaling(options: argparse.Namespace, meter: Meter) -> None:
    """Measure more messages, more boxes, and another core."""
    rows = []
    for cores in (1, 2):
        with open_session(f"local[{cores}]") as spark:
            for boxes_count, count in (
                (workload.BOXES, options.messages // 4),
                (workload.BOXES, options.messages),
                (workload.BOXES, 10 * options.messages),
                (workload.BOXES // 4, options.messages),
                (workload.BOXES * 4, options.messages),
            ):
                messages = kept(spark, messages_table(count, options.seed), 2 * cores)
                matched = ours(
                    messages.select("id", "topic", "attributes"),
                    boxes_table(boxes_count, options.seed),
                    (SPACE,),
                )
                done(matched)
                seconds, cpu = meter.run(lambda frame=matched: done(frame))
                rows.append([str(cores), *cells(boxes_count, count, seconds, cpu)])
                messages.unpersist()
    head = ["cores", "boxes", "messages", "messages/s", "CPU µs/message"]
    table("Scaling, one go each after one that does not count", head, rows)


def cells(boxes: int, messages: int, seconds: float, cpu: float) -> list[str]:
    return [
        f"{boxes:,}",
        f"{messages:,}",
        f"{messages / seconds:,.0f}",
        f"{cpu / messages * 1e6:,.1f}",
    ]


def large(options: argparse.Namespace, meter: Meter) -> None:
    """Measure cut sets, with narrower boxes so that a message is in as many as with the paper's."""
    rows = []
    with open_session("local[2]") as spark:
        for count in options.boxes:
            width = workload.WIDTH * (workload.BOXES / count) ** (1 / len(NAMES))
            boxes = kept(spark, boxes_table(count, options.seed, width), 8)
            messages = kept(spark, messages_table(options.messages, options.seed), 8)
            wanted = messages.select("id", "topic", "attributes")
            found = cut(wanted, boxes, TASKS)
            seconds, cpu = meter.run(lambda frame=found: done(frame))
            rows.append(cells(count, options.messages, seconds, cpu))
            for frame in (boxes, messages):
                frame.unpersist()
    head = ["boxes", "messages", "messages/s", "CPU µs/message"]
    table(f"Large sets, cut into about {TASKS} tasks, boxes dealt out and indexed each", head, rows)


def evenness(options: argparse.Namespace) -> None:
    """Measure the work and the CPU time of each task of a cut set."""
    rows = []
    with open_session("local[2]") as spark:
        for skewed in (0, 4):
            boxes = kept(spark, boxes_table(workload.BOXES, options.seed), 8)
            messages = kept(spark, messages_table(options.messages, options.seed, skewed), 8)
            found = tasks_of(messages.select("id", "topic", "attributes"), boxes, TASKS)
            for what, values in (
                ("counted work", [one.work for one in found]),
                ("CPU time", [one.cpu_seconds for one in found]),
            ):
                most = max(values) / statistics.median(values)
                rows.append([str(skewed), what, str(len(found)), f"{most:.2f}"])
                if skewed:
                    name = f"skewed workload, {what} of the busiest task by the median"
                    verdict(name, most, TASK_TIMES_MAX, at_most=True)
            for frame in (boxes, messages):
                frame.unpersist()
    table("Tasks", ["skewed dimensions", "by", "tasks", "busiest by median"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--boxes", type=int, nargs="+", default=[600_000, 2_000_000], help="of large sets"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="only these")
    options = parser.parse_args()
    parts = options.part or PARTS
    meter = Meter()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load} before")
    if {"ranges", "topics"} & {*parts}:
        with open_session("local[2]") as spark:
            if "ranges" in parts:
                ranges(spark, options, 2, meter)
            if "topics" in parts:
                topics(spark, options, 2, meter)
    if "scaling" in parts:
        scaling(options, meter)
    print(f"\nA Python worker held at most {meter.worker_bytes / 1e6:,.0f} MB.")
    if "large" in parts:
        meter.worker_bytes = 0
        large(options, meter)
        print(f"\nA Python worker held at most {meter.worker_bytes / 1e6:,.0f} MB.")
    if "evenness" in parts:
        evenness(options)
    finish()


if __name__ == "__main__":
    main()
