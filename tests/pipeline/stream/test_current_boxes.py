"""Boxes are read again when subscriptions change, and stay while these cannot be read."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dovetail.attributes.space import Dimension, Space
from dovetail.errors import DovetailError
from dovetail.pipeline.match.bulk import SubscriptionBoxes
from dovetail.pipeline.stream.current_boxes import CurrentBoxes
from dovetail.pipeline.stream.subscription_sources import FileSubscriptions

SPACE = Space("traffic", "traffic/#", (Dimension("speed", 0, 200),))


def filters(boxes: SubscriptionBoxes) -> list[str]:
    return sorted(boxes.local["filter"].to_pylist())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.csv"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def wanted(spark: SparkSession, file: Path, said: list[str]) -> Callable[..., CurrentBoxes]:
    def make(*spaces: Space) -> CurrentBoxes:
        return CurrentBoxes(FileSubscriptions(spark, str(file)), lambda: spaces, said.append)

    return make


def test_read_again_when_changed_and_kept_while_not(
    wanted: Callable[..., CurrentBoxes], file: Path, said: list[str]
) -> None:
    with pytest.raises(DovetailError, match="there is no file or folder"):
        wanted().boxes()
    file.write_text("id,filter,where\nx,a/#,\ny,b,\n")
    one = wanted(SPACE)
    first = one.boxes()
    assert filters(first) == ["a/#", "b"]
    assert one.boxes() is first
    assert one.id_type == "string"
    # Half of a file, none at all, one that makes no sense: as it was, and that is said once.
    for text in ("id,fil", "id,filter,where\nx,traffic/#,speed <\n"):
        file.write_text(text)
        assert one.boxes() is first
    file.unlink()
    assert one.boxes() is first
    assert len(said) == 1
    assert said[0].startswith("Subscriptions stay as they were: the subscriptions have no column")
    file.write_text("id,filter,where\nz,traffic/#,speed < 9\n")
    assert filters(one.boxes()) == ["traffic/#"]
    assert said[1:] == ["Subscriptions can be read again."]


def test_ids_of_another_type_are_not_taken(
    spark: SparkSession, tmp_path: Path, said: list[str]
) -> None:
    file = tmp_path / "s.parquet"
    one = CurrentBoxes(FileSubscriptions(spark, str(file)), lambda: (), said.append)
    for ids in (["x"], [1]):
        table = spark.createDataFrame([(ids[0], "a")], ["id", "filter"]).toArrow()
        pq.write_table(table, file)
        assert filters(one.boxes()) == ["a"]
    assert said == [
        "Subscriptions stay as they were: their ids are bigint now, and were string before."
    ]
