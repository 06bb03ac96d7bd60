"""Experiments beyond the paper: 20 to 2,000 matchers, and 40,000 to 100 million boxes.

    scaled     the rate at which queues start to grow, by the code of the service, as in figure 6(a)
    holding    the boxes of a matcher, and the best rate of all matchers: counted and computed
    chatter    the gossip of a node: simulated up to 200 matchers, a fitted line beyond

The experiments are scaled as follows:

- **Boxes are sampled.** If `drawn` is less than `boxes`, each drawn box stands for several, and
  takes longer in proportion. A matcher holds about the same share of a sample as of all boxes.
- **Time is stretched** so that a matcher at its limit gets about `MATCHER_POINTS` per second. Time
  is never shortened. Rates are multiplied by the same factor. So a run of 200 matchers ends.
- **Above `SIMULATED_MAX` matchers** only the best rate is computed; no rate is simulated.
- **There are two brokers**, whatever the number of matchers. For gossip, a tenth are brokers.
- **Our index is a formula** of times that were measured on one core (sim/matcher_node.py), with
  `QUESTION_POINTS` points per question, and with each box once in the index. They were measured
  with up to 40,000 boxes and ignore the cache misses of larger indexes: with 2 million boxes, each
  took 1.4 times as long.
"""

import dataclasses
from collections.abc import Callable
from itertools import islice
from random import Random

import numpy as np
import numpy.typing as npt

from dovetail.attributes.box_index import BoxIndex
from dovetail.attributes.scheme import Scheme
from dovetail.matcher.layout import Floats
from dovetail.matcher.segment_tables import Placement
from dovetail.papers.bluedove.run_configuration import (
    CANDIDATES,
    CHATTER,
    COPIES,
    GOSSIP_BUSY,
    GOSSIP_QUIET,
    HOLDING,
    HOLDS,
    HOLDS_BYTES,
    HOLDS_MOST,
    LIMIT,
    LIMIT_INDEX,
    MATCHES,
    RATE,
    SCALED,
    TABLE_BYTES,
    UNEVENNESS,
    Configuration,
    Effort,
    Value,
)
from dovetail.sim import box_counts, workload
from dovetail.sim.box_counts import Holdings
from dovetail.sim.capacity import capacity
from dovetail.sim.gossip_cost import LinearFit, gossip_bytes, records_of
from dovetail.sim.matcher_node import MatchingCosts
from dovetail.sim.saturation import lattice, saturation
from dovetail.sim.systems import MatcherTestbed

MATCHERS = (20, 50, 100, 200, 500, 1_000, 2_000)
BOXES = (40_000, 400_000, 4_000_000, 40_000_000, 100_000_000)
SAMPLE = 40_000
SIMULATED_MAX = 200
"""The largest simulated number of matchers: a run with more takes minutes."""

MATCHER_POINTS = 60.0
"""Points per second of a matcher at its limit, as in figure 6(a). With fewer, load reports tell too
little and rates are too low: by a third with 15 points and 100 matchers."""
QUESTION_POINTS = 16
"""Points per question of a broker, as for `dovetail plan`."""
INDEX = MatchingCosts()
_POINTS_MIN = 20_000
_POINTS_PER_MATCHER = 50
_CHUNK = 1_000_000
_INDEXED_MAX = 400_000
_FIRST = 0.8
"""The first rate to try, as a share of the best rate: near the limit of queues."""


