"""The phi-accrual failure detector (Hayashibara et al., 2004). Pure.

Instead of a timeout there is a suspicion that grows with silence: phi = -log10 of the probability
that a sign of life comes as late as this, judged by the intervals between the last ones. Phi 1 is
wrong once in ten times, phi 8 once in a hundred million. In a network that is always late, lateness
is expected. Intervals are taken as normally distributed. Their deviation has a minimum, so that a
small delay of a very regular peer is no suspicion. An interval of many times the expected length
was an outage, of the peer or of us. The detector does not learn from it.
"""

import math
from collections import deque

_OUTAGE = 4.0
"""An interval longer than this many expected ones is an outage."""
_PHI_MAX = 300.0
"""The largest phi: beyond it the probability is zero in floating point."""


class FailureDetector:
    """The signs of life of one node, and the suspicion when they stop."""

    __slots__ = ("_deviation_min", "_heard_at", "_interval_max", "_intervals", "_squares", "_total")

    def __init__(
        self, now: float, interval_seconds: float, *, window: int, deviation_min_seconds: float
    ) -> None:
        """Expect `interval_seconds` until some intervals have been seen."""
        self._heard_at = now
        self._deviation_min = deviation_min_seconds
        self._interval_max = interval_seconds * _OUTAGE
        self._intervals: deque[float] = deque(maxlen=window)
        self._total = self._squares = 0.0
        # Two made-up intervals, with a deviation that fits a first estimate.
        self._learn(interval_seconds * 0.5)
        self._learn(interval_seconds * 1.5)

    @property
    def heard_at(self) -> float:
        return self._heard_at

    def heard(self, now: float) -> None:
        """Record a sign of life. If the clock went back, the interval is zero."""
        interval = max(now - self._heard_at, 0.0)
        if interval <= self._interval_max:
            self._learn(interval)
        self._heard_at = now

    def excuse(self, now: float) -> None:
        """Record a sign of life without learning from the silence before it."""
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
