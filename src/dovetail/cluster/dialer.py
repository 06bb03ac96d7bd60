"""Whom a node dials, and how long it waits before it tries again. Pure.

A `Dial` lasts until it is forgotten, through as many connections as it takes. It has the name of a
node, or it is a seed: an address that somebody answers, whoever it is.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random

from dovetail.cluster.addresses import Address


@dataclass(slots=True, eq=False)
class Dial:
    name: str | None
    address: Address
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Try now, and do not wait any longer."""
    failures: int = 0
    """Since the last good connection."""
    task: "asyncio.Task[None] | None" = None

    def __str__(self) -> str:
        return str(self.address) if self.name is None else f"{self.name} at {self.address}"


def pause_seconds(failures: int, seconds_min: float, seconds_max: float, random: Random) -> float:
    """Doubles with each failure; drawn from its upper half, so that nodes do not march in step."""
    longest = min(seconds_max, seconds_min * 2.0 ** min(failures, 32))
    return longest * random.uniform(0.5, 1.0)


class Grievances:
    """What was logged of late, so that who tries for ever is not a line of the log each time."""

    def __init__(self, count_max: int, seconds: float) -> None:
        self._count_max = count_max
        self._seconds = seconds
        self._logged_at: dict[tuple[str, str], float] = {}

    def is_news(self, who: str, what: str, now: float) -> bool:
        """Is it to be logged? Then it will not be for a while."""
        key = (who, what)
        logged_at = self._logged_at.get(key)
        if logged_at is not None and now - logged_at < self._seconds:
            return False
        self._logged_at.pop(key, None)
        if len(self._logged_at) >= self._count_max:
            del self._logged_at[next(iter(self._logged_at))]  # the oldest
        self._logged_at[key] = now
        return True
