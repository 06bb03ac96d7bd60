"""`dovetail stream`, from options to queries: the source, the subscriptions and the outputs.

Wrong options are refused before Spark starts. Errors that only Spark can find are raised before
anything is written. Each output is a query with its own checkpoint, and all run in one session: a
server that is away delays no table. A new kind of output is an entry in `_outputs`. A query that
does not match archived rows is another `Stream` beside them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from dovetail.api.http_client import Login, NoAnswerError, fetch_as
from dovetail.api.reports import RouteReport
from dovetail.attributes.space import Space
from dovetail.errors import ConfigError
from dovetail.pipeline import register
from dovetail.pipeline.limits import (
    SERVE_BATCH_ROWS_MAX,
    STREAM_BATCH_ROWS_MAX,
    STREAM_COMMAND_TASK_ROWS,
    STREAM_STOP_SECONDS,
)
from dovetail.pipeline.match.bulk import spaces_of
from dovetail.pipeline.match.job import TASKS_CUT_PER_CORE
from dovetail.pipeline.serve.query import QUERY_NAME, serving_stream
from dovetail.pipeline.source.archives import ArchiveFolder, ClusterArchive
from dovetail.pipeline.source.data_source import FORMAT
from dovetail.pipeline.source.options import ReaderOptions, reader_options
from dovetail.pipeline.spark import connect
from dovetail.pipeline.spark.resources import announce, cores_of
from dovetail.pipeline.spark.spark_session import check_master, open_session
from dovetail.pipeline.spark.table_files import check_path
from dovetail.pipeline.stream.broker_subscriptions import BrokerSubscriptions
from dovetail.pipeline.stream.checkpoint_record import locked
from dovetail.pipeline.stream.cluster_spaces import ClusterSpaces
from dovetail.pipeline.stream.current_boxes import CurrentBoxes, SubscriptionSource
from dovetail.pipeline.stream.lag import LagMonitor, monitor_lag
from dovetail.pipeline.stream.output import Output, StreamSource
from dovetail.pipeline.stream.progress_line import Say, show_streams
from dovetail.pipeline.stream.publish_output import PublishOutput
from dovetail.pipeline.stream.queries import BatchStream, run
from dovetail.pipeline.stream.subscription_sources import (
    ArchiveSubscriptions,
    ClusterSubscriptions,
    FileSubscriptions,
)
from dovetail.pipeline.stream.table_output import TableOutput
from dovetail.pipeline.stream.tally import StreamTally
from dovetail.process import terminal

_SETTINGS = {
    "spark.sql.streaming.stopTimeout": f"{STREAM_STOP_SECONDS}s",
    # Spark's own type for times has no zone, and other readers pass it by.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """The options of the command line."""

    url: str | None = None
    source: str | None = None
    """The source's name in checkpoints, if brokers may have other addresses next time."""
    archive: str | None = None
    subscriptions: str | None = None
    config: Path | None = None
    topics: str = ""
    out: str | None = None
    as_pairs: bool = False
    publish: str | None = None
    prefix: str | None = None
    is_serving: bool = False
    checkpoint: Path | None = None
    is_available_now: bool = False
    interval_seconds: float | None = None
    batch_rows_max: int = STREAM_BATCH_ROWS_MAX
    start: str = "earliest"
    fails_on_loss: bool = True
    login: Login | None = None
    master: str | None = None


def stream(
    options: StreamOptions,
    *,
    console: Console | None = None,
    on_start: Callable[[SparkSession], None] | None = None,
) -> None:
    """Run until stopped; with `is_available_now`, until all available rows are read.

    `begun` is called when all queries run.
    """
    started = time.monotonic()
    reader = _reader_options(options)
    spaces = None if options.config is None else spaces_of(options.config)
    outputs = _outputs(options)
    checkpoint = _checkpoint(options)
    console = console or terminal.console(stderr=True, highlight=False, soft_wrap=True)
    with locked(checkpoint):
        for output in outputs:
            output.check(checkpoint, _source(options))
        lag = LagMonitor(reader.row_source, {one.name: checkpoint / one.name for one in outputs})
        with (
            open_session(options.master) as spark,
            show_streams(console, lag.rows) as (show, say),
            monitor_lag(lag, say),
        ):
            for name, value in _SETTINGS.items():
                spark.conf.set(name, value)
            register(spark)
            announce(spark, console)
            if options.prefix is not None and isinstance(reader.row_source, ClusterArchive):
                _warn_of_loops(options.prefix, reader.row_source, say)
            if outputs:
                boxes = _current_boxes(spark, options, reader, spaces, say)
                for output in outputs:
                    output.begin(boxes)
            streams = [_stream(spark, options, checkpoint, output) for output in outputs]
            if options.is_serving:
                streams.append(_serving_stream(spark, options, checkpoint))
            run(streams, show, None if on_start is None else partial(on_start, spark))
    tallies = [one.tally for one in streams]
    terminal.say_text(summary(outputs, tallies, checkpoint, time.monotonic() - started))


# Before Spark starts ------------------------------------------------------------------------------


def _reader_options(options: StreamOptions) -> ReaderOptions:
    """Return how to read the source. A DovetailError: wrong options, or there is no source."""
    if (options.url is None) == (options.archive is None):
        raise ConfigError(
            "it takes --url or --archive: where messages are read.",
            hint="`dovetail stream --help` has an example.",
        )
    if options.master is not None:
        if options.master.startswith(connect.SCHEME):
            raise ConfigError(
                "a stream does not run on a Spark Connect server: its batches are settled here.",
                hint="--master takes spark://host:7077, yarn, k8s://host:443 or local[4].",
            )
        check_master(options.master)
    if options.subscriptions is not None:
        check_path(options.subscriptions)
    reader = reader_options(_source_options(options))
    if isinstance(reader.row_source, ArchiveFolder):
        reader.row_source.available_rows({})
    elif isinstance(reader.row_source, ClusterArchive):
        reader.row_source.members()
    return reader


