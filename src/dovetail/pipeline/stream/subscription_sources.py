"""Sources of a stream's subscriptions: files, an archive, or the brokers of a cluster.

The version of files is made of their times and sizes. Brokers send versions.
"""

from collections.abc import Hashable, Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dovetail.archive.files import subscriptions_of
from dovetail.archive.subscription_files import SCHEMA
from dovetail.errors import ConfigError
from dovetail.pipeline.spark.table_files import check_path, read_subscriptions
from dovetail.pipeline.stream.broker_subscriptions import BrokerSubscriptions


class FileSubscriptions:
    """The subscriptions of a file or folder, as for `match`."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def version(self) -> Hashable:
        if "://" in self._path:
            return None  # read once: changes cannot be seen from here
        check_path(self._path)
        return stamps(_files(Path(self._path)))

    def read(self) -> DataFrame:
        return read_subscriptions(self._spark, self._path)


class ArchiveSubscriptions:
    """The subscriptions that brokers wrote beside their archive; none if they have not yet."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def version(self) -> Hashable:
        return stamps(subscriptions_of(self._folder))

    def read(self) -> DataFrame:
        if not subscriptions_of(self._folder):
            return self._spark.createDataFrame(SCHEMA.empty_table())
        return read_subscriptions(self._spark, self._folder)


class ClusterSubscriptions:
    """The current subscriptions of all brokers (broker_subscriptions.py)."""

    def __init__(self, spark: SparkSession, brokers: BrokerSubscriptions) -> None:
        self._spark = spark
        self._brokers = brokers

    def version(self) -> Hashable:
        return self._brokers.refresh()

    def read(self) -> DataFrame:
        return self._spark.createDataFrame(self._brokers.table())


def stamps(files: Iterable[Path]) -> Hashable:
    """Return a value that differs when one of these files has changed."""
    try:
        found = [(str(file), file.stat()) for file in files]
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename} has gone.") from error
    return tuple((name, one.st_mtime_ns, one.st_size, one.st_ino) for name, one in found)


def _files(path: Path) -> list[Path]:
    """Return the files that `read_subscriptions` reads."""
    if not path.is_dir():
        return [path]
    return subscriptions_of(path) or sorted(
        file for file in path.rglob("*") if file.is_file() and not file.name.startswith(("_", "."))
    )
