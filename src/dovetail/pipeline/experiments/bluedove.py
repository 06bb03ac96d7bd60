"""BlueDove's evaluation (section IV) as a sweep of configurations under the seeded simulator.

A configuration is one system on one workload; a cell is a configuration and a trial, and one Spark
task. What a cell draws comes from the run's seed and its trial alone: so systems meet the same
boxes and points, and the table is the same whatever the number of cores. Figures are views of the
configurations (`bluedove_figures.py`): one that several of them show is run once.

Candidates, policies, loads and segments are the code of the service; what is simulated is time.
Where matchers come and go it is all of it, gossip and feeds included, with fewer boxes that take
longer in proportion.

Boxes come in two widths. `WIDE` is what the paper's text says: at 20 matchers such a box overlaps
six segments of a dimension, so a matcher holds a third of all boxes, and nothing can be more than a
few times as good as holding them all. `NARROW` ones lie in one segment, as the paper's own results
have it (67 times full replication). The time that a box takes is fitted, for each width, to one
number: the rate at which 20 matchers saturate.

Nothing here reads or writes: `measure` and `in_order` take a DataFrame and return one.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.attributes import workload
from dovetail.settings.matchers import Matchers
from dovetail.sim.episodes import Second, Steps, crashes, growth, overhead
from dovetail.sim.matchers import Costs
from dovetail.sim.saturation import Search, boxes_held, response_times, saturation
from dovetail.sim.systems import Setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOWDOWN = 100
"""Matching takes so many times as long, and rates are as much lower (sim/saturation.py)."""

WIDE, NARROW = workload.WIDTH, 1.0
BOX_SECONDS = {WIDE: 4.3e-8, NARROW: 2.5e-7}
"""Of a matcher with four cores, for each box that it looks at: fitted to 114,000 messages/s."""

TRIALS_MAX = 100

SATURATION, HELD, RESPONSE = "saturation", "held", "response"
GROWTH, CRASHES, OVERHEAD = "growth", "crashes", "overhead"
"""The whole plane: sim/episodes.py."""
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
        pa.field("trial", pa.int32()),
        pa.field("measure", pa.string()),
        pa.field("at", pa.float64()),
        pa.field("value", pa.float64()),
    ]
)
CONFIGURATION = 9
"""So many of these columns say what was run; with the trial, they are a cell."""
CELLS = pa.schema(list(ROWS)[: CONFIGURATION + 1])
ROWS_DDL = ", ".join(
    f"{field.name} {({'int32': 'int', 'double': 'double', 'string': 'string'})[str(field.type)]}"
    for field in ROWS
)


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

    def setting(self, configuration: Configuration) -> Setting:
        return _with_boxes(configuration.setting, self.boxes)

    def plane(self, configuration: Configuration) -> Setting:
        return _with_boxes(configuration.setting, self.plane_boxes)

    def quick_plane(self, configuration: Configuration) -> Setting:
        """Where the service's limits of time hold, which are not a hundred times as long."""
        setting = self.plane(configuration)
        seconds = setting.costs.box_seconds * QUICKER
        return dataclasses.replace(setting, costs=setting.costs._replace(box_seconds=seconds))


def _with_boxes(setting: Setting, boxes: int) -> Setting:
    seconds = setting.costs.box_seconds * setting.boxes / boxes
    return dataclasses.replace(
        setting, boxes=boxes, costs=setting.costs._replace(box_seconds=seconds)
    )


FULL = Effort()

Value = tuple[str, float, float]
"""A measure, where or when, and how much."""


def measure_configuration(
    configuration: Configuration, seed: int, effort: Effort = FULL
) -> list[Value]:
    match configuration.experiment:
        case "saturation":
            return _saturation(configuration, seed, effort)
        case "held":
            return _held(configuration, seed, effort)
        case "response":
            return _response(configuration, seed, effort)
        case "growth":
            return _growth(configuration, seed, effort)
        case "crashes":
            return _crashes(configuration, seed, effort)
        case "overhead":
            return _overhead(configuration, seed, effort)
    raise ValueError(configuration.experiment)


