"""Matching in bulk on Spark, beside what Spark's own SQL offers, in one run.

    ranges     BlueDove's 40,000 boxes against Spark SQL's range join: CPU and wall time a message
    topics     10,000 filters with wildcards against a join by regular expressions
    scaling    messages, subscriptions and cores (1 and 2), by messages a second
    memory     the most that a Python worker has held

The slow ones get fewer messages; a ratio is that of times a message, within a round. Reading
clauses is no part of the query for either side: boxes are prepared, as the join's columns are.
CPU time is that of Java, its workers and this process, so a machine that is busy with other things
tells less of it than of the clock; both are shown.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _match_engines import _children, _cpu_seconds
from _measure import PAPER, filters, finish, table, verdict
from dovetail.attributes import workload
from dovetail.attributes.space import Dimension, Space
from dovetail.pipeline.matching import Shipped, match_batches, packed
from dovetail.pipeline.matching_boxes import boxes_of, boxes_schema
from dovetail.pipeline.session import open_session

TIMES_MIN = 25
SPACE = Space("paper", "p/#", tuple(Dimension(f"x{i}", 0, 1_000) for i in range(4)))
NAMES = [one.name for one in SPACE.dimensions]


def boxes_table(count: int, seed: int) -> pa.Table:
    """The paper's boxes as `matching_boxes` would read them."""
    lows, highs = workload.boxes(count, seed)
    numbers = pa.array(np.arange(count))
    return pa.table(
        {
            "number": numbers,
            "id": numbers,
            "filter": pa.array(["p/#"] * count),
            "space": pa.array(np.zeros(count, np.int32)),
            "lows": pa.array(list(lows), pa.list_(pa.float64())),
            "highs": pa.array(list(highs), pa.list_(pa.float64())),
            "texts": pa.nulls(count, pa.string()),
        },
        boxes_schema(pa.int64()),
    )


def messages_table(count: int, seed: int, skewed: int = 0) -> pa.Table:
    points = workload.points(count, seed, skewed=skewed)
    width = len(NAMES)
    offsets = pa.array(np.arange(0, width * count + 1, width), pa.int32())
    attributes = pa.MapArray.from_arrays(
        offsets, pa.array(NAMES * count), pa.array(points.reshape(-1))
    )
    columns: dict[str, Any] = {
        "id": pa.array(np.arange(count)),
        "topic": pa.array(["p/a"] * count),
        "attributes": attributes,
    }
    columns |= {name: pa.array(points[:, i]) for i, name in enumerate(NAMES)}
    return pa.table(columns)


class Meter:
    """Seconds of the clock and of CPUs, and the largest worker."""

    def __init__(self) -> None:
        self.worker_bytes = 0

    def run(self, work: Callable[[], object]) -> tuple[float, float]:
        before = _cpu_all()
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        self.look()
        return seconds, _cpu_all() - before

    def look(self) -> None:
        for pid in _children():
            try:
                if "pyspark" not in Path(f"/proc/{pid}/cmdline").read_text():
                    continue
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            peak = [line for line in status.splitlines() if line.startswith("VmHWM")]
            name = status.partition("\n")[0]
            if peak and "java" not in name:
                self.worker_bytes = max(self.worker_bytes, int(peak[0].split()[1]) * 1024)


def _cpu_all() -> float:
    total = time.process_time()
    for pid in _children():
        try:
            total += _cpu_seconds(pid)
        except OSError:
            continue
    return total


def kept(spark: Any, given: pa.Table, parts: int) -> Any:  # noqa: ANN401
    frame = spark.createDataFrame(given).repartition(parts).cache()
    frame.count()
    return frame


def done(frame: Any) -> None:  # noqa: ANN401
    frame.write.format("noop").mode("overwrite").save()


def ours(
    messages: Any,  # noqa: ANN401
    boxes: pa.Table,
    spaces: tuple[Space, ...] = (),
    *,
    as_pairs: bool = False,
) -> Any:  # noqa: ANN401
    """What `match` does once it has read the subscriptions."""
    result = "subscription long" if as_pairs else "subscriptions array<long>"
    do = partial(match_batches, shipped=Shipped(packed(boxes), spaces), as_pairs=as_pairs)
    return messages.mapInArrow(do, f"message long, {result}")


def compare(
    title: str,
    contenders: dict[str, tuple[int, Callable[[], object]]],
    rounds: int,
    meter: Meter,
) -> None:
    """Contenders in turn, ours first, the other one last; how many messages each gets, its work."""
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
    """Topics that often match something: filters whose wildcards are filled in."""
    chosen = rng.integers(len(wanted), size=count).tolist()
    words = rng.integers(1_000, size=count).tolist()
    return [
        wanted[one].replace("+", f"w{word}").replace("#", f"v{word}")
        for one, word in zip(chosen, words, strict=True)
    ]


def as_pattern(topic_filter: str) -> str:
    """For topics that do not begin with `$`."""
    levels = topic_filter.split("/")
    ends = ""
    if levels[-1] == "#":
        levels.pop()
        ends = "(/.*)?" if levels else ".*"
    body = "/".join("[^/]*" if level == "+" else f"\\Q{level}\\E" for level in levels)
    return f"^{body}{ends}$"


def scaling(options: argparse.Namespace, meter: Meter) -> None:
    rows = []
    for cores in (1, 2):
        with session(cores) as spark:
            for boxes_count, count in (
                (workload.BOXES, options.messages // 4),
                (workload.BOXES, options.messages),
                (workload.BOXES // 4, options.messages),
                (workload.BOXES * 4, options.messages // 4),
            ):
                messages = kept(spark, messages_table(count, options.seed), 2 * cores)
                matched = ours(
                    messages.select("id", "topic", "attributes"),
                    boxes_table(boxes_count, options.seed),
                    (SPACE,),
                )
                done(matched)
                seconds, cpu = meter.run(lambda frame=matched: done(frame))
                rows.append(
                    [
                        str(cores),
                        f"{boxes_count:,}",
                        f"{count:,}",
                        f"{count / seconds:,.0f}",
                        f"{cpu / count * 1e6:,.1f}",
                    ]
                )
                messages.unpersist()
    head = ["cores", "boxes", "messages", "messages/s", "CPU µs/message"]
    table("Scaling, one go each after one that does not count", head, rows)


@contextmanager
def session(cores: int) -> Iterator[Any]:
    with open_session(f"local[{cores}]") as spark:
        yield spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--part", action="append", choices=["ranges", "topics", "scaling"], help="only these"
    )
    options = parser.parse_args()
    parts = options.part or ["ranges", "topics", "scaling"]
    meter = Meter()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load} before")
    if {"ranges", "topics"} & {*parts}:
        with session(2) as spark:
            if "ranges" in parts:
                ranges(spark, options, 2, meter)
            if "topics" in parts:
                topics(spark, options, 2, meter)
    if "scaling" in parts:
        scaling(options, meter)
    print(f"\nA Python worker held at most {meter.worker_bytes / 1e6:,.0f} MB.")
    finish()


if __name__ == "__main__":
    main()
