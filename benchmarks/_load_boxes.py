"""BlueDove's boxes as where-clauses of the load generator's subscribers, and points to publish.

Points are drawn once and published in turn. Which subscribers get which of them is computed here,
by comparing all points with all boxes: a broker that delivers one too many or too few fails.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

import _load_wire as wire
from dovetail.sim import workload

NAMES = "abcd"
POINTS = 400
TOPICS = "bench/#"
_SEED = 7


@dataclass(frozen=True)
class Boxes:
    """So many boxes, dealt out to so many subscribers."""

    count: int
    subscribers: int
    width: float = workload.WIDTH
    """Of narrow boxes, points are drawn inside them: few others would lie in one."""

    def clauses(self, subscriber: int) -> list[str]:
        lows, highs = _boxes(self.count, self.width)
        return [
            " and ".join(
                f"{low:.3f} <= {name} < {high:.3f}"
                for name, low, high in zip(NAMES, lows[box], highs[box], strict=True)
            )
            for box in range(subscriber, self.count, self.subscribers)
        ]

    def slots(self, subscriber: int) -> npt.NDArray[np.int64]:
        """Return which of the points lie in a box of this subscriber."""
        lows, highs = _boxes(self.count, self.width)
        mine = slice(subscriber, None, self.subscribers)
        found = [
            bool(((lows[mine] <= point) & (point < highs[mine])).all(axis=1).any())
            for point in _points(self.count, self.width)
        ]
        return np.flatnonzero(found)

    def properties(self) -> list[bytes]:
        """Return the properties of each point: all have the same size."""
        return [
            wire.user_properties(
                [
                    (name.encode(), b"%07.3f" % value)
                    for name, value in zip(NAMES, point, strict=True)
                ]
            )
            for point in _points(self.count, self.width).tolist()
        ]

    def json_fields(self) -> list[bytes]:
        """Return the end of a JSON object for each point: all have the same size."""
        return [
            '",{}}}'.format(
                ",".join(
                    f'"{name}":{value:<7.3f}' for name, value in zip(NAMES, point, strict=True)
                )
            ).encode()
            for point in _points(self.count, self.width).tolist()
        ]


def space_table(*, with_json: bool = False) -> str:
    """Return the space as a configuration has it."""
    lines = "".join(f"{name} = [0, {workload.LENGTH:g}]\n" for name in NAMES)
    fields = "json_fields = true\n" if with_json else ""
    return f'[spaces.bench]\ntopics = "{TOPICS}"\n{fields}[spaces.bench.dimensions]\n{lines}'


@cache
def _boxes(count: int, width: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    lows, highs = workload.boxes(count, _SEED, width=width)
    return np.round(lows, 3), np.round(highs, 3)


@cache
def _points(count: int, width: float) -> npt.NDArray[np.float64]:
    """Points that lie in a box: what nobody gets cannot be checked."""
    lows, highs = _boxes(count, width)
    if count > 1 and width == workload.WIDTH:
        drawn = np.round(workload.points(4 * POINTS, _SEED), 3)
        wanted = [point for point in drawn if ((lows <= point) & (point < highs)).all(axis=1).any()]
        assert len(wanted) >= POINTS, "too few boxes"
        return np.array(wanted[:POINTS])
    random = np.random.default_rng(_SEED)
    chosen = random.integers(0, count, POINTS)
    shares = random.random((POINTS, len(NAMES))) * 0.999
    return np.round(lows[chosen] + shares * (highs - lows)[chosen], 3)
