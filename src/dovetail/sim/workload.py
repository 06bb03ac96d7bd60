"""BlueDove's subscriptions and publications (section IV-B), from a seed.

Dimensions are 1,000 long. Boxes are `width` wide and cropped to the axis. Their centres have a
normal distribution around a hot spot; centres outside the axis are drawn again. The hot spots are
spread evenly, so that each dimension is skewed at a different place. Values of points are uniform;
in the last `skewed` dimensions they follow the boxes' hot spot instead, the adverse skew of section
IV-F. Beyond the paper, a share of the ranges can be open.
"""

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

DIMENSIONS = 4
LENGTH = 1_000.0
BOXES = 40_000
WIDTH = 250.0
SPREAD = 250.0
SHARES = 1_001

Floats = npt.NDArray[np.float64]


def bounds(dimensions: int = DIMENSIONS) -> tuple[Floats, Floats]:
    return np.zeros(dimensions), np.full(dimensions, LENGTH)


def hot_spots(dimensions: int = DIMENSIONS) -> Floats:
    """Return the middles of as many equal parts of the axis."""
    parts = np.arange(dimensions, dtype=np.float64)
    return np.asarray((parts + 0.5) * (LENGTH / dimensions), np.float64)


def _cropped_normal(rng: np.random.Generator, centres: Floats, count: int, spread: float) -> Floats:
    drawn = np.empty((count, len(centres)))
    for j, centre in enumerate(centres):
        column = drawn[:, j]
        outside = np.arange(count)
        while len(outside):
            column[outside] = rng.normal(centre, spread, len(outside))
            outside = outside[(column[outside] < 0) | (column[outside] >= LENGTH)]
    return drawn


def shares(dimension: int, spread: float = SPREAD) -> Floats:
    """Return the share of centres below each of `SHARES` values from 0 to the axis' end."""
    centre = float(hot_spots()[dimension])
    drawn = NormalDist(centre, spread)
    below = np.array([drawn.cdf(value) for value in np.linspace(0.0, LENGTH, SHARES)])
    return np.asarray((below - below[0]) / (below[-1] - below[0]), np.float64)


def boxes(
    count: int = BOXES,
    seed: int = 0,
    *,
    dimensions: int = DIMENSIONS,
    spread: float = SPREAD,
    width: float = WIDTH,
    open_share: float = 0.0,
    centres: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Draw boxes: lower and upper borders, cropped to the axis. `centres`: the hot spots."""
    rng = np.random.default_rng((seed, 0))
    around = hot_spots(dimensions) if centres is None else centres
    middles = _cropped_normal(rng, around, count, spread)
    lows = np.clip(middles - width / 2, 0.0, LENGTH)
    highs = np.clip(middles + width / 2, 0.0, LENGTH)
    if open_share:
        is_open = rng.random((count, dimensions)) < open_share
        lows[is_open], highs[is_open] = -np.inf, np.inf
    return lows, highs


def points(
    count: int,
    seed: int = 0,
    *,
    dimensions: int = DIMENSIONS,
    spread: float = SPREAD,
    skewed: int = 0,
    missing_share: float = 0.0,
) -> Floats:
    rng = np.random.default_rng((seed, 1))
    drawn = rng.uniform(0.0, LENGTH, (count, dimensions))
    if skewed:
        drawn[:, -skewed:] = _cropped_normal(rng, hot_spots(dimensions)[-skewed:], count, spread)
    if missing_share:
        drawn[rng.random((count, dimensions)) < missing_share] = np.nan
    return drawn
