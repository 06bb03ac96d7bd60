"""The wildcard paper's figure 7 (section V-A): the cost of Bloom filter queries for a broker. Pure.

The paper lets a broker make a chosen number of queries to a filter of 10,000 random strings for
each PUBLISH, and plots throughput and latency over that number. This module has the filter, the
swept numbers of queries, the counts of the methods of figure 6(b) at 10 levels, and the evaluation
of the times. It uses no socket and no clock.

A string begins with `$`, which no wildcard matches (section 4.7.2 of MQTT), and has one level. So
the paper's own search makes exactly one query for it, and a search for n strings makes n queries.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.papers.comparison_table import Comparison
from dovetail.papers.wildcard import simulation
from dovetail.papers.wildcard.comparison import (
    METHOD_NAMES,
    Averages,
    averages,
    compare_deepest,
)
from dovetail.topics.sketches import METHODS, PrefixSketch, Sketch, bloom_size
from dovetail.topics.topic_column import TopicColumn

ELEMENTS = 10_000
ELEMENT_LETTERS = 100
FALSE_POSITIVE_RATE = 0.001
PAYLOAD_BYTES = 1_024
"""These constants are from section V-A."""

SWEPT = (0, 1, 3, 10, 100, 300, 1_000, 3_000)
"""Queries per PUBLISH. The paper shows its numbers only in the drawing. The methods' counts are
added."""

POOL = 4_096
"""The number of strings to search for in turn. None is in the filter."""

FIGURE, PANEL_INDEX, TRIALS = 6, 1, 10
"""The source of the methods' counts: figure 6(b), with the paper's number of trials."""
VALUE_INDEX = simulation.PANELS[PANEL_INDEX].values.index(10)
LEVELS = 10

SWEEP = "sweep"
"""The kind of a point that searches for strings. The other kinds are methods with their own
search."""

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
class SearchPoint:
    """The search for each PUBLISH: a number of strings, or a method's own search."""

    kind: str
    queries: int = 0


@dataclass(frozen=True)
class PointTiming:
    """The medians of the rounds of one point."""

    messages_per_second: float
    full_load_mean_ms: float
    paced_median_ms: float
    paced_p99_ms: float


Timings = Mapping[SearchPoint, PointTiming]


# Searches ----------------------------------------------------------------------------------------


def counts(seed: int) -> Averages:
    """Return the queries per search at 10 levels without a match, as `reproduce wildcard` does."""
    rows = [
        row
        for trial in range(TRIALS)
        for row in simulation.measure_cell(seed, FIGURE, PANEL_INDEX, VALUE_INDEX, trial)
    ]
    return averages(pa.Table.from_pylist(rows, simulation.ROWS))


def mean_queries(measured: Averages) -> dict[str, float]:
    """Return the mean number of queries of each method."""
    panel = simulation.PANELS[PANEL_INDEX]
    value = panel.values[VALUE_INDEX]
    return {method: measured[FIGURE, panel.letter, value, method].queries for method in METHODS}


def points(marks: Mapping[str, float], swept: Sequence[int] = SWEPT) -> list[SearchPoint]:
    """Return the points of the sweep and the methods' counts, then each method's own search."""
    numbers = sorted({*swept, *(round(count) for count in marks.values())})
    return [
        *(SearchPoint(SWEEP, number) for number in numbers),
        *(SearchPoint(method) for method in marks),
    ]


def draw_strings(seed: int) -> tuple[Sketch, TopicColumn]:
    """Draw the filter with its 10,000 strings, and the strings to search for."""
    rng = np.random.default_rng(seed)
    text = simulation.draw_text(rng, (ELEMENTS + POOL,), ELEMENT_LETTERS)
    text[:, 0] = ord("$")
    ends = np.arange(len(text) + 1, dtype=np.int64) * ELEMENT_LETTERS
    data = text.ravel()
    sketch = PrefixSketch.sized_for(
        ELEMENTS, FALSE_POSITIVE_RATE, seed=int(rng.integers(1 << 32)), queries_max=1
    )
    sketch.add_column(TopicColumn(data, ends[: ELEMENTS + 1]))
    return sketch, TopicColumn(data, ends[ELEMENTS:])


def method_search(method: str, seed: int) -> Callable[[TopicColumn], int]:
    """Return a search in the sketch of figure 6(b)'s first trial; it returns the queries."""
    filters, _, sketch_seed = simulation.cell_of(seed, FIGURE, PANEL_INDEX, VALUE_INDEX, 0)
    sketch = simulation.sketch_cell(method, filters, sketch_seed)
    return lambda topics: int(sketch.search_column(topics)[1].sum())


def string_search(queries: int, seed: int) -> Callable[[TopicColumn], int]:
    """Return a search for `queries` strings per topic, in as few calls as the pool allows."""
    sketch, pool = draw_strings(seed)
    at = 0

    def search(topics: TopicColumn) -> int:
        nonlocal at
        left = queries * len(topics)
        asked = 0
        while left:
            count = min(left, POOL - at)
            strings = TopicColumn(pool.data, pool.offsets[at : at + count + 1])
            asked += int(sketch.search_column(strings)[1].sum())
            at = (at + count) % POOL
            left -= count
        return asked

    return search


def search_of(point: SearchPoint, seed: int) -> Callable[[TopicColumn], int]:
    if point.kind == SWEEP:
        return string_search(point.queries, seed)
    return method_search(point.kind, seed)


# Results ------------------------------------------------------------------------------------------


def medians(rows: pa.Table) -> dict[SearchPoint, PointTiming]:
    """Return the medians of the rounds, so that a disturbed round does not count."""
    found: dict[SearchPoint, list[dict[str, float]]] = {}
    for row in rows.to_pylist():
        key = (
            SearchPoint(SWEEP, row["queries"]) if row["kind"] == SWEEP else SearchPoint(row["kind"])
        )
        found.setdefault(key, []).append(row)
    names = ("messages_per_second", "full_load_mean_ms", "paced_median_ms", "paced_p99_ms")
    return {
        point: PointTiming(*(statistics.median(row[name] for row in several) for name in names))
        for point, several in found.items()
    }


def compare(measured: Averages, timings: Timings) -> list[Comparison]:
    """Compare the paper's statements on figure 7, and the counts beside it, with ours."""
    marks = mean_queries(measured)
    sweep = sorted((point for point in timings if point.kind == SWEEP), key=lambda at: at.queries)
    low, high = timings[sweep[0]], timings[sweep[-1]]
    over = f"from {sweep[0].queries:,} to {sweep[-1].queries:,} queries"
    prefix, bfp = (timings[SearchPoint(SWEEP, round(marks[name]))] for name in ("prefix", "bfp"))
    faster = prefix.messages_per_second / bfp.messages_per_second
    own = (
        timings[SearchPoint("prefix")].messages_per_second
        / timings[SearchPoint("bfp")].messages_per_second
    )
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


def name_of(point: SearchPoint) -> str:
    if point.kind == SWEEP:
        return f"{point.queries:,} queries"
    return f"{METHOD_NAMES[point.kind]}, its own search"
