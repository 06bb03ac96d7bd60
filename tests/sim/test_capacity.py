"""What matchers can take at best, where it can be told by hand."""

import numpy as np
import pytest

from dovetail.sim.capacity import capacity


def test_one_candidate_each_is_what_the_busiest_takes() -> None:
    candidates = np.array([[0], [0], [0], [1]])
    found = capacity(candidates, np.array([[0.01], [0.01]]), 2)
    assert found.rate == pytest.approx(4 / 0.03)


def test_whoever_has_nothing_to_do_helps() -> None:
    """All may go to either, and cost the second one twice as much: it gets a third."""
    candidates = np.array([[0, 1]] * 300)
    found = capacity(candidates, np.array([[0.01, 0.01], [0.02, 0.02]]), 2)
    assert found.rate == pytest.approx(150, rel=0.03)
    assert found.rate <= found.at_most <= 1.03 * found.rate


def test_a_cheap_candidate_is_taken() -> None:
    random = np.random.default_rng(1)
    candidates = random.integers(0, 10, (2_000, 2))
    dear, cheap = np.full(10, 0.02), np.full(10, 0.001)
    found = capacity(candidates, np.stack((dear, cheap), axis=1), 10)
    assert found.rate > 0.8 * 10 / 0.001
