"""Engines that match points with boxes, behind one interface.

Only `match` is measured: before it, `prepare_points` converts the points for the engine. Every
engine has one thread, and returns numbers of points and boxes in arrays.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

os.environ["POLARS_MAX_THREADS"] = "1"  # read when it is imported

import numpy as np
import numpy.typing as npt

from dovetail.attributes.box_index import BoxIndex
from dovetail.sim import workload

Floats = npt.NDArray[np.float64]
Pairs = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Numbers of points, and numbers of the boxes that they fall in."""

CHECKED = 20
"""Points whose matches are compared with NumPy's."""


class Engine:
    """An engine with boxes. `match` is measured, and `pairs` returns its result."""

    name: ClassVar[str]
    share: ClassVar[int] = 1
    """It gets every n-th point."""
    boxes_max: ClassVar[int] = 10**9
    note: ClassVar[str] = ""

    def __init__(self, lows: Floats, highs: Floats, stack: ExitStack) -> None:
        self.lows, self.highs, self.stack = lows, highs, stack
        self.dimensions = lows.shape[1]
        self.start()

    def start(self) -> None:
        """Start what does not depend on boxes."""

    def build(self) -> None: ...

    def prepare_points(self, points: Floats) -> Any:  # noqa: ANN401
        """Convert the points for the engine."""
        return points

    def match(self, inputs: Any) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of its process so far."""
        return time.process_time()

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        raise NotImplementedError


def _numbered(found: list[npt.NDArray[np.int64]]) -> Pairs:
    counts = [len(boxes) for boxes in found]
    return np.repeat(np.arange(len(found)), counts), np.concatenate(found)


class NumPyRows(Engine):
    """The baseline: compares every box, in the simplest way."""

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
    """Our index with batches, as from a socket; each result is dropped before the next batch."""

    name = "Dovetail"
    batch = 1_000
    kept = 1

    def start(self) -> None:
        """Load kernels, which were compiled at set-up."""
        index = BoxIndex(*workload.bounds(self.dimensions))
        index.insert(self.lows[:100], self.highs[:100])

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
    """Return columns: a number, and l0, h0, l1, h1... of boxes or x0, x1... of points."""
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

    def prepare_points(self, points: Floats) -> Any:  # noqa: ANN401
        import pandas as pd

        self.connection.register("given", pd.DataFrame(frame("p", points)))
        name = f"points_{len(points)}"
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")  # noqa: S608
        return name

    def match(self, inputs: str) -> Any:  # noqa: ANN401
        join = f"SELECT pid, bid FROM {inputs} JOIN boxes ON {condition(self.dimensions)}"  # noqa: S608
        return self.connection.execute(join).fetchnumpy()

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        return found["pid"], found["bid"]


class Polars(Engine):
    name = "Polars join_where"
    share = 20

    def build(self) -> None:
        import polars as pl

        self.boxes = pl.DataFrame(frame("b", self.lows, self.highs))

    def prepare_points(self, points: Floats) -> Any:  # noqa: ANN401
        import polars as pl

        return pl.DataFrame(frame("p", points))

    def match(self, inputs: Any) -> Any:  # noqa: ANN401
        import polars as pl

        ranges = []
        for j in range(self.dimensions):
            ranges += [pl.col(f"x{j}") >= pl.col(f"l{j}"), pl.col(f"x{j}") < pl.col(f"h{j}")]
        return inputs.join_where(self.boxes, *ranges)

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        return found["pid"].to_numpy(), found["bid"].to_numpy()


class Spark(Engine):
    """Measures only the query: boxes, points and results stay in Spark's memory."""

    name = "Spark SQL range join, local[1]"
    share = 4  # a job has a fixed cost of tenths of a second, so it gets many
    note = (
        "one task at a time, the query alone; CPU time has Java's compiler and collector of "
        "garbage in it, which have threads of their own"
    )

    def start(self) -> None:
        from dovetail.pipeline.spark.spark_session import open_session

        self.spark = self.stack.enter_context(open_session("local[1]"))
        self.spark.conf.set("spark.sql.shuffle.partitions", "1")
        self.spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")

    def _kept(self, columns: dict[str, npt.NDArray[Any]]) -> Any:  # noqa: ANN401
        import pandas as pd

        kept = self.spark.createDataFrame(pd.DataFrame(columns)).coalesce(1).cache()
        kept.count()
        return kept

    def build(self) -> None:
        self.boxes = self._kept(frame("b", self.lows, self.highs))

    def prepare_points(self, points: Floats) -> Any:  # noqa: ANN401
        return self._kept(frame("p", points))

    def _join(self, inputs: Any) -> Any:  # noqa: ANN401
        from pyspark.sql.functions import broadcast, expr

        on = expr(condition(self.dimensions))
        return self.boxes.join(broadcast(inputs), on).select("pid", "bid")

    def match(self, inputs: Any) -> Any:  # noqa: ANN401
        self._join(inputs).write.format("noop").mode("overwrite").save()
        return inputs

    def pairs(self, found: Any) -> Pairs:  # noqa: ANN401
        pairs = self._join(found).toArrow()
        return pairs["pid"].to_numpy(), pairs["bid"].to_numpy()

    def cpu_seconds(self) -> float:
        return time.process_time() + sum(map(_cpu_seconds, _children()))


def _children() -> list[int]:
    """Return our child processes and their children, Java among them."""
    found = [os.getpid()]
    for pid in found:
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, thread.read_text().split())
    return found[1:]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


ENGINES = (NumPyRows, NumPyColumns, Ours, OursOne, OursCounting, RTree, DuckDB, Polars, Spark)
