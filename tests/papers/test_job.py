"""The commands from options to files, on a real Spark."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dovetail.errors import ConfigError, DovetailError
from dovetail.papers import job
from dovetail.papers.bluedove import run_configuration, sweep
from dovetail.papers.bluedove.figures import FIGURES
from dovetail.papers.figure7 import query_cost
from dovetail.papers.wildcard.simulation import PANELS, ROWS
from dovetail.sim.saturation import RateSearch
from dovetail.topics.sketches import METHODS
from support.oracles.figures import queries_of


@pytest.fixture
def own_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def open_session(_master: str | None) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(job, "open_session", open_session)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_session(_master: str | None) -> None:
        pytest.fail("Spark was started for options that cannot be used")

    monkeypatch.setattr(job, "open_session", open_session)


@pytest.mark.usefixtures("own_spark")
def test_run_and_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    job.reproduce_wildcard(figures=(4,), trials=1, seed=3, out=out)
    printed = capsys.readouterr().out
    assert "84 rows in " in printed
    assert f"table   {out}/results.parquet\n" in printed
    assert f"report  {out}/report.html\n" in printed
    assert "not in this run" in printed

    table = pq.read_table(out / "results.parquet")
    assert table.schema.equals(ROWS)
    assert table.num_rows == sum(len(panel.values) for panel in PANELS) * len(METHODS)
    assert set(table["method"].to_pylist()) == set(METHODS)
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.parquet"]

    first = (out / "results.parquet").read_bytes()
    job.reproduce_wildcard(figures=(4, 4), trials=1, seed=3, out=out)
    assert (out / "results.parquet").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["results"]

    (out / "results.parquet").write_bytes(b"PAR1 but not ours")
    with pytest.raises(ConfigError, match="something else"):
        job.reproduce_wildcard(figures=(4,), trials=1, seed=3, out=out)


@pytest.mark.usefixtures("own_spark")
def test_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_table(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", write_table)
    monkeypatch.setattr(job, "measure_wildcard", lambda *_: ROWS.empty_table())
    monkeypatch.setattr(job, "compare", lambda _: [])
    with pytest.raises(DovetailError, match="no space left on device"):
        job.reproduce_wildcard(figures=(4,), trials=1, out=tmp_path / "results")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_spark")
class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"trials": 0}, "--trials is from 1 to 1,000, not 0"),
            ({"trials": 1_001}, "not 1,001"),
            ({"seed": -1}, "--seed is from 0 to"),
            ({"seed": 2**63}, "--seed is from 0 to"),
            ({"figures": (4, 7)}, "asked for: 7"),
            ({"figures": ()}, "asked for: none"),
            ({"master": "nonsense"}, "not a Spark master"),
        ],
    )
    def test_option(self, tmp_path: Path, options: dict[str, object], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            job.reproduce_wildcard(out=tmp_path / "results", **options)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []

    def test_foreign_folder(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").touch()
        with pytest.raises(ConfigError, match="thesis"):
            job.reproduce_wildcard(out=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]

    def test_unwritable_folder(self) -> None:
        with pytest.raises(DovetailError, match="cannot be written"):
            job.reproduce_wildcard(out=Path("/proc/results"))


class TestBroker:
    def test_run_and_run_again(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A real broker, and real clients, for a blink at each point."""
        out = tmp_path / "results"
        job.reproduce_broker(rounds=1, seconds=0.1, seed=3, out=out, swept=(0, 3))
        printed = capsys.readouterr().out
        assert "10 rows in " in printed
        assert f"report  {out}/report.html\n" in printed
        table = pq.read_table(out / "results.parquet")
        assert table.schema.equals(query_cost.ROWS)
        first = 0
        for row in table.to_pylist():
            if row["kind"] != query_cost.SWEEP:
                asked = queries_of(row["kind"], 3, first, row["messages"])
                assert (row["kind"], row["queries"]) == (row["kind"], asked)
            first += row["messages"]
        assert set(table["kind"].to_pylist()) == {query_cost.SWEEP, *METHODS}
        assert all(rate > 0 for rate in table["messages_per_second"].to_pylist())
        assert "Figure 7" in (out / "report.html").read_text()

        job.reproduce_broker(rounds=1, seconds=0.1, seed=3, out=out, swept=())
        assert pq.read_table(out / "results.parquet").num_rows == 8
        assert [path.name for path in tmp_path.iterdir()] == ["results"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"rounds": 0}, "--rounds is from 1 to 100, not 0"),
            ({"rounds": 101}, "not 101"),
            ({"seconds": 0.01}, "--seconds is from 0.1 to 600, not 0.01"),
            ({"seed": -1}, "--seed is from 0 to"),
        ],
    )
    def test_option(self, tmp_path: Path, options: dict[str, object], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            job.reproduce_broker(out=tmp_path / "results", **options)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []

    def test_result_of_another_experiment_stays(self, tmp_path: Path) -> None:
        (tmp_path / "report.html").touch()
        pq.write_table(
            ROWS.empty_table().replace_schema_metadata(job.metadata(job.WILDCARD, 1)),
            tmp_path / "results.parquet",
        )
        with pytest.raises(ConfigError, match="something else"):
            job.reproduce_broker(out=tmp_path)


class TestBlueDove:
    SMALL = run_configuration.Effort(
        RateSearch(first_rate=500.0, precision=0.3, seconds_min=1.0, publications_min=100), 2, 400
    )

    @pytest.mark.usefixtures("own_spark")
    def test_run_and_run_again(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = tmp_path / "results"
        job.reproduce_bluedove(figures=("7",), seed=3, out=out, effort=self.SMALL)
        printed = capsys.readouterr().out
        assert f"report  {out}/report.html\n" in printed
        assert "Adaptive against random" in printed
        table = pq.read_table(out / "results.parquet")
        assert table.schema.equals(run_configuration.ROWS)
        assert len(set(table["system"].to_pylist())) == 4
        assert table.num_rows == 8 * (2 + 20)

        first = (out / "results.parquet").read_bytes()
        job.reproduce_bluedove(figures=("7", "7"), seed=3, out=out, effort=self.SMALL)
        assert (out / "results.parquet").read_bytes() == first

    def test_the_same_rows_on_any_number_of_cores(self, spark: SparkSession) -> None:
        """Each cell by itself in tasks, two to a task, and all of them in this process."""
        figure = FIGURES["7"]
        cells = sweep.cells(figure.configurations, 1)
        tasks = job.measure_bluedove(spark, (figure,), 1, 5, self.SMALL)
        frame = spark.createDataFrame(cells)
        pairs = sweep.measure(frame, cells.num_rows // 2, 5, self.SMALL)
        alone = [
            row
            for cell in reversed(cells.to_pylist())
            for row in sweep.measure_cell(cell, 5, self.SMALL)
        ]
        for rows in (sweep.in_order(pairs).toArrow().to_pylist(), alone):
            assert sorted(map(repr, rows)) == sorted(map(repr, tasks.to_pylist()))

    @pytest.mark.usefixtures("no_spark")
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"trials": 0}, "--trials is from 1 to 100, not 0"),
            ({"seed": -1}, "--seed is from 0 to"),
            ({"figures": ("4",)}, "asked for: 4"),
            ({"master": "nonsense"}, "not a Spark master"),
        ],
    )
    def test_option(self, tmp_path: Path, options: dict[str, object], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            job.reproduce_bluedove(out=tmp_path / "results", **options)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []
