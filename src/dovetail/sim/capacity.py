"""The most that matchers could take if work were shared as well as can be. Pure.

A point may go to any of its candidates, and costs each of them something else. How much all of them
can take is a linear programme: shares of points such that the busiest matcher has least to do. Here
it is solved by prices. Each matcher has one; a point goes where cost times price is least; who has
more than the others to do becomes dearer. What points did over all rounds, on average, is a
way to share the work, so the capacity is one that there is. And no way is better than what prices
say (`Capacity.at_most`): the two are a few per cent apart.

No forwarding policy can beat that, and none reaches it: brokers know queues of a second ago.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.matcher.layout import Floats

ROUNDS = 150
_STEP = 0.3
"""By how much a price follows a load, at first."""
_LOAD_MAX = 4.0
"""Times what is usual; more makes nobody dearer."""


class Capacity(NamedTuple):
    """In points a second."""

    rate: float
    at_most: float


def capacity(candidates: npt.NDArray[np.int64], costs: Floats, matchers: int) -> Capacity:
    """`candidates`: of each point, by dimension. `costs`: in seconds, by matcher and dimension."""
    points, dimensions = candidates.shape
    of_point = costs[candidates, np.arange(dimensions)]
    prices = np.full(matchers, 1.0 / matchers)
    total, least = np.zeros(matchers), 0.0
    rows = np.arange(points)
    usual = 0.0
    for turn in range(ROUNDS):
        priced = of_point * prices[candidates]
        chosen = priced.argmin(axis=1)
        least = max(least, float(priced[rows, chosen].sum()))
        load = np.bincount(candidates[rows, chosen], of_point[rows, chosen], minlength=matchers)
        # The first rounds only find the prices.
        if turn >= ROUNDS // 3:
            total += load
        usual += (float(load.mean()) - usual) / (turn + 1)
        prices = prices * np.exp(_STEP / (1 + turn / 10) * (load / usual).clip(max=_LOAD_MAX))
        prices /= prices.sum()
    busiest = float(total.max()) / (ROUNDS - ROUNDS // 3)
    return Capacity(points / busiest, points / least)
