"""A filter for repeated log lines: it writes the first at once, the others once a second. Pure.

    a line of a new kind -> written -> others of its kind within a second are counted
                               ^                        |
                               |    the second is over: the last of them is written, with the count
                               +------------------------+-- or none came: the kind is forgotten

Rules:

- Of each kind at most one line is written in `seconds`, and every line is counted: the counts that
  were written, with those that `flush` returns at the end, add up to the lines that came.
- The state is bounded: at most `kinds_max` kinds are tracked, and all others are one kind.
- Time is an argument. A line is any object of the caller.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Line = TypeVar("Line")

CountedLine = tuple[Line, int]
"""A line to write, and the number of lines that it stands for: itself and earlier ones."""


@dataclass(slots=True)
class _RepeatState(Generic[Line]):
    quiet_until: float
    last: Line | None = None
    """The last line that was counted."""
    count: int = 0


class RepeatFilter(Generic[Line]):
    """Decides which lines are written and which are counted."""

    def __init__(self, *, seconds: float, kinds_max: int) -> None:
        self._seconds = seconds
        self._kinds_max = kinds_max
        self._kinds: dict[Hashable, _RepeatState[Line]] = {}

    def take(self, kind: Hashable, line: Line, now: float) -> CountedLine[Line] | None:
        """Return the line to write now; None if this line is only counted."""
        known = self._kinds.get(kind)
        if known is None and len(self._kinds) >= self._kinds_max:
            self._forget(now)
            if len(self._kinds) >= self._kinds_max:
                kind = _OTHERS
                known = self._kinds.get(kind)
        if known is None:
            self._kinds[kind] = _RepeatState(now + self._seconds)
            return line, 1
        known.last, known.count = line, known.count + 1
        return self._written(known, now) if now >= known.quiet_until else None

    def due(self, now: float) -> Iterator[CountedLine[Line]]:
        """Return the counted lines of each kind whose second is over."""
        for known in [*self._kinds.values()]:
            if known.count and now >= known.quiet_until:
                yield self._written(known, now)
        self._forget(now)

    def flush(self) -> Iterator[CountedLine[Line]]:
        """Return all counted lines, and forget them."""
        kinds, self._kinds = self._kinds, {}
        for known in kinds.values():
            if known.count:
                assert known.last is not None
                yield known.last, known.count

    @property
    def next_due(self) -> float | None:
        """The time when `due` returns something. None: no line is counted."""
        return min((one.quiet_until for one in self._kinds.values() if one.count), default=None)

    def _written(self, known: _RepeatState[Line], now: float) -> CountedLine[Line]:
        assert known.last is not None
        written = known.last, known.count
        known.quiet_until, known.last, known.count = now + self._seconds, None, 0
        return written

    def _forget(self, now: float) -> None:
        """Forget the kinds of which no line came for a second."""
        for kind, known in [*self._kinds.items()]:
            if not known.count and now >= known.quiet_until:
                del self._kinds[kind]


_OTHERS = object()
"""The common kind of all lines beyond `kinds_max`."""
