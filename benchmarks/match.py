"""Matching points with boxes: the index beside NumPy, an R-tree and engines that join by ranges.

BlueDove's workload, one thread for each engine, the same boxes for all. Slow engines get fewer of
the points; the ratio is that of times a point, within a round. Each engine's matches are compared
with NumPy's for the first points before anything is measured.
"""

import argparse
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

os.environ["POLARS_MAX_THREADS"] = "1"  # read when it is imported

import numpy as np
import numpy.typing as npt

from _measure import finish, ratio, table, verdict
from dovetail.attributes import workload
from dovetail.attributes.index import BoxIndex

Floats = npt.NDArray[np.float64]
Pairs = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Numbers of points, and numbers of the boxes that they fall in."""

_STARTED = time.monotonic()
BUILD_SECONDS_MAX = 30.0
CHECKED = 20
"""Points whose matches are compared."""


def progress(what: str) -> None:
    print(f"[{time.monotonic() - _STARTED:4.0f} s] {what}", file=sys.stderr, flush=True)


class Engine:
    """Made of boxes; `match` is what is measured, and `pairs` says what it found."""

    name: ClassVar[str]
    share: ClassVar[int] = 1
    """It gets one of so many points."""
    boxes_max: ClassVar[int] = 10**9
    note: ClassVar[str] = ""

    def __init__(self, lows: Floats, highs: Floats, stack: ExitStack) -> None:
        self.lows, self.highs, self.stack = lows, highs, stack
        self.dimensions = lows.shape[1]
        self.start()

    def start(self) -> None:
        """What has nothing to do with boxes."""

    def build(self) -> None: ...

    def match(self, points: Floats) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        raise NotImplementedError


def _numbered(found: list[npt.NDArray[np.int64]]) -> Pairs:
    counts = [len(boxes) for boxes in found]
    return np.repeat(np.arange(len(found)), counts), np.concatenate(found)


class NumPyRows(Engine):
    """The measure of all others: every box compared, as one would write it down."""

    name = "NumPy, all boxes"
    share = 100

    def match(self, points: Floats) -> list[npt.NDArray[np.int64]]:
        lows, highs = self.lows, self.highs
        return [np.flatnonzero(((lows <= point) & (point < highs)).all(axis=1)) for point in points]

    def pairs(self, found: list[npt.NDArray[np.int64]]) -> Pairs:
        return _numbered(found)


class NumPyColumns(NumPyRows):
    name = "NumPy, column by column"
    share = 20

    def build(self) -> None:
        self.columns = list(
            zip(self.lows.T.copy(), self.highs.T.copy(), strict=True)  # contiguous ones
        )

    def match(self, points: Floats) -> list[npt.NDArray[np.int64]]:
        return [self._one(point) for point in points]

    def _one(self, point: Floats) -> npt.NDArray[np.int64]:
        inside = np.ones(len(self.lows), bool)
        for (lows, highs), value in zip(self.columns, point, strict=True):
            inside &= lows <= value
            inside &= value < highs
        return np.flatnonzero(inside)


class Ours(Engine):
    """Batches, as they come from a socket; what one gave is dropped before the next is matched."""

    name = "Dovetail"
    batch = 1_000
    kept = 1

    def build(self) -> None:
        self.index = BoxIndex(*workload.bounds(self.dimensions))
        slots = self.index.insert(self.lows, self.highs)
        self.box_of = np.empty(slots.max() + 1, np.int64)
        self.box_of[slots] = np.arange(len(slots))

    def match(self, points: Floats) -> deque[Any]:
        found = deque[Any](maxlen=self.kept)
        for at in range(0, len(points), self.batch):
            found.append(self.index.match(points[at : at + self.batch]))
        return found

    def pairs(self, found: deque[Any]) -> Pairs:
        counts = np.concatenate([np.diff(offsets) for offsets, _ in found])
        slots = np.concatenate([slots for _, slots in found])
        return np.repeat(np.arange(len(counts)), counts), self.box_of[slots]


class OursOne(Ours):
    name = "Dovetail, one point a call"
    batch = 1
    kept = CHECKED
    share = 4


class OursCounting(Ours):
    name = "Dovetail, counting only"

    def match(self, points: Floats) -> Any:  # noqa: ANN401
        return self.index.count(points)

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        return np.repeat(np.arange(len(found)), found), np.empty(0)


class RTree(Engine):
    name = "R-tree (libspatialindex)"
    share = 10
    boxes_max = 200_000

    def build(self) -> None:
        from rtree import index

        shape = index.Property(dimension=self.dimensions)
        self.tree = index.Index(self._stream(), properties=shape, interleaved=True)

    def _stream(self) -> Iterator[tuple[int, list[float], None]]:
        both = np.concatenate((self.lows, self.highs), axis=1).tolist()
        for number, box in enumerate(both):
            yield number, box, None

    def match(self, points: Floats) -> Any:  # noqa: ANN401
        return self.tree.intersection_v(points, points)

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        boxes, counts = found
        return np.repeat(np.arange(len(counts)), counts.astype(np.int64)), boxes


def frame(prefix: str, *sides: Floats) -> dict[str, npt.NDArray[Any]]:
    """Columns: a number, and l0, h0, l1, h1... of boxes or x0, x1... of points."""
    columns: dict[str, npt.NDArray[Any]] = {f"{prefix}id": np.arange(len(sides[0]))}
    for letter, side in zip("lh" if len(sides) == 2 else "x", sides, strict=True):
        columns |= {f"{letter}{j}": np.ascontiguousarray(side[:, j]) for j in range(side.shape[1])}
    return columns


def condition(dimensions: int) -> str:
    return " AND ".join(f"x{j} >= l{j} AND x{j} < h{j}" for j in range(dimensions))


class DuckDB(Engine):
    name = "DuckDB"
    share = 10

    def build(self) -> None:
        import duckdb
        import pandas as pd

        self.connection = duckdb.connect(config={"threads": 1})
        self.stack.callback(self.connection.close)
        self.connection.register("given", pd.DataFrame(frame("b", self.lows, self.highs)))
        self.connection.execute("CREATE TABLE boxes AS SELECT * FROM given")

    def match(self, points: Floats) -> Any:  # noqa: ANN401
        import pandas as pd

        self.connection.register("points", pd.DataFrame(frame("p", points)))
        join = f"SELECT pid, bid FROM points JOIN boxes ON {condition(self.dimensions)}"  # noqa: S608
        return self.connection.execute(join).fetchnumpy()

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        return found["pid"], found["bid"]


class Polars(Engine):
    name = "Polars join_where"
    share = 20

    def build(self) -> None:
        import polars as pl

        self.boxes = pl.DataFrame(frame("b", self.lows, self.highs))

    def match(self, points: Floats) -> Any:  # noqa: ANN401
        import polars as pl

        ranges = []
        for j in range(self.dimensions):
            ranges += [pl.col(f"x{j}") >= pl.col(f"l{j}"), pl.col(f"x{j}") < pl.col(f"h{j}")]
        return pl.DataFrame(frame("p", points)).join_where(self.boxes, *ranges)

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        return found["pid"].to_numpy(), found["bid"].to_numpy()


class Spark(Engine):
    name = "Spark SQL range join, local[1]"
    share = 4  # a job costs tenths of a second whatever it does, so it gets many
    note = "one task at a time, but Java's collector of garbage and compiler have their own threads"

    def start(self) -> None:
        from dovetail.pipeline.session import open_session

        self.spark = self.stack.enter_context(open_session("local[1]"))
        self.spark.conf.set("spark.sql.shuffle.partitions", "1")
        self.spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")

    def build(self) -> None:
        import pandas as pd

        self.boxes = self.spark.createDataFrame(pd.DataFrame(frame("b", self.lows, self.highs)))
        self.boxes = self.boxes.coalesce(1).cache()
        self.boxes.count()

    def match(self, points: Floats) -> Any:  # noqa: ANN401
        import pandas as pd
        from pyspark.sql.functions import broadcast, expr

        given = self.spark.createDataFrame(pd.DataFrame(frame("p", points)))
        on = expr(condition(self.dimensions))
        return self.boxes.join(broadcast(given), on).select("pid", "bid").toArrow()

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        return found["pid"].to_numpy(), found["bid"].to_numpy()


ENGINES = (NumPyRows, NumPyColumns, Ours, OursOne, OursCounting, RTree, DuckDB, Polars, Spark)


def sorted_pairs(pairs: Pairs, boxes: int) -> npt.NDArray[np.int64]:
    points, numbers = (np.asarray(part, np.int64) for part in pairs)
    return np.sort(points * boxes + numbers)


@dataclass
class Contender:
    engine: Engine
    points: Floats
    build_seconds: float


def prepare(
    kinds: list[type[Engine]], count: int, points: Floats, options: argparse.Namespace
) -> tuple[list[Contender], list[str], ExitStack]:
    lows, highs = workload.boxes(count, options.seed)
    stack, contenders, remarks = ExitStack(), [], []
    reference = NumPyRows(lows, highs, stack)
    expected = sorted_pairs(reference.pairs(reference.match(points[:CHECKED])), count)
    for kind in kinds:
        if count > kind.boxes_max:
            remarks.append(f"{kind.name}: takes more than {BUILD_SECONDS_MAX:.0f} s to build")
            continue
        progress(f"{count:,} boxes: {kind.name}")
        try:
            engine = kind(lows, highs, stack)
            started = time.perf_counter()
            engine.build()
        except ImportError as error:
            remarks.append(f"{kind.name}: not installed ({error.name})")
            continue
        seconds = time.perf_counter() - started
        found = engine.pairs(engine.match(points[:CHECKED]))
        if kind is OursCounting:
            assert len(found[0]) == len(expected), f"{kind.name} differs from NumPy"
        else:
            same = np.array_equal(sorted_pairs(found, count), expected)
            assert same, f"{kind.name} differs from NumPy"
        # As the matches a point grow with the boxes, everyone gets fewer points.
        share = max(1, len(points) // kind.share)
        if seconds > BUILD_SECONDS_MAX and count > workload.BOXES:
            remarks.append(f"{kind.name}: took {seconds:.0f} s to build")
            continue
        contenders.append(Contender(engine, points[:share], seconds))
        if kind.note:
            remarks.append(f"{kind.name}: {kind.note}")
    return contenders, remarks, stack


def measure(count: int, options: argparse.Namespace) -> float:
    """The table of one size; returns how many times NumPy's rate ours is."""
    kinds = [kind for kind in ENGINES if not options.only or kind.name in options.only]
    kinds = [*dict.fromkeys([NumPyRows, *kinds])]
    points_count = max(options.points * min(workload.BOXES / count, 1.0), 1_000)
    points = workload.points(int(points_count), options.seed)
    contenders, remarks, stack = prepare(kinds, count, points, options)
    with stack:
        each: dict[str, list[float]] = {one.engine.name: [] for one in contenders}
        for turn in range(options.rounds + 1):
            progress(f"{count:,} boxes: round {turn} of {options.rounds}")
            for one in contenders:
                started = time.perf_counter()
                one.engine.match(one.points)
                seconds = time.perf_counter() - started
                if turn:
                    each[one.engine.name].append(seconds / len(one.points))
        matches = statistics.mean(map(len, contenders[0].engine.match(points[:CHECKED])))
    base = each[NumPyRows.name]
    rows = [
        [
            one.engine.name,
            f"{one.build_seconds:.2f}",
            f"{len(one.points):,}",
            f"{statistics.median(each[one.engine.name]) * 1e6:,.2f}",
            f"{1 / statistics.median(each[one.engine.name]):,.0f}",
            f"{ratio(base, each[one.engine.name]):,.1f}",
        ]
        for one in contenders
    ]
    table(
        f"{count:,} boxes, {matches:,.0f} matches a point; medians of {options.rounds} rounds",
        ["engine, one thread", "build s", "points", "µs/point", "points/s", "x NumPy"],
        rows,
    )
    for line in remarks:
        print(f"  {line}")
    return ratio(base, each[Ours.name]) if Ours.name in each else 0.0


