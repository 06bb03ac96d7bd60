"""`plan`: plan sketches, dimensions and segments from an archive, on Spark."""

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
            "An archive; or messages as Parquet, JSON lines or CSV, as for `dovetail match`.",
            "PATH",
        ),
    ] = None,
    subscriptions: Annotated[
        str | None,
        option_types.value(
            "The subscriptions, in the same formats. Columns: id, filter and, if needed, where. "
            "Default: the archive's subscriptions.",
            "PATH",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        option_types.file("The configuration file of the brokers, which declares the spaces."),
    ] = None,
    matchers: Annotated[
        int | None,
        option_types.number(
            "The number of matchers to plan for. Default: as many as the cluster has, or 4.",
            minimum=1,
            maximum=1_000,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="N",
            help="Compute how many matchers are needed for N messages per second.",
        ),
    ] = None,
    out: Annotated[
        Path, option_types.file("The HTML report to write. The plan is written beside it as JSON.")
    ] = Path("plan.html"),
    url: Annotated[
        str | None,
        option_types.value(
            "The HTTP address of a node. The report then also shows the matchers' current state.",
            "URL",
        ),
    ] = None,
    apply: Annotated[
        str | None,
        option_types.value(
            "The HTTP address of a broker. The cluster's matchers then move to the plan.", "URL"
        ),
    ] = None,
    use: Annotated[
        Path | None,
        option_types.file(
            "Apply this earlier plan (.json) instead of making a new one. Needs --apply."
        ),
    ] = None,
    user: Annotated[
        str | None, option_types.value("Your user name, if --apply needs one.", "NAME")
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

    It runs on Spark. The report shows segment borders that give all matchers the same load, and
    their gain over even segments. It recommends the dimensions to search, and shows how many
    matchers a rate needs and how large sketches get.

    With --apply the matchers move to the plan while publications flow. None is missed or doubled.
    If the broker has users, rules or certificates, --user must be one of access.administrators in
    its configuration. Otherwise the command must run on the broker's machine.
    """
    from dovetail.api.http_client import fetch
    from dovetail.api.reports import ClusterReport
    from dovetail.inspect.plan_move import apply as apply_plan
    from dovetail.pipeline.plan.document import order_of, read_document

    login = option_types.login(user, password_file)
    if use is not None:
        if apply is None or messages is not None:
            raise ConfigError(
                "--use applies an earlier plan: it needs --apply, and excludes --messages."
            )
        apply_plan(apply, order_of(read_document(use)), login)
        return
    if messages is None:
        raise ConfigError(
            "--messages is missing: give an archive or a file of messages.",
            hint="`dovetail plan --help` has an example.",
        )
    require(Extra.SPARK)
    from dovetail.pipeline.plan import job

    cluster_url = apply or url
    order = job.plan_files(
        messages=messages,
        subscriptions=subscriptions,
        config=config,
        matchers=matchers,
        rate=rate,
        out=out,
        cluster=None if cluster_url is None else fetch(cluster_url, "/cluster", ClusterReport),
        is_applied=apply is not None,
        master=master,
    )
    if apply is not None and order is not None:
        apply_plan(apply, order, login)
