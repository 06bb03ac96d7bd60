"""Compares planned borders with even ones, in a simulated cluster of twenty matchers.

It compares the rates at which the queues of some matcher begin to grow (sim/saturation.py), with
the adaptive policy. A plan is made as `dovetail plan` makes it, of its own sample of points and of
as many boxes as it samples. The cluster then has other points of the same kind.

Matchers cost as BlueDove's do, which read each box that they hold along a dimension; or as ours do,
where a point costs about the same with any number of boxes.
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
from dovetail.pipeline.plan.load import PointCosts as PlannedCosts
from dovetail.pipeline.plan.load import SpaceSample
from dovetail.pipeline.plan.placement import plan_places
from dovetail.sim.matcher_node import MatchingCosts
from dovetail.sim.saturation import RateSearch, Saturation, points_of, saturation
from dovetail.sim.systems import LINEAR, MatcherTestbed

SEARCH = RateSearch(first_rate=500.0, precision=0.03, seconds_min=20.0, publications_min=8_000)
EARLIER = 1_000
"""Added to a seed for the points of the plan's sample."""

CITY = 0.01
WORKLOADS = {
    "BlueDove's": MatcherTestbed(),
    "points follow the hot spots": MatcherTestbed(skewed=4),
    "boxes with one range each": MatcherTestbed(ranged=1),
    "one range each, hot spots": MatcherTestbed(ranged=1, skewed=4),
    "in a hundredth of the bounds": MatcherTestbed(filled=CITY),
    "the same, one range each": MatcherTestbed(filled=CITY, ranged=1),
}
PRICES = {
    "all boxes": LINEAR,
    "points": MatchingCosts(question_seconds=0.0, point_seconds=0.02, box_seconds=0.0),
}
"""How a matcher's work is counted; seconds are longer than real ones, and rates lower."""


class Row(NamedTuple):
    workload: str
    price: str
    even: Saturation
    planned: Saturation

    @property
    def gain(self) -> float:
        return self.planned.rate / self.even.rate


def places(testbed: MatcherTestbed, seed: int) -> list[Tokens]:
    """Return the places of a plan, made of a sample."""
    points = np.array(
        [*islice(chain.from_iterable(points_of(testbed, seed + EARLIER)), POINTS_SAMPLED)]
    )
    lows, highs = testbed.drawn_boxes(seed)
    some = np.random.default_rng(seed).permutation(len(lows))[:BOXES_SAMPLED]
    sample = SpaceSample(
        testbed.layout(Scheme.MPARTITION), points, lows[some], highs[some], len(lows) / len(some)
    )
    price = testbed.costs
    costs = PlannedCosts(
        price.point_seconds + price.question_seconds, price.box_seconds, 0.0, is_by_dimension=True
    )
    return plan_places(sample, testbed.matchers, costs).places


def row_of(case: tuple[str, str, int, int, RateSearch]) -> Row:
    workload, price, matchers, seed, search = case
    testbed = replace(WORKLOADS[workload], costs=PRICES[price], matchers=matchers)
    planned = replace(testbed, places=tuple(places(testbed, seed)))
    even, other = (saturation("adaptive", one, seed, search) for one in (testbed, planned))
    return Row(workload, price, even, other)


def busiest(one: Saturation) -> float:
    """Return the busiest matcher's work divided by the mean."""
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
