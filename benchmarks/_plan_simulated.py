"""Planned borders against even ones, in a simulated cluster of twenty matchers.

What is compared is the rate at which the queues of some matcher begin to grow (sim/saturation.py),
with the adaptive policy. A plan is made as `dovetail plan` makes it, of points that were drawn for
it alone and of so many boxes as it samples; the cluster then has other points of the same kind.

Matchers cost what BlueDove's do, who look at each box that they hold along a dimension; and what
ours do, where a point costs about the same whatever is held.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import chain, islice, product
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from _measure import median_and_range, table
from dovetail.attributes.partition import Tokens
from dovetail.attributes.scheme import Scheme
from dovetail.pipeline.plan.counts import BOXES_SAMPLED, POINTS_SAMPLED
from dovetail.pipeline.plan.load import Costs as PlannedCosts
from dovetail.pipeline.plan.load import Sample
from dovetail.pipeline.plan.placement import plan
from dovetail.sim.matcher_node import Costs
from dovetail.sim.saturation import Saturation, Search, points_of, saturation
from dovetail.sim.systems import LINEAR, Setting

SEARCH = Search(first_rate=500.0, precision=0.03, seconds_min=20.0, publications_min=8_000)
EARLIER = 1_000
"""Added to a seed: points that the plan is made of."""

CITY = 0.01
WORKLOADS = {
    "BlueDove's": Setting(),
    "points follow the hot spots": Setting(skewed=4),
    "boxes with one range each": Setting(ranged=1),
    "one range each, hot spots": Setting(ranged=1, skewed=4),
    "in a hundredth of the bounds": Setting(filled=CITY),
    "the same, one range each": Setting(filled=CITY, ranged=1),
}
PRICES = {
    "all boxes": LINEAR,
    "points": Costs(question_seconds=0.0, point_seconds=0.02, box_seconds=0.0),
}
"""By what a matcher's work goes; seconds are longer than real ones, and rates lower."""


class Row(NamedTuple):
    workload: str
    price: str
    even: Saturation
    planned: Saturation

    @property
    def gain(self) -> float:
        return self.planned.rate / self.even.rate


def places(setting: Setting, seed: int) -> list[Tokens]:
    """A plan of a sample."""
    points = np.array(
        [*islice(chain.from_iterable(points_of(setting, seed + EARLIER)), POINTS_SAMPLED)]
    )
    lows, highs = setting.drawn_boxes(seed)
    some = np.random.default_rng(seed).permutation(len(lows))[:BOXES_SAMPLED]
    sample = Sample(
        setting.layout(Scheme.MPARTITION), points, lows[some], highs[some], len(lows) / len(some)
    )
    price = setting.costs
    costs = PlannedCosts(
        price.point_seconds + price.question_seconds, price.box_seconds, 0.0, is_by_dimension=True
    )
    return plan(sample, setting.matchers, costs).places


def row_of(case: tuple[str, str, int, int, Search]) -> Row:
    workload, price, matchers, seed, search = case
    setting = replace(WORKLOADS[workload], costs=PRICES[price], matchers=matchers)
    planned = replace(setting, places=tuple(places(setting, seed)))
    even, other = (saturation("adaptive", one, seed, search) for one in (setting, planned))
    return Row(workload, price, even, other)


def busiest(one: Saturation) -> float:
    """The busiest matcher's work, by the mean."""
    busy = next(trial.busy for trial in one.trials if trial.rate == one.rate)
    return max(busy) / float(np.mean(busy))


def simulated(matchers: int, seeds: Sequence[int], cores: int) -> list[Row]:
    cases = [
        (workload, price, matchers, seed, SEARCH)
        for workload, price, seed in product(WORKLOADS, PRICES, seeds)
    ]
    with ProcessPoolExecutor(cores, get_context("spawn")) as workers:
        rows = [*workers.map(row_of, cases)]
    table(
        f"{matchers} simulated matchers, {len(seeds)} seeds: rate at which queues grow, planned "
        "by even borders; medians (least to most)",
        ["workload", "work goes by", "gain", "busiest by mean, even", "planned"],
        [
            [
                workload,
                price,
                median_and_range([one.gain for one in own]),
                median_and_range([busiest(one.even) for one in own]),
                median_and_range([busiest(one.planned) for one in own]),
            ]
            for workload, price in product(WORKLOADS, PRICES)
            if (own := [one for one in rows if (one.workload, one.price) == (workload, price)])
        ],
    )
    return rows
