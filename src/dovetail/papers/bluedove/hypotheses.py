"""Possible reasons for differences between the paper's numbers and ours, each tested.

Each of `HYPOTHESES` changes one thing of the paper's workload or of a matcher's time. The result is
computed: the best throughput of matchers (sim/capacity.py). It differs from what queues allow by
about the same share everywhere. So a hypothesis is wrong if it moves the numbers the wrong way or
far too little.
"""

from typing import NamedTuple

import numpy as np

from dovetail.attributes.scheme import Scheme
from dovetail.matcher.layout import Floats
from dovetail.papers.bluedove.run_configuration import (
    FLAT_CHANGE,
    OVER_FULL,
    OVER_FULL_FEW,
    OVER_P2P,
    OVER_P2P_SECOND,
    Configuration,
    Effort,
    Value,
)
from dovetail.papers.bluedove.scale_experiments import candidates_of, points_for
from dovetail.sim import box_counts, workload
from dovetail.sim.capacity import capacity
from dovetail.sim.systems import MatcherTestbed

FEW, MANY = 5, 20
FLAT = 1_000.0
ENDS = (0.0, 1_000 / 3, 2_000 / 3, 1_000.0)
INNER = (200.0, 400.0, 600.0, 800.0)


class Hypothesis(NamedTuple):
    """The time of a message is `fixed_boxes + boxes ** power`, in some unit."""

    name: str
    power: float = 1.0
    fixed_boxes: float = 0.0
    """A fixed cost of each message, in boxes."""
    hot_spots: tuple[float, ...] | None = None
    """None: the middles of four equal parts of the axis."""

    def seconds(self, boxes: Floats) -> Floats:
        """Return the time for so many boxes; all boxes take 1, plus the fixed cost."""
        share = boxes / workload.BOXES
        return np.asarray(self.fixed_boxes / workload.BOXES + share**self.power, np.float64)


HYPOTHESES = (
    Hypothesis("as in all figures"),
    Hypothesis("time with the square root of boxes", power=0.5),
    Hypothesis("time with boxes to the power of 1.25", power=1.25),
    Hypothesis("time with boxes to the power of 1.4", power=1.4),
    Hypothesis("a message costs as much as 500 boxes", fixed_boxes=500.0),
    Hypothesis("a message costs as much as 1,500 boxes", fixed_boxes=1_500.0),
    Hypothesis("hot spots from end to end (0, 333, 667, 1,000)", hot_spots=ENDS),
    Hypothesis("hot spots further in (200, 400, 600, 800)", hot_spots=INNER),
)


def measure_hypotheses(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    """Compute all hypotheses with boxes of the configuration's width."""
    found: list[Value] = []
    for place, hypothesis in enumerate(HYPOTHESES):
        boxes = min(configuration.boxes, effort.drawn_max)
        few, many, flat = (
            _BestRates(
                hypothesis,
                MatcherTestbed(matchers, boxes=boxes, spread=spread, width=configuration.width),
                seed,
            )
            for matchers, spread in ((FEW, workload.SPREAD), (MANY, workload.SPREAD), (MANY, FLAT))
        )
        found += [
            (OVER_FULL_FEW, float(place), few.over_full),
            (OVER_FULL, float(place), many.over_full),
            (OVER_P2P, float(place), many.over_p2p(0)),
            (OVER_P2P_SECOND, float(place), many.over_p2p(1)),
            (FLAT_CHANGE, float(place), (flat.rate / many.rate - 1) * 100),
        ]
    return found


class _BestRates:
    """The best throughput of matchers, relative to looking at all boxes for each message."""

    def __init__(self, hypothesis: Hypothesis, testbed: MatcherTestbed, seed: int) -> None:
        placement = testbed.placement(testbed.layout(Scheme.MPARTITION))
        lows, highs = workload.boxes(
            testbed.boxes,
            seed,
            spread=testbed.spread,
            width=testbed.width,
            centres=None if hypothesis.hot_spots is None else np.array(hypothesis.hot_spots),
        )
        held = box_counts.count(placement, lows, highs).along
        along = np.asarray(held * (workload.BOXES / testbed.boxes), np.float64)
        candidates = candidates_of(placement, points_for(testbed, seed))
        self._hypothesis, self._along, self._matchers = hypothesis, along, testbed.matchers
        self.rate = capacity(candidates, hypothesis.seconds(along), testbed.matchers).rate

    @property
    def over_full(self) -> float:
        everything = self._hypothesis.seconds(np.array([float(workload.BOXES)]))
        return self.rate * float(everything[0]) / self._matchers

    def over_p2p(self, dimension: int) -> float:
        """P2P's busiest matcher gets as many messages as any other."""
        busiest = float(self._hypothesis.seconds(self._along[:, dimension]).max())
        return self.rate * busiest / self._matchers
