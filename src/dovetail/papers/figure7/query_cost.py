"""The wildcard paper's figure 7 (section V-A): what queries to a Bloom filter cost a broker.

The paper lets a broker put a chosen number of queries to a filter of 10,000 random strings for each
PUBLISH, and plots throughput and latency over that number. Here are the filter, the numbers that
are swept, and where the methods of figure 6(b) stand among them at 10 levels; then what was timed
is brought together. Nothing here touches a socket or a clock.

A string begins with `$`, which no wildcard matches (section 4.7.2 of MQTT), and has one level. So
the paper's own search asks exactly one query for it, and a search for n strings is n queries.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.papers.wildcard import simulation
from dovetail.papers.wildcard.comparison import (
    METHOD_NAMES,
    Averages,
    Comparison,
    averages,
    compare_deepest,
)
from dovetail.topics.sketches import METHODS, PrefixSketch, Sketch, bloom_size
from dovetail.topics.topic_column import Column

ELEMENTS = 10_000
ELEMENT_LETTERS = 100
FALSE_POSITIVE_RATE = 0.001
PAYLOAD_BYTES = 1_024
"""All of them section V-A."""

SWEPT = (0, 1, 3, 10, 100, 300, 1_000, 3_000)
"""Queries per PUBLISH. The paper's are only in its drawing; the methods' own come in between."""

POOL = 4_096
"""Strings that are asked for in turn, none of them in the filter."""

FIGURE, PANEL_INDEX, TRIALS = 6, 1, 10
"""Where the methods' counts come from: figure 6(b), the paper's number of trials."""
VALUE_INDEX = simulation.PANELS[PANEL_INDEX].values.index(10)
LEVELS = 10

SWEEP = "sweep"
"""The kind of a point at which strings are asked for; the others are methods, with a search of
their own."""

ROWS = pa.schema(
    [
        pa.field("round", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("queries", pa.int64()),
        pa.field("messages_per_second", pa.float64()),
        pa.field("full_load_mean_ms", pa.float64()),
        pa.field("paced_median_ms", pa.float64()),
        pa.field("paced_p99_ms", pa.float64()),
        pa.field("messages", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Point:
    """What a broker is to do for each PUBLISH: strings to ask for, or a method's own search."""

    kind: str
    queries: int = 0


@dataclass(frozen=True)
class Timing:
    """One point, the medians of its rounds."""

    messages_per_second: float
    full_load_mean_ms: float
    paced_median_ms: float
    paced_p99_ms: float


Timings = Mapping[Point, Timing]


# What is searched ---------------------------------------------------------------------------------


def counts(seed: int) -> Averages:
    """Queries per search at 10 levels, no match: the same as `reproduce wildcard` has them."""
    rows = [
        row
        for trial in range(TRIALS)
        for row in simulation.measure_cell(seed, FIGURE, PANEL_INDEX, VALUE_INDEX, trial)
    ]
    return averages(pa.Table.from_pylist(rows, simulation.ROWS))


def stands_at(measured: Averages) -> dict[str, float]:
    """The methods' mean counts."""
    panel = simulation.PANELS[PANEL_INDEX]
    value = panel.values[VALUE_INDEX]
    return {method: measured[FIGURE, panel.letter, value, method].queries for method in METHODS}


def points(marks: Mapping[str, float], swept: Sequence[int] = SWEPT) -> list[Point]:
    """The sweep, with the methods' counts among it; then each method's own search."""
    numbers = sorted({*swept, *(round(count) for count in marks.values())})
    return [*(Point(SWEEP, number) for number in numbers), *(Point(method) for method in marks)]


def draw_strings(seed: int) -> tuple[Sketch, Column]:
    """The filter with its 10,000 strings, and others to ask for."""
    rng = np.random.default_rng(seed)
    text = simulation.draw_text(rng, (ELEMENTS + POOL,), ELEMENT_LETTERS)
    text[:, 0] = ord("$")
    ends = np.arange(len(text) + 1, dtype=np.int64) * ELEMENT_LETTERS
    data = text.ravel()
    sketch = PrefixSketch.sized_for(
        ELEMENTS, FALSE_POSITIVE_RATE, seed=int(rng.integers(1 << 32)), queries_max=1
    )
    sketch.add_column(Column(data, ends[: ELEMENTS + 1]))
    return sketch, Column(data, ends[ELEMENTS:])


