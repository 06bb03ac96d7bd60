"""BlueDove's evaluation (section IV) as a sweep of configurations: what they are, and their rows.

A configuration is one system on one workload; a cell is a configuration and a trial. They are run
by `runs.py` (the paper's experiments) and `scale.py` (what is beyond it), as
Spark tasks (`cells.py`). Figures are views of the configurations (`figures.py`,
`beyond.py`): one that several of them show is run once.

Boxes come in two widths. `WIDE` is what the paper's text says: at 20 matchers such a box overlaps
six segments of a dimension, so a matcher holds a third of all boxes, and nothing can be more than a
few times as good as holding them all. `NARROW` ones lie in one segment, as the paper's own results
have it (67 times full replication). The time that a box takes is fitted, for each width, to one
number: the rate at which 20 matchers saturate.
"""

import dataclasses
from dataclasses import dataclass

import pyarrow as pa

from dovetail.sim import workload
from dovetail.sim.episodes import Steps
from dovetail.sim.matcher_node import Costs
from dovetail.sim.saturation import Search
from dovetail.sim.systems import Setting

SLOWDOWN = 100
"""Matching takes so many times as long, and rates are as much lower (sim/saturation.py)."""

WIDE, NARROW = workload.WIDTH, 1.0
BOX_SECONDS = {WIDE: 4.3e-8, NARROW: 2.5e-7}
"""Of a matcher with four cores, for each box that it looks at: fitted to 114,000 messages/s."""

TRIALS_MAX = 100

SATURATION, HELD, RESPONSE = "saturation", "held", "response"
GROWTH, CRASHES, OVERHEAD = "growth", "crashes", "overhead"
"""The whole plane: sim/episodes.py."""
REASONS = "reasons"
"""What might explain differences: `reasons.py`."""
SCALED, HOLDING, CHATTER = "scaled", "holding", "chatter"
"""Beyond the paper: `scale.py`."""
RATE, UNEVENNESS, BUSY = "rate", "unevenness", "busy"
BOXES = "boxes"
RESPONSE_SECONDS = "response_seconds"
SERVING, LATE, EVENT = "serving", "late", "event"
"""By second: matchers; the share of messages asked about again; and where a matcher comes or goes,
the seconds until that is felt no longer, or at last."""
SERVES = "serves"
LOST, DOUBLED, DUE = "lost", "doubled", "due"
GOSSIP_BYTES, LOAD_BYTES = "gossip_bytes", "load_bytes"
"""A second that a matcher sends: in gossip, and in loads to each broker."""
OVER_FULL_FEW, OVER_FULL, FLAT_CHANGE = "over_full_few", "over_full", "flat_change"
OVER_P2P, OVER_P2P_SECOND = "over_p2p", "over_p2p_second"
"""At best: times full replication and P2P; change in per cent where boxes are spread evenly."""
LIMIT, LIMIT_INDEX = "limit", "limit_index"
"""Messages a second at best (sim/capacity.py): where each box is looked at, and with our index."""
COPIES, HOLDS, HOLDS_MOST, HOLDS_BYTES = "copies", "holds", "holds_most", "holds_bytes"
"""Matchers that hold a box; boxes that one holds, on average and at most, and their bytes."""
CANDIDATES, MATCHES, TABLE_BYTES = "candidates", "matches", "table_bytes"
"""Different ones that a message has; boxes it is in; what all matchers' records take."""
GOSSIP_QUIET, GOSSIP_BUSY = "gossip_quiet", "gossip_busy"
"""Bytes a second that a matcher sends, by matchers: if nothing changes, and if all loads do."""

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
CONFIGURATION = 11
"""So many of these columns say what was run; with the trial, they are a cell."""


