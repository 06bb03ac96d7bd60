"""The best throughput of matchers, in cases that can be computed by hand."""

import numpy as np
import pytest

from dovetail.sim.capacity import capacity


def test_with_one_candidate_each_the_busiest_matcher_is_the_limit() -> None:
    candidates = np.array([[0], [0], [0], [1]])
    found = capacity(candidates, np.array([[0.01], [0.01]]), 2)
    assert found.rate == pytest.approx(4 / 0.03)


def test_an_idle_matcher_takes_a_share() -> None:
    """Points cost the second matcher twice as much, so it gets a third of them."""
    candidates = np.array([[0, 1]] * 300)
    found = capacity(candidates, np.array([[0.01, 0.01], [0.02, 0.02]]), 2)
    assert found.rate == pytest.approx(150, rel=0.03)
    assert found.rate <= found.at_most <= 1.03 * found.rate


def test_the_cheaper_candidate_is_chosen() -> None:
    random = np.random.default_rng(1)
    candidates = random.integers(0, 10, (2_000, 2))
    dear, cheap = np.full(10, 0.02), np.full(10, 0.001)
    found = capacity(candidates, np.stack((dear, cheap), axis=1), 10)
    assert found.rate > 0.8 * 10 / 0.001
