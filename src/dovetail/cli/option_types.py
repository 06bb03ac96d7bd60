"""Kinds of options: those that are alike have the same bounds, and look the same in `--help`.

Each is what `Annotated` takes besides the type. `says` is the option's line of help.
"""

from pathlib import Path

import typer

from dovetail.errors import ConfigError


def flag(name: str, says: str, *other_names: str) -> object:
    return typer.Option(name, *other_names, help=says)


def value(says: str, metavar: str = "TEXT", *names: str) -> object:
    return typer.Option(*names, metavar=metavar, help=says)


def file(says: str) -> object:
    return typer.Option(metavar="FILE", help=says)


def folder(says: str, *, show_default: bool = True) -> object:
    return typer.Option(metavar="FOLDER", show_default=show_default, help=says)


def node_address(says: str) -> object:
    """Of a broker's links."""
    return typer.Option(metavar="HOST[:PORT]", help=says)


def number(says: str, *, least: int | None = None, most: int | None = None) -> object:
    return typer.Option(min=least, max=most, metavar="N", help=says)


def port(says: str, *, least: int = 1) -> object:
    return number(says, least=least, most=65_535)


def qos(says: str) -> object:
    return typer.Option(min=0, max=2, metavar="0|1|2", help=says)


def seconds(name: str, says: str, *, least: float | None = 0, most: float | None = None) -> object:
    return typer.Option(name, min=least, max=most, metavar="SECONDS", help=says)


def expiry(name: str, says: str) -> object:
    """An interval that MQTT sends as four bytes."""
    return seconds(name, says, most=2**32 - 1)


def password_file() -> object:
    return file(
        "A file whose first line is the user's password. Default: the variable DOVETAIL_PASSWORD."
    )


def login(user: str | None, password_file: Path | None) -> tuple[str, str] | None:
    """The name and its password, as both options and the environment say; None: nobody's."""
    from dovetail.client.endpoint import ConnectionOptions

    options = ConnectionOptions(user=user, password_file=password_file)
    options.check()
    return None if user is None else (user, options.read_password() or "")


def master() -> object:
    return value("The Spark master, such as spark://host:7077. Default: this machine.", "URL")


def pairs(name: str, texts: list[str] | None, example: str) -> tuple[tuple[str, str], ...]:
    """Of an option that takes NAME=VALUE, as often as it comes."""
    found = [text.partition("=") for text in texts or ()]
    for key, equals, given in found:
        if not equals or (name == "--attr" and not key):
            said = f"{name} {key}{equals}{given}"
            raise ConfigError(f"{said}: it takes a name and a value, as in {example}.")
    return tuple((key, given) for key, _, given in found)
