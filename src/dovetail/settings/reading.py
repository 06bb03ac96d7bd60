"""From a TOML text to `Settings`, or to everything that is wrong with it.

A text is judged in two rounds: first its shape, and if that is right what its fields mean to each
other. Only `load_settings` touches the disk.
"""

import re
import tomllib
from pathlib import Path

import msgspec

from dovetail.errors import ConfigError
from dovetail.settings.faults import refuse
from dovetail.settings.files import anchored
from dovetail.settings.meaning import meaning_faults
from dovetail.settings.model import Settings
from dovetail.settings.shape import shape_faults

_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)


def load_settings(path: Path | None) -> Settings:
    """The settings of a file, relative paths taken from its folder; without a file, defaults."""
    if path is None:
        return Settings()
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text ({error.reason}).") from None
    return anchored(parse_settings(text, str(path)), path.parent)


def parse_settings(text: str, source: str) -> Settings:
    """The settings of a TOML text; `source` is its name in errors."""
    try:
        return _parse(text, source)
    except RecursionError:
        raise ConfigError(f"{source}: its values are nested too deeply.") from None


def _parse(text: str, source: str) -> Settings:
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and that of an integer with too many digits
        raise ConfigError(_syntax_error(str(error), text, source)) from None
    refuse(shape_faults(document), text, source)
    settings = msgspec.convert(document, Settings)
    refuse(meaning_faults(settings), text, source)
    return settings


def _syntax_error(message: str, text: str, source: str) -> str:
    placed = _PLACE.fullmatch(message)
    if placed is None:
        return f"{source}: not TOML: {message}."
    last_line = text.rstrip().count("\n") + 1
    return f"{source}:{placed[2] or last_line}: not TOML: {placed[1]}."
