"""The configurations of BlueDove's evaluation (section IV), and the rows of their results.

A configuration is one system on one workload. A cell is a configuration and a trial. `runner.py`
runs the paper's experiments, `scale_experiments.py` those beyond the paper, and `sweep.py` makes
Spark tasks of them. Figures are views of configurations (`figures.py`, `scale_figures.py`): a
configuration that several figures show is run once.

Boxes come in two widths. `WIDE` is what the paper's text says. At 20 matchers such a box overlaps
six segments of a dimension, so a matcher holds a third of all boxes, and no system can be more than
a few times as good as full replication. `NARROW` boxes lie in one segment, which fits the paper's
own results (67 times full replication). The time per box is fitted, for each width, to one number:
the rate at which 20 matchers saturate.
"""

import dataclasses
from dataclasses import dataclass

import pyarrow as pa

from dovetail.sim import workload
from dovetail.sim.matcher_node import MatchingCosts
from dovetail.sim.saturation import RateSearch
from dovetail.sim.scenarios import RateSteps
from dovetail.sim.systems import MatcherTestbed

SLOWDOWN = 100
"""Matching is so many times slower, and rates are so many times lower (sim/saturation.py)."""

WIDE, NARROW = workload.WIDTH, 1.0
BOX_SECONDS = {WIDE: 4.3e-8, NARROW: 2.5e-7}
"""The time per box of a matcher with four cores, fitted to 114,000 messages/s."""

TRIALS_MAX = 100

SATURATION, HELD, RESPONSE = "saturation", "held", "response"
GROWTH, CRASHES, OVERHEAD = "growth", "crashes", "overhead"
"""Simulated in full: sim/scenarios.py."""
REASONS = "reasons"
"""Tests of possible reasons for differences: `hypotheses.py`."""
SCALED, HOLDING, CHATTER = "scaled", "holding", "chatter"
"""Beyond the paper: `scale_experiments.py`."""
RATE, UNEVENNESS, BUSY = "rate", "unevenness", "busy"
BOXES = "boxes"
RESPONSE_SECONDS = "response_seconds"
SERVING, LATE, EVENT = "serving", "late", "event"
"""By second: the matchers that serve; the share of repeated questions; and for each join or crash,
the seconds until response times fall, or until no message is late."""
SERVES = "serves"
LOST, DOUBLED, DUE = "lost", "doubled", "due"
GOSSIP_BYTES, LOAD_BYTES = "gossip_bytes", "load_bytes"
"""Bytes per second that a matcher sends: in gossip, and in load reports to each broker."""
OVER_FULL_FEW, OVER_FULL, FLAT_CHANGE = "over_full_few", "over_full", "flat_change"
OVER_P2P, OVER_P2P_SECOND = "over_p2p", "over_p2p_second"
"""Best rates as multiples of full replication and P2P; change in % with evenly spread boxes."""
LIMIT, LIMIT_INDEX = "limit", "limit_index"
"""Best rates (sim/capacity.py): looking at each box, and with our index."""
COPIES, HOLDS, HOLDS_MOST, HOLDS_BYTES = "copies", "holds", "holds_most", "holds_bytes"
"""Matchers per box; boxes per matcher, on average and at most; bytes of the most."""
CANDIDATES, MATCHES, TABLE_BYTES = "candidates", "matches", "table_bytes"
"""Different candidates of a message; boxes that contain it; bytes of all matchers' records."""
GOSSIP_QUIET, GOSSIP_BUSY = "gossip_quiet", "gossip_busy"
"""Bytes per second that a matcher sends, by number of matchers: with no changes, and when all
loads change."""

ROWS = pa.schema(
    [
        pa.field("experiment", pa.string()),
        pa.field("system", pa.string()),
        pa.field("matchers", pa.int32()),
        pa.field("width", pa.float64()),
        pa.field("spread", pa.float64()),
        pa.field("searchable", pa.int32()),
        pa.field("skewed", pa.int32()),
        pa.field("along", pa.int32()),
        pa.field("messages_per_second", pa.float64()),
        pa.field("boxes", pa.int64()),
        pa.field("drawn", pa.int64()),
        pa.field("trial", pa.int32()),
        pa.field("measure", pa.string()),
        pa.field("at", pa.float64()),
        pa.field("value", pa.float64()),
    ]
)
CONFIGURATION_COLUMNS = 11
"""The first so many columns are the configuration; with the trial, they identify a cell."""


@dataclass(frozen=True, order=True)
class Configuration:
    """One system on one workload. The defaults are the paper's."""

    experiment: str = SATURATION
    system: str = "adaptive"
    matchers: int = 20
    width: float = WIDE
    spread: float = workload.SPREAD
    searchable: int = workload.DIMENSIONS
    skewed: int = 0
    along: int = 0
    messages_per_second: float = 0.0
    """0 where the experiment searches for the rate."""
    boxes: int = workload.BOXES
    drawn: int = 0
    """The size of the sample that stands for all boxes; 0: all boxes are drawn."""

    @property
    def testbed(self) -> MatcherTestbed:
        return MatcherTestbed(
            matchers=self.matchers,
            width=self.width,
            spread=self.spread,
            searchable=self.searchable,
            skewed=self.skewed,
            along=self.along,
            costs=MatchingCosts(0.0, 0.0, BOX_SECONDS[self.width] * SLOWDOWN),
        )


