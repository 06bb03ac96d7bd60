"""The wildcard paper's simulation (section V, figures 4 to 6), as a sweep over cells.

A cell is one trial at one point of one panel: draw the filters and one published topic, build
each method's sketch, search once, and count the queries. The random draws of a cell depend only on
its coordinates and the run's seed. So the table is the same whatever the number of cores and
partitions.

Nothing here reads or writes: `measure` and `in_order` take a DataFrame and return one.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.topics.sketches import METHODS, Sketch, build_sketch
from dovetail.topics.topic_column import TopicColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEVEL_LETTERS = 10
"""A level is a random string of this length (section V)."""

FALSE_POSITIVE_RATE = 1e-9
"""Per query. A false positive ends a search early. At the 0.001 of the paper's example (section
IV-A) one would end 79 of 100 searches of 1,570 queries, and the mean of BFP would be 792: so the
paper's 1,570.0 was counted without any. At this rate a whole run meets none either."""

QUERIES_MAX = 1 << 20
"""Above the 2,047 that the naive method needs at 10 levels: no search is cut short."""

TRIALS_MAX = 1_000
"""A hundred times the paper's; the means are then good to a few tenths of a percent."""

SEED_MAX = 2**63 - 1
"""The largest number in a column of 64-bit integers."""

REDRAWS_MAX = 1_000
"""Rounds of redrawing filters that match the topic. One is rare, two in a row are a bug."""

# The content of one level of a filter.
LITERAL, PLUS, HASH, NOTHING = range(4)

Codes = npt.NDArray[np.uint8]
Text = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Workload:
    """The parameters of a cell's draws. The defaults are the paper's (table III)."""

    topics: int = 6_000
    levels: int = 6
    wildcard_probability: float = 0.5
    wildcard_level_min: int = 0
    wildcard_only: bool = True
    matching: bool = True


@dataclass(frozen=True)
class WildcardPanel:
    """One parameter of a figure, and its values."""

    letter: str
    parameter: str
    field: str
    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class WildcardFigure:
    """A figure, and the filters that it allows."""

    number: int
    title: str
    wildcard_only: bool
    matching: bool


# The paper's text names the values 10 of (b), 0 of (c) and "1 or more" of (d); the other ticks
# stand only in its drawings.
PANELS = (
    WildcardPanel(
        "a", "n_t", "topics", "filters in the sketch", (2_000, 4_000, 6_000, 8_000, 10_000)
    ),
    WildcardPanel("b", "n_lv", "levels", "levels in a topic", (2, 4, 6, 8, 10)),
    WildcardPanel(
        "c",
        "p_wc",
        "wildcard_probability",
        "share of filters with wildcards",
        (0, 0.25, 0.5, 0.75, 1),
    ),
    WildcardPanel(
        "d",
        "l_wc",
        "wildcard_level_min",
        "first level that may be a wildcard",
        (0, 1, 2, 3, 4, 5),
    ),
)
FIGURES = {
    figure.number: figure
    for figure in (
        WildcardFigure(4, "Wildcard-only filters allowed", wildcard_only=True, matching=True),
        WildcardFigure(5, "Wildcard-only filters excluded", wildcard_only=False, matching=True),
        WildcardFigure(
            6, "No filter matches the published topic", wildcard_only=False, matching=False
        ),
    )
}

CELLS = pa.schema(
    [
        pa.field("figure", pa.int32()),
        pa.field("panel_index", pa.int32()),
        pa.field("value_index", pa.int32()),
        pa.field("trial", pa.int32()),
    ]
)
ROWS = pa.schema(
    [
        pa.field("figure", pa.int32()),
        pa.field("panel", pa.string()),
        pa.field("parameter", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("trial", pa.int32()),
        pa.field("method", pa.string()),
        pa.field("queries", pa.int64()),
        pa.field("found", pa.bool_()),
        pa.field("bits", pa.int64()),
        pa.field("filters", pa.int32()),
    ]
)
ROWS_DDL = (
    "figure int, panel string, parameter string, value double, trial int, method string, "
    "queries bigint, found boolean, bits bigint, filters int"
)


@cache
def wildcard_patterns(levels: int, wildcard_level_min: int, *, wildcard_only: bool) -> Codes:
    """Return every way to put wildcards into a topic: one row each, one code per level.

    Over n free levels these are 2^n - 1 with `+` only, and for `#` at the m-th of them 2^m,
    which is 2^n - 1 again. The wildcard-only ones are n + 1 of them, if every level is free.
    """
    free = max(levels - wildcard_level_min, 0)
    masks = np.arange(1 << free)[:, None] >> np.arange(free) & 1
    kinds = [masks[1:]]
    for end in range(free):
        kind = masks[: 1 << end].copy()
        kind[:, end] = HASH
        kind[:, end + 1 :] = NOTHING
        kinds.append(kind)
    patterns = np.full((sum(map(len, kinds)), levels), LITERAL, np.uint8)
    patterns[:, levels - free :] = np.concatenate(kinds)
    if not wildcard_only:
        patterns = patterns[(patterns == LITERAL).any(axis=1)]
    patterns.flags.writeable = False
    return patterns


def draw_text(rng: np.random.Generator, shape: tuple[int, ...], letters: int) -> Text:
    return rng.integers(ord("a"), ord("z") + 1, (*shape, letters), np.uint8)


def draw_filters(
    rng: np.random.Generator, workload: Workload, count: int, letters: int
) -> tuple[Codes, Text]:
    """Draw filters: the codes of their levels, and the text of their literal levels.

    Where no wildcard pattern is allowed at all (one level, and wildcard-only excluded), every
    filter is the topic it was made from.
    """
    text = draw_text(rng, (count, workload.levels), letters)
    codes = np.zeros((count, workload.levels), np.uint8)
    wild = rng.random(count) < workload.wildcard_probability
    patterns = wildcard_patterns(
        workload.levels, workload.wildcard_level_min, wildcard_only=workload.wildcard_only
    )
    if len(patterns):
        codes[wild] = patterns[rng.integers(len(patterns), size=np.count_nonzero(wild))]
    return codes, text


def filters_matching(codes: Codes, text: Text, topic: Text) -> npt.NDArray[np.bool_]:
    """Return which filters match a topic of as many levels. None here begins with `$`."""
    same = (text == topic).all(axis=2)
    matches: npt.NDArray[np.bool_] = np.logical_and.reduce((codes != LITERAL) | same, axis=1)
    return matches


def as_column(codes: Codes, text: Text) -> TopicColumn:
    """Return the filters as MQTT writes them.

    Each level is laid out as a slash and its letters; a mask then selects the bytes that remain.
    """
    count, levels, letters = text.shape
    cells = np.empty((count, levels, 1 + letters), np.uint8)
    cells[:, :, 0] = ord("/")
    cells[:, :, 1:] = text
    cells[codes == PLUS, 1] = ord("+")
    cells[codes == HASH, 1] = ord("#")
    kept = np.zeros(cells.shape, np.bool_)
    kept[:, 1:, 0] = codes[:, 1:] != NOTHING
    kept[:, :, 1] = codes != NOTHING
    kept[:, :, 2:] = (codes == LITERAL)[:, :, None]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.count_nonzero(kept, axis=(1, 2)), out=offsets[1:])
    return TopicColumn(cells[kept], offsets)


