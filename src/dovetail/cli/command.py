"""The `dovetail` command: joins all commands, and prints their errors."""

import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import Annotated

import typer

from dovetail import __version__
from dovetail.cli import (
    inspection,
    maintenance,
    match,
    option_types,
    plan,
    pub_sub,
    sketch,
    stream,
    up,
)
from dovetail.errors import DovetailError
from dovetail.papers import reproduce
from dovetail.process.terminal import complain, say

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_TERMINATED = 143  # 128 + SIGTERM


@dataclass
class GlobalOptions:
    """The options that stand before the name of a command."""

    debug: bool = False


app = typer.Typer(
    help="Dovetail: publish/subscribe by MQTT topics and by ranges of attributes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# In the order in which `--help` lists them.
app.add_typer(up.app)
app.add_typer(inspection.app)
app.add_typer(maintenance.app)
app.add_typer(pub_sub.app)
app.add_typer(match.app)
app.add_typer(stream.app)
app.add_typer(plan.app)
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(sketch.app, name="sketch")


def show_version(wanted: bool) -> None:
    if wanted:
        say(f"dovetail {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: dovetail reproduce wildcard --figure 6 --trials 3")
def global_options(
    context: typer.Context,
    debug: Annotated[bool, option_types.flag("--debug", "Show the traceback of an error.")] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=show_version, is_eager=True
        ),
    ] = False,
) -> None:
    context.obj.debug = debug


def main() -> None:
    """Run the command line and exit the process."""
    settings = GlobalOptions()
    # So that commands clean up on SIGTERM. Commands that run brokers install their own handler.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    try:
        try:
            app(obj=settings, prog_name="dovetail")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except DovetailError as error:
        if settings.debug:
            complain(traceback.format_exc().rstrip())
        else:
            complain(f"dovetail: error: {error}")
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (OSError, UnicodeEncodeError) as error:
        if getattr(error, "filename", None) is not None:
            raise  # commands handle errors of their files: this is a bug
        # Standard output failed. A reader that has gone (`dovetail ... | head`) is not reported.
        if settings.debug:
            complain(traceback.format_exc().rstrip())
        elif not isinstance(error, BrokenPipeError):
            complain(f"dovetail: error: cannot write to standard output: {error}")
        # Python's own flush at exit must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
