"""Is it dead, or only late? Phi-accrual failure detection (Hayashibara et al., 2004). Pure.

Instead of a timeout there is a suspicion that grows with silence: phi = -log10 of the probability
that a sign of life comes as late as this, judged by the intervals between the last ones. Phi 1 is
wrong once in ten times, phi 8 once in a hundred million; a network that is always late is expected
to be late. Intervals are taken as normally distributed, with a floor under their deviation, so that
a very regular peer is not given up for a small hiccup. An interval that is many times what was
expected was an outage, of the peer or of us, and is no rhythm to get used to.
"""

import math
from collections import deque

_OUTAGE = 4.0
"""In expected intervals."""
_PHI_MAX = 300.0
"""Where probabilities end in floating point."""


class Detector:
    """Signs of life of one node, and the suspicion when they stop."""

    __slots__ = ("_deviation_min", "_heard_at", "_interval_max", "_intervals", "_squares", "_total")

    def __init__(
        self, now: float, interval_seconds: float, *, window: int, deviation_min_seconds: float
    ) -> None:
        """`interval_seconds` is expected until some have been seen."""
        self._heard_at = now
        self._deviation_min = deviation_min_seconds
        self._interval_max = interval_seconds * _OUTAGE
        self._intervals: deque[float] = deque(maxlen=window)
        self._total = self._squares = 0.0
        # Two made-up ones, apart enough to allow for what a first estimate is worth.
        self._learn(interval_seconds * 0.5)
        self._learn(interval_seconds * 1.5)

    @property
    def heard_at(self) -> float:
        return self._heard_at

    def heard(self, now: float) -> None:
        """A sign of life. A clock that went back counts as no time."""
        interval = max(now - self._heard_at, 0.0)
        if interval <= self._interval_max:
            self._learn(interval)
        self._heard_at = now

    def excuse(self, now: float) -> None:
        """It is heard, and the silence before it tells nothing of the next one."""
        self._heard_at = now

    def _learn(self, interval: float) -> None:
        if len(self._intervals) == self._intervals.maxlen:
            oldest = self._intervals[0]
            self._total -= oldest
            self._squares -= oldest * oldest
        self._intervals.append(interval)
        self._total += interval
        self._squares += interval * interval

    def phi(self, now: float) -> float:
        count = len(self._intervals)
        mean = self._total / count
        variance = max(self._squares / count - mean * mean, 0.0)
        deviation = max(math.sqrt(variance), self._deviation_min)
        later = 0.5 * math.erfc((now - self._heard_at - mean) / (deviation * math.sqrt(2)))
        return _PHI_MAX if later <= 10**-_PHI_MAX else -math.log10(later)
