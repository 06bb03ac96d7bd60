"""A stream that serves spaces in the place of live matchers: `serve(spark, url, checkpoint)`.

    from dovetail.pipeline.serve.query import serve
    query = serve(spark, "http://127.0.0.1:8080", "/srv/checkpoint")
    query.awaitTermination()

Which spaces (`engine = "spark"`), clauses and brokers there are, brokers say. The source
`dovetail` decides which rows a micro-batch has, and its checkpoint keeps that. The batch is one job
of one stage: a task reads the rows of one publishing broker, finds who wants them, and hands them
over in their order (task.py). Nothing is shuffled. The driver's part is in
driver.py.

A query keeps the settings that its session had when it started: those for quick batches are made
for that moment, and the session is as it was.
"""

import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from dovetail.api.http_client import Login
from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline import register
from dovetail.pipeline.limits import SERVE_BATCH_ROWS_MAX, SERVE_BEAT_SECONDS, SERVE_WAIT_SECONDS
from dovetail.pipeline.serve.broker_client import HttpBrokers
from dovetail.pipeline.serve.clause_shipment import Part
from dovetail.pipeline.serve.cluster_view import Timing
from dovetail.pipeline.serve.driver import Engine, Told
from dovetail.pipeline.serve.state_file import load
from dovetail.pipeline.serve.task import TOLD_DDL, Job, Range, serve_ranges
from dovetail.pipeline.source.archives import Cluster
from dovetail.pipeline.source.checkpoint import last_batch, offsets_of_batch
from dovetail.pipeline.source.data_source import FORMAT
from dovetail.pipeline.source.offsets import Offsets
from dovetail.pipeline.stream.queries import BatchStream
from dovetail.pipeline.stream.tally import Done

log = logging.getLogger("dovetail.stream")

QUERY_NAME = "serve"

_QUICK = {
    "spark.sql.adaptive.enabled": "false",  # there is nothing to adapt in one stage
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than a small batch
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Offsets are on this machine's disk, and are compared with nothing. The usual way of writing
    # them has Hadoop start twenty processes a batch (readlink), where it lacks its native code.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
}


def serve(
    spark: SparkSession,
    url: str,
    checkpoint: str | Path,
    *,
    login: Login | None = None,
    batch_rows_max: int = SERVE_BATCH_ROWS_MAX,
    wait_seconds: float = SERVE_WAIT_SECONDS,
) -> StreamingQuery:
    """Start it. `url`: of any node, or of several with commas; `login`: an administrator's.

    `checkpoint` is a folder of this machine. `wait_seconds`: for a broker that is away, before the
    others go on without it.
    """
    return serving(
        spark,
        url,
        checkpoint,
        login=login,
        batch_rows_max=batch_rows_max,
        wait_seconds=wait_seconds,
    ).start()


def serving(
    spark: SparkSession,
    url: str,
    checkpoint: str | Path,
    *,
    login: Login | None = None,
    batch_rows_max: int = SERVE_BATCH_ROWS_MAX,
    wait_seconds: float = SERVE_WAIT_SECONDS,
    is_available_now: bool = False,
) -> "ServingStream":
    """The same before it starts, for who runs it beside others."""
    if is_remote():
        raise ConfigError(
            "a space is served by a session with a driver of its own, and not by Spark Connect.",
            hint="Without SPARK_REMOTE, and with a master such as local[*] or spark://host:7077.",
        )
    folder = _local(checkpoint)
    urls = tuple(one.strip().rstrip("/") for one in url.split(",") if one.strip())
    if not urls:
        raise ConfigError("it takes the HTTP address of a node: http://127.0.0.1:8080")
    place = Cluster(urls, login)
    register(spark)
    work = SparkWork(spark, place)
    engine = Engine(
        HttpBrokers(urls, login),
        place,
        work,
        load(folder),
        folder,
        Timing(wait_seconds),
    )
    engine.doubtful_batch = last_batch(folder)
    engine.reached = _reached(folder)
    start = engine.begin()
    options = {
        "url": ",".join(urls),
        "startingOffsets": json.dumps(start),
        "maxRowsPerBatch": str(batch_rows_max),
    }
    if login is not None:
        options |= {"user": login[0], "password": login[1]}
    rows = spark.readStream.format(FORMAT).options(**options).load()
    return ServingStream(engine, work, rows, folder, None if is_available_now else 0.0)


class ServingStream(BatchStream):
    """A query whose driver asks brokers between batches, too."""

    def __init__(
        self,
        engine: Engine,
        work: "SparkWork",
        rows: DataFrame,
        checkpoint: Path,
        interval_seconds: float | None,
    ) -> None:
        super().__init__(
            QUERY_NAME, rows, self._serve, checkpoint=checkpoint, interval_seconds=interval_seconds
        )
        self._engine = engine
        self._work = work
        self._folder = checkpoint

    def start(self) -> StreamingQuery:
        with _settings(self._rows.sparkSession, _QUICK):
            query = super().start()
        threading.Thread(
            target=_beat, args=(self._engine, query), name="dovetail-beat", daemon=True
        ).start()
        return query

    def _serve(self, rows: DataFrame, number: int) -> Done:
        before = self._engine.counts
        self._work.session = rows.sparkSession
        self._engine.serve(number, offsets_of_batch(self._folder, number))
        counts = self._engine.counts
        deliveries = counts.deliveries - before.deliveries
        return Done(counts.rows - before.rows, deliveries, deliveries)


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, kept in before.items():
            if kept is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, kept)


def _local(checkpoint: str | Path) -> Path:
    text = str(checkpoint).removeprefix("file://")
    if "://" in text:
        raise ConfigError(
            f"{checkpoint} is no folder of this machine.",
            hint="The checkpoint of a stream that serves spaces lies where its driver runs.",
        )
    return Path(text).resolve()


def _reached(checkpoint: Path) -> Offsets:
    """What batches that are over have come to."""
    last = last_batch(checkpoint)
    if last is None:
        return {}
    offsets = offsets_of_batch(checkpoint, last)
    is_over = (checkpoint / "commits" / str(last)).exists()
    return offsets.end if is_over else offsets.start


def _beat(engine: Engine, query: StreamingQuery) -> None:
    """As long as the query lives."""
    # It ends with an error, or Spark does: whoever waits for the query hears of that.
    with suppress(PySparkException, Py4JError, OSError):
        while not query.awaitTermination(SERVE_BEAT_SECONDS):
            try:
                engine.beat()
            except DovetailError as error:
                log.warning("%s", error.message)


class SparkWork:
    """Tasks on Spark."""

    def __init__(self, session: SparkSession, place: Cluster) -> None:
        self.session = session
        """That of the last batch, which has the query's settings."""
        self._place = place
        self._base: Broadcast[Part] | None = None
        self._digest = b""

    def run(self, start: Offsets, end: Offsets, job: Job) -> Iterable[Told]:
        ranges = [
            Range(name, start.get(name, 0), last)
            for name, last in end.items()
            if last > start.get(name, 0)
        ]
        do = partial(serve_ranges, ranges=ranges, place=self._place, job=self._shipped(job))
        count = len(ranges)
        found = self.session.range(0, count, 1, max(count, 1)).mapInArrow(do, TOLD_DDL).collect()
        return [(row[0], row[1], row[2], row[3]) for row in found]

    def _shipped(self, job: Job) -> Job:
        """What changes seldom travels once."""
        base = job.shipment.base
        if self._base is None or self._digest != base.digest:
            if self._base is not None:
                self._base.unpersist()
            self._base = self.session.sparkContext.broadcast(base)
            self._digest = base.digest
        return job.with_broadcast(self._base)