def _outputs(options: StreamOptions) -> list[Output]:
    outputs: list[Output] = []
    if options.out is not None:
        outputs.append(TableOutput(options.out, as_pairs=options.as_pairs))
    if (options.publish is None) != (options.prefix is None):
        raise ConfigError(
            "--publish and --topic go together: the address of a server, and what topics begin "
            "with."
        )
    if options.publish is not None and options.prefix is not None:
        server = {"url": options.publish, **_login(options)}
        outputs.append(PublishOutput(server, options.prefix.rstrip("/")))
    if options.is_serving and options.url is None:
        raise ConfigError("--serve takes --url: what is found goes to the clients of its brokers.")
    if not outputs and not options.is_serving:
        raise ConfigError(
            "there is nowhere for matches to go.",
            hint="--out FOLDER, or --publish mqtt://HOST:PORT --topic PREFIX, or --serve, or all.",
        )
    return outputs


def _checkpoint(options: StreamOptions) -> Path:
    if options.checkpoint is not None:
        return options.checkpoint.absolute()
    if options.out is None or "://" in options.out:
        raise ConfigError(
            "--checkpoint is missing: a folder of this machine that says how far the stream is.",
            hint="Only beside a table on this machine's disk there is a place for it.",
        )
    out = Path(options.out).absolute()
    return out.with_name(f"{out.name}.checkpoint")


def _source(options: StreamOptions) -> StreamSource:
    if options.archive is not None:
        return StreamSource(str(Path(options.archive).absolute()), options.topics)
    return StreamSource(options.source or options.url or "", options.topics)


def _source_options(options: StreamOptions) -> dict[str, str]:
    given = {
        "topics": options.topics,
        "startingOffsets": options.start,
        "maxRowsPerBatch": str(options.batch_rows_max),
        "maxRowsPerTask": str(STREAM_COMMAND_TASK_ROWS),
        "failOnDataLoss": str(options.fails_on_loss).lower(),
    }
    if options.archive is not None:
        return {**given, "path": str(Path(options.archive).absolute())}
    return {**given, "url": options.url or "", **_login(options)}


def _login(options: StreamOptions) -> dict[str, str]:
    if options.login is None:
        return {}
    return {"user": options.login[0], "password": options.login[1]}


# With Spark ---------------------------------------------------------------------------------------


def _current_boxes(
    spark: SparkSession,
    options: StreamOptions,
    reader: ReaderOptions,
    spaces: tuple[Space, ...] | None,
    say: Say,
) -> CurrentBoxes:
    row_source = reader.row_source
    source: SubscriptionSource
    if options.subscriptions is not None:
        source = FileSubscriptions(spark, options.subscriptions)
    elif isinstance(row_source, ClusterArchive):
        source = ClusterSubscriptions(spark, BrokerSubscriptions(row_source, say))
    else:
        source = ArchiveSubscriptions(spark, options.archive or "")
    known: Callable[[], tuple[Space, ...]] = lambda: spaces or ()  # noqa: E731
    if spaces is None and isinstance(row_source, ClusterArchive):
        known = ClusterSpaces(row_source)
    return CurrentBoxes(source, known, say, TASKS_CUT_PER_CORE * cores_of(spark))


def _warn_of_loops(prefix: str, cluster: ClusterArchive, say: Say) -> None:
    query = {"topic": f"{prefix}/1"}
    try:
        report = fetch_as(cluster.login, cluster.urls[0], "/route", RouteReport, query)
    except NoAnswerError:
        return  # this is only a warning, so it may be skipped
    if report.is_archived:
        say(
            f"Brokers archive what is below {prefix}/, too: the stream reads what it has published "
            "again, and passes over it. Other archive.topics would save that."
        )


def _stream(
    spark: SparkSession, options: StreamOptions, checkpoint: Path, output: Output
) -> BatchStream:
    seconds = options.interval_seconds
    if seconds is None:
        seconds = output.interval_seconds
    return BatchStream(
        output.name,
        spark.readStream.format(FORMAT).options(**_source_options(options)).load(),
        output.take,
        checkpoint=checkpoint / output.name,
        interval_seconds=None if options.is_available_now else seconds,
    )


def _serving_stream(spark: SparkSession, options: StreamOptions, checkpoint: Path) -> BatchStream:
    return serving_stream(
        spark,
        options.url or "",
        checkpoint / QUERY_NAME,
        login=options.login,
        batch_rows_max=min(options.batch_rows_max, SERVE_BATCH_ROWS_MAX),
        is_available_now=options.is_available_now,
    )


def summary(
    outputs: list[Output], tallies: list[StreamTally], checkpoint: Path, seconds: float
) -> str:
    lines = []
    for output, tally in zip_longest(outputs, tallies):
        lines.append(f"in      {tally.rows_in:,} messages, in batches: {tally.batches:,}")
        if output is None:  # the last stream serves spaces
            lines.append(f"out     {tally.rows_out:,} deliveries to clients of brokers")
        else:
            lines += output.summary(tally)
    lines.append(f"time    {seconds:.0f} s")
    return "\n".join([*lines, f"goes on from {checkpoint}"])