@dataclass(frozen=True, order=True)
class Configuration:
    """What is run. The defaults are the paper's."""

    experiment: str = SATURATION
    system: str = "adaptive"
    matchers: int = 20
    width: float = WIDE
    spread: float = workload.SPREAD
    searchable: int = workload.DIMENSIONS
    skewed: int = 0
    along: int = 0
    messages_per_second: float = 0.0
    """Where it is not what is looked for."""
    boxes: int = workload.BOXES
    drawn: int = 0
    """Boxes that stand for them, each for as many; 0: all are drawn."""

    @property
    def setting(self) -> Setting:
        return Setting(
            matchers=self.matchers,
            width=self.width,
            spread=self.spread,
            searchable=self.searchable,
            skewed=self.skewed,
            along=self.along,
            costs=Costs(0.0, 0.0, BOX_SECONDS[self.width] * SLOWDOWN),
        )


STEPS = Steps(first_rate=130.0, more=15.0, seconds=15, steps=11)
"""From what five matchers can take to more than they can."""
SATURATED = 0.8
"""Matchers as busy as that on average get another one: some of them are at their limit then. The
service adds one earlier."""
QUICKER = 0.46
"""Matching takes 8 ms on average then: a question that has to wait is in no danger of the service's
0.3 s."""
SEARCH = Search(first_rate=500.0, precision=0.03, seconds_min=20.0, publications_min=8_000)
SCALE_SEARCH = Search(precision=0.05, seconds_min=30.0, publications_min=8_000)
"""Begins near the limit, which is known there. In trials of 15 s some of 100 matchers had not come
to rest, and the rate was a fifth lower."""


@dataclass(frozen=True)
class Effort:
    """How long a cell may take: tests have less time."""

    search: Search = SEARCH
    response_seconds: int = 60
    boxes: int = workload.BOXES
    """With fewer, each takes longer in proportion."""
    plane_boxes: int = 1_000
    """In the whole plane, where there really are that many."""
    growing: Steps = STEPS
    matchers_max: int = 8
    crash_rate: float = 250.0
    crashes: int = 3
    crash_every_seconds: int = 30
    crashes_of_many: int = 1
    """With more matchers than the paper has."""
    scale_search: Search = SCALE_SEARCH
    drawn_max: int = 4_000_000
    """Beyond the paper: of boxes that are counted and not fed."""
    chatter_matchers: tuple[int, ...] = (20, 50, 100, 200)
    """Numbers of them whose gossip is simulated."""
    chatter_seconds: int = 5

    def setting(self, configuration: Configuration) -> Setting:
        return _with_boxes(configuration.setting, self.boxes)

    def plane(self, configuration: Configuration) -> Setting:
        return _with_boxes(configuration.setting, self.plane_boxes)

    def quick_plane(self, configuration: Configuration) -> Setting:
        """Where the service's limits of time hold, which are not a hundred times as long."""
        setting = self.plane(configuration)
        seconds = setting.costs.box_seconds * QUICKER
        return dataclasses.replace(setting, costs=setting.costs._replace(box_seconds=seconds))

    def crashes_of(self, configuration: Configuration) -> int:
        is_papers = configuration.matchers <= Configuration.matchers
        return self.crashes if is_papers else self.crashes_of_many

    def scaled(self, configuration: Configuration) -> Setting:
        """As fast as the paper's, with the boxes that are drawn."""
        drawn = min(configuration.drawn or configuration.boxes, self.drawn_max)
        seconds = BOX_SECONDS[configuration.width] * configuration.boxes / drawn
        costs = Costs(0.0, 0.0, seconds)
        return dataclasses.replace(configuration.setting, boxes=drawn, costs=costs)


def _with_boxes(setting: Setting, boxes: int) -> Setting:
    seconds = setting.costs.box_seconds * setting.boxes / boxes
    return dataclasses.replace(
        setting, boxes=boxes, costs=setting.costs._replace(box_seconds=seconds)
    )


FULL = Effort()

Value = tuple[str, float, float]
"""A measure, where or when, and how much."""


# What came out ------------------------------------------------------------------------------------


class Measured:
    """The means over the trials."""

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
        """None: it was not run."""
        return self._means.get((configuration, measure), {}).get(0.0)

    def over(self, configuration: Configuration, measure: str) -> list[tuple[float, float]]:
        """By matcher, or second."""
        return sorted(self._means.get((configuration, measure), {}).items())
