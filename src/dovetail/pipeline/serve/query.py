"""Start a stream that serves spaces instead of live matchers: `serve(spark, url, checkpoint)`.

    from dovetail.pipeline.serve.query import serve
    query = serve(spark, "http://127.0.0.1:8080", "/srv/checkpoint")
    query.awaitTermination()

The brokers name the spaces (`engine = "spark"`), the clauses and the other brokers. The source
`dovetail` chooses the rows of a micro-batch, and its checkpoint stores the choice. The batch is one
job of one stage: a task reads the rows of one publishing broker, matches them, and delivers the
matches in order (task.py). Nothing is shuffled. driver.py has the driver's part.

A query keeps the settings that its session has when it starts. So the settings for small batches
are made for that moment only, and the session gets its own back.
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
from dovetail.pipeline.serve.broker_client import HttpBrokerClient
from dovetail.pipeline.serve.clause_shipment import ClauseTable
from dovetail.pipeline.serve.cluster_view import Timing
from dovetail.pipeline.serve.driver import ReportRow, ServingDriver
from dovetail.pipeline.serve.state_file import load
from dovetail.pipeline.serve.task import REPORT_DDL, RowRange, TaskSpec, serve_ranges
from dovetail.pipeline.source.archives import ClusterArchive
from dovetail.pipeline.source.checkpoint import last_batch, offsets_of_batch
from dovetail.pipeline.source.data_source import FORMAT
from dovetail.pipeline.source.offsets import Offsets
from dovetail.pipeline.stream.queries import BatchStream
from dovetail.pipeline.stream.tally import BatchResult

log = logging.getLogger("dovetail.stream")

QUERY_NAME = "serve"

_SMALL_BATCH_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # there is nothing to adapt in one stage
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than a small batch
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Offsets are on this machine's disk and need no checksum. Without its native code, Hadoop's
    # usual file manager starts twenty processes (readlink) for each batch.
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
    """Start the stream.

    `url` is the HTTP address of any node, or of several with commas; `login` is an
    administrator's. `checkpoint` is a folder of this machine. `wait_seconds`: how long a batch
    waits for a broker that is away.
    """
    return serving_stream(
        spark,
        url,
        checkpoint,
        login=login,
        batch_rows_max=batch_rows_max,
        wait_seconds=wait_seconds,
    ).start()


def serving_stream(
    spark: SparkSession,
    url: str,
    checkpoint: str | Path,
    *,
    login: Login | None = None,
    batch_rows_max: int = SERVE_BATCH_ROWS_MAX,
    wait_seconds: float = SERVE_WAIT_SECONDS,
    is_available_now: bool = False,
) -> "ServingStream":
    """Return the stream without starting it, to run it together with others."""
    if is_remote():
        raise ConfigError(
            "a space is served by a session with a driver of its own, and not by Spark Connect.",
            hint="Without SPARK_REMOTE, and with a master such as local[*] or spark://host:7077.",
        )
    folder = _local(checkpoint)
    urls = tuple(one.strip().rstrip("/") for one in url.split(",") if one.strip())
    if not urls:
        raise ConfigError("it takes the HTTP address of a node: http://127.0.0.1:8080")
    row_source = ClusterArchive(urls, login)
    register(spark)
    runner = SparkTaskRunner(spark, row_source)
    driver = ServingDriver(
        HttpBrokerClient(urls, login),
        row_source,
        runner,
        load(folder),
        folder,
        Timing(wait_seconds),
    )
    driver.doubtful_batch = last_batch(folder)
    driver.reached = _committed_offsets(folder)
    start = driver.begin()
    options = {
        "url": ",".join(urls),
        "startingOffsets": json.dumps(start),
        "maxRowsPerBatch": str(batch_rows_max),
    }
    if login is not None:
        options |= {"user": login[0], "password": login[1]}
    rows = spark.readStream.format(FORMAT).options(**options).load()
    return ServingStream(driver, runner, rows, folder, None if is_available_now else 0.0)


class ServingStream(BatchStream):
    """A query whose driver also asks brokers between batches."""

    def __init__(
        self,
        driver: ServingDriver,
        runner: "SparkTaskRunner",
        rows: DataFrame,
        checkpoint: Path,
        interval_seconds: float | None,
    ) -> None:
        super().__init__(
            QUERY_NAME, rows, self._serve, checkpoint=checkpoint, interval_seconds=interval_seconds
        )
        self._driver = driver
        self._runner = runner
        self._folder = checkpoint

    def start(self) -> StreamingQuery:
        with _settings(self._rows.sparkSession, _SMALL_BATCH_SETTINGS):
            query = super().start()
        threading.Thread(
            target=_poll_until_ended, args=(self._driver, query), name="dovetail-poll", daemon=True
        ).start()
        return query

    def _serve(self, rows: DataFrame, number: int) -> BatchResult:
        before = self._driver.counts
        self._runner.session = rows.sparkSession
        self._driver.serve(number, offsets_of_batch(self._folder, number))
        counts = self._driver.counts
        deliveries = counts.deliveries - before.deliveries
        return BatchResult(counts.rows - before.rows, deliveries, deliveries)


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


def _committed_offsets(checkpoint: Path) -> Offsets:
    """Return the offsets up to which batches are committed."""
    last = last_batch(checkpoint)
    if last is None:
        return {}
    offsets = offsets_of_batch(checkpoint, last)
    is_over = (checkpoint / "commits" / str(last)).exists()
    return offsets.end if is_over else offsets.start


def _poll_until_ended(driver: ServingDriver, query: StreamingQuery) -> None:
    """Let the driver ask brokers while the query runs."""
    # If the query or Spark fails, whoever waits for the query gets the error.
    with suppress(PySparkException, Py4JError, OSError):
        while not query.awaitTermination(SERVE_BEAT_SECONDS):
            try:
                driver.poll()
            except DovetailError as error:
                log.warning("%s", error.message)


class SparkTaskRunner:
    """Runs tasks on Spark."""

    def __init__(self, session: SparkSession, row_source: ClusterArchive) -> None:
        self.session = session
        """The session of the last batch, which has the query's settings."""
        self._row_source = row_source
        self._base: Broadcast[ClauseTable] | None = None
        self._digest = b""

    def run(self, start: Offsets, end: Offsets, spec: TaskSpec) -> Iterable[ReportRow]:
        ranges = [
            RowRange(name, start.get(name, 0), last)
            for name, last in end.items()
            if last > start.get(name, 0)
        ]
        do = partial(
            serve_ranges, ranges=ranges, row_source=self._row_source, spec=self._shipped(spec)
        )
        count = len(ranges)
        found = self.session.range(0, count, 1, max(count, 1)).mapInArrow(do, REPORT_DDL).collect()
        return [(row[0], row[1], row[2], row[3]) for row in found]

    def _shipped(self, spec: TaskSpec) -> TaskSpec:
        """Broadcast the base, which rarely changes, and take it out of the spec."""
        base = spec.shipment.base
        if self._base is None or self._digest != base.digest:
            if self._base is not None:
                self._base.unpersist()
            self._base = self.session.sparkContext.broadcast(base)
            self._digest = base.digest
        return spec.with_broadcast(self._base)
