"""Arrow columns as arrays of NumPy: lists of numbers, maps, and points made of them. No Spark."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Lists:
    """Numbers of some kind for each of others: offsets and values."""

    def __init__(self, of_rows: Ints, chosen: Bools, count: int) -> None:
        """Chosen rows by what they are of, which is below the count."""
        rows = np.flatnonzero(chosen)
        order = np.argsort(of_rows[rows], kind="stable")
        self.values: Ints = rows[order]
        self.counts: Ints = np.bincount(of_rows[rows], minlength=count)
        self.starts: Ints = np.cumsum(self.counts) - self.counts

    @classmethod
    def of(cls, counts: Ints, values: Ints) -> "Lists":
        made = cls.__new__(cls)
        made.values, made.counts = values, counts
        made.starts = np.cumsum(counts) - counts
        return made

    def expand(self, wanted: Ints) -> tuple[Ints, Ints]:
        """For each of the wanted all its values: places among the wanted, and the values."""
        counts = self.counts[wanted]
        places = np.repeat(np.arange(len(wanted)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(places)) - np.repeat(ends - counts, counts)
        return places, self.values[self.starts[wanted][places] + within]

    def joined(self, rows: Ints, wanted: Ints) -> tuple[Ints, Ints]:
        """The same with the row of each of the wanted."""
        has = self.counts[wanted] > 0
        places, values = self.expand(wanted[has])
        return rows[has][places], values


def points_of(attributes: pa.Array, names: pa.Array) -> tuple[Floats, Bools]:
    """A value for each row and name, NaN where it is missing; and rows that cannot be compared."""
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
    """The entries of a column of maps: rows, keys and values. A null map has none."""
    lengths = pc.list_value_length(_as_lists(column)).fill_null(0)
    entries = _as_lists(column).flatten()
    rows = np.repeat(np.arange(len(column)), lengths.to_numpy(zero_copy_only=False))
    return rows, entries.field(0), entries.field(1)


def _as_lists(column: pa.Array) -> pa.Array:
    """A map is a list of pairs; Arrow computes on lists."""
    pair = pa.struct([column.type.key_field, column.type.item_field])
    return column.cast(pa.list_(pair))


def matrix(lists: pa.ChunkedArray, width: int) -> Floats:
    return np.asarray(whole(lists).flatten().to_numpy(), np.float64).reshape(-1, width)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of what may be several."""
    if isinstance(column, pa.Array):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
