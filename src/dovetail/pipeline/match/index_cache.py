"""Indexes that a Spark worker process keeps from task to task, by the digest of their content.

Each task brings the boxes that it matches with. Indexing them takes longer than matching a small
batch, and tasks in a row have the same boxes, so a worker keeps the last few indexes. No Spark.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Index = TypeVar("Index")


class IndexCache(Generic[Index]):
    """At most `indexes_max` indexes. The least recently used one goes first."""

    def __init__(self, indexes_max: int) -> None:
        self._indexes_max = indexes_max
        self._indexes: OrderedDict[Hashable, Index] = OrderedDict()

    def get(self, digest: Hashable, build: Callable[[], Index]) -> Index:
        """Return the index of the content with this digest; build it if it is missing."""
        if digest not in self._indexes:
            self._indexes[digest] = build()
            if len(self._indexes) > self._indexes_max:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(digest)
        return self._indexes[digest]
