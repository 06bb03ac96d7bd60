"""Recommend the dimensions along which matchers should share a space, with the reason. No Spark.

A dimension is useful if boxes are narrow on it and points are spread: then each matcher gets few
points, and holds few boxes. Each further dimension adds copies of boxes. If boxes are narrow on
some dimensions only, it also adds a question for each publication. No matcher holds a box that is
narrow on none of the dimensions: its broker gets every publication, and matchers save it nothing.

A set of dimensions is better if it leaves fewer boxes that are narrow nowhere, and then if it takes
more publications a second with borders planned for it. The search begins with the best single
dimension, and adds one at a time as long as that is better. The current set stays unless another
one is better: fewer dimensions make fewer copies, but then publications have fewer candidates, and
none if those fail or the publications change.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.pipeline.plan.load import PointCosts, SpaceSample, copies, estimate_load
from dovetail.pipeline.plan.placement import even_places, plan_places

GAIN_MIN = 0.05
"""A larger or smaller set must raise the capacity by this share."""

POINTS = 2_000
"""Points of the sample with which sets are evaluated."""

WIDE_SHARE_STEP = 0.001
"""A smaller difference between shares of boxes that are narrow nowhere does not count."""


class DimensionSet(NamedTuple):
    """A set of dimensions, with borders planned for it."""

    columns: tuple[int, ...]
    wide_share: float
    """The share of boxes that are narrow on none of them: no matcher holds these."""
    capacity: float
    """Publications a second."""
    even_capacity: float
    """Publications a second with even borders."""
    unevenness: float
    questions: float
    copies: float


def evaluate(
    sample: SpaceSample, columns: Sequence[int], matchers: int, costs: PointCosts
) -> DimensionSet:
    own = sample.of(columns)
    planned = plan_places(own, matchers, costs, rounds=2)
    even = estimate_load(own, even_places(own, matchers), costs)
    wide = float(np.mean(own.kinds == 0)) if len(own.kinds) else 0.0
    return DimensionSet(
        tuple(columns),
        wide,
        planned.load.capacity,
        even.capacity,
        planned.load.unevenness,
        planned.load.questions,
        copies(own, planned.places),
    )


def _is_better(one: DimensionSet, other: DimensionSet) -> bool:
    if abs(one.wide_share - other.wide_share) > WIDE_SHARE_STEP:
        return one.wide_share < other.wide_share
    gain = one.capacity / other.capacity - 1 if np.isfinite(other.capacity) else 0.0
    return gain > (0.0 if len(one.columns) == len(other.columns) else GAIN_MIN)


def recommend(
    sample: SpaceSample, matchers: int, costs: PointCosts
) -> tuple[DimensionSet, list[DimensionSet]]:
    """Return the best set, and all sets that were evaluated."""
    some = sample.some(POINTS)
    now = tuple(sample.layout.columns)
    all_columns = range(len(sample.layout.dimensions))
    evaluated = [evaluate(some, [column], matchers, costs) for column in all_columns]
    best = evaluated[0]
    for one in evaluated[1:]:
        best = one if _is_better(one, best) else best
    while len(best.columns) < len(all_columns):
        more = [
            evaluate(some, sorted({*best.columns, column}), matchers, costs)
            for column in all_columns
            if column not in best.columns
        ]
        evaluated += more
        next_one = more[0]
        for one in more[1:]:
            next_one = one if _is_better(one, next_one) else next_one
        if not _is_better(next_one, best):
            break
        best = next_one
    if all(one.columns != now for one in evaluated):
        evaluated.append(evaluate(some, now, matchers, costs))
    present = next(one for one in evaluated if one.columns == now)
    return best if _is_better(best, present) else present, evaluated


def why(best: DimensionSet, present: DimensionSet, names: Sequence[str], matchers: int) -> str:
    """Explain the recommendation in a sentence or two."""
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
