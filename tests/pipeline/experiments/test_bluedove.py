"""The sweep, small: shapes that the paper's figures have, and what becomes of rows."""

import dataclasses

import pyarrow as pa
import pytest

from dovetail.errors import ConfigError
from dovetail.pipeline.experiments.bluedove import (
    BUSY,
    NARROW,
    RATE,
    RESPONSE_SECONDS,
    ROWS,
    UNEVENNESS,
    WIDE,
    Configuration,
    Effort,
    Measured,
    cells,
    measure_cell,
    measure_configuration,
)
from dovetail.pipeline.experiments.bluedove_figures import FIGURES, chosen
from dovetail.pipeline.experiments.bluedove_numbers import compare
from dovetail.sim.saturation import Search

SMALL = Effort(
    Search(first_rate=150.0, precision=0.1, seconds_min=5.0, publications_min=400), 4, 1_000
)


def rate(**fields: object) -> float:
    configuration = dataclasses.replace(Configuration(matchers=5), **fields)  # type: ignore[arg-type]
    values = measure_configuration(configuration, 1, SMALL)
    (found,) = (value for measure, _, value in values if measure == RATE)
    return found


def test_systems_in_the_papers_order() -> None:
    wide = [rate(system=name) for name in ("adaptive", "p2p", "full")]
    assert wide == sorted(wide, reverse=True)
    # With fewer copies there is more to gain.
    assert rate(width=NARROW) / rate(width=NARROW, system="full") > wide[0] / wide[2]


def test_fewer_dimensions_and_adverse_skew_cost_something() -> None:
    assert rate() > rate(searchable=1)
    assert rate() > rate(skewed=4)


def test_a_saturation_has_the_load_of_each_matcher() -> None:
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


def test_cells_are_run_once() -> None:
    wanted = [one for figure in FIGURES.values() for one in figure.configurations]
    table = cells(wanted, 2)
    assert table.num_rows == 2 * len(set(wanted)) < 2 * len(wanted)
    assert {one.width for one in wanted} == {WIDE, NARROW}


def test_a_cell_draws_from_its_trial_and_seed_alone() -> None:
    one, other = cells([Configuration(system="p2p", matchers=3)], 2).to_pylist()
    assert measure_cell(one, 1, SMALL) == measure_cell(one, 1, SMALL)
    assert measure_cell(one, 1, SMALL) != measure_cell(other, 1, SMALL)


def test_figures_are_chosen_in_order() -> None:
    assert [figure.name for figure in chosen(("7", "5", "7"))] == ["5", "7"]
    with pytest.raises(ConfigError, match="asked for: 12"):
        chosen(("12", "5"))
    with pytest.raises(ConfigError, match="asked for: none"):
        chosen(())


def a_row(configuration: Configuration, trial: int, value: float) -> dict[str, object]:
    fields = dataclasses.asdict(configuration)
    return {**fields, "trial": trial, "measure": RATE, "at": 0.0, "value": value}


def test_numbers_stand_beside_the_papers() -> None:
    rows = [
        a_row(Configuration(width=width, system=system), trial, value + trial)
        for width in (WIDE, NARROW)
        for system, value in (("adaptive", 120_000), ("random", 40_000))
        for trial in (0, 2)
    ]
    measured = Measured(pa.Table.from_pylist(rows, ROWS))
    assert measured.value(Configuration()) == 120_001
    assert measured.value(Configuration(system="p2p")) is None
    found = {row.what: row for row in compare(measured)}
    random = found["Adaptive against random"]
    assert (random.paper, random.holds, random.difference) == ("3.5 x", True, "-14 %")
    assert random.ours == "3.0 x (250 wide), 3.0 x (one segment)"
    assert found["Against P2P, 20 matchers"].ours == "not in this run"
    assert len(found) >= 15
