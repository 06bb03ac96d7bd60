"""Find the boxes that a point falls in, by comparing all of them: the oracle of box indexes."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def is_inside(lows: Floats, highs: Floats, point: Floats) -> npt.NDArray[np.bool_]:
    """Return for each box whether it holds the point. NaN lies only between two open borders."""
    within: npt.NDArray[np.bool_] = (lows <= point) & ((point < highs) | (highs == np.inf))
    is_open = (lows == -np.inf) & (highs == np.inf)
    inside: npt.NDArray[np.bool_] = (within | is_open).all(axis=1)
    return inside
