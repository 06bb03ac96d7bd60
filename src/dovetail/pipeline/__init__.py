"""Spark: jobs and streams over the archive. Only this package and `papers/` import Spark.

spark/   the session, Java, Spark Connect, failures, progress
source/  the data source and the sink `dovetail`, for users' own jobs
match/   `dovetail match`: which subscriptions match archived publications
stream/  `dovetail stream`: the same, continuously
serve/   the engine of a space with `engine = "spark"`
plan/    `dovetail plan`: segment borders for a space, from its archive
report/  the HTML report of a job
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let this session read and write the format `dovetail`."""
    from dovetail.pipeline.source.data_source import DovetailSource

    spark.dataSource.register(DovetailSource)
