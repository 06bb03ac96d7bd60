"""Measures boxes that come and go: in the index alone, and through a matcher as brokers feed it.

Every round inserts boxes and removes the same ones, so that the size stays the same. A live matcher
gets a broker's changes in steps. A step has the changes of one turn, or all that came while earlier
steps were on their way, up to `FEED_FRAME_BOXES_MAX`. So a broker with rare changes sends steps of
one box, and a broker with many sends full ones.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from _measure import table
from dovetail.attributes.box_index import BoxIndex
from dovetail.attributes.partition import Bounds
from dovetail.matcher.answers import MatcherAnswers
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.limits import FEED_FRAME_BOXES_MAX
from dovetail.matcher.matcher_messages import FeedStep, encode
from dovetail.sim import workload

BATCHES = (1, 16, 256, FEED_FRAME_BOXES_MAX)
ONE_BY_ONE = 4_096
"""Boxes that come and go in a round, if each comes alone; eight times as many in batches."""
POINTS, TURNS = 2_000, 9
"""Points for the comparison of a worn index with a new one."""

Rates = dict[int, tuple[float, float]]
"""By batch size: medians of boxes inserted and removed a second."""

_BROKER = "broker"


def changes(count: int, rounds: int, seed: int, clock: str) -> dict[str, float]:
    """Show the tables of one size; return the rates that have a limit."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    boxes, more = workload.boxes(count, seed), workload.boxes(8 * ONE_BY_ONE, seed + 1)
    _Index(workload.boxes(ONE_BY_ONE, seed), now)  # kernels are loaded
    index = _Index(boxes, now)
    in_index = _rates(index, more, rounds, now)
    in_matcher = _rates(_Matcher(boxes), more, rounds, now)
    rows = []
    for name, rates in (("the index", in_index), ("a live matcher", in_matcher)):
        for way, what in enumerate(("insert", "discard")):
            rows.append([f"{name}, {what}", *(f"{rates[batch][way]:,.0f}" for batch in BATCHES)])
    table(
        f"Changes of {count:,} boxes, boxes a second by how many come together; "
        f"medians of {rounds} rounds, {clock} time",
        ["", *(f"{batch:,}" for batch in BATCHES)],
        rows,
    )
    print(
        f"  All at once: {index.bulk_rate:,.0f} a second. The index has {index.bytes_per_box:.0f} "
        f"bytes a box.\n  After {index.replaced:,} boxes were replaced one by one, a point takes "
        f"{index.wear(seed):.2f} times as long as in an index that is built at once."
    )
    return {
        "single inserts": in_index[1][0],
        "single discards": in_index[1][1],
        "inserts through a matcher, 256 a step,": in_matcher[256][0],
        "discards through a matcher, 256 a step,": in_matcher[256][1],
    }


class _Index:
    """The index alone. It remembers boxes by the number of their batch."""

    def __init__(self, boxes: tuple[Floats, Floats], now: Callable[[], float]) -> None:
        self._boxes = boxes
        self._now = now
        self._index = BoxIndex(*workload.bounds())
        started = now()
        self._slots = self._index.insert(*boxes)
        self.bulk_rate = len(boxes[0]) / (now() - started)
        self.bytes_per_box = self._index.nbytes / len(boxes[0])
        self.replaced = min(len(boxes[0]), 40_000)
        self._came: list[np.ndarray] = []

    def begin(self, batch: int, boxes: tuple[Floats, Floats]) -> None:
        lows, highs = boxes
        starts = range(0, len(lows), batch)
        self._batches = [(lows[at : at + batch], highs[at : at + batch]) for at in starts]

    def insert(self) -> None:
        insert = self._index.insert
        self._came = [insert(lows, highs) for lows, highs in self._batches]

    def discard(self) -> None:
        for slots in self._came:
            self._index.discard(slots)

    def wear(self, seed: int) -> float:
        """Return the time a point after replacing boxes, divided by that in a new index."""
        lows, highs = self._boxes
        order = np.random.default_rng(seed).permutation(len(self._slots))[: self.replaced]
        for place in order.tolist():
            self._index.discard(self._slots[place : place + 1])
            self._index.insert(lows[place : place + 1], highs[place : place + 1])
        fresh = BoxIndex(*workload.bounds())
        fresh.insert(lows, highs)
        points = workload.points(POINTS, seed)
        ratios = []
        for _ in range(TURNS + 1):
            times = [self._now()]
            for index in (self._index, fresh):
                index.match(points)
                times.append(self._now())
            ratios.append((times[1] - times[0]) / (times[2] - times[1]))
        return statistics.median(ratios[1:])


class _Matcher:
    """A matcher of a whole space that one broker feeds. Time counts from frames on."""

    def __init__(self, boxes: tuple[Floats, Floats]) -> None:
        self._layout = Layout(
            "bench",
            (Bounds(0.0, workload.LENGTH),) * workload.DIMENSIONS,
            tuple(range(workload.DIMENSIONS)),
        )
        self._answering = MatcherAnswers({self._layout.id: self._layout}, 0.0)
        self._first = len(boxes[0])
        self._sequence = 0
        everything = [[(0.0, workload.LENGTH)]] * workload.DIMENSIONS
        self._take([self._step(np.arange(0), np.empty((0, 2)), cover=everything)])
        self._take(self._steps(FEED_FRAME_BOXES_MAX, boxes, 0))

    def begin(self, batch: int, boxes: tuple[Floats, Floats]) -> None:
        self._coming = self._steps(batch, boxes, self._first)
        starts = range(0, len(boxes[0]), batch)
        numbers = np.arange(self._first, self._first + len(boxes[0]))
        empty = np.empty((0, 2))
        self._going = [
            self._step(np.arange(0), empty, dropped=numbers[at : at + batch]) for at in starts
        ]

    def _steps(self, batch: int, boxes: tuple[Floats, Floats], first: int) -> list[bytes]:
        edges = np.concatenate(boxes, axis=1)
        return [
            self._step(np.arange(first + at, first + at + len(part)), part)
            for at in range(0, len(edges), batch)
            for part in (edges[at : at + batch],)
        ]

    def _step(
        self,
        numbers: np.ndarray,
        edges: Floats,
        *,
        dropped: np.ndarray | None = None,
        cover: list[list[tuple[float, float]]] | None = None,
    ) -> bytes:
        gone = np.arange(0) if dropped is None else dropped
        body = FeedStep(
            self._layout.id,
            1,
            1,
            self._sequence,
            self._sequence,
            cover,
            numbers.astype("<u4").tobytes(),
            edges.astype("<f8").tobytes(),
            gone.astype("<u4").tobytes(),
        )
        self._sequence += 1
        return encode(body)

    def insert(self) -> None:
        self._take(self._coming)

    def discard(self) -> None:
        self._take(self._going)

    def _take(self, steps: Sequence[bytes]) -> None:
        for step in steps:
            self._answering.receive_feed(_BROKER, step)


def _rates(
    holder: _Index | _Matcher,
    more: tuple[Floats, Floats],
    rounds: int,
    now: Callable[[], float],
) -> Rates:
    rates: Rates = {}
    for batch in BATCHES:
        total = ONE_BY_ONE if batch == 1 else len(more[0])
        measured: list[tuple[float, float]] = []
        for _ in range(rounds + 1):
            holder.begin(batch, (more[0][:total], more[1][:total]))
            times = [now()]
            for change in (holder.insert, holder.discard):
                change()
                times.append(now())
            measured.append((total / (times[1] - times[0]), total / (times[2] - times[1])))
        came, went = zip(*measured[1:], strict=True)
        rates[batch] = (statistics.median(came), statistics.median(went))
    return rates
