"""Sketches of a broker's subscriptions: four methods behind one interface.

`build_sketch` makes a sketch of a known set of filters. A broker starts with `sized_for` and adds.

    base.py        the interface: add, discard, merge, search, deltas, versions
    bloom.py       bf, bfp, prefix: the three methods of the wildcard paper
    lines.py       lines: our method
    ledger.py      the owner's side: counts, bits, changes
    change_log.py  which elements came or went, for deltas
    wire.py        encodes whole sketches
    delta_wire.py  encodes deltas
"""

import numpy as np

from dovetail.errors import ConfigError
from dovetail.topics.limits import SEARCH_QUERIES_MAX, SKETCH_FALSE_POSITIVE_RATE
from dovetail.topics.sketches.base import Geometry, SearchResult, Sketch, SketchDelta
from dovetail.topics.sketches.bloom import BfpSketch, BfSketch, PrefixSketch, bloom_size
from dovetail.topics.sketches.delta_wire import delta_from_bytes, delta_to_bytes
from dovetail.topics.sketches.lines import LinesSketch, lines_size
from dovetail.topics.sketches.wire import (
    CLASSES,
    looks_like_sketch,
    sketch_from_bytes,
    sketch_to_bytes,
)
from dovetail.topics.topic_column import TopicColumn

METHODS = tuple(kind.method for kind in CLASSES.values())
"""bf, bfp, prefix, lines: the three of the wildcard paper, and ours."""

__all__ = [
    "METHODS",
    "BfSketch",
    "BfpSketch",
    "Geometry",
    "LinesSketch",
    "PrefixSketch",
    "SearchResult",
    "Sketch",
    "SketchDelta",
    "bloom_size",
    "build_sketch",
    "delta_from_bytes",
    "delta_to_bytes",
    "lines_size",
    "looks_like_sketch",
    "sketch_class",
    "sketch_from_bytes",
    "sketch_to_bytes",
]


def sketch_class(method: str) -> type[Sketch]:
    for kind in CLASSES.values():
        if kind.method == method:
            return kind
    raise ConfigError(f"no sketch method {method!r}; there are {', '.join(METHODS)}")


def build_sketch(
    method: str,
    filters: TopicColumn,
    *,
    false_positive_rate: float = SKETCH_FALSE_POSITIVE_RATE,
    seed: int = 0,
    lineage: int = 0,
    queries_max: int = SEARCH_QUERIES_MAX,
) -> Sketch:
    """Return a sketch of these (valid) filters, sized for them."""
    kind = sketch_class(method)
    distinct = len(np.unique(kind.elements_of(filters, seed)))
    sketch = kind.sized_for(
        max(distinct, 1),
        false_positive_rate,
        seed=seed,
        lineage=lineage,
        queries_max=queries_max,
    )
    sketch.add_column(filters)
    return sketch
