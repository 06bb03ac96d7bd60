"""The generator draws as in the paper, and the table depends only on the seed."""

import math

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dovetail.papers.wildcard import simulation
from dovetail.papers.wildcard.simulation import (
    PANELS,
    Workload,
    as_column,
    draw_cell,
    draw_filters,
    filters_matching,
    wildcard_patterns,
    workload_of,
)
from dovetail.topics.names import check_filter, check_name, matches
from dovetail.topics.sketches import METHODS


def pattern_text(codes: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> str:
    return "/".join("x+#"[code] for code in codes if code != simulation.NOTHING)


def pattern_of(topic_filter: bytes) -> str:
    levels = topic_filter.decode().split("/")
    return "/".join(level if level in {"+", "#"} else "x" for level in levels)


def draw(workload: Workload, seed: int = 7, letters: int = 10) -> tuple[list[bytes], bytes]:
    filters, topic = draw_cell(np.random.default_rng(seed), workload, letters)
    return list(filters), topic


class TestPatterns:
    def test_two_levels_are_these(self) -> None:
        every = {pattern_text(row) for row in wildcard_patterns(2, 0, wildcard_only=True)}
        assert every == {"+/x", "x/+", "+/+", "#", "x/#", "+/#"}
        rest = {pattern_text(row) for row in wildcard_patterns(2, 0, wildcard_only=False)}
        assert rest == {"+/x", "x/+", "x/#"}

    @pytest.mark.parametrize("levels", range(1, 11))
    @pytest.mark.parametrize("first", range(6))
    def test_count(self, levels: int, first: int) -> None:
        free = max(levels - first, 0)
        both = 2 * (2**free - 1)
        patterns = wildcard_patterns(levels, first, wildcard_only=True)
        assert len({pattern_text(row) for row in patterns}) == len(patterns) == both
        wildcard_only = levels + 1 if first == 0 else 0
        rest = wildcard_patterns(levels, first, wildcard_only=False)
        assert len(rest) == both - wildcard_only
        assert (rest[:, : min(first, levels)] == simulation.LITERAL).all()

    def test_ten_levels_have_the_count_behind_the_papers_figure(self) -> None:
        assert len(wildcard_patterns(10, 0, wildcard_only=False)) == 2_035


class TestFilters:
    @pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.letter)
    @pytest.mark.parametrize("figure", [4, 5, 6])
    def test_are_valid_at_every_point(self, figure: int, panel: simulation.WildcardPanel) -> None:
        for value in panel.values:
            workload = workload_of(figure, panel, value)
            filters, topic = draw(workload)
            assert len(filters) == workload.topics
            assert check_name(topic).count(b"/") == workload.levels - 1
            for topic_filter in filters[:200]:
                levels = check_filter(topic_filter).split(b"/")
                assert len(levels) == workload.levels or levels[-1] == b"#"
                literals = [level for level in levels if level not in {b"+", b"#"}]
                assert all(len(level) == 10 and level.isalpha() for level in literals)
                assert literals or workload.wildcard_only
                first = levels[: workload.wildcard_level_min]
                assert not {b"+", b"#"} & set(first)

    def test_are_drawn_evenly(self) -> None:
        workload = Workload(topics=60_000, levels=4, wildcard_probability=1, wildcard_only=False)
        filters, _ = draw(workload)
        patterns, counts = np.unique([pattern_of(found) for found in filters], return_counts=True)
        assert len(patterns) == 2**5 - 4 - 3
        expected = len(filters) / len(patterns)
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        freedom = len(patterns) - 1
        assert abs(chi_square - freedom) < 4 * math.sqrt(2 * freedom)

    @pytest.mark.parametrize("share", [0, 0.25, 1])
    def test_share_with_wildcards(self, share: float) -> None:
        filters, _ = draw(Workload(wildcard_probability=share))
        wild = sum(b"+" in found or b"#" in found for found in filters)
        assert abs(wild - share * 6_000) <= 4 * math.sqrt(6_000 * share * (1 - share))

    def test_without_a_pattern_to_draw_stay_topics(self) -> None:
        filters, _ = draw(Workload(levels=1, wildcard_probability=1, wildcard_only=False))
        assert all(found.isalpha() for found in filters)
        filters, _ = draw(Workload(levels=2, wildcard_probability=1, wildcard_level_min=2))
        assert not any(b"+" in found or b"#" in found for found in filters)

    def test_matching_is_what_mqtt_says(self) -> None:
        rng = np.random.default_rng(3)
        workload = Workload(topics=3_000, levels=3)
        codes, text = draw_filters(rng, workload, workload.topics, letters=1)
        topic = simulation.draw_text(rng, (3,), 1)
        name = "/".join(level.tobytes().decode() for level in topic)
        expected = [matches(found.decode(), name) for found in as_column(codes, text)]
        assert filters_matching(codes, text, topic).tolist() == expected
        assert 0 < sum(expected) < len(expected)

    def test_that_match_are_drawn_again(self) -> None:
        # One letter a level: about one filter in 50 would match.
        workload = Workload(levels=2, wildcard_only=False, matching=False)
        filters, topic = draw(workload, letters=1)
        assert not any(matches(found.decode(), topic.decode()) for found in filters)
        allowed, topic = draw(Workload(levels=2, wildcard_only=False), letters=1)
        assert any(matches(found.decode(), topic.decode()) for found in allowed)


