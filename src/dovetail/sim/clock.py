"""A virtual clock: calls run in the order of their times, without waiting. Pure."""

import heapq
from collections.abc import Callable
from typing import Any


class Clock:
    """Runs calls at their times. Calls of the same time run in the order of `at`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: float, call: Callable[..., object], *arguments: object) -> None:
        """Schedule a call. A time in the past counts as now."""
        self._count += 1
        heapq.heappush(self._calls, (max(time, self.now), self._count, call, arguments))

    def after(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        self.at(self.now + seconds, call, *arguments)

    def run_until(self, time: float) -> None:
        while self._calls and self._calls[0][0] <= time:
            self.now, _, call, arguments = heapq.heappop(self._calls)
            call(*arguments)
        self.now = time
