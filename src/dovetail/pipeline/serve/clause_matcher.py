"""Who wants each publication: rows of the archive and shipped clauses to broker and ids. Pure.

What a shipment has as its base is matched by an index that a worker keeps from task to task; what
has changed since, by a small one, and what of the base does not count any more is passed over.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.attributes.space import Space
from dovetail.pipeline.match.arrow_arrays import Ints
from dovetail.pipeline.match.batch_matcher import PAIRS_WANTED, ROWS_FIRST, Matcher
from dovetail.pipeline.match.bulk import unpacked
from dovetail.pipeline.serve.clause_shipment import Part, Shipment

_PARTS_KEPT = 3
"""By a worker process: a base and what changed, and the base before."""

_GROWTH = 8


class Wanted(NamedTuple):
    """A row of a batch, by its place, and who wants it at one target."""

    row: int
    target: int
    ids: list[int]


class _Indexed:
    """A part, ready to be asked."""

    def __init__(self, part: Part, spaces: Sequence[Space]) -> None:
        self._matcher = Matcher(unpacked(part.boxes), spaces) if part.ids else None
        self.targets = np.array(part.targets, np.int64)
        self.ids = np.array(part.ids, np.int64)

    def match(self, rows: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Rows and places."""
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        if self._matcher is not None:
            place_of = self._matcher.ids.to_numpy()
            for start, offsets, numbers in self._matcher.match(rows):
                own = np.repeat(np.arange(start, start + len(offsets) - 1), np.diff(offsets))
                found.append((own, place_of[numbers]))
        return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])


class _ByDigest:
    """Equal to others of the same digest, so that a cache goes by it."""

    def __init__(self, part: Part, spaces: tuple[Space, ...]) -> None:
        self.part = part
        self.spaces = spaces

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByDigest) and self.part.digest == other.part.digest

    def __hash__(self) -> int:
        return hash(self.part.digest)


@lru_cache(_PARTS_KEPT)
def _kept(part: _ByDigest) -> _Indexed:
    return _Indexed(part.part, part.spaces)


class Wanting:
    """Clauses of a shipment, for one task."""

    def __init__(self, shipment: Shipment, base: Part, spaces: tuple[Space, ...]) -> None:
        """`base`: the shipment's, however it came here."""
        self._base = _kept(_ByDigest(base, spaces))
        self._more = _kept(_ByDigest(shipment.more, spaces))
        self._counts = np.ones(len(self._base.ids), np.bool_)
        self._counts[list(shipment.void)] = False
        self._rows_next = ROWS_FIRST

    def match(self, rows: pa.RecordBatch) -> Iterator[Wanted]:
        """In the order of rows."""
        start = 0
        while start < len(rows):
            some = rows.slice(start, self._rows_next)
            pairs = 0
            for one in self._matched(some):
                pairs += len(one.ids)
                yield one._replace(row=one.row + start)
            start += len(some)
            wanted = PAIRS_WANTED * len(some) // max(pairs, 1)
            self._rows_next = int(np.clip(wanted, 1, _GROWTH * len(some)))

    def _matched(self, some: pa.RecordBatch) -> Iterator[Wanted]:
        base_rows, base_places = self._base.match(some)
        counts = self._counts[base_places]
        base_rows, base_places = base_rows[counts], base_places[counts]
        more_rows, more_places = self._more.match(some)
        rows = np.concatenate((base_rows, more_rows))
        targets = np.concatenate((self._base.targets[base_places], self._more.targets[more_places]))
        ids = np.concatenate((self._base.ids[base_places], self._more.ids[more_places]))
        keys = rows << 32 | targets
        order = np.argsort(keys, kind="stable")
        keys, ids = keys[order], ids[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(keys)]):
            key = int(keys[start])
            yield Wanted(key >> 32, key & 0xFFFF_FFFF, ids[start:end].tolist())
