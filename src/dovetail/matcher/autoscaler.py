"""Decides how many matchers run on this machine, within two bounds. Pure.

    on average busier than `add_above`, for `add_after_seconds`            ->  one more
    even with one fewer less busy than `remove_below`,
      for `remove_after_seconds`                                           ->  one fewer

Rules:

- It decides nothing while a matcher starts, joins or leaves: the load of the others is about to
  change.
- Every change, whatever its cause, restarts both times. So no matcher leaves within
  `remove_after_seconds` of another change, and a new one has joined before the next one starts.
- A leaving matcher leaves its publications to the n - 1 others. It also leaves its boxes, which
  make each publication more expensive. So the others become at most (n / (n - 1))² as busy. As
  `remove_below` is less than `add_above`, a constant load never adds and removes in turns,
  whatever part of the cost boxes have.
- A matcher that `dovetail drain` has stopped stays away, and is not counted. Others may start in
  its place.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class ProcessState(Enum):
    AWAY = "away"
    """It does not run, and may be started."""
    COMING = "coming"
    """It starts, joins, or restarts after a crash."""
    SERVING = "serving"
    LEAVING = "leaving"
    DRAINED = "drained"
    """Stopped by `dovetail drain`."""


class MatcherProcess(NamedTuple):
    """A matcher process that may run on this machine."""

    name: str
    state: ProcessState
    busy_share: float = 0.0
    """The busy share of about the last second, if it serves."""


class ScalingDecision(NamedTuple):
    name: str
    is_start: bool
    """Start the matcher; False: have it leave."""
    reason: str


class ScalingSettings(Protocol):
    """The table `[matchers]` of the settings."""

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


class Autoscaler:
    """Decides when to start or stop a matcher. Call `decide` about once a second."""

    def __init__(self, settings: ScalingSettings) -> None:
        self._settings = settings
        self._states: list[ProcessState] = []
        self._busy_since: float | None = None
        self._idle_since: float | None = None

    def decide(self, processes: Sequence[MatcherProcess], now: float) -> ScalingDecision | None:
        """Return what to do now. The states in the next call must reflect it."""
        states = [process.state for process in processes]
        if states != self._states:
            self._states = states
            self._begin()
        away = [process.name for process in processes if process.state is ProcessState.AWAY]
        serving = [process for process in processes if process.state is ProcessState.SERVING]
        count = len(serving) + states.count(ProcessState.COMING)
        if count < self._settings.count_min and away:
            return ScalingDecision(
                away[0], True, f"no fewer than {self._settings.count_min} are to be there"
            )
        if not serving or ProcessState.COMING in states or ProcessState.LEAVING in states:
            self._begin()
            return None
        share = sum(process.busy_share for process in serving) / count
        more = self._one_more(share, now)
        fewer = self._one_fewer(share, count, now)
        if more is not None and away and count < self._settings.count_most:
            return ScalingDecision(away[0], True, more)
        if fewer is not None:
            least = min(process.busy_share for process in serving)
            names = [process.name for process in serving if process.busy_share == least]
            return ScalingDecision(names[-1], False, fewer)
        return None

    def _begin(self) -> None:
        self._busy_since = self._idle_since = None

    def _one_more(self, share: float, now: float) -> str | None:
        """Return the reason to start one more, if there is one."""
        settings = self._settings
        if share <= settings.add_above:
            self._busy_since = None
            return None
        self._busy_since = now if self._busy_since is None else self._busy_since
        if now - self._busy_since < settings.add_after_seconds:
            return None
        return (
            f"they are {share:.0%} busy, for {settings.add_after_seconds:g} s more than "
            f"{settings.add_above:.0%}"
        )

    def _one_fewer(self, share: float, count: int, now: float) -> str | None:
        """Return the reason to stop one. The last one stays: only it shows that load comes back."""
        settings = self._settings
        if count <= max(settings.count_min, 1):
            self._idle_since = None
            return None
        expected = share * (count / (count - 1)) ** 2
        if expected >= settings.remove_below:
            self._idle_since = None
            return None
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now - self._idle_since < settings.remove_after_seconds:
            return None
        return (
            f"they are {share:.0%} busy, and without it {expected:.0%} at most, for "
            f"{settings.remove_after_seconds:g} s less than {settings.remove_below:.0%}"
        )
