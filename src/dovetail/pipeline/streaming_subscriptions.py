"""Where a stream's subscriptions are: in files, in an archive, or with the brokers of a cluster.

Files are known by their times and sizes. Brokers say a version with theirs, and send them only to
who has another (web/archive.py). A broker that is away is not waited for twice: what it said last
holds, as its sessions do, until it answers.
"""

import io
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dovetail.archive.files import subscriptions_of
from dovetail.archive.subscriptions import SCHEMA
from dovetail.config import STREAM_READ_BYTES_MAX, STREAM_SUBSCRIPTIONS_SECONDS
from dovetail.errors import ConfigError, DovetailError
from dovetail.looking.fetching import NoAnswerError, fetch_bytes
from dovetail.pipeline.places import Cluster
from dovetail.pipeline.reading import check_path, read_subscriptions

_ANSWERS_AT_ONCE = 16


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
    """Those of all brokers, as they are now."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: Cluster,
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._say = say
        self._threads = ThreadPoolExecutor(_ANSWERS_AT_ONCE, "dovetail-subscriptions")
        self._members: dict[str, str] = {}
        self._asked: dict[str, Future[tuple[bytes, str]]] = {}
        self._known: dict[str, tuple[str, pa.Table]] = {}
        self._silent: set[str] = set()

    def look(self) -> Hashable:
        try:
            self._members |= self._cluster.members()
        except DovetailError:
            if not self._members:
                raise
        late = {*self._asked}
        for name, url in self._members.items():
            if name not in self._asked:
                version = self._known[name][0] if name in self._known else ""
                self._asked[name] = self._threads.submit(self._ask, url, version)
        fresh = [asked for name, asked in self._asked.items() if name not in late]
        wait_for(fresh, STREAM_SUBSCRIPTIONS_SECONDS)
        for name in [*self._asked]:
            self._take(name)
        return tuple(sorted((name, version) for name, (version, _) in self._known.items()))

    def _ask(self, url: str, known: str) -> tuple[bytes, str]:
        answer = fetch_bytes(
            self._cluster.login,
            url,
            "/archive/subscriptions",
            {"known": known},
            STREAM_READ_BYTES_MAX,
        )
        return answer.body, answer.headers["dovetail-version"]

    def _take(self, name: str) -> None:
        asked = self._asked[name]
        if not asked.done():
            self._told(name, "it has not answered yet")
            return
        del self._asked[name]
        try:
            body, version = asked.result()
        except NoAnswerError as error:
            self._told(name, error.message)
            return
        except DovetailError as error:
            if "no archive" not in error.message:
                raise
            self._told(name, error.message)
            return
        if body:
            with pa.ipc.open_stream(io.BytesIO(body)) as stream:
                self._known[name] = version, stream.read_all()
        if name in self._silent:
            self._silent.discard(name)
            self._say(f"{name} says again who subscribes there.")

    def _told(self, name: str, why: str) -> None:
        if name in self._silent:
            return
        self._silent.add(name)
        now = "those that it said last hold" if name in self._known else "nobody there is known"
        self._say(f"{name} does not say who subscribes there, and {now}: {why}")

    def read(self) -> DataFrame:
        tables = [table for _, (_, table) in sorted(self._known.items())]
        return self._spark.createDataFrame(each_once(tables))


def each_once(tables: Iterable[pa.Table]) -> pa.Table:
    """One that is moving may be at two brokers for a moment: the id is the same."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()
    ids = whole["id"].to_pylist()
    if len({*ids}) == len(ids):
        return whole
    places: Mapping[int, int] = {one: place for place, one in enumerate(ids)}
    return whole.take(pa.array(sorted(places.values())))


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