def method_search(method: str, seed: int) -> Callable[[Column], int]:
    """A search with the sketch of figure 6(b)'s first trial; it returns the queries."""
    filters, _, sketch_seed = simulation.cell_of(seed, FIGURE, PANEL_INDEX, VALUE_INDEX, 0)
    sketch = simulation.sketch_cell(method, filters, sketch_seed)
    return lambda topics: int(sketch.search_column(topics)[1].sum())


def string_search(queries: int, seed: int) -> Callable[[Column], int]:
    """So many strings are asked for, for each topic, in as few calls as the pool allows."""
    sketch, pool = draw_strings(seed)
    at = 0

    def search(topics: Column) -> int:
        nonlocal at
        left = queries * len(topics)
        asked = 0
        while left:
            count = min(left, POOL - at)
            strings = Column(pool.data, pool.offsets[at : at + count + 1])
            asked += int(sketch.search_column(strings)[1].sum())
            at = (at + count) % POOL
            left -= count
        return asked

    return search


def search_of(point: Point, seed: int) -> Callable[[Column], int]:
    if point.kind == SWEEP:
        return string_search(point.queries, seed)
    return method_search(point.kind, seed)


# What came out ------------------------------------------------------------------------------------


def medians(rows: pa.Table) -> dict[Point, Timing]:
    """Of the rounds, so that one that something else disturbed does not count."""
    found: dict[Point, list[dict[str, float]]] = {}
    for row in rows.to_pylist():
        key = Point(SWEEP, row["queries"]) if row["kind"] == SWEEP else Point(row["kind"])
        found.setdefault(key, []).append(row)
    names = ("messages_per_second", "full_load_mean_ms", "paced_median_ms", "paced_p99_ms")
    return {
        point: Timing(*(statistics.median(row[name] for row in several) for name in names))
        for point, several in found.items()
    }


def compare(measured: Averages, timings: Timings) -> list[Comparison]:
    """What the paper says of figure 7, and the counts that it puts beside it."""
    marks = stands_at(measured)
    sweep = sorted((point for point in timings if point.kind == SWEEP), key=lambda at: at.queries)
    low, high = timings[sweep[0]], timings[sweep[-1]]
    over = f"from {sweep[0].queries:,} to {sweep[-1].queries:,} queries"
    prefix, bfp = (timings[Point(SWEEP, round(marks[name]))] for name in ("prefix", "bfp"))
    faster = prefix.messages_per_second / bfp.messages_per_second
    own = timings[Point("prefix")].messages_per_second / timings[Point("bfp")].messages_per_second
    return [
        Comparison(
            f"Throughput, {over} per PUBLISH",
            "falls",
            f"{low.messages_per_second:,.0f} to {high.messages_per_second:,.0f} msg/s",
            "none" if high.messages_per_second < low.messages_per_second else "it does not fall",
            "Absolute values stand only in the paper's drawing, and are of other machines: see "
            "below.",
            high.messages_per_second < low.messages_per_second,
        ),
        Comparison(
            f"Latency, {over} per PUBLISH",
            "rises",
            f"{low.full_load_mean_ms:.1f} to {high.full_load_mean_ms:.1f} ms",
            "none" if high.full_load_mean_ms > low.full_load_mean_ms else "it does not rise",
            "The mean at full load, as in the paper, whose publisher sends every 10 microseconds. "
            "How high it is, is how much may be under way: 256 messages here.",
            high.full_load_mean_ms > low.full_load_mean_ms,
        ),
        Comparison(
            "Prefix method against BFP, at their counts",
            "performs better",
            f"{faster:.1f} times the throughput",
            "none" if faster > 1 else "it does not",
            f"With each method's own search of its own sketch in the broker: {own:.1f} times. "
            "That hashes a topic's levels once, where the sweep hashes 100 letters a query.",
            faster > 1,
        ),
        *compare_deepest(measured),
        _size(),
    ]


def _size() -> Comparison:
    bits, hashes = bloom_size(ELEMENTS, FALSE_POSITIVE_RATE)
    return Comparison(
        f"The filter: {ELEMENTS:,} strings of {ELEMENT_LETTERS} letters",
        f"rate {FALSE_POSITIVE_RATE}",
        f"b = {bits:,}, k = {hashes}",
        "",
        "The paper gives the rate, and no size. It uses Guava's filter with MurmurHash3, we our "
        "own: the sketch of the prefix method, with strings of one level.",
        None,
    )


def name_of(point: Point) -> str:
    if point.kind == SWEEP:
        return f"{point.queries:,} queries"
    return f"{METHOD_NAMES[point.kind]}, its own search"
