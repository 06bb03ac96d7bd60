"""One real Spark for all tests of the pipeline."""

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from dovetail.pipeline.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with open_session("local[2]") as session:
        yield session


@pytest.fixture
def lend(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], None]:
    """A module of jobs uses this Spark, and does not start one of its own."""

    @contextlib.contextmanager
    def open_session(_master: str | None) -> Iterator[SparkSession]:
        yield spark

    return lambda module: monkeypatch.setattr(module, "open_session", open_session)
