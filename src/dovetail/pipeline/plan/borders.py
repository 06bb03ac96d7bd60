"""Cut one dimension so that the busiest of its segments has as little work as possible. No Spark.

A dimension is a row of fine *cells* between edges. A segment is a range of cells, and its work is

    seconds of its points  +  box_seconds x its points x the boxes that overlap it

A matcher spends that on questions along this dimension (load.py). A segment within another one
never has more work. So bisection finds the least bound that the segments can keep: for a given
bound, each segment is made as long as possible. Within the least bound, segments are then made as
even as possible.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_HALVINGS = 60


@dataclass(frozen=True)
class DimensionCells:
    """The points and boxes in each cell of one dimension."""

    edges: Floats
    """Ascending; one more than there are cells."""
    points: Floats
    """Points that are asked along this dimension."""
    seconds: Floats
    """The cost of these points, without the cost of boxes."""
    begins: Floats
    """Boxes whose range begins in the cell."""
    ends: Floats
    """Boxes whose range ends in the cell."""
    box_seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def _sums(self) -> tuple[list[float], list[float], list[float], list[float]]:
        """Sums over all cells before each cell."""
        points, seconds, begins, ends = (
            np.concatenate(([0.0], np.cumsum(one))).tolist()
            for one in (self.points, self.seconds, self.begins, self.ends)
        )
        return points, seconds, begins, ends

    def work(self, first: int, last: int) -> float:
        """Return the work of the cells from `first` on and before `last`."""
        points, seconds, begins, ends = self._sums
        count = points[last] - points[first]
        boxes = begins[last] - ends[first]
        return seconds[last] - seconds[first] + self.box_seconds * count * boxes

    def longest(self, first: int, bound: float) -> int:
        """Return the end of the longest segment from `first` that keeps the bound.

        `first` if no segment does.
        """
        low, high = first, len(self)
        while low < high:
            middle = (low + high + 1) // 2
            if self.work(first, middle) <= bound:
                low = middle
            else:
                high = middle - 1
        return low

    def segments_within(self, bound: float, most: int) -> int:
        """Return how many segments keep the bound, or `most` + 1 if `most` are not enough."""
        count = first = 0
        while first < len(self) and count <= most:
            count += 1
            last = self.longest(first, bound)
            if last == first:
                return most + 1
            first = last
        return count


def least_bound(cells: DimensionCells, segments: int) -> float:
    """Return the least work that the busiest of this many segments can have."""
    low = max((cells.work(place, place + 1) for place in range(len(cells))), default=0.0)
    high = cells.work(0, len(cells))
    if cells.segments_within(low, segments) <= segments:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if cells.segments_within(middle, segments) <= segments:
            high = middle
        else:
            low = middle
    return high


def cut_evenly(cells: DimensionCells, segments: int) -> list[int]:
    """Return the first cell of each segment, beginning with 0. Needs at least as many cells."""
    assert len(cells) >= segments
    bound = least_bound(cells, segments)
    # The number of segments needed from each cell on.
    needed = [0] * (len(cells) + 1)
    for first in range(len(cells) - 1, -1, -1):
        needed[first] = 1 + needed[max(cells.longest(first, bound), first + 1)]
    begins = [0]
    for left in range(segments - 1, 0, -1):
        first = begins[-1]
        share = cells.work(first, len(cells)) / (left + 1)
        last = _nearest(cells, first, share)
        # The rest has to keep the bound, and every segment has a cell.
        while needed[last] > left:
            last += 1
        last = min(last, max(cells.longest(first, bound), first + 1), len(cells) - left)
        begins.append(max(last, first + 1))
    return begins


def _nearest(cells: DimensionCells, first: int, share: float) -> int:
    """Return the end at which a segment's work is nearest to `share`."""
    under = max(cells.longest(first, share), first + 1)
    over = min(under + 1, len(cells))
    is_nearer = cells.work(first, over) - share < share - cells.work(first, under)
    return over if is_nearer else under


def edges_of(values: Floats, low: float, high: float, cells: int) -> Floats:
    """Return edges of cells with about equally many values. A frequent value gets its own cell.

    Values beyond the bounds are in the first and the last cell.
    """
    inside = np.sort(values[(values > low) & (values < high)])
    even = np.linspace(low, high, min(cells, 64) + 1)
    if not len(inside):
        return even
    places = np.linspace(0, len(inside) - 1, cells + 1).round().astype(np.int64)
    chosen = inside[places]
    repeated = np.unique(chosen[1:][chosen[1:] == chosen[:-1]])
    found = np.unique(np.concatenate((even, chosen, np.nextafter(repeated, np.inf))))
    found = found[(found >= low) & (found <= high)]
    return np.asarray(found, np.float64)


def cell_of(edges: Floats, values: Floats) -> npt.NDArray[np.int64]:
    """Return each value's cell. Values beyond the edges are in the first and the last cell."""
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def begins_and_ends(edges: Floats, lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
    """Count the begins and the ends of boxes by cell, as `DimensionCells` has them."""
    count = len(edges) - 1
    begins = np.bincount(cell_of(edges, lows), minlength=count)
    # A box that ends at an edge does not reach the cell that begins there.
    last = np.clip(np.searchsorted(edges, highs, side="left") - 1, 0, count - 1)
    ends = np.bincount(last, minlength=count)
    return begins.astype(np.float64), ends.astype(np.float64)
