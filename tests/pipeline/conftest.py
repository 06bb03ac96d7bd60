"""One real Spark for all tests of the pipeline."""

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from dovetail.pipeline.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with open_session("local[2]") as session:
        yield session
