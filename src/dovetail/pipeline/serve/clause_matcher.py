"""Which where-clauses each archived row satisfies: rows and a shipment to targets and ids. Pure.

A shipment has a base, which rarely changes, and the changes since. A worker keeps the index of
each from task to task. Matches with entries of the base that are stale are left out.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.archive.arrow_stream import unpack
from dovetail.attributes.space import Space
from dovetail.pipeline.match.arrow_arrays import Ints
from dovetail.pipeline.match.batch_matcher import PAIRS_WANTED, ROWS_FIRST, BatchMatcher
from dovetail.pipeline.match.index_cache import IndexCache
from dovetail.pipeline.serve.clause_shipment import ClauseShipment, ClauseTable

_INDEXES_KEPT = 3
"""By a worker process: a base, its changes, and the base before."""

_GROWTH = 8


class ClauseMatch(NamedTuple):
    """The clauses of one target that a row satisfies. `row` is its position in the batch."""

    row: int
    target: int
    ids: list[int]


class _ClauseIndex:
    """The index of a table of clauses."""

    def __init__(self, table: ClauseTable, spaces: Sequence[Space]) -> None:
        self._matcher = BatchMatcher(unpack(table.boxes), spaces) if table.ids else None
        self.targets = np.array(table.targets, np.int64)
        self.ids = np.array(table.ids, np.int64)

    def match(self, rows: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Return matching pairs: positions of rows, and positions of clauses in the table."""
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        if self._matcher is not None:
            place_of = self._matcher.ids.to_numpy()
            for start, offsets, numbers in self._matcher.match(rows):
                own = np.repeat(np.arange(start, start + len(offsets) - 1), np.diff(offsets))
                found.append((own, place_of[numbers]))
        return np.concatenate([rows for rows, _ in found]), np.concatenate(
            [places for _, places in found]
        )


_indexes: IndexCache[_ClauseIndex] = IndexCache(_INDEXES_KEPT)


def _index_of(table: ClauseTable, spaces: tuple[Space, ...]) -> _ClauseIndex:
    return _indexes.get(table.digest, lambda: _ClauseIndex(table, spaces))


class ClauseMatcher:
    """Matches rows with the clauses of a shipment, for one task."""

    def __init__(
        self, shipment: ClauseShipment, base: ClauseTable, spaces: tuple[Space, ...]
    ) -> None:
        """`base` is the shipment's base; a broadcast may have brought it here separately."""
        self._base = _index_of(base, spaces)
        self._changes = _index_of(shipment.changes, spaces)
        self._is_current = np.ones(len(self._base.ids), np.bool_)
        self._is_current[list(shipment.stale)] = False
        self._rows_next = ROWS_FIRST

    def match(self, rows: pa.RecordBatch) -> Iterator[ClauseMatch]:
        """Yield the matches, in the order of rows."""
        start = 0
        while start < len(rows):
            some = rows.slice(start, self._rows_next)
            pairs = 0
            for one in self._matched(some):
                pairs += len(one.ids)
                yield one._replace(row=one.row + start)
            start += len(some)
            rows_wanted = PAIRS_WANTED * len(some) // max(pairs, 1)
            self._rows_next = int(np.clip(rows_wanted, 1, _GROWTH * len(some)))

    def _matched(self, some: pa.RecordBatch) -> Iterator[ClauseMatch]:
        base_rows, base_places = self._base.match(some)
        is_current = self._is_current[base_places]
        base_rows, base_places = base_rows[is_current], base_places[is_current]
        changed_rows, changed_places = self._changes.match(some)
        rows = np.concatenate((base_rows, changed_rows))
        targets = np.concatenate(
            (self._base.targets[base_places], self._changes.targets[changed_places])
        )
        ids = np.concatenate((self._base.ids[base_places], self._changes.ids[changed_places]))
        keys = rows << 32 | targets
        order = np.argsort(keys, kind="stable")
        keys, ids = keys[order], ids[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(keys)]):
            key = int(keys[start])
            yield ClauseMatch(key >> 32, key & 0xFFFF_FFFF, ids[start:end].tolist())
