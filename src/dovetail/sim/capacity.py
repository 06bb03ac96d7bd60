"""The best throughput of matchers, with an ideal choice among candidates. Pure.

A point may go to any of its candidates, at a different cost for each. The best throughput is a
linear programme: choose shares of points so that the busiest matcher has least to do. It is solved
by prices. Each matcher has a price, and a point goes where cost times price is least. Matchers with
more than the usual work become dearer. The average choice over all rounds is a feasible way to
share the work, so `Capacity.rate` can be reached. The prices give an upper bound,
`Capacity.at_most`: the two are a few per cent apart.

No forwarding policy can beat that, and none reaches it: brokers know the queues of a second ago.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.matcher.layout import Floats

ROUNDS = 150
_STEP = 0.3
"""How strongly a price follows the load in the first rounds."""
_LOAD_MAX = 4.0
"""Times the usual load. A higher load does not raise the price further."""


class Capacity(NamedTuple):
    """A feasible rate and an upper bound, in points per second."""

    rate: float
    at_most: float


def capacity(candidates: npt.NDArray[np.int64], costs: Floats, matchers: int) -> Capacity:
    """Return the capacity for `candidates` by point and dimension.

    `costs` are in seconds, by matcher and dimension.
    """
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
