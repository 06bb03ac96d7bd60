"""`dovetail reproduce`: recompute the figures of the papers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.process.extras import Extra, require

app = typer.Typer(
    help="Recompute the figures of the papers that Dovetail is built on.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class WildcardFigureName(StrEnum):
    """The figures of the wildcard paper that can be recomputed."""

    FIGURE_4 = "4"
    FIGURE_5 = "5"
    FIGURE_6 = "6"


@app.command(epilog="Example: dovetail reproduce wildcard --figure 6 --trials 3 --out results")
def wildcard(
    trials: Annotated[
        int, option_types.number("The number of trials per point, up to 1,000.", minimum=1)
    ] = 10,
    figure: Annotated[
        list[WildcardFigureName] | None,
        option_types.value("A figure to compute; may be repeated. Default: all figures.", "4|5|6"),
    ] = None,
    seed: Annotated[
        int, option_types.number("The random seed. The same seed gives the same figures.")
    ] = 1,
    master: Annotated[
        str | None,
        option_types.master(),
    ] = None,
    out: Annotated[
        Path | None, option_types.folder("The folder for the results. Default: wildcard-results.")
    ] = None,
) -> None:
    """Count queries per search: the wildcard paper's figures 4 to 6.

    It searches the sketches of each method for topics, as the paper's simulation does.
    """
    require(Extra.SPARK)
    from dovetail.papers import job

    job.reproduce_wildcard(
        figures=tuple(int(chosen) for chosen in figure or WildcardFigureName),
        trials=trials,
        seed=seed,
        master=master,
        out=out,
    )


@app.command(epilog="Example: dovetail reproduce broker --rounds 5 --out results")
def broker(
    rounds: Annotated[
        int, option_types.number("The number of rounds over all points, up to 100.", minimum=1)
    ] = 3,
    seconds: Annotated[
        float,
        option_types.seconds(
            "--seconds", "The time of full load per point and round.", minimum=None
        ),
    ] = 1.0,
    seed: Annotated[
        int, option_types.number("The random seed. The same seed draws the same filters.")
    ] = 1,
    out: Annotated[
        Path | None, option_types.folder("The folder for the results. Default: broker-results.")
    ] = None,
) -> None:
    """Measure Dovetail's broker as in the wildcard paper's figure 7."""
    require(Extra.SPARK)
    from dovetail.papers import job

    job.reproduce_broker(rounds=rounds, seconds=seconds, seed=seed, out=out)


class BlueDoveFigureName(StrEnum):
    """The figures of the BlueDove paper that can be recomputed."""

    FIGURE_5 = "5"
    FIGURE_6A = "6a"
    FIGURE_6B = "6b"
    FIGURE_7 = "7"
    FIGURE_8 = "8"
    FIGURE_9 = "9"
    FIGURE_10 = "10"
    FIGURE_11A = "11a"
    FIGURE_11B = "11b"
    FIGURE_11C = "11c"
    OVERHEAD = "overhead"
    REASONS = "reasons"
    SCALE_MATCHERS = "scale-matchers"
    SCALE_BOXES = "scale-boxes"
    CRASH_100 = "crash-100"


@app.command(epilog="Example: dovetail reproduce bluedove --figure 6a --figure 7 --out results")
def bluedove(
    trials: Annotated[
        int, option_types.number("The number of trials per configuration, up to 100.", minimum=1)
    ] = 1,
    figure: Annotated[
        list[BlueDoveFigureName] | None,
        option_types.value(
            "A figure to compute; may be repeated. Default: all figures.",
            "|".join(BlueDoveFigureName),
        ),
    ] = None,
    seed: Annotated[
        int, option_types.number("The random seed. The same seed gives the same figures.")
    ] = 1,
    master: Annotated[
        str | None,
        option_types.master(),
    ] = None,
    out: Annotated[
        Path | None, option_types.folder("The folder for the results. Default: bluedove-results.")
    ] = None,
) -> None:
    """Simulate clusters of matchers: the BlueDove paper's evaluation."""
    require(Extra.SPARK)
    from dovetail.papers import job

    job.reproduce_bluedove(
        figures=tuple(figure or BlueDoveFigureName),
        trials=trials,
        seed=seed,
        master=master,
        out=out,
    )
