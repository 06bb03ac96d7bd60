"""Where a job runs: its page, its cores, and in how many parts its tables come.

Classic Spark is asked itself. Over Spark Connect there are only DataFrames: what is not known
there is counted with one, or left to the server.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.utils import is_remote
from rich.console import Console

_CORES_COUNTED_MAX = 1_000


def announce(spark: SparkSession, console: Console) -> None:
    """Say where the run can be watched."""
    if is_remote():
        console.print("Spark's page for this run: the one of the Connect server")
    elif spark.sparkContext.uiWebUrl:
        console.print(f"Spark's page for this run: {spark.sparkContext.uiWebUrl}")


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at once, as far as Spark tells."""
    if not is_remote():
        return spark.sparkContext.defaultParallelism
    # A range has a part for each, unless it has fewer numbers.
    numbers = spark.range(_CORES_COUNTED_MAX).select(sql.spark_partition_id().alias("part"))
    return max(numbers.distinct().count(), 1)


def parts_of(frame: DataFrame) -> int:
    """In how many parts a table comes; over Connect, of how many files it is at least."""
    if not is_remote():
        return frame.rdd.getNumPartitions()
    return len(frame.inputFiles())
