"""Where a stream's subscriptions are: in files, in an archive, or with the brokers of a cluster.

Files are known by their times and sizes, brokers' by their versions.
"""

from collections.abc import Hashable, Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dovetail.archive.files import subscriptions_of
from dovetail.archive.subscription_files import SCHEMA
from dovetail.errors import ConfigError
from dovetail.pipeline.spark.table_files import check_path, read_subscriptions
from dovetail.pipeline.stream.broker_subscriptions import BrokerTables


class FileSubscriptions:
    """Of a file or folder, as `match` takes them."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def look(self) -> Hashable:
        if "://" in self._path:
            return None  # read once: how it changes cannot be seen from here
        check_path(self._path)
        return stamps(_files(Path(self._path)))

    def read(self) -> DataFrame:
        return read_subscriptions(self._spark, self._path)


class ArchiveSubscriptions:
    """Those that brokers wrote beside what they archived; none, if they have not yet."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def look(self) -> Hashable:
        return stamps(subscriptions_of(self._folder))

    def read(self) -> DataFrame:
        if not subscriptions_of(self._folder):
            return self._spark.createDataFrame(SCHEMA.empty_table())
        return read_subscriptions(self._spark, self._folder)


class ClusterSubscriptions:
    """Those of all brokers, as they are now (broker_subscriptions.py)."""

    def __init__(self, spark: SparkSession, brokers: BrokerTables) -> None:
        self._spark = spark
        self._brokers = brokers

    def look(self) -> Hashable:
        return self._brokers.look()

    def read(self) -> DataFrame:
        return self._spark.createDataFrame(self._brokers.table())


def stamps(files: Iterable[Path]) -> Hashable:
    """What is other when one of them is."""
    try:
        found = [(str(file), file.stat()) for file in files]
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename} has gone.") from error
    return tuple((name, one.st_mtime_ns, one.st_size, one.st_ino) for name, one in found)


def _files(path: Path) -> list[Path]:
    """What `read_subscriptions` reads."""
    if not path.is_dir():
        return [path]
    return subscriptions_of(path) or sorted(
        file for file in path.rglob("*") if file.is_file() and not file.name.startswith(("_", "."))
    )
