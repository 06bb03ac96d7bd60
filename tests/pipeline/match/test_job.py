"""`match` from files to files, on a real Spark."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.match import job
from dovetail.pipeline.match.job import check_all_there, match_files
from dovetail.pipeline.spark.table_files import check_messages, check_path, read_messages

CONFIG = """
[spaces.traffic]
topics = "traffic/#"
texts = ["road"]
[spaces.traffic.dimensions]
lat = [-90, 90]
"""
MESSAGES = [
    {"id": 1, "topic": "traffic/A1", "attributes": {"lat": 40.5}, "texts": {"road": "A1"}},
    {"id": 2, "topic": "traffic/B7", "attributes": {"lat": 41}, "payload": "x"},
    {"id": 3, "topic": "home"},
]
SUBSCRIPTIONS = """id,filter,where
anna,traffic/#,40 <= lat < 41
bert,#,
carl,traffic/+,road == 'A1' or lat >= 41
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    tmp_path /= "a folder = %20"
    tmp_path.mkdir()
    (tmp_path / "dovetail.toml").write_text(CONFIG)
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in MESSAGES))
    (tmp_path / "s.csv").write_text(SUBSCRIPTIONS)
    return tmp_path


@pytest.fixture
def own_spark(lend: Callable[[ModuleType], None]) -> None:
    lend(job)


def run(files: Path, **options: object) -> None:
    given: dict[str, object] = {
        "messages": str(files / "m.jsonl"),
        "subscriptions": str(files / "s.csv"),
        "out": str(files / "out"),
        "config": files / "dovetail.toml",
        **options,
    }
    match_files(**given)  # type: ignore[arg-type]


@pytest.mark.usefixtures("own_spark")
def test_files_to_files(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(files)
    printed = capsys.readouterr()
    assert "in      3 messages, 3 subscriptions\n" in printed.out
    assert "out     3 rows, 6 pairs of message and subscription\n" in printed.out
    assert f"output  {files / 'out'}\n" in printed.out
    assert "Spark's page for this run: http://127.0.0.1:" in printed.err
    rows = pq.read_table(files / "out").sort_by("message").to_pylist()
    assert rows == [
        {"message": 1, "subscriptions": ["anna", "bert", "carl"]},
        {"message": 2, "subscriptions": ["bert", "carl"]},
        {"message": 3, "subscriptions": ["bert"]},
    ]
    with pytest.raises(ConfigError, match="is there already, and is left as it is"):
        run(files)
    run(files, as_pairs=True, out=str(files / "pairs"))
    assert pq.read_table(files / "pairs").num_rows == 6
    names = {path.name for path in files.iterdir()}
    assert names == {"dovetail.toml", "m.jsonl", "s.csv", "out", "pairs"}


@pytest.mark.usefixtures("own_spark")
class TestRefusals:
    def test_corrupt_json(self, files: Path) -> None:
        (files / "bad.json").write_text('{"id": 1, "topic"\n')
        with pytest.raises(DovetailError, match=r"bad\.json cannot be read: a line in it is not"):
            run(files, messages=str(files / "bad.json"))

    def test_corrupt_parquet(self, files: Path) -> None:
        (files / "bad.parquet").write_bytes(b"PAR1 is not enough")
        with pytest.raises(DovetailError, match=r"bad\.parquet cannot be read"):
            run(files, messages=str(files / "bad.parquet"))
        assert not (files / "out").exists()

    def test_clause_without_a_space(self, files: Path) -> None:
        with pytest.raises(DovetailError, match="subscription 'anna' cannot be used: no space"):
            run(files, config=None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"messages": "nowhere.parquet"}, "there is no file or folder nowhere.parquet"),
        ({"master": "nonsense"}, "not a Spark master"),
        ({"config": Path("nowhere.toml")}, "nowhere.toml"),
    ],
)
def test_refused_before_spark(
    files: Path, options: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "open_session", lambda _: pytest.fail("Spark was started"))
    with pytest.raises(DovetailError, match=said):
        run(files, **options)
    assert not (files / "out").exists()


def test_rows_that_are_missing_here_are_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"message": [1, 2]}), tmp_path / "part-0.parquet")
    check_all_there(tmp_path, 2, "out")
    with pytest.raises(DovetailError, match="written 3 rows, and 2 of them are in out on this mac"):
        check_all_there(tmp_path, 3, "out")


def test_kinds_of_files(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("m.txt", "folder"):
        (tmp_path / name).mkdir()
        with pytest.raises(ConfigError, match="cannot be told by its name"):
            check_path(str(tmp_path / name))
    table = pa.table({"id": [1], "topic": ["a"], "attributes": ['{"lat": 1.5}']})
    (tmp_path / "folder" / "x.csv").write_text('id,topic,attributes\n1,a,"{""lat"": 1.5}"\n')
    (tmp_path / "folder" / "_SUCCESS").touch()
    (row,) = read_messages(spark, str(tmp_path / "folder")).collect()
    assert (row["id"], row["attributes"]) == ("1", {"lat": 1.5})
    pq.write_table(table.drop_columns("attributes"), tmp_path / "p.parquet")
    (row,) = read_messages(spark, str(tmp_path / "p.parquet")).collect()
    assert row["topic"] == "a"


def test_archive(spark: SparkSession, tmp_path: Path) -> None:
    """Ignore a covered file, and identify messages by broker and sequence."""
    hour = tmp_path / "day=2026-11-16" / "hour=17"
    hour.mkdir(parents=True)
    for first, last in ((5, 5), (5, 6)):
        sequences = range(first, last + 1)
        rows = {
            "broker": ["b1" for _ in sequences],
            "sequence": [*sequences],
            "topic": ["a" for _ in sequences],
        }
        pq.write_table(pa.table(rows), hour / f"b1-{first}-{last}.parquet")
    read = read_messages(spark, str(tmp_path)).select("id", "topic").collect()
    assert sorted(map(tuple, read)) == [("b1-5", "a"), ("b1-6", "a")]


def test_an_archive_without_messages_yet(tmp_path: Path) -> None:
    table = tmp_path / "subscriptions" / "version=1" / "b1.parquet"
    table.parent.mkdir(parents=True)
    table.touch()
    check_path(str(tmp_path))
    with pytest.raises(ConfigError, match="has no messages yet, but subscriptions"):
        check_messages(str(tmp_path))
