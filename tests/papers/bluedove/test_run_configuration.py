"""A small sweep: the shapes of the paper's figures, and the handling of rows."""

import dataclasses
from functools import cache

import pyarrow as pa
import pytest

from dovetail.errors import ConfigError
from dovetail.papers.bluedove.figures import (
    CRASH_RUN,
    FIGURES,
    GROWTH_RUN,
    IDLE_RUN,
    select_figures,
)
from dovetail.papers.bluedove.paper_numbers import compare
from dovetail.papers.bluedove.run_configuration import (
    BUSY,
    DOUBLED,
    DUE,
    EVENT,
    GOSSIP_BYTES,
    LATE,
    LOAD_BYTES,
    LOST,
    NARROW,
    RATE,
    RESPONSE_SECONDS,
    ROWS,
    SERVES,
    UNEVENNESS,
    WIDE,
    Configuration,
    Effort,
    TrialMeans,
)
from dovetail.papers.bluedove.runner import measure_configuration
from dovetail.papers.bluedove.sweep import PLACE, cells, measure_cell
from dovetail.sim.saturation import RateSearch
from dovetail.sim.scenarios import RateSteps

SMALL = Effort(
    RateSearch(first_rate=150.0, precision=0.1, seconds_min=5.0, publications_min=400), 4, 1_000
)


@cache
def rate(**fields: object) -> float:
    configuration = dataclasses.replace(Configuration(matchers=5), **fields)  # type: ignore[arg-type]
    values = measure_configuration(configuration, 1, SMALL)
    (found,) = (value for measure, _, value in values if measure == RATE)
    return found


def test_systems_have_the_order_of_the_paper() -> None:
    wide = [rate(system=name) for name in ("adaptive", "p2p", "full")]
    assert wide == sorted(wide, reverse=True)
    # With fewer copies, more is gained.
    assert rate(width=NARROW) / rate(width=NARROW, system="full") > wide[0] / wide[2]


def test_fewer_dimensions_and_adverse_skew_cost_something() -> None:
    assert rate() > rate(searchable=1)
    assert rate() > rate(skewed=4)


def test_saturation_has_the_load_of_each_matcher() -> None:
    values = measure_configuration(Configuration(system="p2p", matchers=4), 1, SMALL)
    assert [at for measure, at, _ in values if measure == BUSY] == [1, 2, 3, 4]
    assert {measure for measure, _, _ in values} == {RATE, UNEVENNESS, BUSY}


def test_response_time_is_bounded_below_saturation_only() -> None:
    def last(messages_per_second: float) -> float:
        configuration = Configuration(
            "response", "full", matchers=4, messages_per_second=messages_per_second
        )
        values = measure_configuration(configuration, 1, SMALL)
        assert [measure for measure, _, _ in values] == [RESPONSE_SECONDS] * 4
        return values[-1][2]

    limit = rate(system="full", matchers=4)
    assert last(3 * limit) > 2 * last(limit / 2)


PLANE = dataclasses.replace(
    SMALL,
    full_boxes=60,
    growing=RateSteps(first_rate=20.0, rate_step=20.0, seconds=2, steps=2),
    matchers_max=2,
    crash_rate=40.0,
    crashes=1,
    crash_every_seconds=3,
)


def test_full_simulations_are_measured_by_second() -> None:
    def measures(experiment: str, matchers: int) -> dict[str, dict[float, float]]:
        found: dict[str, dict[float, float]] = {}
        for measure, at, value in measure_configuration(
            Configuration(experiment, matchers=matchers), 1, PLANE
        ):
            found.setdefault(measure, {})[at] = value
        return found

    grown, crashed, idle = measures("growth", 2), measures("crashes", 3), measures("overhead", 2)
    assert list(grown[RESPONSE_SECONDS]) == [1, 2, 3, 4]
    assert list(crashed[EVENT]) == [3]
    assert (crashed[LOST], crashed[DOUBLED]) == ({0: 0}, {0: 0})
    assert crashed[DUE][0] > 0
    assert 0 < crashed[EVENT][3] < 3
    assert idle[GOSSIP_BYTES][0] > idle[LOAD_BYTES][0] > 0


def test_cells_are_run_once() -> None:
    wanted = [one for figure in FIGURES.values() for one in figure.configurations]
    table = cells(wanted, 2)
    assert table.num_rows == 2 * len(set(wanted)) < 2 * len(wanted)
    assert {one.width for one in wanted} == {WIDE, NARROW}
    assert table[PLACE].to_pylist() == [*range(table.num_rows)]


def test_long_cells_start_first() -> None:
    wanted = [Configuration(), Configuration("scaled"), Configuration("scaled", matchers=500)]
    found = [(one["experiment"], one["matchers"]) for one in cells(wanted, 1).to_pylist()]
    assert found == [("scaled", 500), ("scaled", 20), ("saturation", 20)]


def test_a_cell_draws_from_its_trial_and_seed_alone() -> None:
    one, other = cells([Configuration(system="p2p", matchers=3)], 2).to_pylist()
    assert measure_cell(one, 1, SMALL) == measure_cell(one, 1, SMALL)
    assert measure_cell(one, 1, SMALL) != measure_cell(other, 1, SMALL)


def test_figures_are_selected_in_order() -> None:
    assert [figure.name for figure in select_figures(("7", "5", "7"))] == ["5", "7"]
    with pytest.raises(ConfigError, match="asked for: 12"):
        select_figures(("12", "5"))
    with pytest.raises(ConfigError, match="asked for: none"):
        select_figures(())


def a_row(configuration: Configuration, trial: int, value: float) -> dict[str, object]:
    fields = dataclasses.asdict(configuration)
    return {**fields, "trial": trial, "measure": RATE, "at": 0.0, "value": value}


def test_numbers_are_compared_with_the_papers() -> None:
    rows = [
        a_row(Configuration(width=width, system=system), trial, value + trial)
        for width in (WIDE, NARROW)
        for system, value in (("adaptive", 120_000), ("random", 40_000))
        for trial in (0, 2)
    ]
    measured = TrialMeans(pa.Table.from_pylist(rows, ROWS))
    assert measured.value(Configuration()) == 120_001
    assert measured.value(Configuration(system="p2p")) is None
    found = {row.quantity: row for row in compare(measured)}
    random = found["Adaptive against random"]
    assert (random.paper, random.agrees, random.difference) == ("3.5 x", True, "-14 %")
    assert random.ours == "3.0 x (250 wide), 3.0 x (one segment)"
    assert found["Against P2P, 20 matchers"].ours == "not in this run"
    by_core = found["The same for each of 80 cores"]
    assert (by_core.paper, by_core.agrees) == ("1,425 msg/s", True)
    assert by_core.ours == "1,500 msg/s (250 wide), 1,500 msg/s (one segment)"
    assert len(found) >= 15
    assert found["Deliveries lost by crashes"].ours == "not in this run"


def test_crashes_and_joins_are_compared_with_the_papers() -> None:
    def row(one: Configuration, measure: str, at: float, value: float) -> dict[str, object]:
        return {**a_row(one, 0, value), "measure": measure, "at": at}

    rows = [
        row(GROWTH_RUN, EVENT, 30.0, 4.0),
        row(GROWTH_RUN, EVENT, 60.0, 6.0),
        row(GROWTH_RUN, SERVES, 30.0, 3.0),
        row(CRASH_RUN, EVENT, 20.0, 1.0),
        row(CRASH_RUN, LATE, 21.0, 0.045),
        row(CRASH_RUN, LOST, 0.0, 0.0),
        row(CRASH_RUN, DUE, 0.0, 4_000.0),
        row(IDLE_RUN, GOSSIP_BYTES, 0.0, 3_000.0),
        row(IDLE_RUN, LOAD_BYTES, 0.0, 90.0),
    ]
    found = {row.quantity: row for row in compare(TrialMeans(pa.Table.from_pylist(rows, ROWS)))}
    grown = found["New matcher to falling response time (fig. 9)"]
    assert (grown.ours, grown.agrees) == ("5.0 s (each: 4, 6; of 1 matchers)", True)
    assert found["Deliveries lost by crashes"].ours == "0 of 4,000, and 0 twice"
    assert found["Deliveries lost by a crash among 100 matchers"].ours == "not in this run"
    assert found["From a crash until no message suffers"].ours == "1.0 s"
    meets = found["Messages that a crash meets, in the second after it (fig. 10)"]
    assert (meets.ours, meets.agrees) == ("4.5 %", True)
    assert found["Gossip of a matcher"].agrees
    assert not found["Tables and loads of a matcher, to each dispatcher"].agrees
