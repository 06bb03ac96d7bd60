"""Spark's shell around the core. Only here are Spark and Arrow imported."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let this session read and write the format `dovetail`."""
    from dovetail.pipeline.source import DovetailSource

    spark.dataSource.register(DovetailSource)
