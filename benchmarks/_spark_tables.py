"""Tables, queries and the meter that benchmarks of matching on Spark share."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _match_engines import _children, _cpu_seconds
from dovetail.archive.arrow_stream import pack
from dovetail.attributes.space import Dimension, Space
from dovetail.pipeline.match.boxes import boxes_schema
from dovetail.pipeline.match.bulk import PackedBoxes, match_batches
from dovetail.sim import workload

SPACE = Space("paper", "p/#", tuple(Dimension(f"x{i}", 0, 1_000) for i in range(4)))
NAMES = [one.name for one in SPACE.dimensions]


def boxes_table(count: int, seed: int, width: float = workload.WIDTH) -> pa.Table:
    """The paper's boxes as `matching_boxes` would read them."""
    lows, highs = workload.boxes(count, seed, width=width)
    numbers = pa.array(np.arange(count))
    return pa.table(
        {
            "number": numbers,
            "id": numbers,
            "filter": pa.array(["p/#"] * count),
            "space": pa.array(np.zeros(count, np.int32)),
            "lows": _lists(lows),
            "highs": _lists(highs),
            "texts": pa.nulls(count, pa.string()),
        },
        boxes_schema(pa.int64()),
    )


def _lists(rows: workload.Floats) -> pa.Array:
    offsets = pa.array(np.arange(0, rows.size + 1, rows.shape[1]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(rows.reshape(-1)))


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
    """Measures elapsed seconds, CPU seconds and the largest worker."""

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
    """Return what `match` does after it has read the subscriptions."""
    result = "subscription long" if as_pairs else "subscriptions array<long>"
    do = partial(match_batches, shipped=PackedBoxes(pack(boxes), spaces), as_pairs=as_pairs)
    return messages.mapInArrow(do, f"message long, {result}")
