"""Beyond the paper: 20 to 2,000 matchers, and 40,000 to 100 million boxes.

    scaled     the rate at which queues begin to grow, by the code of the service, as in figure 6(a)
    holding    what a matcher holds, and what all could take at best: counted and computed
    chatter    what gossip costs a node: simulated to 200 matchers, by a straight line beyond

What is scaled, and how:

- **Boxes are sampled.** Where `drawn` are fewer than `boxes`, each stands for as many, and takes as
  much longer to be looked at. What a matcher holds is a share of them, which a sample has, too.
- **Time is stretched** so that at its limit a matcher gets about `MATCHER_POINTS` a second, but
  never pressed: rates are multiplied by what times were. So a run of 200 matchers ends.
- **Above `SIMULATED_MAX` matchers** there is what they could take at best, and no simulated rate.
- **Brokers are two**, whatever the number of matchers; for gossip they are a tenth.
- **Our index is a formula**: the times that one core was seen to need (sim/matcher_node.py), with
  `QUESTION_POINTS` to a question, and an index in which each box is once. They were measured with
  up to 40,000 boxes, and what a larger index does to caches they do not know: with 2 million each
  box was seen to take 1.4 times as long.
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
from dovetail.papers.bluedove.configuration import (
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
from dovetail.sim.gossip_cost import Line, gossip_bytes, records_of
from dovetail.sim.matcher_node import Costs
from dovetail.sim.saturation import lattice, saturation
from dovetail.sim.systems import Setting

MATCHERS = (20, 50, 100, 200, 500, 1_000, 2_000)
BOXES = (40_000, 400_000, 4_000_000, 40_000_000, 100_000_000)
SAMPLE = 40_000
SIMULATED_MAX = 200
"""Matchers with queues: a run with more of them takes minutes."""

MATCHER_POINTS = 60.0
"""A second, at the limit, as in figure 6(a). With fewer, reports of load tell less and rates are
lower than they would be: by a third with 15, at 100 matchers."""
QUESTION_POINTS = 16
"""That a broker asks about together, as for `dovetail plan`."""
INDEX = Costs()
_POINTS_MIN = 20_000
_POINTS_PER_MATCHER = 50
_CHUNK = 1_000_000
_INDEXED_MAX = 400_000
_FIRST = 0.8
"""Of the limit: near what queues allow."""


def _scaled(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    setting = effort.scaled(configuration)
    placement = _placement(setting)
    held = box_counts.count(placement, *setting.drawn_boxes(seed))
    candidates = candidates_of(placement, points_for(setting, seed))
    limit = capacity(candidates, _law_seconds(held, setting), setting.matchers).rate
    slowdown = max(1.0, limit / (MATCHER_POINTS * setting.matchers))
    slow = setting.costs._replace(box_seconds=setting.costs.box_seconds * slowdown)
    row = saturation(
        configuration.system,
        dataclasses.replace(setting, costs=slow),
        seed,
        dataclasses.replace(effort.scale_search, first_rate=_FIRST * limit / slowdown),
    )
    return [(RATE, 0.0, row.rate * slowdown), (UNEVENNESS, 0.0, row.unevenness)]


def _holding(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    setting = effort.scaled(configuration)
    placement = _placement(setting)
    held, scale = _count(placement, setting, seed), configuration.boxes / setting.boxes
    index = BoxIndex(*workload.bounds())
    index.insert(*workload.boxes(min(setting.boxes, _INDEXED_MAX), seed, width=setting.width))
    points = points_for(setting, seed)
    candidates = candidates_of(placement, points)
    law = capacity(candidates, _law_seconds(held, setting), setting.matchers)
    own = capacity(candidates, _index_seconds(held, scale), setting.matchers)
    most = float(held.held.max()) * scale
    return [
        (LIMIT, 0.0, law.rate),
        (LIMIT_INDEX, 0.0, own.rate),
        (COPIES, 0.0, float(held.held.sum()) / setting.boxes),
        (HOLDS, 0.0, float(held.held.mean()) * scale),
        (HOLDS_MOST, 0.0, most),
        (HOLDS_BYTES, 0.0, most * index.nbytes / len(index)),
        (CANDIDATES, 0.0, _different(candidates)),
        (MATCHES, 0.0, float(index.count(points).mean()) * configuration.boxes / len(index)),
        (TABLE_BYTES, 0.0, float(_table_bytes(setting.matchers))),
    ]


def _placement(setting: Setting) -> Placement:
    return setting.placement(setting.layout(Scheme.MPARTITION))


def _count(placement: Placement, setting: Setting, seed: int) -> Holdings:
    """In parts, as all of them have no room at once."""
    found = Holdings.none(setting.matchers, setting.searchable)
    for part, begin in enumerate(range(0, setting.boxes, _CHUNK)):
        some = dataclasses.replace(setting, boxes=min(_CHUNK, setting.boxes - begin))
        found += box_counts.count(placement, *some.drawn_boxes(seed + part))
    return found


def points_for(setting: Setting, seed: int) -> Floats:
    """Evenly spread, so many that each matcher has some."""
    count = max(_POINTS_MIN, _POINTS_PER_MATCHER * setting.matchers)
    points = lattice(seed)
    found = [next(points)]
    found += islice(points, count // len(found[0]))
    return np.concatenate(found)[:count]


def candidates_of(placement: Placement, points: Floats) -> npt.NDArray[np.int64]:
    usable = np.ones(len(placement.names), np.bool_)
    return placement.candidates(placement.layout.values(points), usable, Random(0))


def _law_seconds(held: Holdings, setting: Setting) -> Floats:
    """Of a point, by matcher and dimension: each box that is held along it is looked at."""
    return np.asarray(held.along * setting.costs.box_seconds, np.float64)


def _index_seconds(held: Holdings, scale: float) -> Floats:
    """The same with our index, which has all boxes."""
    seconds = INDEX.of(1, QUESTION_POINTS, 0) / QUESTION_POINTS
    boxes = np.broadcast_to(held.held[:, np.newaxis] * scale, held.along.shape)
    return np.asarray(seconds + boxes * INDEX.box_seconds, np.float64)


def _different(candidates: npt.NDArray[np.int64]) -> float:
    """How many different ones a point has, on average."""
    in_order = np.sort(candidates, axis=1)
    return float((np.diff(in_order, axis=1) != 0).sum(axis=1).mean()) + 1.0


def _table_bytes(matchers: int) -> int:
    return sum(len(name) + len(record) for name, record in records_of(matchers).items())


def _chatter(_configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    found: list[Value] = []
    for measure, is_busy in ((GOSSIP_QUIET, False), (GOSSIP_BUSY, True)):
        simulated = {
            matchers: gossip_bytes(matchers, seed, effort.chatter_seconds, is_busy=is_busy)
            for matchers in effort.chatter_matchers
        }
        line = Line.through(simulated)
        found += [(measure, float(matchers), sent) for matchers, sent in simulated.items()]
        found += [
            (measure, float(matchers), line.bytes_sent(matchers))
            for matchers in MATCHERS
            if matchers not in simulated
        ]
    return found


SCALES: dict[str, Callable[[Configuration, int, Effort], list[Value]]] = {
    SCALED: _scaled,
    HOLDING: _holding,
    CHATTER: _chatter,
}
"""By experiment."""
