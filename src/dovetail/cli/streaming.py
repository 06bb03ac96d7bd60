"""`stream`: who gets which message, on Spark, as messages come."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option
from dovetail.extras import Extra, require

app = typer.Typer()


class Start(StrEnum):
    """Where a new stream begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@app.command(epilog="Example: dovetail stream --url http://127.0.0.1:8080 --out matched --pairs")
def stream(
    url: Annotated[
        str | None,
        option.value("Where a node of a running cluster serves HTTP; any one will do.", "URL"),
    ] = None,
    archive: Annotated[
        str | None, option.value("Or the folder of an archive, read without a broker.", "FOLDER")
    ] = None,
    topics: Annotated[
        str, option.value("Read messages on these topics only: filters, with commas.", "FILTERS")
    ] = "",
    subscriptions: Annotated[
        str | None,
        option.value(
            "A file or folder: id, filter, maybe where; read again when it changes. Default: the "
            "cluster's, or the archive's.",
            "PATH",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        option.file("The configuration that declares spaces. Default, with --url: the cluster's."),
    ] = None,
    out: Annotated[
        str | None, option.value("A folder for a table of matches, as Parquet.", "FOLDER")
    ] = None,
    pairs: Annotated[
        bool, option.flag("--pairs", "A row for each message and subscription that match.")
    ] = False,
    publish: Annotated[
        str | None,
        option.value("Publish matches to this server, as mqtt://HOST:PORT or mqtts://.", "URL"),
    ] = None,
    topic: Annotated[
        str | None,
        option.value("With --publish: a match goes to TOPIC/<id of the subscription>.", "TOPIC"),
    ] = None,
    serve: Annotated[
        bool,
        option.flag(
            "--serve",
            'Look at the where-clauses of spaces with engine = "spark" in the brokers\' stead, and '
            "hand their clients what they want.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        option.folder(
            "Where the stream notes how far it is. Default: beside --out, OUT.checkpoint."
        ),
    ] = None,
    available_now: Annotated[
        bool, option.flag("--available-now", "Read what is there now, and end.")
    ] = False,
    interval_seconds: Annotated[
        float | None,
        option.seconds(
            "--interval",
            "Between batches of --out and --publish. Default: 10 for a table, 1 to publish.",
            least=0,
            most=86_400,
        ),
    ] = None,
    rows_per_batch: Annotated[
        int, option.number("Read at most so many messages in one batch.", least=1)
    ] = 1_000_000,
    start: Annotated[
        Start, option.value("Where a new stream begins.", "earliest|latest", "--from")
    ] = Start.EARLIEST,
    skip_lost: Annotated[
        bool,
        option.flag("--skip-lost", "Go on where messages are gone that have not been read."),
    ] = False,
    user: Annotated[
        str | None, option.value("Who we are, to brokers and to the server.", "NAME")
    ] = None,
    password_file: Annotated[
        Path | None,
        option.password_file(),
    ] = None,
    master: Annotated[
        str | None,
        option.master(),
    ] = None,
) -> None:
    """Match messages with subscriptions as they come, on Spark, until Ctrl-C.

    Messages are what brokers archive. Matches go to a table, each once whatever is killed; are
    published, each at least once; or go to the clients that wait for them. With the same
    --checkpoint a stream goes on where it was. At brokers that have users, rules or certificates,
    --user is one that access.administrators in their configuration names.
    """
    require(Extra.SPARK)
    from dovetail.pipeline import streaming_job

    streaming_job.stream(
        streaming_job.StreamOptions(
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
            login=option.login(user, password_file),
            master=master,
        )
    )
