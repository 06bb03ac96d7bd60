"""`sketch`: build, show and search sketches of topic filters in files."""

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.process.terminal import say
from dovetail.topics.limits import SKETCH_FALSE_POSITIVE_RATE

app = typer.Typer(
    help="Build, show and search sketches of topic filters.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SketchFile = Annotated[Path, typer.Argument(help="A file that `sketch build` wrote.")]


@app.command(epilog="Example: dovetail sketch build filters.txt --out broker.sketch")
def build(
    filters: Annotated[
        str, typer.Argument(help="A file with one topic filter per line. - reads standard input.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", dir_okay=False, help="The sketch file to write.")
    ],
    method: Annotated[
        str, option_types.value("The method: how the sketch stores filters.", "bf|bfp|prefix|lines")
    ] = "lines",
    false_positive_rate: Annotated[
        float, option_types.value("The share of queries that may give a false positive.", "RATE")
    ] = SKETCH_FALSE_POSITIVE_RATE,
    seed: Annotated[
        int, option_types.number("The seed of the hash functions.", minimum=0, maximum=2**64 - 1)
    ] = 0,
) -> None:
    """Sketch a list of filters as a broker would, and print its size."""
    from dovetail.inspect import sketch_files

    _show_table(
        sketch_files.build(
            filters, out, method=method, false_positive_rate=false_positive_rate, seed=seed
        )
    )


@app.command()
def info(file: SketchFile) -> None:
    """Show a sketch's size, fill and false-positive rate."""
    from dovetail.inspect import sketch_files

    _show_table(sketch_files.describe(sketch_files.read(file)))


@app.command(epilog="Example: dovetail sketch search broker.sketch building3/room1/temperature")
def search(
    file: SketchFile,
    topics: Annotated[
        list[str], typer.Argument(help="Topic names. - reads them from standard input.")
    ],
) -> None:
    """Tell for each topic whether a filter in the sketch may match it."""
    from dovetail.inspect import sketch_files

    for topic, found, queries in sketch_files.search(file, topics):
        say(f"{'maybe' if found else 'no':5}  {queries:4} queries  {topic}")


def _show_table(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        say(f"{name:{width}}  {value}")