def rate(calls: list[Callable[[], object]], boxes: int) -> float:
    started = time.perf_counter()
    for call in calls:
        call()
    return boxes / (time.perf_counter() - started)


def change(count: int, options: argparse.Namespace) -> list[float]:
    """Inserts and discards a second into an index of this size, and its memory."""
    lows, highs = workload.boxes(count, options.seed)
    more = workload.boxes(20_000, options.seed + 1)
    index = BoxIndex(*workload.bounds())
    bulk = rate([lambda: index.insert(lows, highs)], count)
    memory = index.nbytes / count
    rates: dict[tuple[str, int], list[float]] = {}
    for turn in range(options.rounds + 1):
        progress(f"{count:,} boxes: changes, round {turn} of {options.rounds}")
        for batch, total in ((1_000, 20_000), (1, 5_000)):
            slots: list[npt.NDArray[np.int64]] = []

            def insert(at: int, batch: int = batch, slots: list[Any] = slots) -> None:
                slots.append(index.insert(more[0][at : at + batch], more[1][at : at + batch]))

            def discard(at: int, batch: int = batch, slots: list[Any] = slots) -> None:
                index.discard(slots[at // batch])

            for name, call in (("insert", insert), ("discard", discard)):
                calls = [lambda at=at, call=call: call(at) for at in range(0, total, batch)]
                measured = rate(calls, total)
                if turn:
                    rates.setdefault((name, batch), []).append(measured)
    medians = {key: statistics.median(values) for key, values in rates.items()}
    table(
        f"Changes of an index of {count:,} boxes, boxes a second; medians of {options.rounds}",
        ["all at once", "insert 1,000", "discard 1,000", "insert 1", "discard 1", "bytes a box"],
        [
            [
                f"{bulk:,.0f}",
                f"{medians['insert', 1_000]:,.0f}",
                f"{medians['discard', 1_000]:,.0f}",
                f"{medians['insert', 1]:,.0f}",
                f"{medians['discard', 1]:,.0f}",
                f"{memory:.0f}",
            ]
        ],
    )
    return [medians["insert", 1_000], medians["discard", 1_000]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--boxes", type=int, nargs="+", default=[workload.BOXES, 1_000_000], help="sizes to measure"
    )
    parser.add_argument(
        "--points", type=int, default=20_000, help="for the fastest, at 40,000 boxes (20000)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    names = ", ".join(kind.name for kind in ENGINES)
    parser.add_argument("--only", nargs="+", metavar="ENGINE", help=f"besides NumPy: {names}")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = arguments()
    for size in chosen.boxes:
        times = measure(size, chosen)
        changes = change(size, chosen)
        if times:
            verdict(f"{size:,} boxes: times NumPy", times, 350, at_most=False)
        verdict(f"{size:,} boxes: changes a second", min(changes), 100_000, at_most=False)
    finish()
