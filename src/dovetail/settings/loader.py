"""Turns a TOML text into `Settings`, or into an error with all its faults.

There are two rounds of checks: first keys, types and bounds, and if these are right, the fields
against each other. Only `load_settings` and `chosen_ports` read files.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from dovetail.errors import ConfigError
from dovetail.settings.cross_checks import consistency_faults
from dovetail.settings.faults import raise_faults
from dovetail.settings.model import Settings
from dovetail.settings.paths import resolve_paths
from dovetail.settings.type_checks import shape_faults

_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)


def load_settings(path: Path | None) -> Settings:
    """Return the settings of a file, or the defaults without one.

    Relative paths are taken from the folder of the file.
    """
    if path is None:
        return Settings()
    return resolve_paths(parse_settings(_read(path), str(path)), path.parent)


def chosen_ports(path: Path | None) -> frozenset[str]:
    """Return what has its port in the file: kinds of listeners, "http" and "cluster".

    A file with one listener has to name all listeners. A file with a cluster keeps its port,
    because other nodes may know it.
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
    """Return the settings of a TOML text; `source` is its name in errors."""
    try:
        return _parse(text, source)
    except RecursionError:
        raise ConfigError(f"{source}: its values are nested too deeply.") from None


def _document(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or an integer with too many digits
        raise ConfigError(_syntax_error(str(error), text, source)) from None


def _parse(text: str, source: str) -> Settings:
    document = _document(text, source)
    raise_faults(shape_faults(document), text, source)
    settings = msgspec.convert(document, Settings)
    raise_faults(consistency_faults(settings), text, source)
    return settings


def _syntax_error(message: str, text: str, source: str) -> str:
    placed = _PLACE.fullmatch(message)
    if placed is None:
        return f"{source}: not TOML: {message}."
    last_line = text.rstrip().count("\n") + 1
    return f"{source}:{placed[2] or last_line}: not TOML: {placed[1]}."
