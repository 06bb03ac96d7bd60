"""Which dimensions matchers should share a space by, and why. No Spark.

A dimension is worth it where boxes are narrow and points are spread: then a matcher is asked about
few points, and has few boxes. Each further one adds copies of boxes; and where boxes are narrow on
some only, a question for each publication. And a box that is narrow on none of them is no
matcher's: its broker gets every publication, and matchers save it nothing.

Sets are judged in this order: few boxes that are narrow nowhere; many publications a second with
borders planned for them. From the best single dimension on one is added at a time, as long as that
is better. What is searchable now stays unless another set is better: fewer dimensions make fewer
copies, but publications have fewer candidates then, and nobody to go to when those fail, or when
what is published changes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.pipeline.plan.load import Costs, Sample, copies, load_of
from dovetail.pipeline.plan.placement import even_places, plan

GAIN_MIN = 0.05
"""What another number of dimensions has to add to what matchers can take, to be worth it."""

POINTS = 2_000
"""That sets are judged by."""

WIDE_SHARE_STEP = 0.001
"""Shares of boxes that are narrow nowhere are alike up to this."""


class Judged(NamedTuple):
    """A set of dimensions, with borders planned for it."""

    columns: tuple[int, ...]
    wide_share: float
    """Of boxes: no matcher holds them."""
    capacity: float
    """Publications a second."""
    even_capacity: float
    """The same with even borders."""
    unevenness: float
    questions: float
    copies: float


def judge(sample: Sample, columns: Sequence[int], matchers: int, costs: Costs) -> Judged:
    own = sample.of(columns)
    planned = plan(own, matchers, costs, rounds=2)
    even = load_of(own, even_places(own, matchers), costs)
    wide = float(np.mean(own.kinds == 0)) if len(own.kinds) else 0.0
    return Judged(
        tuple(columns),
        wide,
        planned.load.capacity,
        even.capacity,
        planned.load.unevenness,
        planned.load.questions,
        copies(own, planned.places),
    )


def _is_better(one: Judged, other: Judged) -> bool:
    if abs(one.wide_share - other.wide_share) > WIDE_SHARE_STEP:
        return one.wide_share < other.wide_share
    gain = one.capacity / other.capacity - 1 if np.isfinite(other.capacity) else 0.0
    return gain > (0.0 if len(one.columns) == len(other.columns) else GAIN_MIN)


def recommend(sample: Sample, matchers: int, costs: Costs) -> tuple[Judged, list[Judged]]:
    """The best set, and all that were judged."""
    some = sample.some(POINTS)
    now = tuple(sample.layout.columns)
    all_columns = range(len(sample.layout.dimensions))
    judged = [judge(some, [column], matchers, costs) for column in all_columns]
    best = judged[0]
    for one in judged[1:]:
        best = one if _is_better(one, best) else best
    while len(best.columns) < len(all_columns):
        more = [
            judge(some, sorted({*best.columns, column}), matchers, costs)
            for column in all_columns
            if column not in best.columns
        ]
        judged += more
        next_one = more[0]
        for one in more[1:]:
            next_one = one if _is_better(one, next_one) else next_one
        if not _is_better(next_one, best):
            break
        best = next_one
    if all(one.columns != now for one in judged):
        judged.append(judge(some, now, matchers, costs))
    present = next(one for one in judged if one.columns == now)
    return best if _is_better(best, present) else present, judged


def why(best: Judged, present: Judged, names: Sequence[str], matchers: int) -> str:
    """A sentence or two."""
    listed = ", ".join(names[column] for column in best.columns)
    words = f"Search {listed}: {matchers} matchers take {_rate(best.capacity)} a second with it"
    if best.columns == present.columns:
        return f"{words}, and no other set that was judged is better. It is what is searchable now."
    now = ", ".join(names[column] for column in present.columns)
    if present.wide_share - best.wide_share > WIDE_SHARE_STEP:
        return (
            f"{words}, and {best.wide_share:.1%} of the boxes are narrow on none of them; with "
            f"{now} it is {present.wide_share:.1%}, and brokers that have one get everything."
        )
    return (
        f"{words}, where {now} take {_rate(present.capacity)}: a publication needs "
        f"{best.questions:.2g} questions rather than {present.questions:.2g}, and a box has "
        f"{best.copies:.3g} copies rather than {present.copies:.3g}."
    )


def _rate(capacity: float) -> str:
    return f"{float(f'{capacity:.2g}'):,.0f} publications" if np.isfinite(capacity) else "any rate"
