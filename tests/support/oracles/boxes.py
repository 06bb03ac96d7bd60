"""Which boxes a point falls in, by comparing all of them: the oracle of the attribute plane."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def is_inside(lows: Floats, highs: Floats, point: Floats) -> npt.NDArray[np.bool_]:
    """For each box. An infinite border is open, and NaN only within two open ones."""
    within: npt.NDArray[np.bool_] = (lows <= point) & ((point < highs) | (highs == np.inf))
    is_open = (lows == -np.inf) & (highs == np.inf)
    inside: npt.NDArray[np.bool_] = (within | is_open).all(axis=1)
    return inside