class TestCells:
    def test_every_point_and_trial_once(self) -> None:
        cells = simulation.cells((4, 6), 3).to_pylist()
        assert len(cells) == len({tuple(cell.values()) for cell in cells}) == 2 * 21 * 3

    def test_figures_do_not_share_draws(self) -> None:
        rows = [
            simulation.measure_cell(1, figure, 1, 4, trial) for figure in (5, 6) for trial in (0, 1)
        ]
        bfp = [cell[1]["queries"] for cell in rows]
        assert len(set(bfp)) == 4

    def test_nothing_found_takes_what_the_methods_say(self) -> None:
        bf, bfp, prefix, lines = simulation.measure_cell(1, 6, 1, 0, 0)
        assert [bf["method"], bfp["method"], prefix["method"], lines["method"]] == list(METHODS)
        assert bf["queries"] == 2**3 - 1
        assert bfp["queries"] == 1 + 3
        assert prefix["queries"] == 6
        assert not any(row["found"] for row in (bf, bfp, prefix, lines))


class TestFrames:
    @pytest.fixture
    def cells(self, spark: SparkSession) -> DataFrame:
        chosen = [
            {"figure": 6, "panel_index": 1, "value_index": 4, "trial": trial} for trial in (0, 1)
        ]
        chosen += [
            {"figure": 4, "panel_index": 2, "value_index": value, "trial": 0} for value in (0, 2)
        ]
        return spark.createDataFrame(pa.Table.from_pylist(chosen, simulation.CELLS))

    def test_rows_are_the_cells_measured_here(self, cells: DataFrame) -> None:
        expected = [
            row
            for cell in ((4, 2, 0, 0), (4, 2, 2, 0), (6, 1, 4, 0), (6, 1, 4, 1))
            for row in sorted(simulation.measure_cell(5, *cell), key=lambda row: str(row["method"]))
        ]
        rows = simulation.in_order(simulation.measure(cells, 5, 2)).toArrow()
        assert rows.cast(simulation.ROWS).to_pylist() == expected

    def test_partitions_and_order_change_nothing(self, cells: DataFrame) -> None:
        one = simulation.in_order(simulation.measure(cells, 5, 1)).toArrow()
        shuffled = cells.orderBy("trial", "figure", ascending=False)
        four = simulation.in_order(simulation.measure(shuffled, 5, 4)).toArrow()
        assert one.equals(four)
        another_seed = simulation.in_order(simulation.measure(cells, 6, 1)).toArrow()
        assert not one.equals(another_seed)
