"""How many matchers there should be on this machine, between two numbers. Pure.

    on average busier than `add_above`, for `add_after_seconds`            ->  one more
    without one of them still less busy than `remove_below`,
      for `remove_after_seconds`                                           ->  one fewer

Rules:

- Nothing is decided while one starts, joins or leaves: how busy the others are is about to change.
- Every change, whoever made it, begins both times anew. So nobody leaves within
  `remove_after_seconds` of one who came or went, and who comes has joined before the next one does.
- Who leaves gives its publications to the n - 1 others, and its boxes, which make each publication
  dearer: they will be busy (n / (n - 1))² as much at most. As `remove_below` is less than
  `add_above`, a load that stays as it is never has one come and go by turns: whatever the part of
  boxes in the cost is, one fewer is not busy enough to add one, nor one more idle enough to remove
  one.
- One that a person has drained stays away, and is not counted. Others may come in its place.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class Standing(Enum):
    AWAY = "away"
    """It does not run, and may be started."""
    COMING = "coming"
    """It starts, or joins, or has died and is started again."""
    SERVING = "serving"
    LEAVING = "leaving"
    DRAINED = "drained"
    """By a person."""


class Place(NamedTuple):
    """One that may run here."""

    name: str
    standing: Standing
    busy_share: float = 0.0
    """Of the last second or so, if it serves."""


class Change(NamedTuple):
    name: str
    is_start: bool
    """Or is it to leave?"""
    reason: str


class Bounds(Protocol):
    """As `[matchers]` in the settings has them."""

    @property
    def count_min(self) -> int: ...
    @property
    def count_most(self) -> int: ...
    @property
    def add_above(self) -> float: ...
    @property
    def remove_below(self) -> float: ...
    @property
    def add_after_seconds(self) -> float: ...
    @property
    def remove_after_seconds(self) -> float: ...


class Scaling:
    """Asked once a second or so."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._standings: list[Standing] = []
        self._busy_since: float | None = None
        self._idle_since: float | None = None

    def decide(self, places: Sequence[Place], now: float) -> Change | None:
        """What is to be done now; the places of the next call have it."""
        standings = [place.standing for place in places]
        if standings != self._standings:
            self._standings = standings
            self._begin()
        away = [place.name for place in places if place.standing is Standing.AWAY]
        serving = [place for place in places if place.standing is Standing.SERVING]
        count = len(serving) + standings.count(Standing.COMING)
        if count < self._bounds.count_min and away:
            return Change(away[0], True, f"no fewer than {self._bounds.count_min} are to be there")
        if not serving or Standing.COMING in standings or Standing.LEAVING in standings:
            self._begin()
            return None
        share = sum(place.busy_share for place in serving) / count
        more = self._one_more(share, now)
        fewer = self._one_fewer(share, count, now)
        if more is not None and away and count < self._bounds.count_most:
            return Change(away[0], True, more)
        if fewer is not None:
            least = min(place.busy_share for place in serving)
            names = [place.name for place in serving if place.busy_share == least]
            return Change(names[-1], False, fewer)
        return None

    def _begin(self) -> None:
        self._busy_since = self._idle_since = None

    def _one_more(self, share: float, now: float) -> str | None:
        """The reason, if there is one."""
        bounds = self._bounds
        if share <= bounds.add_above:
            self._busy_since = None
            return None
        self._busy_since = now if self._busy_since is None else self._busy_since
        if now - self._busy_since < bounds.add_after_seconds:
            return None
        return (
            f"they are {share:.0%} busy, for {bounds.add_after_seconds:g} s more than "
            f"{bounds.add_above:.0%}"
        )

    def _one_fewer(self, share: float, count: int, now: float) -> str | None:
        """The same. One alone stays in any case: who else would tell that it is needed?"""
        bounds = self._bounds
        if count <= max(bounds.count_min, 1):
            self._idle_since = None
            return None
        expected = share * (count / (count - 1)) ** 2
        if expected >= bounds.remove_below:
            self._idle_since = None
            return None
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now - self._idle_since < bounds.remove_after_seconds:
            return None
        return (
            f"they are {share:.0%} busy, and without it {expected:.0%} at most, for "
            f"{bounds.remove_after_seconds:g} s less than {bounds.remove_below:.0%}"
        )
