"""Counts matchers that hold a box with open ranges, and candidates asked about a point.

It also counts what the paper's scheme would need, where an open range overlaps all segments. It
measures nothing: it counts with the code by which brokers decide.
"""

from random import Random

import numpy as np

from _measure import table
from dovetail.attributes.partition import Bounds, even_tokens
from dovetail.matcher.candidate_choice import choose
from dovetail.matcher.layout import Layout
from dovetail.matcher.segment_tables import Placement
from dovetail.sim import workload

BOXES, POINTS = 10_000, 2_000
MATCHERS = (5, 20, 100)
OPEN_SHARES = (0.0, 0.2, 0.8)


def copies(seed: int) -> None:
    rows = [_row(matchers, share, seed) for matchers in MATCHERS for share in OPEN_SHARES]
    table(
        f"Copies of a box, {BOXES:,} of BlueDove's in {workload.DIMENSIONS} dimensions",
        [
            "matchers",
            "open ranges",
            "copies a box",
            "as the paper",
            "held by none",
            "asked a point",
        ],
        rows,
    )


def _row(matchers: int, open_share: float, seed: int) -> list[str]:
    bounds = (Bounds(0.0, workload.LENGTH),) * workload.DIMENSIONS
    layout = Layout("bench", bounds, tuple(range(workload.DIMENSIONS)))
    names = [f"matcher-{number:03d}" for number in range(matchers)]
    placement = Placement(layout, even_tokens(names, bounds))
    lows, highs = workload.boxes(BOXES, seed, open_share=open_share)
    kinds = layout.kinds(lows, highs)
    everywhere = np.full(BOXES, (1 << workload.DIMENSIONS) - 1, np.uint16)
    ours = theirs = 0
    for name in names:
        cover = placement.cover(name)
        ours += np.count_nonzero(layout.along(lows, highs, kinds, cover))
        theirs += np.count_nonzero(layout.along(lows, highs, everywhere, cover))
    return [
        f"{matchers}",
        f"{open_share:.0%}",
        f"{ours / BOXES:.1f}",
        f"{theirs / BOXES:.1f}",
        f"{np.count_nonzero(kinds == 0) / BOXES:.1%}",
        f"{_asked(placement, set(kinds.tolist()), seed):.2f}",
    ]


def _asked(placement: Placement, kinds: set[int], seed: int) -> float:
    """Return the candidates asked about a point, if their costs differ only by chance."""
    points = workload.points(POINTS, seed)
    usable = np.ones(len(placement.names), np.bool_)
    candidates = placement.candidates(points, usable, Random(seed))
    costs = np.random.default_rng(seed).random(candidates.shape)
    choices = choose(candidates, kinds, costs)
    return sum(len(choice.rows) for choice in choices.asked) / POINTS
