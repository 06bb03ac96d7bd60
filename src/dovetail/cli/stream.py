"""`stream`: match archived messages with subscriptions continuously on Spark."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.process.extras import Extra, require

app = typer.Typer()


class StartPosition(StrEnum):
    """The values of `--from`."""

    EARLIEST = "earliest"
    LATEST = "latest"


@app.command(epilog="Example: dovetail stream --url http://127.0.0.1:8080 --out matched --pairs")
def stream(
    url: Annotated[
        str | None,
        option_types.value("Read from a running cluster: the HTTP address of any node.", "URL"),
    ] = None,
    archive: Annotated[
        str | None,
        option_types.value("Or read the folder of an archive, without a broker.", "FOLDER"),
    ] = None,
    topics: Annotated[
        str,
        option_types.value(
            "Read only messages of these topics: filters, separated by commas.", "FILTERS"
        ),
    ] = "",
    subscriptions: Annotated[
        str | None,
        option_types.value(
            "A file or folder with subscriptions (columns: id, filter and, if needed, where), read "
            "again when it changes. Default: the subscriptions of the cluster or archive.",
            "PATH",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        option_types.file(
            "The configuration file that declares the spaces. Default with --url: the cluster's "
            "spaces."
        ),
    ] = None,
    out: Annotated[
        str | None,
        option_types.value("Write matches to a table in this folder, as Parquet.", "FOLDER"),
    ] = None,
    pairs: Annotated[
        bool,
        option_types.flag(
            "--pairs", "Write one row for each matching pair of message and subscription."
        ),
    ] = False,
    publish: Annotated[
        str | None,
        option_types.value(
            "Publish matches to this MQTT server: mqtt://HOST:PORT or mqtts://HOST:PORT.", "URL"
        ),
    ] = None,
    topic: Annotated[
        str | None,
        option_types.value(
            "With --publish: publish a match to TOPIC/ID, where ID is the subscription's.", "TOPIC"
        ),
    ] = None,
    serve: Annotated[
        bool,
        option_types.flag(
            "--serve",
            'Serve spaces with engine = "spark": evaluate their where-clauses for the brokers, and '
            "deliver the matches to the brokers' clients.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        option_types.folder(
            "The folder in which the stream stores its progress. Default: OUT.checkpoint, beside "
            "--out."
        ),
    ] = None,
    available_now: Annotated[
        bool, option_types.flag("--available-now", "Read all messages that exist now, then exit.")
    ] = False,
    interval_seconds: Annotated[
        float | None,
        option_types.seconds(
            "--interval",
            "The time between batches. Default: 10 with --out, 1 with --publish.",
            minimum=0,
            maximum=86_400,
        ),
    ] = None,
    rows_per_batch: Annotated[
        int, option_types.number("The largest number of messages in one batch.", minimum=1)
    ] = 1_000_000,
    start: Annotated[
        StartPosition,
        option_types.value(
            "The position at which a new stream starts.", "earliest|latest", "--from"
        ),
    ] = StartPosition.EARLIEST,
    skip_lost: Annotated[
        bool,
        option_types.flag(
            "--skip-lost", "Continue if unread messages have been deleted from the archive."
        ),
    ] = False,
    user: Annotated[
        str | None, option_types.value("Your user name, for the brokers and for --publish.", "NAME")
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

    The stream runs on Spark until Ctrl-C. With --out it writes matches to a table, each exactly
    once even if it is killed. With --publish it publishes them, each at least once. With --serve it
    delivers them to the brokers' clients. With the same --checkpoint it continues where it stopped.

    If brokers have users, rules or certificates, --user must be one of access.administrators in
    their configuration.
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
