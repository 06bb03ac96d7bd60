"""`match`: who would have got which message, computed on Spark."""

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.process.extras import Extra, require

app = typer.Typer()


@app.command(
    epilog="Example: dovetail match --messages m.parquet --subscriptions s.csv --out matched"
)
def match(
    messages: Annotated[
        str,
        option_types.value(
            "Parquet, JSON lines or CSV: id, topic, attributes, maybe texts.", "PATH"
        ),
    ],
    subscriptions: Annotated[
        str, option_types.value("The same kinds of file: id, filter, maybe where.", "PATH")
    ],
    out: Annotated[
        str,
        option_types.value(
            "A new folder for the answer, as Parquet: message, subscriptions.", "PATH"
        ),
    ],
    pairs: Annotated[
        bool, option_types.flag("--pairs", "A row for each message and subscription that match.")
    ] = False,
    config: Annotated[
        Path | None,
        option_types.file("The configuration that declares the spaces of where-clauses."),
    ] = None,
    master: Annotated[
        str | None,
        option_types.value(
            "The Spark master, such as spark://host:7077, or a Connect server, sc://host:15002. "
            "Default: this machine.",
            "URL",
        ),
    ] = None,
) -> None:
    """Match a table of messages with one of subscriptions, on Spark."""
    require(Extra.SPARK)
    from dovetail.pipeline.match import job

    job.match_files(
        messages=messages,
        subscriptions=subscriptions,
        out=out,
        as_pairs=pairs,
        config=config,
        master=master,
    )
