"""Compares our box index with NumPy, an R-tree and engines that join by ranges.

All match BlueDove's workload, with the same boxes. Options choose among these parts:

    engines    points a second, one thread for each engine
    changes    boxes a second that come and go, in the index and through a live matcher; memory
    copies     matchers that hold a box, with 0 %, 20 % and 80 % of the ranges open

Slow engines get fewer of the points; the ratio is that of times a point, within a round. Before
measuring, each engine's matches are compared with NumPy's for the first points. On a busy machine
`--clock cpu` measures processor time instead of elapsed time.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from _match_changes import changes
from _match_copies import copies
from _match_engines import CHECKED, ENGINES, Engine, Floats, NumPyRows, Ours, OursCounting, Pairs
from _measure import finish, ratio, table, verdict
from dovetail.sim import workload

_STARTED = time.monotonic()
TIMES_NUMPY_MIN = 350
CHANGES_MIN = 100_000


def progress(what: str) -> None:
    print(f"[{time.monotonic() - _STARTED:4.0f} s] {what}", file=sys.stderr, flush=True)


def sorted_pairs(pairs: Pairs, boxes: int) -> npt.NDArray[np.int64]:
    points, numbers = (np.asarray(part, np.int64) for part in pairs)
    return np.sort(points * boxes + numbers)


def clock_of(engine: Engine, clock: str) -> Callable[[], float]:
    return engine.cpu_seconds if clock == "cpu" else time.perf_counter


@dataclass
class Contender:
    engine: Engine
    inputs: Any
    points: int
    build_seconds: float

    def seconds(self, clock: str) -> float:
        """Return the seconds of one run."""
        now = clock_of(self.engine, clock)
        started = now()
        self.engine.match(self.inputs)
        return now() - started


def prepare(
    kinds: list[type[Engine]],
    count: int,
    points: Floats,
    options: argparse.Namespace,
    stack: ExitStack,
) -> tuple[list[Contender], list[str]]:
    lows, highs = workload.boxes(count, options.seed)
    contenders, remarks = [], []
    reference = NumPyRows(lows, highs, stack)
    expected = sorted_pairs(reference.pairs(reference.match(points[:CHECKED])), count)
    for kind in kinds:
        if count > kind.boxes_max:
            remarks.append(f"{kind.name}: takes minutes to build")
            continue
        progress(f"{count:,} boxes: {kind.name}")
        try:
            engine = kind(lows, highs, stack)
            now = clock_of(engine, options.clock)
            started = now()
            engine.build()
        except ImportError as error:
            remarks.append(f"{kind.name}: not installed ({error.name})")
            continue
        seconds = now() - started
        found = engine.pairs(engine.match(engine.prepare_points(points[:CHECKED])))
        if kind is OursCounting:
            assert len(found[0]) == len(expected), f"{kind.name} differs from NumPy"
        else:
            same = np.array_equal(sorted_pairs(found, count), expected)
            assert same, f"{kind.name} differs from NumPy"
        # Matches a point grow with the boxes, so every engine gets fewer points.
        share = max(1, len(points) // kind.share)
        contenders.append(Contender(engine, engine.prepare_points(points[:share]), share, seconds))
        if kind.note:
            remarks.append(f"{kind.name}: {kind.note}")
    return contenders, remarks


def engines(count: int, options: argparse.Namespace) -> None:
    """Show the table of one size."""
    kinds = [kind for kind in ENGINES if not options.only or kind.name in options.only]
    kinds = [*dict.fromkeys([NumPyRows, *kinds])]
    points_count = max(options.points * min(workload.BOXES / count, 1.0), 1_000)
    points = workload.points(int(points_count), options.seed)
    with ExitStack() as stack:
        contenders, remarks = prepare(kinds, count, points, options, stack)
        each: dict[str, list[float]] = {one.engine.name: [] for one in contenders}
        for turn in range(options.rounds + 1):
            progress(f"{count:,} boxes: round {turn} of {options.rounds}")
            for one in contenders:
                seconds = one.seconds(options.clock)
                if turn:
                    each[one.engine.name].append(seconds / one.points)
        matches = statistics.mean(map(len, contenders[0].engine.match(points[:CHECKED])))
    base = each[NumPyRows.name]
    rows = [
        [
            one.engine.name,
            f"{one.build_seconds:.2f}",
            f"{one.points:,}",
            f"{statistics.median(each[one.engine.name]) * 1e6:,.2f}",
            f"{1 / statistics.median(each[one.engine.name]):,.0f}",
            f"{ratio(base, each[one.engine.name]):,.1f}",
        ]
        for one in contenders
    ]
    table(
        f"{count:,} boxes, {matches:,.0f} matches a point; medians of {options.rounds} rounds, "
        f"{options.clock} time",
        ["engine, one thread", "build s", "points", "µs/point", "points/s", "x NumPy"],
        rows,
    )
    for line in remarks:
        print(f"  {line}")
    if Ours.name in each:
        judge(count, each)


def judge(count: int, each: dict[str, list[float]]) -> None:
    ours = each[Ours.name]
    times = ratio(each[NumPyRows.name], ours)
    verdict(f"{count:,} boxes: times NumPy", times, TIMES_NUMPY_MIN, at_most=False)
    others = {
        name: ratio(seconds, ours)
        for name, seconds in each.items()
        if not name.startswith(Ours.name)
    }
    best = min(others, key=others.__getitem__)
    verdict(f"{count:,} boxes: times the best other, {best}", others[best], 1, at_most=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ["engines", "changes", "copies"]
    parser.add_argument("parts", nargs="*", metavar="PART", help="all unless some are named")
    parser.add_argument(
        "--boxes", type=int, nargs="+", default=[workload.BOXES, 1_000_000], help="sizes to measure"
    )
    parser.add_argument(
        "--points", type=int, default=20_000, help="for the fastest, at 40,000 boxes (20000)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    names = ", ".join(kind.name for kind in ENGINES)
    parser.add_argument("--only", nargs="+", metavar="ENGINE", help=f"besides NumPy: {names}")
    chosen = parser.parse_args()
    chosen.parts = chosen.parts or parts
    if unknown := set(chosen.parts) - set(parts):
        parser.error(f"there is no part {min(unknown)!r}: {', '.join(parts)}")
    if chosen.rounds < 1:
        parser.error("--rounds has to be more than 0")
    return chosen


def main() -> None:
    options = arguments()
    for size in options.boxes:
        if "engines" in options.parts:
            engines(size, options)
        if "changes" in options.parts:
            progress(f"{size:,} boxes: changes")
            for what, rate in changes(size, options.rounds, options.seed, options.clock).items():
                verdict(f"{size:,} boxes: {what} a second", rate, CHANGES_MIN, at_most=False)
    if "copies" in options.parts:
        copies(options.seed)
    finish()


if __name__ == "__main__":
    main()
