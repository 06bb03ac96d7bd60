"""Costs of candidates, and who is passed over; whom brokers ask by that is in test_questions.py."""

from random import Random

import numpy as np
import pytest

from dovetail.attributes.partition import Bounds
from dovetail.attributes.policies import POLICIES, Load, Loads
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import PASSED_OVER_SECONDS
from dovetail.matcher.load_estimate import Weighing
from dovetail.matcher.segment_tables import Placement

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 10)), (0, 1))
PLACEMENT = Placement(LAYOUT, {"a": (0.0, 5.0), "b": (50.0, 0.0)})
POINT = np.array([[60.0, 7.0]])  # b along the first, a along the second
BOTH = frozenset({3})


def a_weighing(policy: str = "adaptive") -> Weighing:
    random = Random(1)
    weighing = Weighing({LAYOUT.id: Loads(POLICIES[policy], random)}, random)
    weighing.loads[LAYOUT.id].told("b", 0, Load(0.0, 9, 0.0, 10.0, 5))
    weighing.loads[LAYOUT.id].told("a", 1, Load(0.0, 0, 0.0, 5.0, 50))
    return weighing


@pytest.mark.parametrize(
    ("policy", "costs", "dimension"),
    [("adaptive", [1.0, 0.2], 1), ("subscription-amount", [5.0, 50.0], 0)],
)
def test_the_cheapest_is_asked(policy: str, costs: list[float], dimension: int) -> None:
    weighing = a_weighing(policy)
    usable = weighing.usable(PLACEMENT, 0.0)
    weighed = weighing.weigh(PLACEMENT, POINT, BOTH, usable, 0.0)
    assert weighed.candidates.tolist() == [[1, 0]]
    assert weighed.costs.tolist() == [pytest.approx(costs)]
    assert [(one.dimension, one.kinds) for one in weighed.choices.asked] == [(dimension, BOTH)]


def test_who_is_passed_over_is_asked_again_later() -> None:
    weighing = a_weighing()
    weighing.pass_over("a", 0.0)
    assert weighing.usable(PLACEMENT, 0.0).tolist() == [False, True]
    weighed = weighing.weigh(PLACEMENT, POINT, BOTH, weighing.usable(PLACEMENT, 0.0), 0.0)
    assert [one.dimension for one in weighed.choices.asked] == [0]
    assert weighing.usable(PLACEMENT, PASSED_OVER_SECONDS).all()
    weighing.pass_over("a", 10.0)
    weighing.is_up("a")
    assert weighing.usable(PLACEMENT, 10.0).all()


def test_of_whom_nothing_is_known_is_tried() -> None:
    weighing = a_weighing()
    weighing.forget("b")
    weighed = weighing.weigh(PLACEMENT, POINT, BOTH, weighing.usable(PLACEMENT, 0.0), 0.0)
    assert [one.dimension for one in weighed.choices.asked] == [0]


def test_a_rehearsal_leaves_no_trace() -> None:
    weighing = a_weighing("random")

    def costs() -> list[float]:
        usable = weighing.usable(PLACEMENT, 0.0)
        found: list[float] = weighing.weigh(PLACEMENT, POINT, BOTH, usable, 0.0).costs[0].tolist()
        return found

    with weighing.rehearsal():
        rehearsed = costs()
    assert costs() == rehearsed
    assert costs() != rehearsed
