"""`stream`: who gets which message, on Spark, as messages come."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.process.extras import Extra, require

app = typer.Typer()


class Start(StrEnum):
    """Where a new stream begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@app.command(epilog="Example: dovetail stream --url http://127.0.0.1:8080 --out matched --pairs")
def stream(
    url: Annotated[
        str | None,
        option_types.value(
            "Where a node of a running cluster serves HTTP; any one will do.", "URL"
        ),
    ] = None,
    archive: Annotated[
        str | None,
        option_types.value("Or the folder of an archive, read without a broker.", "FOLDER"),
    ] = None,
    topics: Annotated[
        str,
        option_types.value("Read messages on these topics only: filters, with commas.", "FILTERS"),
    ] = "",
    subscriptions: Annotated[
        str | None,
        option_types.value(
            "A file or folder: id, filter, maybe where; read again when it changes. Default: the "
            "cluster's, or the archive's.",
            "PATH",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        option_types.file(
            "The configuration that declares spaces. Default, with --url: the cluster's."
        ),
    ] = None,
    out: Annotated[
        str | None, option_types.value("A folder for a table of matches, as Parquet.", "FOLDER")
    ] = None,
    pairs: Annotated[
        bool, option_types.flag("--pairs", "A row for each message and subscription that match.")
    ] = False,
    publish: Annotated[
        str | None,
        option_types.value(
            "Publish matches to this server, as mqtt://HOST:PORT or mqtts://.", "URL"
        ),
    ] = None,
    topic: Annotated[
        str | None,
        option_types.value(
            "With --publish: a match goes to TOPIC/<id of the subscription>.", "TOPIC"
        ),
    ] = None,
    serve: Annotated[
        bool,
        option_types.flag(
            "--serve",
            'Look at the where-clauses of spaces with engine = "spark" in the brokers\' stead, and '
            "hand their clients what they want.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        option_types.folder(
            "Where the stream notes how far it is. Default: beside --out, OUT.checkpoint."
        ),
    ] = None,
    available_now: Annotated[
        bool, option_types.flag("--available-now", "Read what is there now, and end.")
    ] = False,
    interval_seconds: Annotated[
        float | None,
        option_types.seconds(
            "--interval",
            "Between batches of --out and --publish. Default: 10 for a table, 1 to publish.",
            least=0,
            most=86_400,
        ),
    ] = None,
    rows_per_batch: Annotated[
        int, option_types.number("Read at most so many messages in one batch.", least=1)
    ] = 1_000_000,
    start: Annotated[
        Start, option_types.value("Where a new stream begins.", "earliest|latest", "--from")
    ] = Start.EARLIEST,
    skip_lost: Annotated[
        bool,
        option_types.flag("--skip-lost", "Go on where messages are gone that have not been read."),
    ] = False,
    user: Annotated[
        str | None, option_types.value("Who we are, to brokers and to the server.", "NAME")
    ] = None,
    password_file: Annotated[
        Path | None,
        option_types.password_file(),
    ] = None,
    master: Annotated[
        str | None,
        option_types.master(),
    ] = None,
) -> None:
    """Match archived messages with subscriptions as they come.

    The stream runs on Spark until Ctrl-C. It writes matches to a table, each exactly once even if
    it is killed; or publishes them, each at least once; or serves them to the clients that wait for
    them. With the same --checkpoint it continues where it stopped. If brokers have users, rules or
    certificates, --user must be one of access.administrators in their configuration.
    """
    require(Extra.SPARK)
    from dovetail.pipeline.stream import job

    job.stream(
        job.StreamOptions(
            url=url,
            archive=archive,
            topics=topics,
            subscriptions=subscriptions,
            config=config,
            out=out,
            as_pairs=pairs,
            publish=publish,
            prefix=topic,
            is_serving=serve,
            checkpoint=checkpoint,
            is_available_now=available_now,
            interval_seconds=interval_seconds,
            batch_rows_max=rows_per_batch,
            start=start.value,
            fails_on_loss=not skip_lost,
            login=option_types.login(user, password_file),
            master=master,
        )
    )
