"""`match`: match a table of messages with a table of subscriptions on Spark."""

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
            "The messages, as Parquet, JSON lines or CSV. Columns: id, topic, attributes and, if "
            "needed, texts.",
            "PATH",
        ),
    ],
    subscriptions: Annotated[
        str,
        option_types.value(
            "The subscriptions, in the same formats. Columns: id, filter and, if needed, where.",
            "PATH",
        ),
    ],
    out: Annotated[
        str,
        option_types.value(
            "A new folder for the result, as Parquet. Columns: message, subscriptions.", "PATH"
        ),
    ],
    pairs: Annotated[
        bool,
        option_types.flag(
            "--pairs", "Write one row for each matching pair of message and subscription."
        ),
    ] = False,
    config: Annotated[
        Path | None,
        option_types.file("The configuration file that declares the spaces of where-clauses."),
    ] = None,
    master: Annotated[
        str | None,
        option_types.value(
            "The Spark master, such as spark://host:7077, or a Spark Connect server, such as "
            "sc://host:15002. Default: this machine.",
            "URL",
        ),
    ] = None,
) -> None:
    """Match a table of messages with a table of subscriptions.

    It runs on Spark.
    """
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
