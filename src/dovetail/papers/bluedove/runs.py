"""The paper's experiments (BlueDove IV), one configuration at a time, under the seeded simulator.

Candidates, policies, loads and segments are the code of the service; what is simulated is time.
Where matchers come and go it is all of it, gossip and feeds included, with fewer boxes that take
longer in proportion.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from dovetail.papers.bluedove.configuration import (
    BOXES,
    BUSY,
    CRASHES,
    DOUBLED,
    DUE,
    EVENT,
    FULL,
    GOSSIP_BYTES,
    GROWTH,
    HELD,
    LATE,
    LOAD_BYTES,
    LOST,
    OVERHEAD,
    RATE,
    REASONS,
    RESPONSE,
    RESPONSE_SECONDS,
    SATURATED,
    SATURATION,
    SERVES,
    SERVING,
    SLOWDOWN,
    UNEVENNESS,
    Configuration,
    Effort,
    Value,
)
from dovetail.papers.bluedove.reasons import measure_reasons
from dovetail.papers.bluedove.scale import SCALES
from dovetail.settings.matchers import Matchers
from dovetail.sim import workload
from dovetail.sim.episodes import Second, crashes, growth, overhead
from dovetail.sim.saturation import boxes_held, response_times, saturation


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
        effort.crashes_of(configuration),
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


RUNS: dict[str, Callable[[Configuration, int, Effort], list[Value]]] = {
    SATURATION: _saturation,
    HELD: _held,
    RESPONSE: _response,
    GROWTH: _growth,
    CRASHES: _crashes,
    OVERHEAD: _overhead,
    REASONS: measure_reasons,
    **SCALES,
}
"""By experiment."""


def measure_configuration(
    configuration: Configuration, seed: int, effort: Effort = FULL
) -> list[Value]:
    return RUNS[configuration.experiment](configuration, seed, effort)
