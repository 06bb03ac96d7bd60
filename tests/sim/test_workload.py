"""The paper's workload: sizes, positions, and repeatable seeds."""

import numpy as np

from dovetail.sim import workload


def test_a_seed_is_a_workload() -> None:
    for draw in (workload.boxes, workload.points):
        assert np.array_equal(draw(100, 1), draw(100, 1))
        assert not np.array_equal(draw(100, 1), draw(100, 2))


def test_boxes_are_cropped_and_have_their_width() -> None:
    lows, highs = workload.boxes(10_000, 1, width=100.0)
    assert lows.min() >= 0
    assert highs.max() <= workload.LENGTH
    assert (highs - lows).max() <= 100.0 + 1e-9
    assert np.median(highs - lows) > 99.9


def test_boxes_are_densest_at_the_hot_spot() -> None:
    lows, highs = workload.boxes(200_000, 1, dimensions=1)
    density = np.histogram((lows + highs) / 2, 10, (0, workload.LENGTH))[0] / 20_000
    assert density[4:6].mean() > 1.5
    assert density[1:4].mean() > 0.5


def test_hot_spots_are_spread_evenly() -> None:
    assert workload.hot_spots().tolist() == [125.0, 375.0, 625.0, 875.0]


def test_points_are_uniform_unless_skewed() -> None:
    even = workload.points(50_000, 1)
    assert np.abs(even.mean(axis=0) - 500).max() < 5
    skewed = workload.points(50_000, 1, skewed=1)
    assert np.abs(skewed[:, :3].mean(axis=0) - 500).max() < 5
    assert skewed[:, 3].mean() > 650


def test_shares() -> None:
    lows, highs = workload.boxes(50_000, 1, open_share=0.25)
    assert abs(np.isinf(lows).mean() - 0.25) < 0.01
    assert np.array_equal(np.isinf(lows), np.isinf(highs))
    assert abs(np.isnan(workload.points(50_000, 1, missing_share=0.1)).mean() - 0.1) < 0.01
