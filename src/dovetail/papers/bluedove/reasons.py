"""What might explain where the paper's numbers and ours differ, tried out.

Each `TRIED` changes one thing of the paper's workload or of a matcher's time. What comes of it is
computed: what matchers could take at best (sim/capacity.py), which differs from what queues allow
by much the same share everywhere. So a reason that moves these numbers the wrong way, or far too
little, is none.
"""

from typing import NamedTuple

import numpy as np

from dovetail.attributes.scheme import Scheme
from dovetail.matcher.layout import Floats
from dovetail.papers.bluedove.configuration import (
    FLAT_CHANGE,
    OVER_FULL,
    OVER_FULL_FEW,
    OVER_P2P,
    OVER_P2P_SECOND,
    Configuration,
    Effort,
    Value,
)
from dovetail.papers.bluedove.scale import candidates_of, points_for
from dovetail.sim import box_counts, workload
from dovetail.sim.capacity import capacity
from dovetail.sim.systems import Setting

FEW, MANY = 5, 20
FLAT = 1_000.0
ENDS = (0.0, 1_000 / 3, 2_000 / 3, 1_000.0)
INNER = (200.0, 400.0, 600.0, 800.0)


class Tried(NamedTuple):
    """Time for a message is `fixed_boxes + boxes ** power`, in some unit."""

    name: str
    power: float = 1.0
    fixed_boxes: float = 0.0
    """As much as looking at so many boxes takes, whatever there is to look at."""
    hot_spots: tuple[float, ...] | None = None
    """None: in the middles of four parts of the axis."""

    def seconds(self, boxes: Floats) -> Floats:
        """With all boxes it is 1, and the fixed part."""
        share = boxes / workload.BOXES
        return np.asarray(self.fixed_boxes / workload.BOXES + share**self.power, np.float64)


TRIED = (
    Tried("as in all figures"),
    Tried("time with the square root of boxes", power=0.5),
    Tried("time with boxes to the power of 1.25", power=1.25),
    Tried("time with boxes to the power of 1.4", power=1.4),
    Tried("a message costs as much as 500 boxes", fixed_boxes=500.0),
    Tried("a message costs as much as 1,500 boxes", fixed_boxes=1_500.0),
    Tried("hot spots from end to end (0, 333, 667, 1,000)", hot_spots=ENDS),
    Tried("hot spots further in (200, 400, 600, 800)", hot_spots=INNER),
)


def measure_reasons(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    """All that is tried, with boxes of the configuration's width."""
    found: list[Value] = []
    for place, tried in enumerate(TRIED):
        boxes = min(configuration.boxes, effort.drawn_max)
        few, many, flat = (
            _Best(
                tried,
                Setting(matchers, boxes=boxes, spread=spread, width=configuration.width),
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


class _Best:
    """What matchers could take, in messages that all boxes are looked at for."""

    def __init__(self, tried: Tried, setting: Setting, seed: int) -> None:
        placement = setting.placement(setting.layout(Scheme.MPARTITION))
        lows, highs = workload.boxes(
            setting.boxes,
            seed,
            spread=setting.spread,
            width=setting.width,
            centres=None if tried.hot_spots is None else np.array(tried.hot_spots),
        )
        held = box_counts.count(placement, lows, highs).along
        along = np.asarray(held * (workload.BOXES / setting.boxes), np.float64)
        candidates = candidates_of(placement, points_for(setting, seed))
        self._tried, self._along, self._matchers = tried, along, setting.matchers
        self.rate = capacity(candidates, tried.seconds(along), setting.matchers).rate

    @property
    def over_full(self) -> float:
        everything = self._tried.seconds(np.array([float(workload.BOXES)]))
        return self.rate * float(everything[0]) / self._matchers

    def over_p2p(self, dimension: int) -> float:
        """Whose busiest matcher gets as many messages as any other."""
        busiest = float(self._tried.seconds(self._along[:, dimension]).max())
        return self.rate * busiest / self._matchers
