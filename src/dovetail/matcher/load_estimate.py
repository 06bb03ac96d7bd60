"""Estimates what each candidate of a point would cost, and chooses among them. Pure.

    loads that matchers report (attributes/policies.py)  ->  costs  ->  candidate_choice.py

Rules:

- A matcher that did not answer is passed over for PASSED_OVER_SECONDS, or until it is connected
  again.
- A matcher that has not reported a load costs nearly nothing, by a random amount: one of them has
  to be tried first.
- A busy matcher is asked, too, if there is no other candidate.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes import policies
from dovetail.attributes.policies import PASSED_OVER, LoadTracker
from dovetail.matcher.candidate_choice import Choices, Rows, choose
from dovetail.matcher.layout import Floats
from dovetail.matcher.limits import PASSED_OVER_SECONDS
from dovetail.matcher.segment_tables import Placement

_UNKNOWN_COST = 1e-9
_COST_MAX = 1e12


class CandidateCosts(NamedTuple):
    """The candidates of each point and dimension, their costs, and the choice among them."""

    candidates: Rows
    costs: Floats
    choices: Choices


class LoadEstimator:
    """What one broker knows of the load of all matchers."""

    def __init__(self, loads: Mapping[str, LoadTracker], random: Random) -> None:
        """`loads` are by space."""
        self.loads = loads
        self._random = random
        self._passed_over: dict[str, float] = {}

    # Matchers -------------------------------------------------------------------------------------

    def pass_over(self, matcher: str, now: float) -> None:
        self._passed_over[matcher] = now + PASSED_OVER_SECONDS

    def is_up(self, matcher: str) -> None:
        """A connection to the matcher came up: it is no longer passed over."""
        self._passed_over.pop(matcher, None)

    def forget(self, matcher: str) -> None:
        """Forget the loads that it reported."""
        for loads in self.loads.values():
            loads.forget(matcher)

    def usable(self, placement: Placement, now: float) -> npt.NDArray[np.bool_]:
        """Return which matchers may be asked, in the order of the placement."""
        self._passed_over = {name: at for name, at in self._passed_over.items() if at > now}
        return np.array([name not in self._passed_over for name in placement.names], np.bool_)

    # Points ---------------------------------------------------------------------------------------

    def estimate(
        self,
        placement: Placement,
        points: Floats,
        kinds: frozenset[int],
        usable: npt.NDArray[np.bool_],
        now: float,
    ) -> CandidateCosts:
        """Estimate costs, and choose whom to ask about boxes of these kinds."""
        values = placement.layout.values(points)
        candidates = placement.candidates(values, usable, self._random)
        costs = self._costs(placement, candidates, usable, now)
        return CandidateCosts(candidates, costs, choose(candidates, kinds, costs))

    def _costs(
        self,
        placement: Placement,
        candidates: Rows,
        usable: npt.NDArray[np.bool_],
        now: float,
    ) -> Floats:
        """Return the costs by point and dimension. Few points look at few candidates."""
        loads = self.loads[placement.layout.id]
        costs = np.full((len(usable), candidates.shape[1]), PASSED_OVER)
        for dimension, column in enumerate(candidates.T.tolist()):
            for place in set(column):
                if place >= 0 and usable[place]:
                    cost = loads.cost(placement.names[place], dimension, now)
                    cost = cost or _UNKNOWN_COST * self._random.random()
                    costs[place, dimension] = min(cost, _COST_MAX)
        found: Floats = costs[candidates, np.arange(candidates.shape[1])]
        if loads.policy is policies.random:  # drawn for each point
            draws = np.random.default_rng(self._random.getrandbits(64)).random(found.shape)
            found = np.where(np.isfinite(found), draws, found)
        return found

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Restore the random state at the end, as if nothing had been estimated."""
        state = self._random.getstate()
        try:
            yield
        finally:
            self._random.setstate(state)
