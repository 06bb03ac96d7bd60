"""Where to cut one dimension, so that the busiest of its segments has as little work as can be.

No Spark. A dimension is a row of fine *cells*, between edges. A segment is some cells beside each
other, and its work is

    seconds of its points  +  box_seconds x its points x the boxes that overlap it

which is what a matcher spends on what it is asked along this dimension (load.py). Of two
segments, one within the other, the inner one never has more work. So the least bound that so many
segments can keep is found by halving: for a bound, each segment is as long as it may be. Within
that bound the segments are then made as even as they go.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_HALVINGS = 60


@dataclass(frozen=True)
class Cells:
    """One dimension: what there is in each cell. `edges` has one more, and rises."""

    edges: Floats
    points: Floats
    """That are asked along this dimension."""
    seconds: Floats
    """Of these, apart from what boxes cost."""
    begins: Floats
    """Boxes whose range begins in the cell."""
    ends: Floats
    """Boxes of which it is the last cell."""
    box_seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def _sums(self) -> tuple[list[float], list[float], list[float], list[float]]:
        """Of all cells before each."""
        points, seconds, begins, ends = (
            np.concatenate(([0.0], np.cumsum(one))).tolist()
            for one in (self.points, self.seconds, self.begins, self.ends)
        )
        return points, seconds, begins, ends

    def work(self, first: int, last: int) -> float:
        """Of the cells from `first` on and before `last`."""
        points, seconds, begins, ends = self._sums
        count = points[last] - points[first]
        boxes = begins[last] - ends[first]
        return seconds[last] - seconds[first] + self.box_seconds * count * boxes

    def longest(self, first: int, bound: float) -> int:
        """Where a segment ends that begins there and keeps the bound; `first` if none does."""
        low, high = first, len(self)
        while low < high:
            middle = (low + high + 1) // 2
            if self.work(first, middle) <= bound:
                low = middle
            else:
                high = middle - 1
        return low

    def segments_within(self, bound: float, most: int) -> int:
        """How many keep the bound; one more than `most` if those do not."""
        count = first = 0
        while first < len(self) and count <= most:
            count += 1
            last = self.longest(first, bound)
            if last == first:
                return most + 1
            first = last
        return count


def least_bound(cells: Cells, segments: int) -> float:
    """The least that the busiest of so many segments can have."""
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


def cut(cells: Cells, segments: int) -> list[int]:
    """Where each segment begins, as cells; the first is 0. There are at least as many cells."""
    assert len(cells) >= segments
    bound = least_bound(cells, segments)
    # Segments that the rest needs, from each cell on.
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


def _nearest(cells: Cells, first: int, share: float) -> int:
    """The end at which a segment's work is nearest to this."""
    under = max(cells.longest(first, share), first + 1)
    over = min(under + 1, len(cells))
    is_nearer = cells.work(first, over) - share < share - cells.work(first, under)
    return over if is_nearer else under


def edges_of(values: Floats, low: float, high: float, cells: int) -> Floats:
    """Edges such that cells have about as many values each; a value that is frequent has its own.

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
    """Of each value; those beyond the edges are in the first and the last."""
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def begins_and_ends(edges: Floats, lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
    """Of boxes, by cell: as `Cells` has them."""
    count = len(edges) - 1
    begins = np.bincount(cell_of(edges, lows), minlength=count)
    # One that ends at an edge does not reach the cell that begins there.
    last = np.clip(np.searchsorted(edges, highs, side="left") - 1, 0, count - 1)
    ends = np.bincount(last, minlength=count)
    return begins.astype(np.float64), ends.astype(np.float64)