def draw_cell(
    rng: np.random.Generator, workload: Workload, letters: int = LEVEL_LETTERS
) -> tuple[TopicColumn, bytes]:
    """Draw the filters and the published topic of one trial."""
    topic = draw_text(rng, (workload.levels,), letters)
    codes, text = draw_filters(rng, workload, workload.topics, letters)
    if not workload.matching:
        for _ in range(REDRAWS_MAX):
            (rows,) = np.nonzero(filters_matching(codes, text, topic))
            if not len(rows):
                break
            codes[rows], text[rows] = draw_filters(rng, workload, len(rows), letters)
        else:
            raise AssertionError("every filter that can be drawn matches the topic")
    return as_column(codes, text), b"/".join(level.tobytes() for level in topic)


def cells(figures: Sequence[int], trials: int) -> pa.Table:
    """Return every cell of a run."""
    rows = [
        (figure, panel_index, value_index, trial)
        for figure in figures
        for panel_index, panel in enumerate(PANELS)
        for value_index in range(len(panel.values))
        for trial in range(trials)
    ]
    columns = np.array(rows, np.int32).reshape(-1, len(CELLS)).T
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=CELLS)


def workload_of(figure: int, panel: WildcardPanel, value: float) -> Workload:
    rules = FIGURES[figure]
    workload = Workload(wildcard_only=rules.wildcard_only, matching=rules.matching)
    kind = type(getattr(workload, panel.field))
    return dataclasses.replace(workload, **{panel.field: kind(value)})


def cell_of(
    seed: int, figure: int, panel_index: int, value_index: int, trial: int
) -> tuple[TopicColumn, bytes, int]:
    """Draw the filters, the published topic, and the seed of the sketches of a cell."""
    coordinates = [seed, figure, panel_index, value_index, trial]
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(coordinates)))
    panel = PANELS[panel_index]
    workload = workload_of(figure, panel, panel.values[value_index])
    return (*draw_cell(rng, workload), int(rng.integers(1 << 32)))


def sketch_cell(method: str, filters: TopicColumn, sketch_seed: int) -> Sketch:
    return build_sketch(
        method,
        filters,
        false_positive_rate=FALSE_POSITIVE_RATE,
        seed=sketch_seed,
        queries_max=QUERIES_MAX,
    )


def measure_cell(
    seed: int, figure: int, panel_index: int, value_index: int, trial: int
) -> list[dict[str, object]]:
    """Return one row per method, all over the same filters and topic."""
    filters, topic, sketch_seed = cell_of(seed, figure, panel_index, value_index, trial)
    panel = PANELS[panel_index]
    rows: list[dict[str, object]] = []
    for method in METHODS:
        sketch = sketch_cell(method, filters, sketch_seed)
        search = sketch.search(topic)
        rows.append(
            {
                "figure": figure,
                "panel": panel.letter,
                "parameter": panel.parameter,
                "value": float(panel.values[value_index]),
                "trial": trial,
                "method": method,
                "queries": int(search.queries),
                "found": bool(search.found),
                "bits": int(sketch.bits),
                "filters": len(filters),
            }
        )
    return rows


def measure_batches(batches: Iterator[pa.RecordBatch], *, seed: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows: list[dict[str, object]] = []
        for cell in batch.to_pylist():
            rows += measure_cell(seed, **cell)
        yield pa.RecordBatch.from_pylist(rows, ROWS)


def measure(cells: "DataFrame", seed: int, partitions: int) -> "DataFrame":
    """Return one row per cell and method.

    Cells differ a hundredfold in work and arrive sorted, so they are redistributed evenly.
    """
    dealt = cells.repartition(partitions)
    return dealt.mapInArrow(partial(measure_batches, seed=seed), ROWS_DDL)


def in_order(rows: "DataFrame") -> "DataFrame":
    """Sort rows in one partition.

    A sort over several partitions would measure every cell twice, once to find their borders.
    """
    return rows.repartition(1).sortWithinPartitions("figure", "panel", "value", "trial", "method")
