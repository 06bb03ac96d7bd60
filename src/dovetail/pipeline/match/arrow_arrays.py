"""Arrow columns as NumPy arrays: grouped values, maps, and matrices of points. No Spark."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class GroupedValues:
    """Integers in numbered groups, as flat arrays: values, and the start and count of each group.

    Groups are numbered from 0.
    """

    def __init__(self, of_rows: Ints, chosen: Bools, count: int) -> None:
        """Group the numbers of the chosen rows. `of_rows` has each row's group, below `count`."""
        rows = np.flatnonzero(chosen)
        order = np.argsort(of_rows[rows], kind="stable")
        self.values: Ints = rows[order]
        self.counts: Ints = np.bincount(of_rows[rows], minlength=count)
        self.starts: Ints = np.cumsum(self.counts) - self.counts

    @classmethod
    def of(cls, counts: Ints, values: Ints) -> "GroupedValues":
        made = cls.__new__(cls)
        made.values, made.counts = values, counts
        made.starts = np.cumsum(counts) - counts
        return made

    def expand(self, wanted: Ints) -> tuple[Ints, Ints]:
        """Return all values of the wanted groups, and the position in `wanted` that each is of."""
        counts = self.counts[wanted]
        places = np.repeat(np.arange(len(wanted)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(places)) - np.repeat(ends - counts, counts)
        return places, self.values[self.starts[wanted][places] + within]

    def joined(self, rows: Ints, wanted: Ints) -> tuple[Ints, Ints]:
        """Like `expand`, with `rows[position]` instead of the position."""
        has = self.counts[wanted] > 0
        places, values = self.expand(wanted[has])
        return rows[has][places], values


def point_matrix(attributes: pa.Array, names: pa.Array) -> tuple[Floats, Bools]:
    """Return a matrix with a value for each row and name, and which rows are not comparable.

    A missing value is NaN. A row with an infinite value or NaN is not comparable.
    """
    points = np.full((len(attributes), len(names)), np.nan)
    is_bad = np.zeros(len(attributes), np.bool_)
    rows, keys, items = map_entries(attributes)
    codes = pc.index_in(keys, value_set=names)
    known = pc.and_(codes.is_valid(), items.is_valid()).to_numpy(zero_copy_only=False)
    rows = rows[known]
    values = items.to_numpy(zero_copy_only=False)[known].astype(np.float64)
    points[rows, codes.to_numpy(zero_copy_only=False)[known].astype(np.int64)] = values
    is_bad[rows[~np.isfinite(values)]] = True
    return points, is_bad


def map_entries(column: pa.Array) -> tuple[Ints, pa.Array, pa.Array]:
    """Return the entries of a column of maps: rows, keys and values. A null map has none."""
    lengths = pc.list_value_length(_as_lists(column)).fill_null(0)
    entries = _as_lists(column).flatten()
    rows = np.repeat(np.arange(len(column)), lengths.to_numpy(zero_copy_only=False))
    return rows, entries.field(0), entries.field(1)


def _as_lists(column: pa.Array) -> pa.Array:
    """Cast maps to lists of pairs: Arrow computes on lists."""
    pair = pa.struct([column.type.key_field, column.type.item_field])
    return column.cast(pa.list_(pair))


def matrix(lists: pa.ChunkedArray, width: int) -> Floats:
    return np.asarray(whole(lists).flatten().to_numpy(), np.float64).reshape(-1, width)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the chunks of a column as one array."""
    if isinstance(column, pa.Array):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
