"""A log of the elements that came or went, from which deltas are made.

An entry is a key and the version of its change. It stays until newer entries need its room. The
version `floor` is the oldest from which the log is complete; a peer below it needs the whole
sketch.
"""

import numpy as np
import numpy.typing as npt

from dovetail.topics.limits import SKETCH_CHANGES_MAX

Words = npt.NDArray[np.uint64]

_ROOM_MIN = 64


class ChangeLog:
    """Keys in the order of their changes."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self._keys = np.zeros(_ROOM_MIN, np.uint64)
        self._versions = np.zeros(_ROOM_MIN, np.uint64)
        self._count = 0

    def append(self, keys: Words, version: int) -> None:
        if len(keys) > SKETCH_CHANGES_MAX // 2:
            self.floor = version
            self._count = 0
            return
        if self._count + len(keys) > SKETCH_CHANGES_MAX:
            self._forget(self._count // 2)
        self._make_room(len(keys))
        end = self._count + len(keys)
        self._keys[self._count : end] = keys
        self._versions[self._count : end] = version
        self._count = end

    def since(self, version: int) -> Words | None:
        """Return each key that changed after this version, once; None if it is below the floor."""
        if version < self.floor:
            return None
        first = int(np.searchsorted(self._versions[: self._count], version, side="right"))
        return np.unique(self._keys[first : self._count])

    def _forget(self, count: int) -> None:
        """Remove the oldest entries. Their last version may be incomplete now: it is the floor."""
        self.floor = int(self._versions[count - 1])
        self._keys = self._keys[count : self._count].copy()
        self._versions = self._versions[count : self._count].copy()
        self._count -= count

    def _make_room(self, count: int) -> None:
        if self._count + count > len(self._keys):
            room = max(self._count + count, 2 * len(self._keys))
            self._keys = np.resize(self._keys, room)
            self._versions = np.resize(self._versions, room)
