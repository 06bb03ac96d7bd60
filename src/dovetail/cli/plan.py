"""`plan`: what archive and subscriptions say about matchers and sketches, computed on Spark."""

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.errors import ConfigError
from dovetail.process.extras import Extra, require

app = typer.Typer()


@app.command(
    epilog="Example: dovetail plan --messages archive --config dovetail.toml --rate 50000 "
    "--apply http://127.0.0.1:8080"
)
def plan(
    messages: Annotated[
        str | None,
        option_types.value(
            "A broker's archive; or Parquet, JSON lines or CSV, as `match` takes.", "PATH"
        ),
    ] = None,
    subscriptions: Annotated[
        str | None,
        option_types.value(
            "The same kinds of file: id, filter, maybe where. Default: the archive's.", "PATH"
        ),
    ] = None,
    config: Annotated[
        Path | None,
        option_types.file("The configuration that declares the spaces, as brokers have it."),
    ] = None,
    matchers: Annotated[
        int | None,
        option_types.number(
            "Matchers to plan for. Default: as many as the cluster has, or 4.", least=1, most=1_000
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="N", help="Say how many matchers so many messages a second need."
        ),
    ] = None,
    out: Annotated[
        Path, option_types.file("The page to write; the same as JSON is written beside it.")
    ] = Path("plan.html"),
    url: Annotated[
        str | None,
        option_types.value(
            "Where a node serves HTTP: how matchers are now is in the report too.", "URL"
        ),
    ] = None,
    apply: Annotated[
        str | None,
        option_types.value(
            "Where a broker serves HTTP: its cluster's matchers move by the plan.", "URL"
        ),
    ] = None,
    use: Annotated[
        Path | None,
        option_types.file(
            "A plan (.json) that was made before, to be applied instead of a new one."
        ),
    ] = None,
    user: Annotated[
        str | None, option_types.value("Who we are, where --apply has to have that proven.", "NAME")
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
    """Plan sketches, dimensions and segments from an archive.

    It runs on Spark. The report says where to cut segments so that all matchers have the same load,
    and what that gains over even segments. It says which dimensions to search and why, how many
    matchers a rate needs, and how large sketches get. With --apply the matchers move there while
    publications flow; none is missed or doubled. A broker takes that from a user that
    access.administrators in its configuration names (--user), or from its own machine if it has no
    users, rules or certificates.
    """
    from dovetail.api.http_client import fetch
    from dovetail.api.reports import ClusterReport
    from dovetail.inspect.plan_move import apply as apply_plan
    from dovetail.pipeline.plan.document import order_of, read_document

    login = option_types.login(user, password_file)
    if use is not None:
        if apply is None or messages is not None:
            raise ConfigError(
                "--use takes a plan that is there, and needs --apply, and no --messages."
            )
        apply_plan(apply, order_of(read_document(use)), login)
        return
    if messages is None:
        raise ConfigError(
            "--messages is missing: an archive, or a file of messages.",
            hint="`dovetail plan --help` has an example.",
        )
    require(Extra.SPARK)
    from dovetail.pipeline.plan import job

    asked = apply or url
    order = job.plan_files(
        messages=messages,
        subscriptions=subscriptions,
        config=config,
        matchers=matchers,
        rate=rate,
        out=out,
        cluster=None if asked is None else fetch(asked, "/cluster", ClusterReport),
        is_applied=apply is not None,
        master=master,
    )
    if apply is not None and order is not None:
        apply_plan(apply, order, login)