def _saturation(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    row = saturation(configuration.system, effort.setting(configuration), seed, effort.search)
    busy = next(trial.busy for trial in row.trials if trial.rate == row.rate)
    return [
        (RATE, 0.0, row.rate * SLOWDOWN),
        (UNEVENNESS, 0.0, row.unevenness),
        *((BUSY, float(number), share) for number, share in enumerate(busy, 1)),
    ]


def _held(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    rate = configuration.messages_per_second / SLOWDOWN
    search = dataclasses.replace(effort.search, first_rate=rate)
    setting = effort.setting(configuration)
    held = boxes_held(configuration.system, setting, seed, search)
    return [(BOXES, 0.0, held * workload.BOXES / setting.boxes)]


def _response(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    rate = configuration.messages_per_second / SLOWDOWN
    setting, seconds = effort.setting(configuration), effort.response_seconds
    found = response_times(configuration.system, setting, seed, rate, seconds, effort.search)
    return [(RESPONSE_SECONDS, float(second), value) for second, value in enumerate(found, 1)]


def _growth(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    bounds = Matchers(
        count_min=configuration.matchers, count_max=effort.matchers_max, add_above=SATURATED
    )
    found = growth(effort.plane(configuration), seed, effort.growing, bounds)
    return [
        *_by_second(found.seconds),
        *((EVENT, join.started, join.falls - join.started) for join in found.joins),
        *((SERVES, join.started, join.serves - join.started) for join in found.joins),
    ]


def _crashes(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    found = crashes(
        effort.quick_plane(configuration),
        seed,
        effort.crash_rate,
        effort.crashes,
        effort.crash_every_seconds,
    )
    ends = [*found.at[1:], float(len(found.seconds))]
    crashed = zip(found.at, ends, strict=True)
    return [
        *_by_second(found.seconds),
        *((EVENT, at, _late_until(found.seconds, at, end) - at) for at, end in crashed),
        (LOST, 0.0, float(found.lost)),
        (DOUBLED, 0.0, float(found.doubled)),
        (DUE, 0.0, float(found.due)),
    ]


def _late_until(seconds: Sequence[Second], begin: float, end: float) -> float:
    """The end of the last second in which messages were late.

    In the last one before the next crash, those were late that it met on their way.
    """
    late = [place for place in range(round(begin), round(end) - 1) if seconds[place].late]
    return max(late) + 1.0 if late else begin


def _by_second(seconds: Sequence[Second]) -> Iterator[Value]:
    for at, second in enumerate(seconds, 1):
        yield RESPONSE_SECONDS, float(at), second.response_seconds
        yield SERVING, float(at), float(second.matchers)
        yield LATE, float(at), second.late


def _overhead(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    setting = effort.quick_plane(configuration)
    found = overhead(setting, seed, effort.crash_rate, effort.crash_every_seconds)
    return [
        (GOSSIP_BYTES, 0.0, found.gossip),
        (LOAD_BYTES, 0.0, found.load_per_broker),
    ]


# On Spark -----------------------------------------------------------------------------------------


def cells(configurations: Sequence[Configuration], trials: int) -> pa.Table:
    """Every cell of a run, each once."""
    rows = [
        {**dataclasses.asdict(configuration), "trial": trial}
        for configuration in sorted(set(configurations))
        for trial in range(trials)
    ]
    return pa.Table.from_pylist(rows, CELLS)


def seed_of(seed: int, trial: int) -> int:
    return int(np.random.SeedSequence([seed, trial]).generate_state(1)[0])


def measure_cell(
    cell: dict[str, object], seed: int, effort: Effort = FULL
) -> list[dict[str, object]]:
    trial = cell["trial"]
    assert isinstance(trial, int)
    values = {name: value for name, value in cell.items() if name != "trial"}
    configuration = Configuration(**values)  # type: ignore[arg-type]
    return [
        {**cell, "measure": measure, "at": at, "value": value}
        for measure, at, value in measure_configuration(configuration, seed_of(seed, trial), effort)
    ]


def measure_batches(
    batches: Iterator[pa.RecordBatch], *, seed: int, effort: Effort
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for cell in batch.to_pylist():
            yield pa.RecordBatch.from_pylist(measure_cell(cell, seed, effort), ROWS)


def measure(cells: "DataFrame", count: int, seed: int, effort: Effort = FULL) -> "DataFrame":
    """Cells in, their rows out. Each is a task: they take seconds, and differ tenfold."""
    # Out of one partition they are dealt one by one.
    dealt = cells.coalesce(1).repartition(count)
    return dealt.mapInArrow(partial(measure_batches, seed=seed, effort=effort), ROWS_DDL)


def in_order(rows: "DataFrame") -> "DataFrame":
    """Sorted, in one partition, as in `wildcard.in_order`."""
    names = [name for name in ROWS.names if name != "value"]
    return rows.repartition(1).sortWithinPartitions(*names)


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
