"""Read tables of messages and subscriptions from files: Parquet, JSON lines or CSV.

The file name's ending decides the format; for a folder, that of its first file. JSON and CSV have
no maps: a map is an object in JSON, and such an object as text in CSV. An invalid line ends the
job: nothing is skipped silently.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from dovetail.archive.files import files_of, subscriptions_of
from dovetail.errors import ConfigError
from dovetail.pipeline.spark.failures import explain

_FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_FORMATS |= {".csv": "csv"}
_PACKED = frozenset({".gz", ".bz2", ".zst", ".snappy", ".lz4"})
_MAPS = {"attributes": "map<string,double>", "texts": "map<string,string>"}
_FAIL = {"mode": "FAILFAST"}
_PATTERN = re.compile(r"[\\{}\[\]*?]")


def check_path(path: str) -> None:
    """Raise a ConfigError if there is nothing to read, as far as this process can see."""
    if "://" not in path and not Path(path).exists():
        raise ConfigError(f"there is no file or folder {path}.")
    _format(path)


def check_messages(path: str) -> None:
    """Check a path of messages. An archive may have none yet."""
    check_path(path)
    if _is_folder(path) and subscriptions_of(path) and not files_of(path):
        raise ConfigError(
            f"the archive {path} has no messages yet, but subscriptions.",
            hint="What is published on archive.topics is in it a second later.",
        )


def read_messages(spark: SparkSession, path: str) -> DataFrame:
    """Read messages. In an archive, the `id` is the broker and the sequence, as in `b1-17`."""
    read = _read(spark, path, _MAPS)
    if "id" not in read.columns and {"broker", "sequence"} <= {*read.columns}:
        read = read.withColumn("id", sql.concat_ws("-", "broker", "sequence"))
    return read


def read_subscriptions(spark: SparkSession, path: str) -> DataFrame:
    """Read subscriptions; from an archive, those that its brokers wrote last.

    During a session move, two brokers may list the same subscription; it counts once.
    """
    if files := subscriptions_of(path) if _is_folder(path) else []:
        with _unreadable(path):
            return spark.read.parquet(*map(_one, files)).dropDuplicates(["id"])
    return _read(spark, path, {})


def _read(spark: SparkSession, path: str, maps: Mapping[str, str]) -> DataFrame:
    with _unreadable(path):
        return _read_as(spark, path, _format(path), maps)


@contextmanager
def _unreadable(path: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise explain(error, f"{path} cannot be read") from error


def _read_as(spark: SparkSession, path: str, form: str, maps: Mapping[str, str]) -> DataFrame:
    where = path if "://" in path else _one(Path(path))
    if form == "parquet":
        # In an archive, compaction may have merged a file's rows into another file.
        archived = files_of(path) if _is_folder(path) else []
        return spark.read.parquet(*([*map(_one, archived)] or [where]))
    if form == "json":
        return _read_json(spark, path, where, maps)
    read = spark.read.options(header=True, escape='"', multiLine=True, **_FAIL).csv(where)
    columns = [
        sql.from_json(name, maps[name], _FAIL).alias(name) if name in maps else sql.col(name)
        for name in read.columns
    ]
    return read.select(*columns)


def _is_folder(path: str) -> bool:
    """Is this a folder of this machine?"""
    return "://" not in path and Path(path).is_dir()


def local(path: Path) -> str:
    """Return a path as Spark expects it: with a scheme, and not URL-encoded."""
    return f"file://{path.absolute()}"


def _one(path: Path) -> str:
    """Like `local`, with characters escaped that Spark would take for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", local(path))


def _read_json(spark: SparkSession, path: str, where: str, maps: Mapping[str, str]) -> DataFrame:
    """Read JSON. Spark takes objects for structs, so the columns are inferred first."""
    seen = spark.read.options(**_FAIL).json(where).schema
    columns = [
        f"`{field.name.replace('`', '``')}` {maps.get(field.name) or field.dataType.simpleString()}"
        for field in seen.fields
    ]
    if not columns:
        raise ConfigError(f"there is nothing in {path}.")
    return spark.read.schema(", ".join(columns)).options(**_FAIL).json(where)


def _format(path: str) -> str:
    """Return the format by the ending, or by that of the first file in the folder."""
    found = _by_ending(path)
    if found is None and _is_folder(path):
        names = sorted(
            str(file)
            for file in Path(path).rglob("*")
            if file.is_file() and not file.name.startswith(("_", "."))
        )
        found = next((form for form in map(_by_ending, names) if form is not None), None)
    if found is None:
        raise ConfigError(
            f"the format of {path} cannot be told by its name.",
            hint="It takes .parquet, .json, .jsonl or .csv, or a folder with such files.",
        )
    return found


def _by_ending(path: str) -> str | None:
    endings = [ending.lower() for ending in Path(path).suffixes]
    while endings and endings[-1] in _PACKED:
        endings.pop()
    return _FORMATS.get(endings[-1]) if endings else None
