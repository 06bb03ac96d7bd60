"""Lines of a log that are alike: the first is written at once, those after it once a second. Pure.

    a line of a new kind -> written -> others of its kind within a second are counted
                               ^                        |
                               |    the second is over: the last of them is written, with the count
                               +------------------------+-- or none came: the kind is forgotten

Rules:

- Of each kind at most one line is written in `seconds`, and none is lost without being counted:
  all counts that were written, and those that `flush` writes at the end, are the lines that came.
- The state is bounded. Of at most `kinds_max` kinds something is known; all others are one kind.
- Time is an argument. A line is whatever the caller has.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Line = TypeVar("Line")

Written = tuple[Line, int]
"""A line to be written, and for how many it stands: itself, and others before it."""


@dataclass(slots=True)
class _Kind(Generic[Line]):
    quiet_until: float
    last: Line | None = None
    """Of those that were counted."""
    count: int = 0


class Repeats(Generic[Line]):
    """Which lines are written, and which are counted."""

    def __init__(self, *, seconds: float, kinds_max: int) -> None:
        self._seconds = seconds
        self._kinds_max = kinds_max
        self._kinds: dict[Hashable, _Kind[Line]] = {}

    def take(self, kind: Hashable, line: Line, now: float) -> Written[Line] | None:
        """Return what is to be written now that this line has come; None: it is counted."""
        known = self._kinds.get(kind)
        if known is None and len(self._kinds) >= self._kinds_max:
            self._forget(now)
            if len(self._kinds) >= self._kinds_max:
                kind = _OTHERS
                known = self._kinds.get(kind)
        if known is None:
            self._kinds[kind] = _Kind(now + self._seconds)
            return line, 1
        known.last, known.count = line, known.count + 1
        return self._written(known, now) if now >= known.quiet_until else None

    def due(self, now: float) -> Iterator[Written[Line]]:
        """Return what was counted, of each kind whose second is over."""
        for known in [*self._kinds.values()]:
            if known.count and now >= known.quiet_until:
                yield self._written(known, now)
        self._forget(now)

    def flush(self) -> Iterator[Written[Line]]:
        """Return all that was counted, and forget it."""
        kinds, self._kinds = self._kinds, {}
        for known in kinds.values():
            if known.count:
                assert known.last is not None
                yield known.last, known.count

    @property
    def next_due(self) -> float | None:
        """When `due` has something. None: nothing was counted."""
        return min((one.quiet_until for one in self._kinds.values() if one.count), default=None)

    def _written(self, known: _Kind[Line], now: float) -> Written[Line]:
        assert known.last is not None
        written = known.last, known.count
        known.quiet_until, known.last, known.count = now + self._seconds, None, 0
        return written

    def _forget(self, now: float) -> None:
        """Kinds of which none came for a second."""
        for kind, known in [*self._kinds.items()]:
            if not known.count and now >= known.quiet_until:
                del self._kinds[kind]


_OTHERS = object()
"""The kind of lines for which there is no room."""
