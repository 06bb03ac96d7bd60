"""The systems that BlueDove's experiments compare, and the testbed (section IV-B). Pure."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.attributes import policies
from dovetail.attributes.limits import WIDE_SHARE
from dovetail.attributes.partition import Bounds, Tokens, even_tokens
from dovetail.attributes.policies import Policy
from dovetail.attributes.scheme import Scheme
from dovetail.matcher.layout import Floats, Layout
from dovetail.matcher.segment_tables import Placement
from dovetail.sim import workload
from dovetail.sim.matcher_node import MatchingCosts

LINEAR = MatchingCosts(question_seconds=0.0, point_seconds=0.0, box_seconds=6e-6)
"""The paper's matcher, which looks at each box of a dimension, a hundred times slower."""


class System(NamedTuple):
    """A partition scheme and a forwarding policy."""

    scheme: Scheme
    policy: Policy


SYSTEMS = {
    "adaptive": System(Scheme.MPARTITION, policies.adaptive),
    "response-time": System(Scheme.MPARTITION, policies.response_time),
    "subscription-amount": System(Scheme.MPARTITION, policies.subscription_amount),
    "random": System(Scheme.MPARTITION, policies.random),
    "p2p": System(Scheme.P2P, policies.adaptive),
    "full": System(Scheme.FULL, policies.adaptive),
}


@dataclass(frozen=True)
class MatcherTestbed:
    """The workload and the machines. The defaults are the paper's."""

    matchers: int = 20
    brokers: int = 2
    boxes: int = workload.BOXES
    spread: float = workload.SPREAD
    width: float = workload.WIDTH
    skewed: int = 0
    """Number of dimensions in which points follow the boxes' hot spots (IV-F)."""
    searchable: int = workload.DIMENSIONS
    """Number of dimensions along which matchers share the boxes."""
    along: int = 0
    """The dimension that p2p uses."""
    filled: float = 1.0
    """The share of each dimension's bounds that has values, somewhere in the third quarter."""
    ranged: int = workload.DIMENSIONS
    """Number of dimensions on which a box has a range, in turn; it is open on the others."""
    places: tuple[Tokens, ...] = ()
    """The matchers' segments, if they are not even."""
    costs: MatchingCosts = LINEAR
    job_points_max: int = 1
    """Points that a matcher matches in one job."""
    points_at_once: int = 1
    """Points that a broker reads together, and for which it chooses matchers at once."""

    def layout(self, scheme: Scheme) -> Layout:
        bounds = tuple(self._bounds(spot) for spot in workload.hot_spots().tolist())
        if scheme is Scheme.MPARTITION:
            return Layout("s", bounds, tuple(range(self.searchable)), scheme, WIDE_SHARE)
        # In the baselines the width of a range has no effect.
        return Layout("s", bounds, (self.along,), scheme, 1.0)

    def _bounds(self, hot_spot: float) -> Bounds:
        """If values fill a small part of the bounds, that part differs by dimension."""
        unused = workload.LENGTH / self.filled - workload.LENGTH
        low = -unused * (0.5 + hot_spot / workload.LENGTH / 4)
        return Bounds(low, low + unused + workload.LENGTH)

    def placement(self, layout: Layout) -> Placement:
        """Return the given segments, or even ones, as of matchers that started together."""
        names = [f"matcher-{number:03d}" for number in range(self.matchers)]
        if self.places:
            return Placement(layout, dict(zip(names, self.places, strict=True)))
        return Placement(layout, even_tokens(names, layout.bounds))

    def drawn_boxes(self, seed: int) -> tuple[Floats, Floats]:
        lows, highs = workload.boxes(self.boxes, seed, spread=self.spread, width=self.width)
        if self.ranged < workload.DIMENSIONS:
            turn = np.arange(len(lows))[:, np.newaxis] - np.arange(workload.DIMENSIONS)
            is_open = turn % workload.DIMENSIONS >= self.ranged
            lows[is_open], highs[is_open] = -np.inf, np.inf
        return lows, highs
