"""The nodes that a node dials, and the pauses between attempts. Pure.

A `DialTarget` lasts until it is forgotten, through any number of connections. It has the name of a
node, or it is a seed: an address whose node is not known yet.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random

from dovetail.cluster.addresses import Address


@dataclass(slots=True, eq=False)
class DialTarget:
    name: str | None
    address: Address
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set it to end the pause before the next attempt."""
    failures: int = 0
    """Failed attempts since the last good connection."""
    task: "asyncio.Task[None] | None" = None

    def __str__(self) -> str:
        return str(self.address) if self.name is None else f"{self.name} at {self.address}"


def pause_seconds(failures: int, seconds_min: float, seconds_max: float, random: Random) -> float:
    """Return a pause that doubles with each failure, times a random 0.5 to 1 against lockstep."""
    longest = min(seconds_max, seconds_min * 2.0 ** min(failures, 32))
    return longest * random.uniform(0.5, 1.0)


class RefusalLog:
    """Remembers logged refusals, so that the same one is not logged at each attempt."""

    def __init__(self, count_max: int, seconds: float) -> None:
        self._count_max = count_max
        self._seconds = seconds
        self._logged_at: dict[tuple[str, str], float] = {}

    def is_news(self, who: str, what: str, now: float) -> bool:
        """Return whether to log it. If so, the same is no news for a while."""
        key = (who, what)
        logged_at = self._logged_at.get(key)
        if logged_at is not None and now - logged_at < self._seconds:
            return False
        self._logged_at.pop(key, None)
        if len(self._logged_at) >= self._count_max:
            del self._logged_at[next(iter(self._logged_at))]  # the oldest
        self._logged_at[key] = now
        return True
