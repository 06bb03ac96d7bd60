"""Types of options with their bounds: options of one type look the same in `--help`.

Each function returns the metadata for `Annotated`. `help_text` is the help of the option.
"""

from pathlib import Path

import typer

from dovetail.errors import ConfigError


def flag(name: str, help_text: str, *other_names: str) -> object:
    return typer.Option(name, *other_names, help=help_text)


def value(help_text: str, metavar: str = "TEXT", *names: str) -> object:
    return typer.Option(*names, metavar=metavar, help=help_text)


def file(help_text: str) -> object:
    return typer.Option(metavar="FILE", help=help_text)


def folder(help_text: str, *, show_default: bool = True) -> object:
    return typer.Option(metavar="FOLDER", show_default=show_default, help=help_text)


def node_address(help_text: str) -> object:
    """The address at which a node accepts connections from other nodes."""
    return typer.Option(metavar="HOST[:PORT]", help=help_text)


def number(help_text: str, *, minimum: int | None = None, maximum: int | None = None) -> object:
    return typer.Option(min=minimum, max=maximum, metavar="N", help=help_text)


def port(help_text: str, *, minimum: int = 1) -> object:
    return number(help_text, minimum=minimum, maximum=65_535)


def qos(help_text: str) -> object:
    return typer.Option(min=0, max=2, metavar="0|1|2", help=help_text)


def seconds(
    name: str, help_text: str, *, minimum: float | None = 0, maximum: float | None = None
) -> object:
    return typer.Option(name, min=minimum, max=maximum, metavar="SECONDS", help=help_text)


def expiry(name: str, help_text: str) -> object:
    """An interval that MQTT sends in four bytes."""
    return seconds(name, help_text, maximum=2**32 - 1)


def password_file() -> object:
    return file(
        "A file with the user's password in its first line. Default: the environment variable "
        "DOVETAIL_PASSWORD."
    )


def login(user: str | None, password_file: Path | None) -> tuple[str, str] | None:
    """Return the user's name and password from the options or the environment, or None."""
    from dovetail.client.endpoint import ConnectionOptions

    options = ConnectionOptions(user=user, password_file=password_file)
    options.check()
    return None if user is None else (user, options.read_password() or "")


def master() -> object:
    return value("The Spark master, such as spark://host:7077. Default: this machine.", "URL")


def pairs(name: str, texts: list[str] | None, example: str) -> tuple[tuple[str, str], ...]:
    """Split the values of an option that takes NAME=VALUE and may be repeated."""
    split = [text.partition("=") for text in texts or ()]
    for key, equals, text in split:
        if not equals or (name == "--attr" and not key):
            option = f"{name} {key}{equals}{text}"
            raise ConfigError(f"{option}: it takes a name and a value, as in {example}.")
    return tuple((key, text) for key, _, text in split)