STEPS = RateSteps(first_rate=130.0, rate_step=15.0, seconds=15, steps=11)
"""From a rate that five matchers sustain to one that is too high for them."""
ADD_ABOVE = 0.8
"""The mean load of matchers at which one is added: some are at their limit then. The service adds
one earlier."""
SPEED_UP = 0.46
"""With this factor matching takes 8 ms on average, so that a waiting question stays within the
service's limit of 0.3 s."""
SEARCH = RateSearch(first_rate=500.0, precision=0.03, seconds_min=20.0, publications_min=8_000)
SCALE_SEARCH = RateSearch(precision=0.05, seconds_min=30.0, publications_min=8_000)
"""Searches that start near the limit, which is known. In trials of 15 s some of 100 matchers had
not settled, and the rate was a fifth lower."""


@dataclass(frozen=True)
class Effort:
    """The size of a cell's simulation: tests use smaller ones."""

    search: RateSearch = SEARCH
    response_seconds: int = 60
    boxes: int = workload.BOXES
    """With fewer boxes, each takes longer in proportion."""
    full_boxes: int = 1_000
    """Boxes in the full simulation, which really has that many."""
    growing: RateSteps = STEPS
    matchers_max: int = 8
    crash_rate: float = 250.0
    crashes: int = 3
    crash_every_seconds: int = 30
    crashes_of_many: int = 1
    """Crashes if there are more matchers than in the paper."""
    scale_search: RateSearch = SCALE_SEARCH
    drawn_max: int = 4_000_000
    """Beyond the paper: boxes that are counted and not fed."""
    gossip_matchers: tuple[int, ...] = (20, 50, 100, 200)
    """Numbers of matchers whose gossip is simulated."""
    gossip_seconds: int = 5

    def testbed(self, configuration: Configuration) -> MatcherTestbed:
        return _with_boxes(configuration.testbed, self.boxes)

    def full_testbed(self, configuration: Configuration) -> MatcherTestbed:
        return _with_boxes(configuration.testbed, self.full_boxes)

    def fast_full_testbed(self, configuration: Configuration) -> MatcherTestbed:
        """Return a faster testbed for runs with the service's own time limits."""
        testbed = self.full_testbed(configuration)
        seconds = testbed.costs.box_seconds * SPEED_UP
        return dataclasses.replace(testbed, costs=testbed.costs._replace(box_seconds=seconds))

    def crashes_of(self, configuration: Configuration) -> int:
        is_paper_size = configuration.matchers <= Configuration.matchers
        return self.crashes if is_paper_size else self.crashes_of_many

    def sample_testbed(self, configuration: Configuration) -> MatcherTestbed:
        """Return a testbed at the paper's speed, with a sample of the boxes."""
        drawn = min(configuration.drawn or configuration.boxes, self.drawn_max)
        seconds = BOX_SECONDS[configuration.width] * configuration.boxes / drawn
        costs = MatchingCosts(0.0, 0.0, seconds)
        return dataclasses.replace(configuration.testbed, boxes=drawn, costs=costs)


def _with_boxes(testbed: MatcherTestbed, boxes: int) -> MatcherTestbed:
    seconds = testbed.costs.box_seconds * testbed.boxes / boxes
    return dataclasses.replace(
        testbed, boxes=boxes, costs=testbed.costs._replace(box_seconds=seconds)
    )


FULL = Effort()

Value = tuple[str, float, float]
"""A measure, its place or time, and its value."""


# What came out ------------------------------------------------------------------------------------


class TrialMeans:
    """The mean of each measured value over the trials."""

    def __init__(self, rows: pa.Table) -> None:
        keys = [name for name in ROWS.names if name not in ("trial", "value")]
        grouped = rows.group_by(keys).aggregate([("value", "mean")])
        self._means: dict[tuple[Configuration, str], dict[float, float]] = {}
        for row in grouped.to_pylist():
            value, measure, at = row.pop("value_mean"), row.pop("measure"), row.pop("at")
            self._means.setdefault((Configuration(**row), measure), {})[at] = value

    def __contains__(self, configuration: Configuration) -> bool:
        return any(key[0] == configuration for key in self._means)

    def value(self, configuration: Configuration, measure: str = RATE) -> float | None:
        """Return one value, or None if the configuration was not run."""
        return self._means.get((configuration, measure), {}).get(0.0)

    def over(self, configuration: Configuration, measure: str) -> list[tuple[float, float]]:
        """Return the values by matcher or second."""
        return sorted(self._means.get((configuration, measure), {}).items())
