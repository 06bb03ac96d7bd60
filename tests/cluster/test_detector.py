"""The failure detector: suspicion grows with silence."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cluster.detector import FailureDetector


def a_detector(now: float = 0.0, window: int = 50) -> FailureDetector:
    return FailureDetector(now, 1.0, window=window, deviation_min_seconds=0.25)


def test_suspicion_grows_with_silence_and_ends_with_a_sign() -> None:
    detector = a_detector()
    for second in range(1, 30):
        detector.heard(float(second))
    phis = [detector.phi(29 + silence) for silence in (0.5, 1.0, 1.5, 2.0, 3.0, 10.0, 1e6)]
    assert phis == sorted(phis)
    assert phis[1] == pytest.approx(-math.log10(0.5), abs=0.02)  # as late as the mean
    assert phis[3] < 8 < phis[4]
    assert math.isfinite(phis[-1])
    detector.heard(40)
    assert detector.phi(40.5) < 0.1


def test_who_is_always_late_is_expected_to_be() -> None:
    regular, late = a_detector(), a_detector()
    now = 0.0
    for number in range(40):
        now += 1.0
        regular.heard(now)
        if number % 3 == 2:
            late.heard(now)
    assert late.phi(now + 4) < 8 < regular.phi(now + 4)


@given(st.lists(st.floats(0, 3.99), max_size=80))
def test_phi_is_that_of_the_last_intervals(intervals: list[float]) -> None:
    detector = a_detector(window=20)
    now = 0.0
    for interval in intervals:
        now += interval
        detector.heard(now)
    window = [0.5, 1.5, *intervals][-20:]
    mean = statistics.fmean(window)
    deviation = max(statistics.pstdev(window), 0.25)
    later = 1 - statistics.NormalDist(mean, deviation).cdf(2.0)
    assert detector.phi(now + 2.0) == pytest.approx(-math.log10(later), rel=1e-3, abs=1e-6)


def test_an_outage_is_no_rhythm() -> None:
    detector, same = a_detector(), a_detector()
    detector.heard(1.0)
    same.heard(1.0)
    detector.heard(1_000.0)
    same.excuse(1_000.0)
    assert detector.phi(1_002.0) == same.phi(1_002.0)


def test_a_clock_that_goes_back_is_no_error() -> None:
    detector = a_detector(now=100.0)
    detector.heard(50.0)
    assert detector.heard_at == 50.0
    assert detector.phi(40.0) < 0.1
