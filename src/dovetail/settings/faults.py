"""Faults of a configuration file, and the error that lists them: file, line, key, sentence.

A fault has only the path of its key; its line is looked up for the error.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from dovetail.errors import ConfigError
from dovetail.settings.toml_lines import KeyPath, LineIndex

FAULTS_SHOWN_MAX = 20
"""A file of a different kind would have a fault on each line."""

VALUE_SHOWN_MAX = 60

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

HINT = "`dovetail config --explain` shows every setting, with its default and its bounds."


class SettingFault(NamedTuple):
    """What is wrong with one setting. The sentence continues the name of the setting."""

    path: KeyPath
    sentence: str


def with_prefix(parent: KeyPath, faults: Iterable[SettingFault]) -> Iterator[SettingFault]:
    """Turn the faults of a table into faults of the whole tree."""
    for path, sentence in faults:
        yield SettingFault((*parent, *path), sentence)


def raise_faults(faults: Iterable[SettingFault], text: str, source: str) -> None:
    """Raise a ConfigError with all faults in the order of their lines, if there are any."""
    found = list(faults)
    if not found:
        return
    index = LineIndex(text)
    placed = sorted((index.line(path), key_name(path), sentence) for path, sentence in found)
    sentences = [f"{source}:{line}: {name}: {sentence}" for line, name, sentence in placed]
    if len(sentences) > FAULTS_SHOWN_MAX:
        sentences[FAULTS_SHOWN_MAX:] = [f"and {len(sentences) - FAULTS_SHOWN_MAX} more."]
    raise ConfigError("\n".join(sentences), hint=HINT)


def key_name(path: KeyPath) -> str:
    """Return a path as text: ("listeners", 0, "port") is listeners[0].port."""
    name = ""
    for part in path:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            key = part if _BARE_KEY.fullmatch(part) else as_toml(part)
            name += f".{key}" if name else key
    return name


def display(value: object) -> str:
    """Return a value as part of a sentence, shortened if it is long."""
    match value:
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            text = as_toml(value)
            return text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]}…"


def as_toml(value: object) -> str:
    """Return a value in the syntax of TOML."""
    match value:
        case bool():
            return str(value).lower()
        case int() if abs(value) >= 10_000:
            return f"{value:_}"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            return f"[{', '.join(map(as_toml, value))}]"
        case Struct():
            pairs = (f"{key} = {as_toml(item)}" for key, item in asdict(value).items())
            return f"{{ {', '.join(pairs)} }}"
        case _:
            return str(value)
