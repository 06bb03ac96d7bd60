"""Find the boxes that a point falls in, by bitmaps over leaves of 64 neighbouring boxes.

A box is a half-open range in each dimension, a point a value in each. An infinite border is open.
A value that is missing (NaN) matches boxes that are open on both sides there. Bounds only say where
cells and codes are fine; values outside them are valid, and are matched exactly.

    insert  ->  slots, the caller's names for boxes until `discard`; then slots are reused
    match   ->  for each point the slots of the boxes that it falls in, in no order

Why this design (measured with BlueDove's boxes, one core):

- A bitmap of boxes for each cell would have a bit for each box. With 64 cells, a third of a box's
  matches lie in its border cells and need an exact check.
- So boxes lie in leaves of up to 64 neighbours, and the bitmaps are of leaves, some 50 times
  shorter. ANDing them costs little even at a million boxes, and about 20 of 900 leaves (200 of
  21,000) remain to be searched. There 64 boxes are compared at once by 16-bit codes. Listing the
  matches is then about a third of the work.
- Leaves are runs of boxes in Morton's order of their centres. Plain runs of 64 left 22 leaves to
  search; runs that are cut where the highest bit of the key changes left 16 to 20. A k-d tree left
  13, but box by box changes unbalance it. Keys of ranks instead of values left a fifth more.

The match kernel takes everything from the caller and keeps no state: `match` is safe from any
thread while no thread writes.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.attributes.kernels import leaves, matching
from dovetail.attributes.kernels.codes import CODES, OPEN_ABOVE, OPEN_BELOW, keys_of
from dovetail.attributes.kernels.lanes import LANES
from dovetail.attributes.limits import (
    BOX_DIMENSIONS_MAX,
    BOXES_MAX,
    LEAVES_GROWTH,
    LEAVES_MIN,
    LEAVES_SHRINK,
    MATCHES_ROOM_MIN,
)

Floats = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]

EVERY_KIND = 0xFFFF_FFFF
_SLOTS_MIN = LEAVES_MIN * LANES


def _room_for(leaf_count: int) -> int:
    """Round up to whole words of leaves."""
    return max(-(-leaf_count // 64) * 64, LEAVES_MIN)


class _BoxBatch:
    """Boxes to insert, as the kernel takes them: of each the lower borders, then the upper ones."""

    __slots__ = ("boxes", "highs", "kinds", "lows", "sequence")

    def __init__(self, count: int, dimensions: int) -> None:
        both = np.empty((count, 2 * dimensions), np.float64)
        self.boxes: Floats = both.reshape(-1)
        self.lows, self.highs = both[:, :dimensions], both[:, dimensions:]
        self.kinds = np.empty(count, np.uint32)
        self.sequence: Slots = np.zeros(count, np.int64)


class BoxIndex:
    """All boxes of a space, or those that a matcher holds."""

    def __init__(self, lows: npt.ArrayLike, highs: npt.ArrayLike) -> None:
        low, high = np.array(lows, np.float64), np.array(highs, np.float64)
        if low.ndim != 1 or low.shape != high.shape:
            raise ValueError("an index needs one lower and one upper bound a dimension")
        if not 1 <= len(low) <= BOX_DIMENSIONS_MAX:
            raise ValueError(f"an index has 1 to {BOX_DIMENSIONS_MAX} dimensions")
        with np.errstate(all="ignore"):
            scales = CODES / (high - low)
        if not (np.isfinite(low).all() and np.isfinite(scales).all() and (scales > 0).all()):
            raise ValueError("bounds are finite, and the lower one is below the upper one")
        self.dimensions = len(low)
        self._origins, self._scales = low, scales
        self._matches_likely = 0.0
        # Boxes often come one by one. To make arrays for each would cost more than the rest.
        self._one = _BoxBatch(1, self.dimensions)
        # So do points.
        self._point = np.zeros(self.dimensions)
        self._point_ends: Slots = np.zeros(2, np.int64)
        self._point_found: Slots = np.empty(MATCHES_ROOM_MIN, np.int64)
        self._empty()

    def _empty(self) -> None:
        self._state = np.zeros(leaves.STATES, np.int64)
        self._place_of = np.full(_SLOTS_MIN, -1, np.int32)
        self._free_slots = np.arange(_SLOTS_MIN - 1, -1, -1, dtype=np.int32)
        self._state[leaves.FREE_SLOTS] = _SLOTS_MIN
        self._make_leaves(LEAVES_MIN)
        # There is always a leaf, for whatever comes first.
        self._state[leaves.LEAVES] = 1
        self._state[leaves.FREE_LEAVES] -= 1

    def _make_leaves(self, count: int) -> None:
        """Make room for so many leaves, all free. Leaves with low numbers are used first."""
        dimensions = self.dimensions
        codes = np.empty((count, dimensions, 2, LANES), np.int16)
        codes[:, :, 0], codes[:, :, 1] = OPEN_ABOVE, OPEN_BELOW
        self._codes = codes.reshape(-1)
        self._edges = np.empty(count * LANES * 2 * dimensions, np.float64)
        self._slot_of = np.empty(count * LANES, np.int32)
        self._kinds = np.empty(count * LANES, np.uint32)
        self._used = np.zeros(count, np.uint64)
        self._cover = np.zeros(count * (dimensions + 1), np.uint64)
        self._rows = np.zeros(dimensions * leaves.ROWS * (count // 64), np.uint64)
        self._order = np.zeros(count, np.int32)
        self._firsts = np.zeros(count, np.uint64)
        self._free_leaves = np.arange(count - 1, -1, -1, dtype=np.int32)
        self._state[leaves.FREE_LEAVES] = count

    # Size -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._state.item(leaves.BOXES)

    @property
    def nbytes(self) -> int:
        arrays = (value for value in vars(self).values() if isinstance(value, np.ndarray))
        return sum(array.nbytes for array in arrays)

    def _resize_leaves(self, count: int) -> None:
        count = _room_for(count)
        used = int(self._state[leaves.LEAVES])
        old = self._leaf_arrays()
        self._make_leaves(count)
        leaves.move_leaves(used, old, self._leaf_arrays())
        self._order[:used] = np.arange(used)
        self._firsts[:used] = old.firsts[:used]
        self._state[leaves.FREE_LEAVES] = count - used

    def _leaf_arrays(self) -> leaves.LeafArrays:
        """Return the arrays as one, for calls that are rare: to unpack them costs a microsecond."""
        return leaves.LeafArrays(
            self._origins, self._scales, self._codes, self._edges, self._slot_of, self._kinds,
            self._place_of, self._used, self._cover, self._rows, self._order, self._firsts,
            self._free_leaves, self._state,
        )  # fmt: skip

    def _resize_slots(self, count: int) -> None:
        """Change the number of slots. Slots from `count` on must be free."""
        place_of = np.full(count, -1, np.int32)
        kept = min(count, len(self._place_of))
        place_of[:kept] = self._place_of[:kept]
        free = np.flatnonzero(place_of < 0)[::-1]
        self._place_of = place_of
        self._free_slots = np.empty(count, np.int32)
        self._free_slots[: len(free)] = free
        self._state[leaves.FREE_SLOTS] = len(free)

    def _shrink(self) -> None:
        """Return unused memory. Sizes differ by a factor, so this is rare."""
        room, used = len(self._used), self._state.item(leaves.LEAVES)
        if used >= LEAVES_SHRINK * room:
            return
        wanted = _room_for(int(used * LEAVES_GROWTH))
        if wanted >= room:
            return
        if not len(self):
            self._empty()
            return
        self._resize_leaves(wanted)
        last = int(np.flatnonzero(self._place_of >= 0)[-1]) + 1
        slots = max(int(last * LEAVES_GROWTH), _SLOTS_MIN)
        if slots < len(self._place_of):
            self._resize_slots(slots)

    # Boxes ----------------------------------------------------------------------------------------

    def insert(self, lows: npt.ArrayLike, highs: npt.ArrayLike, kinds: npt.ArrayLike = 1) -> Slots:
        """Insert boxes. Return their slots. A kind is a set of up to 32 bits, for `match`."""
        low, high = np.asarray(lows, np.float64), np.asarray(highs, np.float64)
        shape = low.shape
        if len(shape) != 2 or shape[1] != self.dimensions or shape != high.shape:
            raise ValueError(f"a box has two borders in each of {self.dimensions} dimensions")
        count = shape[0]
        boxes_before = self._state.item(leaves.BOXES)
        if boxes_before + count > BOXES_MAX:
            raise ValueError(f"an index has at most {BOXES_MAX:,} boxes")
        if self._state.item(leaves.FREE_SLOTS) < count:
            self._resize_slots(int((boxes_before + count) * LEAVES_GROWTH))
        slots = np.empty(count, np.int64)
        # A copy in any case: the kernel is compiled for arrays that can be written to.
        given = self._one if count == 1 else _BoxBatch(count, self.dimensions)
        given.lows[...], given.highs[...], given.kinds[...] = low, high, kinds
        if count > 1:
            given.sequence = np.argsort(keys_of(given.boxes, self._origins, self._scales))
        done = self._insert(given, 0, slots)
        if done == leaves.NO_NUMBER:
            raise ValueError("a border is a number")
        while done < count:
            # The remaining boxes come in order, and leaves are about three quarters full then.
            room = len(self._used)
            likely = (count - done) // (LANES * 3 // 4)
            self._resize_leaves(max(int(room * LEAVES_GROWTH), room + likely))
            done = self._insert(given, done, slots)
        return slots

    def _insert(self, given: _BoxBatch, start: int, slots: Slots) -> int:
        return leaves.insert(
            self._origins, self._scales, self._codes, self._edges, self._slot_of, self._kinds,
            self._place_of, self._used, self._cover, self._rows, self._order, self._firsts,
            self._free_leaves, self._free_slots, self._state,
            given.boxes, given.kinds, given.sequence, start, slots,
        )  # fmt: skip

    def discard(self, slots: npt.ArrayLike) -> None:
        """Remove boxes. A slot without a box is a KeyError; the boxes before it are removed."""
        wanted = np.asarray(slots, np.int64).reshape(-1)
        done = leaves.discard(
            self._origins, self._scales, self._codes, self._edges, self._slot_of, self._kinds,
            self._place_of, self._used, self._cover, self._rows, self._order, self._firsts,
            self._free_leaves, self._free_slots, self._state, wanted,
        )  # fmt: skip
        self._shrink()
        if done < len(wanted):
            raise KeyError(int(wanted[done]))

    def boxes(self, slots: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return the lower and upper borders of these slots' boxes."""
        edges = self._edges.reshape(-1, 2, self.dimensions)[self._places(slots)]
        return edges[:, 0], edges[:, 1]

    def _places(self, slots: npt.ArrayLike) -> npt.NDArray[np.int32]:
        wanted = np.asarray(slots, np.int64).reshape(-1)
        known = (wanted >= 0) & (wanted < len(self._place_of))
        known[known] = self._place_of[wanted[known]] >= 0
        if not known.all():
            raise KeyError(int(wanted[~known][0]))
        return self._place_of[wanted]

    # Points ---------------------------------------------------------------------------------------

    def match(self, points: npt.ArrayLike, mask: int | None = None) -> tuple[Slots, Slots]:
        """Return offsets and slots: point i falls in the boxes slots[offsets[i]:offsets[i + 1]].

        With a mask, only boxes match whose kind shares a bit with it.
        """
        flat = self._points(points)
        ends = np.zeros(len(flat) // self.dimensions + 1, np.int64)
        found = np.empty(int(self._matches_likely * len(ends)) + MATCHES_ROOM_MIN, np.int64)
        done = self._match(flat, 0, mask, ends, found, listing=True)
        while done < len(ends) - 1:
            larger = np.empty(2 * len(found), np.int64)
            larger[: ends[done]] = found[: ends[done]]
            found = larger
            done = self._match(flat, done, mask, ends, found, listing=True)
        # The next search will have about as many matches: enough room at once saves a copy.
        self._matches_likely = 1.125 * int(ends[-1]) / len(ends)
        return ends, found[: ends[-1]]

    def match_one(self, point: Sequence[float]) -> Slots:
        """Return the slots of the boxes that a point falls in. The next call overwrites them."""
        self._point[:] = point
        ends = self._point_ends
        while not self._match(self._point, 0, None, ends, self._point_found, listing=True):
            self._point_found = np.empty(2 * len(self._point_found), np.int64)
        return self._point_found[: ends[1]]

    def count(self, points: npt.ArrayLike, mask: int | None = None) -> Slots:
        """Return how many boxes each point falls in."""
        flat = self._points(points)
        ends = np.zeros(len(flat) // self.dimensions + 1, np.int64)
        self._match(flat, 0, mask, ends, np.empty(0, np.int64), listing=False)
        return np.diff(ends)

    def _points(self, points: npt.ArrayLike) -> Floats:
        given = np.ascontiguousarray(points, np.float64)
        if given.ndim != 2 or given.shape[1] != self.dimensions:
            raise ValueError(f"a point has a value in each of {self.dimensions} dimensions")
        return given.reshape(-1)

    def _match(
        self,
        flat: Floats,
        start: int,
        mask: int | None,
        ends: Slots,
        found: Slots,
        *,
        listing: bool,
    ) -> int:
        return matching.match(
            self._origins, self._scales, self._codes, self._edges, self._slot_of, self._kinds,
            self._rows, len(self._used) // 64, flat, start,
            np.uint32(EVERY_KIND if mask is None else mask), mask is not None, listing, ends, found,
        )  # fmt: skip
