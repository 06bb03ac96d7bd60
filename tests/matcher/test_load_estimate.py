"""Costs of candidates, and passed-over ones; test_questions.py tests whom brokers ask."""

from random import Random

import numpy as np
import pytest

from dovetail.attributes.partition import Bounds
from dovetail.attributes.policies import POLICIES, DimensionLoad, LoadTracker
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import PASSED_OVER_SECONDS
from dovetail.matcher.load_estimate import LoadEstimator
from dovetail.matcher.segment_tables import Placement

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
PLACEMENT = Placement(LAYOUT, {"a": (0.0, 5.0), "b": (50.0, 0.0)})
POINT = np.array([[60.0, 7.0]])  # b along the first, a along the second
BOTH = frozenset({3})


def a_weighing(policy: str = "adaptive") -> LoadEstimator:
    random = Random(1)
    estimator = LoadEstimator({LAYOUT.id: LoadTracker(POLICIES[policy], random)}, random)
    estimator.loads[LAYOUT.id].record_report("b", 0, DimensionLoad(0.0, 9, 0.0, 10.0, 5))
    estimator.loads[LAYOUT.id].record_report("a", 1, DimensionLoad(0.0, 0, 0.0, 5.0, 50))
    return estimator


@pytest.mark.parametrize(
    ("policy", "costs", "dimension"),
    [("adaptive", [1.0, 0.2], 1), ("subscription-amount", [5.0, 50.0], 0)],
)
def test_the_cheapest_is_asked(policy: str, costs: list[float], dimension: int) -> None:
    estimator = a_weighing(policy)
    usable = estimator.usable(PLACEMENT, 0.0)
    weighed = estimator.estimate(PLACEMENT, POINT, BOTH, usable, 0.0)
    assert weighed.candidates.tolist() == [[1, 0]]
    assert weighed.costs.tolist() == [pytest.approx(costs)]
    assert [(one.dimension, one.kinds) for one in weighed.choices.asked] == [(dimension, BOTH)]


def test_who_is_passed_over_is_asked_again_later() -> None:
    estimator = a_weighing()
    estimator.pass_over("a", 0.0)
    assert estimator.usable(PLACEMENT, 0.0).tolist() == [False, True]
    weighed = estimator.estimate(PLACEMENT, POINT, BOTH, estimator.usable(PLACEMENT, 0.0), 0.0)
    assert [one.dimension for one in weighed.choices.asked] == [0]
    assert estimator.usable(PLACEMENT, PASSED_OVER_SECONDS).all()
    estimator.pass_over("a", 10.0)
    estimator.is_up("a")
    assert estimator.usable(PLACEMENT, 10.0).all()


def test_of_whom_nothing_is_known_is_tried() -> None:
    estimator = a_weighing()
    estimator.forget("b")
    weighed = estimator.estimate(PLACEMENT, POINT, BOTH, estimator.usable(PLACEMENT, 0.0), 0.0)
    assert [one.dimension for one in weighed.choices.asked] == [0]


def test_a_rehearsal_leaves_no_trace() -> None:
    estimator = a_weighing("random")

    def costs() -> list[float]:
        usable = estimator.usable(PLACEMENT, 0.0)
        found: list[float] = (
            estimator.estimate(PLACEMENT, POINT, BOTH, usable, 0.0).costs[0].tolist()
        )
        return found

    with estimator.rehearsal():
        rehearsed = costs()
    assert costs() == rehearsed
    assert costs() != rehearsed
