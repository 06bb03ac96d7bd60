"""From a TOML text to `Settings`, or to everything that is wrong with it.

A text is judged in two rounds: first its shape, and if that is right what its fields mean to each
other. Only `load_settings` and `ports_chosen` touch the disk.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from dovetail.errors import ConfigError
from dovetail.settings.cross_checks import meaning_faults
from dovetail.settings.faults import refuse
from dovetail.settings.model import Settings
from dovetail.settings.paths import anchored
from dovetail.settings.type_checks import shape_faults

_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)


def load_settings(path: Path | None) -> Settings:
    """The settings of a file, relative paths taken from its folder; without a file, defaults."""
    if path is None:
        return Settings()
    return anchored(parse_settings(_read(path), str(path)), path.parent)


def ports_chosen(path: Path | None) -> frozenset[str]:
    """What a file chooses the port of: kinds of listeners, "http" and "cluster".

    A file that names one listener has to name all. One that has a cluster has told other nodes
    where this one is.
    """
    if path is None:
        return frozenset()
    document = _document(_read(path), str(path))
    chosen = {"tcp", "websocket"} if "listeners" in document else set()
    if "port" in document.get("http", {}):
        chosen.add("http")
    if "cluster" in document:
        chosen.add("cluster")
    return frozenset(chosen)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text ({error.reason}).") from None


def parse_settings(text: str, source: str) -> Settings:
    """The settings of a TOML text; `source` is its name in errors."""
    try:
        return _parse(text, source)
    except RecursionError:
        raise ConfigError(f"{source}: its values are nested too deeply.") from None


def _document(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and that of an integer with too many digits
        raise ConfigError(_syntax_error(str(error), text, source)) from None


def _parse(text: str, source: str) -> Settings:
    document = _document(text, source)
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
