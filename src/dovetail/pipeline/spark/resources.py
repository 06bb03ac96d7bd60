"""The resources of a session: its web page, its cores, and the partitions of its tables.

Classic Spark answers directly. Over Spark Connect there are only DataFrames, so these numbers are
counted with one, or left to the server.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.utils import is_remote
from rich.console import Console

_CORES_COUNTED_MAX = 1_000


def announce(spark: SparkSession, console: Console) -> None:
    """Print the address of Spark's page for this run."""
    if is_remote():
        console.print("Spark's page for this run: the one of the Connect server")
    elif spark.sparkContext.uiWebUrl:
        console.print(f"Spark's page for this run: {spark.sparkContext.uiWebUrl}")


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at once, as far as Spark tells."""
    if not is_remote():
        return spark.sparkContext.defaultParallelism
    # A range has a partition for each core, unless it has fewer numbers.
    numbers = spark.range(_CORES_COUNTED_MAX).select(sql.spark_partition_id().alias("part"))
    return max(numbers.distinct().count(), 1)


def parts_of(frame: DataFrame) -> int:
    """Return the number of partitions of a table; over Connect, the number of its files."""
    if not is_remote():
        return frame.rdd.getNumPartitions()
    return len(frame.inputFiles())
