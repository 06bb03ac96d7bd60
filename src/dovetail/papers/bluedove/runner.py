"""Runs one configuration of the paper's experiments (BlueDove IV) under the seeded simulator.

Candidates, policies, loads and segments are the code of the service; time is simulated. Experiments
in which matchers join or crash simulate everything, gossip and feeds included, with fewer boxes
that take longer in proportion.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from dovetail.papers.bluedove.hypotheses import measure_hypotheses
from dovetail.papers.bluedove.run_configuration import (
    ADD_ABOVE,
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
    SATURATION,
    SERVES,
    SERVING,
    SLOWDOWN,
    UNEVENNESS,
    Configuration,
    Effort,
    Value,
)
from dovetail.papers.bluedove.scale_experiments import SCALE_RUNNERS
from dovetail.settings.matchers import MatcherSettings
from dovetail.sim import workload
from dovetail.sim.saturation import boxes_held, response_times, saturation
from dovetail.sim.scenarios import SecondSummary, measure_overhead, run_crashes, run_growth


def _saturation(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    row = saturation(configuration.system, effort.testbed(configuration), seed, effort.search)
    busy = next(trial.busy for trial in row.trials if trial.rate == row.rate)
    return [
        (RATE, 0.0, row.rate * SLOWDOWN),
        (UNEVENNESS, 0.0, row.unevenness),
        *((BUSY, float(number), share) for number, share in enumerate(busy, 1)),
    ]


def _boxes_held(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    rate = configuration.messages_per_second / SLOWDOWN
    search = dataclasses.replace(effort.search, first_rate=rate)
    testbed = effort.testbed(configuration)
    held = boxes_held(configuration.system, testbed, seed, search)
    return [(BOXES, 0.0, held * workload.BOXES / testbed.boxes)]


def _response(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    rate = configuration.messages_per_second / SLOWDOWN
    testbed, seconds = effort.testbed(configuration), effort.response_seconds
    found = response_times(configuration.system, testbed, seed, rate, seconds, effort.search)
    return [(RESPONSE_SECONDS, float(second), value) for second, value in enumerate(found, 1)]


def _growth(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    bounds = MatcherSettings(
        count_min=configuration.matchers, count_max=effort.matchers_max, add_above=ADD_ABOVE
    )
    found = run_growth(effort.full_testbed(configuration), seed, effort.growing, bounds)
    return [
        *_by_second(found.seconds),
        *((EVENT, join.started, join.drops - join.started) for join in found.joins),
        *((SERVES, join.started, join.serves - join.started) for join in found.joins),
    ]


def _crashes(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    found = run_crashes(
        effort.fast_full_testbed(configuration),
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


def _late_until(seconds: Sequence[SecondSummary], begin: float, end: float) -> float:
    """Return the end of the last second with late messages.

    The second before the next crash is left out: that crash delayed its messages.
    """
    late = [place for place in range(round(begin), round(end) - 1) if seconds[place].late]
    return max(late) + 1.0 if late else begin


def _by_second(seconds: Sequence[SecondSummary]) -> Iterator[Value]:
    for at, second in enumerate(seconds, 1):
        yield RESPONSE_SECONDS, float(at), second.response_seconds
        yield SERVING, float(at), float(second.matchers)
        yield LATE, float(at), second.late


def _overhead(configuration: Configuration, seed: int, effort: Effort) -> list[Value]:
    testbed = effort.fast_full_testbed(configuration)
    found = measure_overhead(testbed, seed, effort.crash_rate, effort.crash_every_seconds)
    return [
        (GOSSIP_BYTES, 0.0, found.gossip),
        (LOAD_BYTES, 0.0, found.load_per_broker),
    ]


RUNNERS: dict[str, Callable[[Configuration, int, Effort], list[Value]]] = {
    SATURATION: _saturation,
    HELD: _boxes_held,
    RESPONSE: _response,
    GROWTH: _growth,
    CRASHES: _crashes,
    OVERHEAD: _overhead,
    REASONS: measure_hypotheses,
    **SCALE_RUNNERS,
}
"""The runner of each experiment."""


def measure_configuration(
    configuration: Configuration, seed: int, effort: Effort = FULL
) -> list[Value]:
    return RUNNERS[configuration.experiment](configuration, seed, effort)
