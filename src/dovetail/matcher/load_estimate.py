"""What each candidate of a point would cost, and whom to ask therefore. A broker's own; pure.

    loads that matchers tell (attributes/policies.py)  ->  costs  ->  candidate_choice.py

Rules:

- A matcher that did not answer is passed over for PASSED_OVER_SECONDS, or until there is a new
  connection to it.
- Of whom nothing is known yet nearly nothing is expected, and not the same of all: somebody has to
  be tried first.
- Whoever may be asked is asked, however busy it is, if there is nobody else.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes import policies
from dovetail.attributes.policies import PASSED_OVER, Loads
from dovetail.matcher.candidate_choice import Choices, Rows, choose
from dovetail.matcher.layout import Floats
from dovetail.matcher.limits import PASSED_OVER_SECONDS
from dovetail.matcher.segment_tables import Placement

_UNKNOWN_COST = 1e-9
_COST_MAX = 1e12


class Weighed(NamedTuple):
    """Whom points could go to, by point and dimension, and whom they do."""

    candidates: Rows
    costs: Floats
    choices: Choices


class Weighing:
    """What one broker knows of all matchers."""

    def __init__(self, loads: Mapping[str, Loads], random: Random) -> None:
        """`loads`: by space."""
        self.loads = loads
        self._random = random
        self._passed_over: dict[str, float] = {}

    # Matchers -------------------------------------------------------------------------------------

    def pass_over(self, matcher: str, now: float) -> None:
        self._passed_over[matcher] = now + PASSED_OVER_SECONDS

    def is_up(self, matcher: str) -> None:
        """There is a connection to it."""
        self._passed_over.pop(matcher, None)

    def forget(self, matcher: str) -> None:
        """What it told."""
        for loads in self.loads.values():
            loads.forget(matcher)

    def usable(self, placement: Placement, now: float) -> npt.NDArray[np.bool_]:
        """Which matchers may be asked?"""
        self._passed_over = {name: at for name, at in self._passed_over.items() if at > now}
        return np.array([name not in self._passed_over for name in placement.names], np.bool_)

    # Points ---------------------------------------------------------------------------------------

    def weigh(
        self,
        placement: Placement,
        points: Floats,
        kinds: frozenset[int],
        usable: npt.NDArray[np.bool_],
        now: float,
    ) -> Weighed:
        """Whom to ask about boxes of these kinds."""
        values = placement.layout.values(points)
        candidates = placement.candidates(values, usable, self._random)
        costs = self._costs(placement, candidates, usable, now)
        return Weighed(candidates, costs, choose(candidates, kinds, costs))

    def _costs(
        self,
        placement: Placement,
        candidates: Rows,
        usable: npt.NDArray[np.bool_],
        now: float,
    ) -> Floats:
        """For each point and dimension. Of a few points few candidates are looked at."""
        loads = self.loads[placement.layout.id]
        costs = np.full((len(usable), candidates.shape[1]), PASSED_OVER)
        for dimension, column in enumerate(candidates.T.tolist()):
            for place in set(column):
                if place >= 0 and usable[place]:
                    cost = loads.cost(placement.names[place], dimension, now)
                    cost = cost or _UNKNOWN_COST * self._random.random()
                    costs[place, dimension] = min(cost, _COST_MAX)
        found: Floats = costs[candidates, np.arange(candidates.shape[1])]
        if loads.policy is policies.random:  # for each point anew
            draws = np.random.default_rng(self._random.getrandbits(64)).random(found.shape)
            found = np.where(np.isfinite(found), draws, found)
        return found

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """What is drawn within is drawn again afterwards: as if nothing had been weighed."""
        state = self._random.getstate()
        try:
            yield
        finally:
            self._random.setstate(state)
