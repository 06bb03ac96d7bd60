"""The `dovetail` command: reads options, calls one function, reports what went wrong.

No command does its work here, and what a command needs is imported when it runs:
`dovetail --help` must not wait for Numba or Spark.
"""

import importlib.util
import os
import sys
import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dovetail import __version__
from dovetail.config import SKETCH_FALSE_POSITIVE_RATE
from dovetail.errors import DovetailError, MissingDependencyError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


@dataclass
class Settings:
    """What holds for every command."""

    debug: bool = False


class Figure(StrEnum):
    """The figures of the wildcard paper that can be recomputed."""

    FIGURE_4 = "4"
    FIGURE_5 = "5"
    FIGURE_6 = "6"


app = typer.Typer(
    help="Dovetail: publish/subscribe that joins MQTT topics and attribute ranges.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
reproduce = typer.Typer(
    help="Recompute the figures of the papers that Dovetail is built on.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
sketch = typer.Typer(
    help="Build, look at and search sketches of topic filters.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(reproduce, name="reproduce")
app.add_typer(sketch, name="sketch")


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"dovetail {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: dovetail reproduce wildcard --figure 6 --trials 3")
def global_options(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an expected error.")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    context.obj.debug = debug


@app.command()
def up() -> None:
    """Start the service (not in this version yet)."""
    raise DovetailError(
        f"dovetail {__version__} cannot start a broker yet.",
        hint="This version contains the topic plane and the wildcard experiments: "
        "see `dovetail reproduce wildcard --help`.",
    )


@reproduce.command(
    epilog="Example: dovetail reproduce wildcard --figure 6 --trials 3 --out results"
)
def wildcard(
    trials: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trials that each point averages, up to 1,000.")
    ] = 10,
    figure: Annotated[
        list[Figure] | None,
        typer.Option(metavar="4|5|6", help="A figure to compute; may be repeated. Default: all."),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The same seed gives the same figures.")
    ] = 1,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The Spark master, such as spark://host:7077. Default: this machine.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A folder for the results. Default: wildcard-results."),
    ] = None,
) -> None:
    """Count the filter queries per search that the wildcard paper plots in figures 4 to 6."""
    require_spark()
    from dovetail.pipeline import jobs

    jobs.reproduce_wildcard(
        figures=tuple(int(chosen) for chosen in figure or Figure),
        trials=trials,
        seed=seed,
        master=master,
        out=out,
    )


@sketch.command(epilog="Example: dovetail sketch build filters.txt --out broker.sketch")
def build(
    filters: Annotated[
        str, typer.Argument(help="A file with one topic filter a line; - reads standard input.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", dir_okay=False, help="The sketch's file.")],
    method: Annotated[
        str, typer.Option(metavar="bf|bfp|prefix|lines", help="How filters are kept.")
    ] = "lines",
    false_positive_rate: Annotated[
        float, typer.Option(metavar="RATE", help="Wrong answers per query that are allowed.")
    ] = SKETCH_FALSE_POSITIVE_RATE,
    seed: Annotated[
        int, typer.Option(min=0, max=2**64 - 1, metavar="N", help="The hashes' seed.")
    ] = 0,
) -> None:
    """Sketch a list of filters as a broker would, and say what it costs."""
    from dovetail import sketching

    show_table(
        sketching.build(
            filters, out, method=method, false_positive_rate=false_positive_rate, seed=seed
        )
    )


SketchFile = Annotated[Path, typer.Argument(help="A file that `sketch build` wrote.")]


@sketch.command()
def info(file: SketchFile) -> None:
    """Show a sketch's size, fill and false-positive rate."""
    from dovetail import sketching

    show_table(sketching.describe(sketching.read(file)))


@sketch.command(epilog="Example: dovetail sketch search broker.sketch building3/room1/temperature")
def search(
    file: SketchFile,
    topics: Annotated[
        list[str], typer.Argument(help="Topic names; - reads them from standard input.")
    ],
) -> None:
    """Say for each topic whether a filter in the sketch may match it."""
    from dovetail import sketching

    for topic, found, queries in sketching.search(file, topics):
        print(f"{'maybe' if found else 'no':5}  {queries:4} queries  {topic}")


def show_table(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def require_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"this command runs on Spark, and {' and '.join(missing)} cannot be imported.",
            hint='Install the extra: pip install "dovetail[spark]"',
        )


def main() -> None:
    """Run the command line, and end the process."""
    settings = Settings()
    try:
        try:
            app(obj=settings, prog_name="dovetail")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except DovetailError as error:
        if settings.debug:
            traceback.print_exc()
        else:
            print(f"dovetail: error: {error}", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (OSError, UnicodeEncodeError) as error:
        if getattr(error, "filename", None) is not None:
            raise  # a file is a command's business, and this a bug of it
        # Standard output. A reader that has gone (`dovetail ... | head`) is no error to speak of.
        if settings.debug:
            traceback.print_exc()
        elif not isinstance(error, BrokenPipeError):
            print(f"dovetail: error: cannot write to standard output: {error}", file=sys.stderr)
        # Python's own flush at exit must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