def _scaled(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    testbed = effort.sample_testbed(configuration)
    placement = _placement(testbed)
    held = box_counts.count(placement, *testbed.drawn_boxes(seed))
    candidates = candidates_of(placement, points_for(testbed, seed))
    limit = capacity(candidates, _linear_seconds(held, testbed), testbed.matchers).rate
    slowdown = max(1.0, limit / (MATCHER_POINTS * testbed.matchers))
    slow = testbed.costs._replace(box_seconds=testbed.costs.box_seconds * slowdown)
    row = saturation(
        configuration.system,
        dataclasses.replace(testbed, costs=slow),
        seed,
        dataclasses.replace(effort.scale_search, first_rate=_FIRST * limit / slowdown),
    )
    return [(RATE, 0.0, row.rate * slowdown), (UNEVENNESS, 0.0, row.unevenness)]


def _holding(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    testbed = effort.sample_testbed(configuration)
    placement = _placement(testbed)
    held, scale = _count(placement, testbed, seed), configuration.boxes / testbed.boxes
    index = BoxIndex(*workload.bounds())
    index.insert(*workload.boxes(min(testbed.boxes, _INDEXED_MAX), seed, width=testbed.width))
    points = points_for(testbed, seed)
    candidates = candidates_of(placement, points)
    law = capacity(candidates, _linear_seconds(held, testbed), testbed.matchers)
    own = capacity(candidates, _index_seconds(held, scale), testbed.matchers)
    most = float(held.held.max()) * scale
    return [
        (LIMIT, 0.0, law.rate),
        (LIMIT_INDEX, 0.0, own.rate),
        (COPIES, 0.0, float(held.held.sum()) / testbed.boxes),
        (HOLDS, 0.0, float(held.held.mean()) * scale),
        (HOLDS_MOST, 0.0, most),
        (HOLDS_BYTES, 0.0, most * index.nbytes / len(index)),
        (CANDIDATES, 0.0, _different(candidates)),
        (MATCHES, 0.0, float(index.count(points).mean()) * configuration.boxes / len(index)),
        (TABLE_BYTES, 0.0, float(_table_bytes(testbed.matchers))),
    ]


def _placement(testbed: MatcherTestbed) -> Placement:
    return testbed.placement(testbed.layout(Scheme.MPARTITION))


def _count(placement: Placement, testbed: MatcherTestbed, seed: int) -> Holdings:
    """Count in chunks: all boxes at once would not fit into memory."""
    found = Holdings.zero(testbed.matchers, testbed.searchable)
    for part, begin in enumerate(range(0, testbed.boxes, _CHUNK)):
        some = dataclasses.replace(testbed, boxes=min(_CHUNK, testbed.boxes - begin))
        found += box_counts.count(placement, *some.drawn_boxes(seed + part))
    return found


def points_for(testbed: MatcherTestbed, seed: int) -> Floats:
    """Return evenly spread points, so many that each matcher gets some."""
    count = max(_POINTS_MIN, _POINTS_PER_MATCHER * testbed.matchers)
    points = lattice(seed)
    found = [next(points)]
    found += islice(points, count // len(found[0]))
    return np.concatenate(found)[:count]


def candidates_of(placement: Placement, points: Floats) -> npt.NDArray[np.int64]:
    usable = np.ones(len(placement.names), np.bool_)
    return placement.candidates(placement.layout.values(points), usable, Random(0))


def _linear_seconds(held: Holdings, testbed: MatcherTestbed) -> Floats:
    """Return the time per point by matcher and dimension, if each box along it is looked at."""
    return np.asarray(held.along * testbed.costs.box_seconds, np.float64)


def _index_seconds(held: Holdings, scale: float) -> Floats:
    """Return the time per point by matcher and dimension with our index, which has all boxes."""
    seconds = INDEX.of(1, QUESTION_POINTS, 0) / QUESTION_POINTS
    boxes = np.broadcast_to(held.held[:, np.newaxis] * scale, held.along.shape)
    return np.asarray(seconds + boxes * INDEX.box_seconds, np.float64)


def _different(candidates: npt.NDArray[np.int64]) -> float:
    """Return how many different candidates a point has on average."""
    in_order = np.sort(candidates, axis=1)
    return float((np.diff(in_order, axis=1) != 0).sum(axis=1).mean()) + 1.0


def _table_bytes(matchers: int) -> int:
    return sum(len(name) + len(record) for name, record in records_of(matchers).items())


def _gossip(_configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    found: list[Value] = []
    for measure, is_busy in ((GOSSIP_QUIET, False), (GOSSIP_BUSY, True)):
        simulated = {
            matchers: gossip_bytes(matchers, seed, effort.gossip_seconds, is_busy=is_busy)
            for matchers in effort.gossip_matchers
        }
        line = LinearFit.through(simulated)
        found += [(measure, float(matchers), sent) for matchers, sent in simulated.items()]
        found += [
            (measure, float(matchers), line.bytes_sent(matchers))
            for matchers in MATCHERS
            if matchers not in simulated
        ]
    return found


SCALE_RUNNERS: dict[str, Callable[[Configuration, int, Effort], list[Value]]] = {
    SCALED: _scaled,
    HOLDING: _holding,
    CHATTER: _gossip,
}
"""The runner of each experiment."""
