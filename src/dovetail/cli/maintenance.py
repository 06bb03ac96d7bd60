"""`config`, `passwd`, `backup`, `repair` and `compact`: commands for a broker's files."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import option_types
from dovetail.cli.limits import COMPACT_FILE_BYTES_MAX
from dovetail.errors import ConfigError
from dovetail.process.extras import Extra, require
from dovetail.process.terminal import say, say_text

app = typer.Typer()


@app.command(epilog="Example: dovetail config --check dovetail.toml")
def config(
    explain: Annotated[
        bool, option_types.flag("--explain", "Print every setting with its default, as TOML.")
    ] = False,
    check: Annotated[
        Path | None, option_types.file("Check that a node can start with this file.")
    ] = None,
) -> None:
    """Explain all settings, or check a configuration file."""
    from dovetail import settings
    from dovetail.broker.auth.passwords import PasswordFile
    from dovetail.cluster.secret import read_secret

    if explain == (check is not None):
        raise ConfigError("it takes either --explain or --check FILE.")
    if check is None:
        say_text(settings.explain().removesuffix("\n"))
        return
    checked = settings.load_settings(check)
    settings.check_files(checked)
    if checked.access.password_file:
        PasswordFile.load(checked.access.password_file)
    if checked.cluster.secret_file:
        read_secret(checked.cluster.secret_file)
    say(f"{check}: ok")


@app.command(epilog="Example: dovetail passwd users.txt alice")
def passwd(
    file: Annotated[
        Path, typer.Argument(help="The password file; the setting access.password_file names it.")
    ],
    user: Annotated[
        str | None, typer.Argument(help="The user. Without it, the command lists all users.")
    ] = None,
    stdin: Annotated[
        bool,
        option_types.flag("--stdin", "Read the password from the first line of standard input."),
    ] = False,
    delete: Annotated[
        bool, option_types.flag("--delete", "Delete the user from the file.")
    ] = False,
) -> None:
    """Set a user's password, delete a user, or list all users."""
    from dovetail.broker.auth import passwords

    if user is None:
        if stdin or delete:
            raise ConfigError("name the user too: dovetail passwd FILE USER.")
        for name in passwords.PasswordFile.load(file).users:
            say(name)
    elif delete:
        passwords.delete_user(file, user)
        say(f"{file}: {user} is deleted")
    else:
        passwords.check_user(user)
        passwords.set_password(file, user, _first_line() if stdin else _ask_password(user))
        say(f"{file}: the password of {user} is set")


def _first_line() -> bytes:
    return sys.stdin.buffer.readline().removesuffix(b"\n").removesuffix(b"\r")


def _ask_password(user: str) -> bytes:
    if not sys.stdin.isatty():
        raise ConfigError(
            "there is no terminal to ask for the password on.", hint="--stdin reads it from a pipe."
        )
    asked: str = typer.prompt(
        f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True
    )
    return asked.encode()


@app.command(epilog="Example: dovetail backup --data /var/lib/dovetail monday.db")
def backup(
    target: Annotated[Path, typer.Argument(help="The file to write. It must not exist.")],
    data: Annotated[
        Path,
        option_types.folder(
            "The broker's data folder. Default: dovetail-data in the current folder.",
            show_default=False,
        ),
    ] = Path("dovetail-data"),
) -> None:
    """Back up a data folder to a file, even while a broker uses it.

    To restore it, put the file into an empty folder under the name dovetail.db, and start the
    broker with that folder.
    """
    from dovetail.broker.store import sqlite

    sqlite.backup(data, target)
    say(f"{target}: {target.stat().st_size:,} bytes, a copy of {data}")


@app.command(epilog="Example: dovetail repair --data /var/lib/dovetail")
def repair(
    data: Annotated[
        Path,
        option_types.folder(
            "The broker's data folder. Default: dovetail-data in the current folder.",
            show_default=False,
        ),
    ] = Path("dovetail-data"),
) -> None:
    """Rescue the undamaged rows of a damaged database.

    Stop the broker first. A broker does not start with a damaged database. This command moves the
    database aside and copies its undamaged rows to a new one; damaged rows are lost.
    """
    from dovetail.broker.store.repair import repair as repair_folder

    done = repair_folder(data, time.strftime("%Y%m%d-%H%M%S"))
    if done.aside is None:
        say(f"{data}: nothing is damaged")
        return
    say(f"{data}: kept {sum(done.kept.values()):,} rows; all as it was is in {done.aside}")
    for table, count in done.damaged.items():
        say(f"damaged, and left there: {count:,} rows of {table}")
    for table in done.unreadable:
        say(f"could not be read to the end: {table}")


@app.command(epilog="Example: dovetail compact /srv/archive")
def compact(
    folder: Annotated[
        Path, typer.Argument(help="The archive; the setting archive.folder names it.")
    ],
    file_bytes: Annotated[
        int,
        option_types.number(
            "The size of the largest merged file, in bytes.", minimum=1_024, maximum=1 << 40
        ),
    ] = COMPACT_FILE_BYTES_MAX,
    keep: Annotated[
        int,
        option_types.number(
            "Seconds to keep the source files of a merge, for jobs that still read them. A later "
            "run deletes them.",
            minimum=0,
            maximum=31_536_000,
        ),
    ] = 0,
) -> None:
    """Merge the small files of each past hour in an archive.

    Brokers and readers may run meanwhile. You may kill the command at any time.
    """
    require(Extra.ARCHIVE)
    from dovetail.archive.compaction import compact as compact_files

    started = time.monotonic()
    done = compact_files(folder, time.time(), file_bytes_max=file_bytes, keep_seconds=keep)
    seconds = time.monotonic() - started
    say(
        f"{folder}: {done.sources:,} files with {done.rows:,} rows are {done.files:,} now "
        f"({seconds:.1f} s)"
    )
    if done.deleted or done.kept:
        say(f"deleted: {done.deleted:,} files; left for the next run: {done.kept:,}")
